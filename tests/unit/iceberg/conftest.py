"""A real SQLite catalog and a table of orders in a temporary folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.catalog.table import TABLE_PROPERTIES
from frazil.iceberg.commit.commit import commit
from frazil.iceberg.schema.schema import declared_schema, declared_spec
from tests.unit.iceberg.coordinates import SPECS, change, create, numbered
from tests.unit.iceberg.orders import TABLE, UnreliableCatalog, destination, mark, on_branch

MOVE_MAIN = ("test_commit", "test_branch", "test_removal_races")
"""Modules whose tests run on a branch, too."""

ONLY_MAIN = (
    "test_lost_answer_lands_once",
    "test_lost_answer_below_other_commits_lands_once",
    "test_manifests_of_a_landed_commit_are_kept",
    "test_unreadable_table_after_a_lost_answer_is_an_unknown_outcome",
    "test_unreadable_table_after_a_lost_answer_is_unknown",
    "test_missing_data_file_stops_the_removal",
)
"""Those that count snapshots, of which a branch of an empty table has one more, or move main themselves."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """What moves main is tested on a branch as well."""
    if "lake" in metafunc.fixturenames:
        has_both = (
            metafunc.module.__name__.rpartition(".")[2] in MOVE_MAIN and metafunc.function.__name__ not in ONLY_MAIN
        )
        branches = [None, pytest.param("audit", marks=pytest.mark.full)] if has_both else [None]
        metafunc.parametrize("lake", branches, ids=lambda branch: branch or "main", indirect=True)


@pytest.fixture
def lake(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Lake]:
    """An empty catalog that can be told to misbehave; once more with the table of orders on a branch, beside which main stays
    as it is.
    """
    plain = Lake("lake", f"sqlite:///{tmp_path}/catalog.db", f"file://{tmp_path}/warehouse", {})
    catalog = UnreliableCatalog(plain.name, uri=plain.uri, warehouse=plain.warehouse)
    lake = plain if request.param is None else on_branch(plain, request.param)
    lake._opened = plain._opened = catalog
    yield lake
    table = None if request.param is None else plain.find_table(TABLE)
    assert table is None or table.metadata.current_snapshot_id is None
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
