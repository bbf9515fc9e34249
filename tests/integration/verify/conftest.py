"""Ways to spoil what a pipeline wrote, and a producer with transactions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from pyiceberg.expressions import And, EqualTo
from pyiceberg.table import Table

from frazil.kafka.cluster import Cluster
from frazil.verify.check import verify
from frazil.verify.result import Verification
from tests.transactions import transaction


@dataclass
class Spoiled:
    """A table of a pipeline, in the hands of somebody who edits our columns."""

    load: Callable[[], Table]

    def rows(self) -> pa.Table:
        """All rows."""
        return self.load().scan().to_arrow()

    def append(self, rows: Iterable[dict[str, Any]]) -> None:
        """Add rows."""
        table = self.load()
        table.append(pa.Table.from_pylist(list(rows), table.schema().as_arrow()))

    def overwrite(self, change: Callable[[dict[str, Any]], dict[str, Any] | None]) -> None:
        """Replace all rows by what `change` makes of each; None takes one out."""
        table = self.load()
        changed = [change(row) for row in self.rows().to_pylist()]
        table.overwrite(pa.Table.from_pylist([row for row in changed if row], table.schema().as_arrow()))

    def delete(self, **where: Any) -> None:
        """Delete rows whose columns are equal to these values."""
        filters = [EqualTo(name, value) for name, value in where.items()]
        self.load().delete(filters[0] if len(filters) == 1 else And(*filters))


@pytest.fixture
def table() -> Callable[[Any, str], Spoiled]:
    """A table of a shop to be spoiled: `table(orders, "shop.orders")`."""
    return lambda shop, name="shop.orders": Spoiled(lambda: shop.project.lake("lake").load_table(name))


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
        asked = [TopicPartition(topic, partition, offset) for partition, offset in before.items()]
        for answer in admin.delete_records(asked).values():
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
