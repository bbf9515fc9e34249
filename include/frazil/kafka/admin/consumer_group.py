"""Committed offsets of a consumer group: a mirror of the position for lag tools, never read back by a plan.

Written by the admin client: a consumer whose commit is under way when its coordinator goes away waits for it without end, in
the commit and in its close (librdkafka issue 3740, seen with 2.16). Read through a consumer that never joins: the admin
client's question for group offsets crashes the process while a group's coordinator loads or moves, as at the first use of a
cluster's groups (issue 5040, seen with 2.16).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import ConsumerGroupDescription

from frazil.errors import FrazilError
from frazil.kafka.client.client import REQUEST_SECONDS, ErrorLog, admin, consumer
from frazil.kafka.client.cluster import Cluster
from frazil.kafka.client.errors import is_not_allowed, is_timeout, is_unknown_topic, translate_group, while_changing


def mirror_offsets(cluster: Cluster, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
    """Write committed offsets of a consumer group, forward or backward; creates a group that is new.

    Topics and partitions that no longer exist are skipped.

    Raises:
        Terminal: The group has active consumers, or credentials or permissions are wrong.
    """
    if not offsets:
        return
    commits = [TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
    while_changing()(_write, cluster, group, commits)


def _write(cluster: Cluster, group: str, commits: list[TopicPartition]) -> None:
    order = [ConsumerGroupTopicPartitions(group, commits)]
    with admin(cluster) as admin_client:
        future = admin_client.client.alter_consumer_group_offsets(order, request_timeout=REQUEST_SECONDS)[group]

        def refused(error: KafkaException, topic: str | None = None) -> FrazilError:
            admin_client.client.poll(0)  # serves the complaints
            return translate_group(error, admin_client.cluster, group, admin_client.complaints, topic=topic)

        try:
            answered = future.result().topic_partitions
        except KafkaException as e:
            raise refused(e) from e
        _existing(answered, refused)


def group_offsets(
    cluster: Cluster, group: str, partitions: Collection[tuple[str, int]] | None = None
) -> dict[tuple[str, int], int]:
    """Committed offsets of a consumer group.

    Without `partitions` those of all partitions of the cluster. Empty for a group that doesn't exist.
    """
    with outsider(cluster, group) as speaker:
        topic_partitions = (
            speaker.ask(_partitions) if partitions is None else [TopicPartition(*key) for key in partitions]
        )
        answers = (
            speaker.ask(lambda client: client.committed(topic_partitions, timeout=REQUEST_SECONDS))
            if topic_partitions
            else []
        )
    # A partition without a committed offset has a number below zero.
    return {(tp.topic, tp.partition): tp.offset for tp in answers if tp.offset >= 0}


def _partitions(client: Consumer) -> list[TopicPartition]:
    topics = client.list_topics(timeout=REQUEST_SECONDS).topics
    return [TopicPartition(name, number) for name, topic in topics.items() for number in topic.partitions]


def _existing(
    answered: Iterable[TopicPartition], refused: Callable[[KafkaException, str | None], FrazilError]
) -> list[TopicPartition]:
    """The existing partitions; raises any error other than a missing partition."""
    existing = []
    for tp in answered:
        error = KafkaException(tp.error) if tp.error is not None else None
        if error is None:
            existing.append(tp)
        elif not is_unknown_topic(error):
            raise refused(error, tp.topic) from error
    return existing


@dataclass(frozen=True, slots=True)
class GroupReader:
    """Reads a group's offsets without being a member of it."""

    cluster: Cluster
    group: str
    client: Consumer
    complaints: ErrorLog

    def ask(self, question: Callable[[Consumer], list[TopicPartition]]) -> list[TopicPartition]:
        """Request the offsets; retries while the group's coordinator is loading, and leaves out missing partitions."""
        return while_changing()(self._answer, question)

    def _answer(self, question: Callable[[Consumer], list[TopicPartition]]) -> list[TopicPartition]:
        try:
            answered = question(self.client)
        except KafkaException as e:
            if is_unknown_topic(e):  # of every partition that was asked about
                return []
            raise self._refused(e) from e
        return _existing(answered, self._refused)

    def _refused(self, error: KafkaException, topic: str | None = None) -> FrazilError:
        self.client.poll(0)  # serves the complaints
        if is_timeout(error):
            self._require_allowed()
        return translate_group(error, self.cluster, self.group, self.complaints, topic=topic)

    def _require_allowed(self) -> None:
        """Check the permission with the admin client: a consumer without it looks for the group's coordinator forever, silently."""
        with admin(self.cluster) as admin_client:
            future = admin_client.client.describe_consumer_groups([self.group], request_timeout=REQUEST_SECONDS)[
                self.group
            ]
            try:
                future.result()
            except KafkaException as e:
                if is_not_allowed(e):
                    raise translate_group(e, self.cluster, self.group) from e


@contextmanager
def outsider(cluster: Cluster, group: str) -> Iterator[GroupReader]:
    """Open a reader of a group's offsets."""
    complaints = ErrorLog()
    client = consumer(cluster, complaints, group)
    try:
        yield GroupReader(cluster, group, client, complaints)
    finally:
        client.close()


def count_members(cluster: Cluster, group: str) -> int:
    """How many members a consumer group has; 0 if there is no such group."""
    return len(while_changing()(_described, cluster, group).members)


def _described(cluster: Cluster, group: str) -> ConsumerGroupDescription:
    with admin(cluster) as admin_client:
        futures = admin_client.client.describe_consumer_groups([group], request_timeout=REQUEST_SECONDS)
        described: ConsumerGroupDescription = admin_client.answer(futures[group])
        return described
