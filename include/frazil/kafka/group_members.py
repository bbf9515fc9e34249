"""Who reads as a consumer group at this moment."""

from __future__ import annotations

from confluent_kafka.admin import ConsumerGroupDescription

from frazil.kafka.client import REQUEST_SECONDS, admin
from frazil.kafka.cluster import Cluster
from frazil.kafka.failover import while_changing


def count_members(cluster: Cluster, group: str) -> int:
    """How many members a consumer group has; 0 if there is no such group.

    Raises:
        Retryable: No broker answers.
        Terminal: Credentials or permissions don't fit.
    """
    return len(while_changing()(_described, cluster, group).members)


def _described(cluster: Cluster, group: str) -> ConsumerGroupDescription:
    with admin(cluster) as asked:
        futures = asked.client.describe_consumer_groups([group], request_timeout=REQUEST_SECONDS)
        described: ConsumerGroupDescription = asked.answer(futures[group])
        return described
