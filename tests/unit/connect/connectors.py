"""Connectors for tests: a small one with changes, imported, and what became of it."""

from __future__ import annotations

from typing import Any

from frazil.connect.config import Connector
from frazil.connect.findings import APACHE
from frazil.connect.importing import ImportContext, ImportedConnector, import_connector

BASE = {
    "name": "orders-sink",
    "connector.class": APACHE,
    "topics": "orders",
    "iceberg.tables": "shop.orders",
    "iceberg.catalog.type": "rest",
    "iceberg.catalog.uri": "https://catalog.example.org",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
}
"""The smallest connector that can run."""

SMT = "org.apache.kafka.connect.transforms."
COLUMNS = {"shop.orders": {"id": {"type": "long"}, "at": {"type": "timestamptz"}}}


def imported(config: dict[str, str | None], context: ImportContext | None = None) -> ImportedConnector:
    whole = {key: value for key, value in (BASE | config).items() if value is not None}
    return import_connector(Connector("x.json", whole), context or ImportContext())


def outcome(connector: ImportedConnector, key: str) -> str:
    (only_outcome,) = [finding.outcome for finding in connector.findings if finding.key == key]
    return only_outcome


def value_at(connector: ImportedConnector, path: str) -> Any:
    node: Any = {**connector.pipeline, "settings": connector.settings}
    for part in path.split("/"):
        node = node[int(part)] if part.isdigit() else node.get(part)
    return node
