"""What the credentials of a cluster may do with topics, and how new their records are. Nothing is read."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from confluent_kafka import IsolationLevel, TopicCollection, TopicPartition
from confluent_kafka.admin import OffsetSpec

from frazil.kafka.client import REQUEST_SECONDS, Admin, admin
from frazil.kafka.cluster import Cluster

NEEDED: Final = frozenset({"READ", "DESCRIBE"})
"""Operations that a pipeline needs on its topics, by Kafka's names."""


@dataclass(frozen=True, slots=True)
class TopicAccess:
    """A topic as the credentials see it.

    Attributes:
        partitions: How many it has.
        operations: What they may do with it, by Kafka's names of operations; None where the brokers do not say.
        newest: Latest timestamp of its records, seconds since 1970; None without any.
    """

    partitions: int
    operations: frozenset[str] | None
    newest: float | None


def topic_access(cluster: Cluster, topics: Collection[str]) -> dict[str, TopicAccess]:
    """Ask what may be done with topics (KIP-430), and for their newest timestamps (KIP-734).

    Raises:
        Retryable: No broker answers.
        Terminal: A topic is missing, or credentials, permissions or settings don't fit.
    """
    if not topics:
        return {}
    with admin(cluster) as asked:
        futures = asked.client.describe_topics(
            TopicCollection(sorted(topics)), include_authorized_operations=True, request_timeout=REQUEST_SECONDS
        )
        found = {}
        for name, future in futures.items():
            told = asked.answer(future, topic=name)
            operations = told.authorized_operations
            allowed = None if operations is None else frozenset(of.name for of in operations)
            numbers = [of.id for of in told.partitions]
            found[name] = TopicAccess(len(numbers), allowed, _newest(asked, name, numbers))
        return found


def _newest(asked: Admin, topic: str, partitions: Collection[int]) -> float | None:
    request = {TopicPartition(topic, number): OffsetSpec.max_timestamp() for number in partitions}
    futures = asked.client.list_offsets(
        request, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=REQUEST_SECONDS
    )
    times = [asked.answer(of, topic=topic).timestamp for of in futures.values()]
    return max((of / 1_000 for of in times if of is not None and of >= 0), default=None)
