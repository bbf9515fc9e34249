"""Iceberg's own Java code, which the REST server runs, reads what hosts with different clocks committed."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from frazil.errors import Retryable
from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.catalog.table import TABLE_PROPERTIES
from frazil.iceberg.commit.commit import commit
from frazil.iceberg.schema.schema import declared_schema, declared_spec
from tests.rest_catalog import RestServer
from tests.unit.iceberg.orders import TABLE, batch, commit_batches, destination, ids, mark, rows


def orders(lake: Lake) -> Lake:
    """The catalog with an empty table of orders."""
    if lake.find_table(TABLE) is not None:  # the server is shared, and other tests call their tables so
        lake._catalog.drop_table(TABLE)
    schema = declared_schema(destination())
    lake.create_table(TABLE, schema, declared_spec(destination(), schema), TABLE_PROPERTIES)
    return lake


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How many seconds the clock of this host is ahead; the last entry counts."""
    ahead, really = [0.0], time.time
    monkeypatch.setattr(time, "time", lambda: really() + ahead[-1])
    return ahead


@pytest.mark.parametrize("ahead", [50, 180])
def test_java_reads_a_sql_table_of_hosts_with_different_clocks(
    rest_server: RestServer, tmp_path: Path, clock: list[float], ahead: int
) -> None:
    """Three minutes apart and committed to all the same, as the property allows: the log is still in order."""
    properties = {"frazil.max-clock-skew-ms": "600000"}
    lake = orders(Lake("lake", f"sqlite:///{tmp_path}/catalog.db", f"file://{tmp_path}/warehouse", properties))
    clock.append(ahead)
    commit_batches(lake, 1)
    clock.append(0)
    commit(lake, batch(lake, mark(2), mark(1), rows(2)))

    server = rest_server.lake()
    name = f"shop.read_{ahead}"
    server._catalog.create_namespace_if_not_exists("shop")
    server._catalog.register_table(name, lake.load_table(TABLE).metadata_location)
    assert len(server.load_table(name).metadata.snapshot_log) == 2


def test_server_takes_commits_of_hosts_with_different_clocks(rest_server: RestServer, clock: list[float]) -> None:
    """Within the minute they land in order; beyond it the server refuses the fast host's commit, and both times are named."""
    lake = orders(rest_server.lake())
    clock.append(50)
    commit_batches(lake, 1)
    clock.append(0)
    commit(lake, batch(lake, mark(2), mark(1), rows(2)))
    clock.append(180)
    with pytest.raises(Retryable, match=r"a clock is wrong: .* timestamp \d+: before last snapshot log entry at \d+"):
        commit(lake, batch(lake, mark(3), mark(2), rows(3)))
    clock.append(0)
    commit(lake, batch(lake, mark(3), mark(2), rows(3)))
    assert ids(lake) == [1, 2, 3]
