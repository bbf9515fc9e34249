"""Lag of a pipeline and of each of its topics, from offsets and the timestamps of the oldest unread records."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from frazil.batch.facts import PartitionFacts
from frazil.monitor.condition import Condition, TopicLag
from frazil.monitor.unread import aged
from frazil.report.lag import Lag, PartitionLag

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


def ago(seconds: float) -> int:
    return int((NOW - timedelta(seconds=seconds)).timestamp() * 1000)


def partition(topic: str, number: int, position: int, end: int) -> PartitionLag:
    return PartitionLag(topic, number, position, PartitionFacts(0, end, end), None)


def test_one_topic_hides_how_far_another_is_behind():
    """Records and age are told of each: one that is read through waits 0 s, one without timestamps is not known."""
    partitions = (
        partition("orders", 0, 10, 15),
        partition("orders", 1, 20, 22),
        partition("places", 0, 7, 7),
        partition("undated", 0, 0, 1),
    )
    lag = Lag(3, 1, None, None, None, partitions, ())
    times = {("orders", 0): ago(30), ("orders", 1): ago(90), ("undated", 0): None}

    found = aged(Condition("shop", "ana", NOW, n=3, lag=lag.total), lag, times, {})

    assert found.topics == (TopicLag("orders", 7, 90.0), TopicLag("places", 0, 0.0), TopicLag("undated", 1, None))
    assert found.lag == sum(topic.lag or 0 for topic in found.topics)
