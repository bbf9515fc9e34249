"""A real SQLite catalog and a table of orders in a temporary folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from frazil.iceberg.catalog import Lake
from frazil.iceberg.ledger import TABLE_PROPERTIES
from frazil.iceberg.schema import declared_schema, declared_spec
from tests.unit.iceberg.orders import TABLE, UnreliableCatalog, destination


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    """An empty catalog that can be told to misbehave."""
    made = Lake("lake", f"sqlite:///{tmp_path}/catalog.db", f"file://{tmp_path}/warehouse", {})
    catalog = UnreliableCatalog(made.name, uri=made.uri, warehouse=made.warehouse)
    made.__dict__["_catalog"] = catalog
    yield made
    catalog.close()


@pytest.fixture
def orders(lake: Lake) -> Lake:
    """The catalog with the empty table of orders: quick retries, and manifests merge as soon as there are two."""
    schema = declared_schema(destination())
    quick = {
        "commit.retry.min-wait-ms": "0",
        "commit.retry.num-retries": "2",
        "commit.manifest.min-count-to-merge": "2",
    }
    lake.create_table(TABLE, schema, declared_spec(destination(), schema), TABLE_PROPERTIES | quick)
    return lake
