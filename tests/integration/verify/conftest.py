"""Tables that somebody edits, and a producer with transactions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from frazil.kafka.client.cluster import Cluster
from frazil.verify.check import verify
from frazil.verify.facts.result import Verification
from tests.tampering.pipelines import EditedTable
from tests.transactions import transaction


@pytest.fixture
def table() -> Callable[[Any, str], EditedTable]:
    """A table of a shop to be edited: `table(orders, "shop.orders")`."""
    return lambda shop, name="shop.orders": EditedTable(lambda: shop.project.lake("lake").load_table(name))


@pytest.fixture
def check() -> Callable[..., Verification]:
    """Verify a shop: `check(orders)`."""
    return lambda shop, *bounds: verify(shop.project, shop.pipeline, *bounds)


@pytest.fixture
def transactions(cluster: Cluster) -> Callable[..., None]:
    """Send values in one transaction: `transactions(topic, values, commit=False, partition=0)`."""

    def send(topic: str, values: Iterable[bytes], *, commit: bool = True, partition: int = 0) -> None:
        with transaction(cluster, topic, list(values), commit=commit, partition=partition):
            pass

    return send


@pytest.fixture
def delete_records(cluster: Cluster) -> Callable[[str, dict[int, int]], None]:
    """Do what retention does: `delete_records(topic, {0: 20})`; -1 stands for all there is."""

    def delete(topic: str, before: dict[int, int]) -> None:
        admin = AdminClient(dict(cluster.properties))
        partitions = [TopicPartition(topic, partition, offset) for partition, offset in before.items()]
        for answer in admin.delete_records(partitions).values():
            answer.result()

    return delete


@pytest.fixture
def set_policy(cluster: Cluster) -> Callable[[str, str], None]:
    """Set how a topic's log is cleaned: `set_policy(topic, "compact")`."""

    def change(topic: str, policy: str) -> None:
        entry = ConfigEntry("cleanup.policy", policy, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        admin = AdminClient(dict(cluster.properties))
        admin.incremental_alter_configs([resource])[resource].result()

    return change
