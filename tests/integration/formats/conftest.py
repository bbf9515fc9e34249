"""A pipeline over values of any format, with a real broker and a real Schema Registry."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from frazil.kafka.client.cluster import OutgoingRecord
from frazil.project import SETTINGS_VARIABLE, Project
from tests.produce import produce
from tests.registry_server import RegistryServer

MakeStore = Callable[..., Any]

PIPELINE = """
name: orders
source: {{topics: [{topic}]}}
engine: inline
value: {value}
{key}transforms: {transforms}
destinations:
  - {{table: shop.orders{columns}}}
dead_letters: {{tolerance: {{max_rate: 1.0}}}}
"""


@dataclass
class Store:
    """A shop whose records have another format than JSON."""

    shop: Any

    def lands(self, values: list[bytes | None]) -> tuple[list[dict[str, Any]], list[tuple[int, str]]]:
        """Send values to one partition and run: the rows without Kafka columns, and offset and code of each dead letter."""
        return self.lands_records([OutgoingRecord(key=None, value=value) for value in values])

    def lands_records(self, records: list[OutgoingRecord]) -> tuple[list[dict[str, Any]], list[tuple[int, str]]]:
        """The same with keys and headers."""
        produce(self.shop.cluster, self.shop.topic, records)
        result = self.shop.run()
        rows = [{name: value for name, value in row.items() if not name.startswith("_")} for row in self.in_order()]
        letters = self.shop.rows("shop.orders__dead_letters") if result.dead else []
        return rows, sorted((letter["offset"], letter["code"]) for letter in letters)

    def in_order(self) -> list[dict[str, Any]]:
        """All rows by offset."""
        return sorted(self.shop.rows(), key=lambda row: row["_kafka_offset"])


@pytest.fixture
def store(shop: Callable[..., Any], registry: RegistryServer, tmp_path: Path) -> MakeStore:
    """Make a store: `store(value={...}, columns={...}, transforms=[...], key={...})`; its registry, `main`, may be told."""
    settings = tmp_path / "settings.yaml"
    catalog = {
        "uri": f"sqlite:///{tmp_path}/home/catalog.db",
        "warehouse": f"file://{tmp_path}/home/warehouse",
    }
    body = {
        "clusters": {"local": {"bootstrap_servers": "${local:kafka}"}},
        "catalogs": {"lake": catalog},
        "registries": {"main": {"url": registry.url}},
    }

    def make(
        value: dict[str, Any],
        columns: dict[str, Any],
        transforms: list[Any] | None = None,
        key: dict[str, Any] | None = None,
        main_registry: dict[str, Any] | None = None,
    ) -> Store:
        settings.write_text(json.dumps(body | {"registries": {"main": main_registry or {"url": registry.url}}}))
        format_shop = shop(partitions=1)
        text = PIPELINE.format(
            topic=format_shop.topic,
            value=json.dumps(value),
            columns=f", columns: {json.dumps(columns)}" if columns else "",
            transforms=json.dumps(transforms or []),
            key="" if key is None else f"key: {json.dumps(key)}\n",
        )
        (format_shop.project.pipelines_folder / "orders.yaml").write_text(text)
        env = format_shop.project.environment() | {
            "FRAZIL_KAFKA_PORT": str(format_shop.project.home.ports.kafka),
            SETTINGS_VARIABLE: str(settings),
        }
        format_shop.project = Project.load(env)
        return Store(format_shop)

    return make
