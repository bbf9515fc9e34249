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

MOVES_MAIN = ("test_commit", "test_branch", "test_holdings", "test_rollback", "test_removal_races")

from tests.unit.iceberg.orders import TABLE, UnreliableCatalog, destination, mark, on_branch


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """What moves main or looks at it is tested on a branch as well."""
    if "lake" in metafunc.fixturenames:
        both = metafunc.module.__name__.rpartition(".")[2] in MOVES_MAIN
        metafunc.parametrize("lake", [None, "audit"] if both else [None], ids=lambda of: of or "main", indirect=True)


@pytest.fixture
def lake(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Lake]:
    """An empty catalog that can be told to misbehave; once more with the table of orders on a branch, beside which main stays
    as it is."""
    plain = Lake("lake", f"sqlite:///{tmp_path}/catalog.db", f"file://{tmp_path}/warehouse", {})
    catalog = UnreliableCatalog(plain.name, uri=plain.uri, warehouse=plain.warehouse)
    made = plain if request.param is None else on_branch(plain, request.param)
    made._opened = plain._opened = catalog
    yield made
    left = None if request.param is None else plain.find_table(TABLE)
    assert left is None or left.metadata.current_snapshot_id is None
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
