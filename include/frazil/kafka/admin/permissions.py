"""What the credentials of a cluster may do with topics, and how new their records are. Nothing is read."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from confluent_kafka import IsolationLevel, TopicCollection, TopicPartition
from confluent_kafka.admin import OffsetSpec

from frazil.kafka.client.client import REQUEST_SECONDS, Admin, admin
from frazil.kafka.client.cluster import Cluster

NEEDED: Final = frozenset({"READ", "DESCRIBE"})
"""Operations that a pipeline needs on its topics, by Kafka's names."""


@dataclass(frozen=True, slots=True)
class TopicAccess:
    """A topic as the credentials see it.

    Attributes:
        operations: What they may do with it, by Kafka's names of operations; None where the brokers do not say.
        newest: Latest timestamp of its records, seconds since 1970; None without any.
    """

    partitions: int
    operations: frozenset[str] | None
    newest: float | None


def topic_access(cluster: Cluster, topics: Collection[str]) -> dict[str, TopicAccess]:
    """Ask what may be done with topics (KIP-430), and for their newest timestamps (KIP-734).

    Raises:
        Terminal: A topic is missing, or credentials, permissions or settings don't fit.
    """
    if not topics:
        return {}
    with admin(cluster) as admin_client:
        futures = admin_client.client.describe_topics(
            TopicCollection(sorted(topics)), include_authorized_operations=True, request_timeout=REQUEST_SECONDS
        )
        access = {}
        for name, future in futures.items():
            description = admin_client.answer(future, topic=name)
            operations = description.authorized_operations
            allowed = None if operations is None else frozenset(operation.name for operation in operations)
            numbers = [partition.id for partition in description.partitions]
            access[name] = TopicAccess(len(numbers), allowed, _newest(admin_client, name, numbers))
        return access


def _newest(admin_client: Admin, topic: str, partitions: Collection[int]) -> float | None:
    request = {TopicPartition(topic, number): OffsetSpec.max_timestamp() for number in partitions}
    futures = admin_client.client.list_offsets(
        request, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=REQUEST_SECONDS
    )
    times = [admin_client.answer(future, topic=topic).timestamp for future in futures.values()]
    return max((timestamp / 1_000 for timestamp in times if timestamp is not None and timestamp >= 0), default=None)
