"""Facts about unread records: the age of the oldest one, and when retention may delete it.

In each partition with unread records, the first one is read: its timestamp says since when it waits, if the clock of the
producer or the broker (`message.timestamp.type`) is right. A record can't have waited since before the instant through which
the tables are complete, which does not depend on producers' clocks; the shorter time is reported. So neither a topic that is
written once a day, nor one with records of last year, looks stale.

Kafka deletes whole segments, oldest first, by the latest timestamp in each: a segment with an unread record is not deleted
before that record's own time is up. So `seconds_left` is a lower bound, and a retention as long as the oldest unread record's
age keeps it and all later ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from frazil.batch.facts import TopicPartition
from frazil.kafka.admin.observe import first_times
from frazil.kafka.admin.topics import TopicRetention, retention
from frazil.kafka.client.cluster import Cluster
from frazil.monitor.condition import Condition, Retention, TopicLag
from frazil.report.lag import Lag


def with_unread(condition: Condition, cluster: Cluster, lag: Lag) -> Condition:
    """The condition with the age of the oldest unread record, and the time until retention deletes it.

    Raises:
        Retryable: No broker answers.
        Terminal: Credentials or permissions don't fit.
    """
    starts = {
        (partition.topic, partition.partition): max(partition.begin, partition.log.log_start)
        for partition in lag.partitions
        if partition.lag and partition.log and partition.begin is not None
    }
    times = first_times(cluster, starts)
    retentions = retention(cluster, {topic for topic, _ in times})
    return with_ages(condition, lag, times, retentions)


def with_ages(
    condition: Condition,
    lag: Lag,
    times: Mapping[TopicPartition, int | None],
    retentions: Mapping[str, TopicRetention],
) -> Condition:
    """The condition with ages from timestamps and topic retention.

    Args:
        condition: As it is known without them.
        lag: By partition.
        times: Partition with records that were not read -> timestamp of the first, in milliseconds; None if it has none.
        retentions: Topic -> how long it keeps records; those that nobody may see are left out.
    """
    distances = tuple(_retentions(condition.read_at, lag, times, retentions))
    seconds = _oldest(condition, lag.total, times)
    through = condition.complete_through
    is_told = (
        seconds is not None and not lag.held_back and all(partition.lag is not None for partition in lag.partitions)
    )
    if is_told and seconds is not None and condition.n is not None:
        reached = condition.read_at - timedelta(seconds=seconds)
        through = reached if through is None else max(through, reached)
    ordered = sorted(
        distances, key=lambda retention: (_or_never(retention.seconds_left), retention.topic, retention.partition)
    )
    topics = tuple(
        _topic(condition, lag, topic, times) for topic in dict.fromkeys(partition.topic for partition in lag.partitions)
    )
    return replace(condition, lag_seconds=seconds, complete_through=through, topics=topics, retention=tuple(ordered))


def _topic(condition: Condition, lag: Lag, topic: str, times: Mapping[TopicPartition, int | None]) -> TopicLag:
    lags = [partition.lag for partition in lag.partitions if partition.topic == topic and partition.lag is not None]
    total = sum(lags) if lags else None
    return TopicLag(topic, total, _oldest(condition, total, {key: ms for key, ms in times.items() if key[0] == topic}))


def _oldest(condition: Condition, lag: int | None, times: Mapping[TopicPartition, int | None]) -> float | None:
    """Upper bound, in seconds, of how long records have waited; None if it is not known."""
    if lag is None:
        return None
    if not times:
        return 0.0
    through = condition.complete_through
    bound = (condition.read_at - through).total_seconds() if through is not None else None
    written = [ms for ms in times.values() if ms is not None]
    age = _age(condition.read_at, min(written)) if len(written) == len(times) else None
    return min((max(0.0, age_bound) for age_bound in (bound, age) if age_bound is not None), default=None)


def _retentions(
    instant: datetime, lag: Lag, times: Mapping[TopicPartition, int | None], retentions: Mapping[str, TopicRetention]
) -> Iterator[Retention]:
    for partition in lag.partitions:
        place = partition.topic, partition.partition
        if place not in times or partition.headroom is None:
            continue
        written_ms, policy = times[place], retentions.get(partition.topic)
        age = None if written_ms is None else max(0.0, _age(instant, written_ms))
        seconds_left = None
        if partition.headroom < 0:
            seconds_left = 0.0
        elif age is not None and policy is not None and policy.ms is not None:
            seconds_left = max(0.0, policy.ms / 1000 - age)
        by_size = policy is not None and policy.by_size
        yield Retention(*place, partition.headroom, seconds_left, age, by_size=by_size)


def _age(instant: datetime, ms: int) -> float:
    return instant.timestamp() - ms / 1000


def _or_never(seconds: float | None) -> float:
    return math.inf if seconds is None else seconds
