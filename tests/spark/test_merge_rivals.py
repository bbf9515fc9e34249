"""Somebody else, or a kill, while changes are merged."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from frazil.batch.position import BatchMark
from frazil.errors import Retryable, Terminal
from frazil.failpoints import Failpoint
from frazil.iceberg.commit.commit import Refused
from frazil.iceberg.commit.summary_state import RolledBack, mark_of, read_summary
from tests.rest_catalog import RestServer
from tests.spark import orphan
from tests.spark.changes import KEY, TABLE, Customers, delete, upsert
from tests.spark.documents import sqlite
from tests.spark.kills import Killed, at_failpoint, kill, repeat_append

SECONDS = 240
"""Bounds a driver with a JVM of its own; it takes ten on an idle machine."""


@pytest.fixture(params=["2", pytest.param("3", marks=pytest.mark.full)])
def customers(tmp_path: Path, spark: SparkSession, request: pytest.FixtureRequest) -> Customers:
    """An empty table, of each format version."""
    return Customers(spark, sqlite(tmp_path), version=request.param)


def test_rival_commit_on_main_is_kept(customers: Customers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compaction and somebody's rows come between the branch and main: both are there, and the changes once."""
    customers.land(customers.change(1, [upsert(0, 1, "a"), upsert(1, 2, "b")]))
    name = f"`{customers.lake.name}`.{TABLE}"

    def rival() -> None:
        options = "map('rewrite-all', 'true')"
        call = f"CALL `{customers.lake.name}`.system.rewrite_data_files(table => '{TABLE}', options => {options})"
        customers.spark.sql(call).collect()
        customers.spark.sql(f"INSERT INTO {name} (id, name) VALUES (7, 'foreign')").collect()  # noqa: S608

    at_failpoint(monkeypatch, Failpoint.BRANCH_STAGED, rival)
    customers.land(customers.change(2, [upsert(2, 1, "aa"), upsert(3, 3, "c")]))
    assert customers.rows() == [(1, "aa"), (2, "b"), (3, "c"), (7, "foreign")]
    assert set(customers.metadata.refs) == {"main"}
    customers.land(customers.change(3, [upsert(4, 7, "taken over")]))
    assert customers.rows()[-1] == (7, "taken over")


