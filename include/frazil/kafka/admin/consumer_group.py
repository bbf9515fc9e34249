"""Committed offsets of a consumer group: a copy of the position for lag tools, which no plan reads.

The admin client writes them: a consumer that loses its coordinator during a commit waits forever, in the commit and in its
close (librdkafka issue 3740, seen with 2.16). A consumer that never joins the group reads them: the admin client's request for
group offsets crashes the process while the group's coordinator loads or moves, as at the first use of a cluster's groups (issue
5040, seen with 2.16).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import ConsumerGroupDescription

from frazil.errors import FrazilError
from frazil.kafka.client.client import REQUEST_SECONDS, ErrorLog, admin, consumer
from frazil.kafka.client.cluster import Cluster
from frazil.kafka.client.errors import is_not_allowed, is_timeout, is_unknown_topic, translate_group, while_changing


def mirror_offsets(cluster: Cluster, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
    """Write committed offsets of a consumer group, forward or backward, and create the group if it is new.

    Partitions that no longer exist are skipped.

    Raises:
        Terminal: The group has active consumers.
    """
    if not offsets:
        return
    commits = [TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
    while_changing()(_write, cluster, group, commits)


def _write(cluster: Cluster, group: str, commits: list[TopicPartition]) -> None:
    changes = [ConsumerGroupTopicPartitions(group, commits)]
    with admin(cluster) as admin_client:
        future = admin_client.client.alter_consumer_group_offsets(changes, request_timeout=REQUEST_SECONDS)[group]

        def refused(error: KafkaException, topic: str | None = None) -> FrazilError:
            admin_client.client.poll(0)  # delivers errors to the callback
            return translate_group(error, admin_client.cluster, group, admin_client.client_errors, topic=topic)

        try:
            answered = future.result().topic_partitions
        except KafkaException as e:
            raise refused(e) from e
        _existing_partitions(answered, refused)


def group_offsets(
    cluster: Cluster, group: str, partitions: Collection[tuple[str, int]] | None = None
) -> dict[tuple[str, int], int]:
    """Committed offsets of a consumer group, without `partitions` of all in the cluster; empty for a group that doesn't exist."""
    client_errors = ErrorLog()
    with closing(consumer(cluster, client_errors, group)) as client:
        reader = _GroupReader(cluster, group, client, client_errors)
        requested = (
            reader.request(_all_partitions) if partitions is None else [TopicPartition(*key) for key in partitions]
        )
        answers = reader.request(lambda _: client.committed(requested, timeout=REQUEST_SECONDS)) if requested else []
    # A partition without a committed offset has a number below zero.
    return {(tp.topic, tp.partition): tp.offset for tp in answers if tp.offset >= 0}


def _all_partitions(client: Consumer) -> list[TopicPartition]:
    topics = client.list_topics(timeout=REQUEST_SECONDS).topics
    return [TopicPartition(name, number) for name, topic in topics.items() for number in topic.partitions]


def _existing_partitions(
    answered: Iterable[TopicPartition], refused: Callable[[KafkaException, str | None], FrazilError]
) -> list[TopicPartition]:
    """The partitions that exist.

    Raises:
        FrazilError: A partition has another error than not to exist.
    """
    existing = []
    for tp in answered:
        error = KafkaException(tp.error) if tp.error is not None else None
        if error is None:
            existing.append(tp)
        elif not is_unknown_topic(error):
            raise refused(error, tp.topic) from error
    return existing


@dataclass(frozen=True, slots=True)
class _GroupReader:
    """Reads a group's offsets without being a member of the group."""

    cluster: Cluster
    group: str
    client: Consumer
    client_errors: ErrorLog

    def request(self, call: Callable[[Consumer], list[TopicPartition]]) -> list[TopicPartition]:
        """Call the consumer, again while the group's coordinator is loading, and leave out missing partitions."""
        return while_changing()(self._answer, call)

    def _answer(self, call: Callable[[Consumer], list[TopicPartition]]) -> list[TopicPartition]:
        try:
            answered = call(self.client)
        except KafkaException as e:
            if is_unknown_topic(e):  # so is every requested partition
                return []
            raise self._translate(e) from e
        return _existing_partitions(answered, self._translate)

    def _translate(self, error: KafkaException, topic: str | None = None) -> FrazilError:
        self.client.poll(0)  # delivers errors to the callback
        if is_timeout(error):
            self._require_allowed()
        return translate_group(error, self.cluster, self.group, self.client_errors, topic=topic)

    def _require_allowed(self) -> None:
        """Check the permission by the admin client: a consumer without it silently looks for the group's coordinator forever."""
        with admin(self.cluster) as admin_client:
            future = admin_client.client.describe_consumer_groups([self.group], request_timeout=REQUEST_SECONDS)[
                self.group
            ]
            try:
                future.result()
            except KafkaException as e:
                if is_not_allowed(e):
                    raise translate_group(e, self.cluster, self.group) from e


def count_members(cluster: Cluster, group: str) -> int:
    """Number of members of a consumer group; 0 if there is no such group."""
    return len(while_changing()(_describe, cluster, group).members)


def _describe(cluster: Cluster, group: str) -> ConsumerGroupDescription:
    with admin(cluster) as admin_client:
        futures = admin_client.client.describe_consumer_groups([group], request_timeout=REQUEST_SECONDS)
        described: ConsumerGroupDescription = admin_client.answer(futures[group])
        return described
