"""Who reads as a consumer group at this moment."""

from __future__ import annotations

from confluent_kafka.admin import ConsumerGroupDescription

from frazil.kafka.client import REQUEST_SECONDS, Admin, admin
from frazil.kafka.cluster import Cluster
from frazil.kafka.failover import while_changing


def count_members(cluster: Cluster, group: str) -> int:
    """How many members a consumer group has; 0 if there is no such group.

    Raises:
        Retryable: No broker answers.
        Terminal: Credentials or permissions don't fit.
    """
    with admin(cluster) as asked:
        return len(while_changing()(_described, asked, group).members)


def _described(asked: Admin, group: str) -> ConsumerGroupDescription:
    futures = asked.client.describe_consumer_groups([group], request_timeout=REQUEST_SECONDS)
    described: ConsumerGroupDescription = asked.answer(futures[group])
    return described