def test_batch_finished_by_rival_lands_once(customers: Customers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two give the same part at the same time: it is there once, and both say the same snapshot."""
    customers.land(customers.change(1, [upsert(0, 1, "a")]))
    change, second_changes = customers.change(2, [upsert(1, 1, "b"), upsert(2, 2, "c")]), []
    at_failpoint(monkeypatch, Failpoint.BRANCH_STAGED, lambda: second_changes.append(customers.rival.land(change)))
    assert [customers.land(change)] == second_changes
    assert customers.rows() == [(1, "b"), (2, "c")]
    assert set(customers.metadata.refs) == {"main"}


@pytest.mark.short("2-branch.staged", "2-follow.committing")
@pytest.mark.parametrize(
    "place",
    [Failpoint.BRANCH_MADE, Failpoint.BRANCH_STAGED, Failpoint.FOLLOW_COMMITTING, Failpoint.FOLLOW_COMMITTED],
)
def test_kill_neither_loses_nor_doubles_changes(
    customers: Customers, monkeypatch: pytest.MonkeyPatch, place: Failpoint
) -> None:
    """Nobody sees a prepared branch; whoever comes next lands the changes once, and drops what was left behind."""
    customers.land(customers.change(1, [upsert(0, 1, "a"), upsert(1, 2, "b")]))
    change = customers.change(2, [upsert(2, 1, "aa"), delete(3, 2), upsert(4, 3, "c")])
    with monkeypatch.context() as patch:
        at_failpoint(patch, place, kill)
        with pytest.raises(Killed):
            customers.land(change)
    expected_rows = [(1, "aa"), (3, "c")]
    assert customers.rows() == (expected_rows if place is Failpoint.FOLLOW_COMMITTED else [(1, "a"), (2, "b")])
    snapshot = customers.land(change)
    assert customers.rows() == expected_rows
    assert customers.property["snapshot"] == snapshot
    assert set(customers.metadata.refs) == {"main"}


def test_run_that_slept_does_not_move_table_back(customers: Customers) -> None:
    """A batch that is not the next one, or is of another table, changes nothing; nor does one that others took further."""
    first = customers.change(1, [upsert(0, 1, "a")])
    customers.land(first)
    customers.land(customers.change(2, [upsert(1, 1, "b")]))
    customers.land(first)
    with pytest.raises(Refused, match="holds"):
        customers.land(customers.change(4, [upsert(2, 1, "c")]))
    change = customers.change(3, [upsert(2, 1, "c")])
    with pytest.raises(Refused, match="table"):
        customers.land(replace(change, fit=replace(change.fit, uuid="another")))
    assert customers.rows() == [(1, "b")]
    assert set(customers.metadata.refs) == {"main"}


def test_rollback_is_noticed(customers: Customers) -> None:
    """Main moved back to batch 1: the property says that batch 2 was there."""
    first = customers.land(customers.change(1, [upsert(0, 1, "a")]))
    customers.land(customers.change(2, [upsert(1, 1, "b")]))
    customers.spark.sql(f"CALL `{customers.lake.name}`.system.rollback_to_snapshot('{TABLE}', {first})").collect()
    summary = read_summary(customers.metadata, KEY, TABLE)
    assert isinstance(summary, RolledBack)
    assert mark_of(summary) == BatchMark(1, "id-1", 0)


def test_new_keys_that_spark_adds_twice_have_one_row_each(
    customers: Customers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A branch that has the rows twice never becomes main: another one is begun."""
    customers.land(customers.change(1, [upsert(0, 1, "a")]))
    repeat_append(monkeypatch)
    customers.land(customers.change(2, [upsert(1, 2, "b"), upsert(2, 3, "c")]))
    assert customers.rows() == [(1, "a"), (2, "b"), (3, "c")]


def test_changed_staged_file_never_becomes_visible(customers: Customers) -> None:
    """Fewer rows than were staged and counted: nothing becomes visible."""
    change = customers.change(1, [upsert(0, 1, "a")])
    files = tuple(replace(file, rows=file.rows + 1) for file in change.files)
    with pytest.raises(Terminal, match="2 rows were staged, their files have 1"):
        customers.land(replace(change, files=files))
    assert customers.rows() == []


def test_rest_catalog_finishes_killed_merge(
    spark: SparkSession, rest_server: RestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a server, as by a database: a killed one is finished, and nothing is left behind."""
    rest_server.empty()
    customers = Customers(spark, rest_server.lake())
    customers.land(customers.change(1, [upsert(0, 1, "a")]))
    change = customers.change(2, [upsert(1, 1, "b"), upsert(2, 2, "c")])
    with monkeypatch.context() as patch:
        at_failpoint(patch, Failpoint.BRANCH_STAGED, kill)
        with pytest.raises(Killed):
            customers.land(change)
    customers.land(change)
    assert customers.rows() == [(1, "b"), (2, "c")]
    assert set(customers.metadata.refs) == {"main"}


@pytest.mark.timeout(2 * SECONDS)
def test_dead_jvm_is_retryable(tmp_path: Path, spark: SparkSession) -> None:
    """The JVM is killed under its driver: that says that it may be tried again, and whoever comes next lands it once."""
    options = (
        "spark.jars",
        "spark.sql.extensions",
        "spark.ui.enabled",
        "spark.driver.host",
        "spark.driver.bindAddress",
    )
    conf = " ".join(f"--conf {key}={spark.conf.get(key)}" for key in options)
    env = os.environ | {"PYSPARK_SUBMIT_ARGS": f"--master local[1] --driver-memory 512m {conf} pyspark-shell"}
    command = [sys.executable, "-m", "tests.spark.orphan", str(tmp_path)]
    ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=SECONDS, check=False)

    assert ended.returncode == Retryable.exit_code, ended.stdout + ended.stderr
    assert "Spark could not land its part in 5 attempts" in ended.stdout
    customers = Customers(spark, orphan.lake(tmp_path))
    assert customers.rows() == []
    customers.land(customers.change(1, [upsert(0, 1, "a")]))
    assert customers.rows() == [(1, "a")]
    assert set(customers.metadata.refs) == {"main"}
