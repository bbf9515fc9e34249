"""Where partitions end: the look of a run that stays, again and again."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import OffsetSpec

from frazil.kafka.client import REQUEST_SECONDS, admin
from frazil.kafka.cluster import Cluster


def log_ends(cluster: Cluster, partitions: Collection[tuple[str, int]]) -> Mapping[tuple[str, int], int]:
    """Return the last stable offset of each partition: where what can be read ends. Two round trips, over a kept connection.

    Raises:
        Retryable: No broker answers, or a partition has no leader now.
        Terminal: A topic or partition is not there any more, or access is refused.
    """
    if not partitions:
        return {}
    request = {TopicPartition(topic, number): OffsetSpec.latest() for topic, number in partitions}
    with admin(cluster) as asked:  # of each look its own loan: a client that failed is not asked again
        futures = asked.client.list_offsets(
            request, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=REQUEST_SECONDS
        )
        return {
            (of.topic, of.partition): asked.answer(future, topic=of.topic, partition=of.partition).offset
            for of, future in futures.items()
        }
