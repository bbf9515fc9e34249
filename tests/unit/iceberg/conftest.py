"""A real SQLite catalog and a table of orders in a temporary folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from frazil.iceberg.catalog import Lake
from frazil.iceberg.commit import commit
from frazil.iceberg.ledger import TABLE_PROPERTIES
from frazil.iceberg.schema import declared_schema, declared_spec
from tests.unit.iceberg.coordinates import SPECS, change, create, numbered
from tests.unit.iceberg.orders import TABLE, UnreliableCatalog, destination, mark


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    """An empty catalog that can be told to misbehave."""
    made = Lake("lake", f"sqlite:///{tmp_path}/catalog.db", f"file://{tmp_path}/warehouse", {})
    catalog = UnreliableCatalog(made.name, uri=made.uri, warehouse=made.warehouse)
    made._opened = catalog
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


@pytest.fixture(params=SPECS, ids=["unpartitioned", "by day", "by topic and bucket"])
def lines(lake: Lake, request: pytest.FixtureRequest) -> Lake:
    """The catalog with an empty table of orders that know their coordinates, partitioned in every way."""
    create(lake, request.param)
    return lake


@pytest.fixture
def filled(lake: Lake) -> Lake:
    """The catalog with a table that holds ten orders of batch 1."""
    create(lake, ["day"])
    commit(lake, change(lake, mark(1), None, numbered(range(10))))
    return lake
