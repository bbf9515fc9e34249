"""Changes are merged into a table by Spark: each once, the later one wins, whatever happens in between."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from frazil.batch.position import BatchMark
from frazil.iceberg.commit.summary_state import SummaryValue, mark_of, read_summary
from tests.spark.changes import KEY, MERGE, TABLE, Changed, Customers, delete, truncate, upsert
from tests.spark.documents import sqlite

SOFT = replace(MERGE, deleted="_frazil_deleted")


@pytest.fixture(params=["2", pytest.param("3", marks=pytest.mark.full)])
def customers(tmp_path: Path, spark: SparkSession, request: pytest.FixtureRequest) -> Customers:
    """An empty table, of each format version."""
    return Customers(spark, sqlite(tmp_path), version=request.param)


@pytest.fixture
def soft(tmp_path: Path, spark: SparkSession) -> Customers:
    """An empty table that keeps deleted rows."""
    return Customers(spark, sqlite(tmp_path), soft=True)


def test_changes_are_applied_exactly_once(customers: Customers) -> None:
    """Rows come, change and go, over batches and within one; asked for twice, a batch is there once."""
    first = customers.change(1, [upsert(0, 1, "a"), upsert(1, 2, "b"), upsert(2, 1, "aa"), upsert(3, 3, "c")])
    snapshot = customers.land(first)
    second = customers.change(2, [upsert(4, 2, "bb"), delete(5, 3), upsert(6, 4, "d"), delete(7, 4), delete(8, 9)])
    customers.land(second)
    assert customers.land(first) == snapshot
    customers.land(second)
    assert customers.rows("id", "name", "_kafka_offset", "_frazil_batch") == [(1, "aa", 2, 1), (2, "bb", 4, 2)]
    assert set(customers.metadata.refs) == {"main"}
    summary = read_summary(customers.metadata, KEY, TABLE)
    assert isinstance(summary, SummaryValue)
    assert mark_of(summary) == BatchMark(2, "id-2", 0)
    assert customers.property["snapshot"] == summary.snapshot_id


def test_version_3_takes_the_same_changes(tmp_path: Path, spark: SparkSession) -> None:
    """One case of the short lane, whatever the format version; `make test-full` runs all of them with both."""
    test_changes_are_applied_exactly_once(Customers(spark, sqlite(tmp_path), version="3"))


def test_merge_on_read_does_not_rewrite_unchanged_rows(tmp_path: Path, spark: SparkSession) -> None:
    """Merge-on-read leaves the files of the old rows as they are, and marks what is gone; copy-on-write writes them anew."""
    for mode in ("merge-on-read", "copy-on-write"):
        customers = Customers(spark, sqlite(tmp_path / mode), mode=mode)
        customers.land(customers.change(1, [upsert(number, number, "a") for number in range(1_000)]))
        customers.land(customers.change(2, [upsert(1_000, 5, "b"), delete(1_001, 6)]))
        summary = customers.metadata.current_snapshot().summary
        assert (summary["added-records"], summary.get("added-position-deletes")) == (
            ("1", "2") if mode == "merge-on-read" else ("999", None)
        )
        assert customers.rows()[4:7] == [(4, "a"), (5, "b"), (7, "a")]


def test_batch_without_changes_is_recorded(customers: Customers) -> None:
    """Changes that come again, late or for nobody change no row, and the table says that it had the batch."""
    customers.land(customers.change(1, [upsert(5, 1, "new")]))
    customers.land(customers.change(2, [upsert(3, 1, "old"), delete(4, 1), delete(5, 2)]))
    assert customers.rows("name", "_frazil_batch") == [("new", 1)]
    assert mark_of(read_summary(customers.metadata, KEY, TABLE)) == BatchMark(2, "id-2", 0)
    customers.land(customers.change(3, []))
    assert mark_of(read_summary(customers.metadata, KEY, TABLE)) == BatchMark(3, "id-3", 0)


def test_old_range_does_not_bring_deleted_rows_back(soft: Customers) -> None:
    """Where deleted rows stay, changes from before the deletion find it, also that of a row nobody knew."""
    soft.land(
        soft.change(1, [upsert(0, 1, "a"), upsert(1, 2, "b"), upsert(2, 3, "c"), delete(3, 3), delete(4, 4)]), SOFT
    )
    soft.land(soft.change(2, [delete(5, 1)]), SOFT)
    columns = ("id", "name", "_frazil_deleted", "_kafka_offset")
    expected = [(1, "a", True, 5), (2, "b", False, 1), (3, "c", True, 3), (4, None, True, 4)]
    assert soft.rows(*columns) == expected
    soft.land(soft.change(3, [upsert(0, 1, "a"), upsert(2, 3, "c"), upsert(3, 4, "x")]), SOFT)
    assert soft.rows(*columns) == expected
    soft.land(soft.change(4, [upsert(9, 3, "again")]), SOFT)
    assert soft.rows(*columns)[2] == (3, "again", False, 9)


@pytest.mark.parametrize("is_soft", [False, pytest.param(True, marks=pytest.mark.full)])
def test_truncate_deletes_exactly_older_rows_of_its_topic(tmp_path: Path, spark: SparkSession, is_soft: bool) -> None:
    """Rows before it go, in the table and in the batch; those after it, and those of other topics, stay."""
    customers, merge = Customers(spark, sqlite(tmp_path), soft=is_soft), SOFT if is_soft else MERGE
    customers.land(customers.change(1, [upsert(0, 1, "-"), Changed(7, "upsert", 9, "z", topic="other")]), merge)
    changes = [upsert(1, 1, "a"), upsert(1, 2, "b"), truncate(2), upsert(3, 3, "c"), upsert(1, 3, "-")]
    customers.land(customers.change(2, changes), merge)
    if not is_soft:
        assert customers.rows() == [(3, "c"), (9, "z")]
    else:
        expected = [(1, "a", True, 2), (2, "b", True, 2), (3, "c", False, 3), (9, "z", False, 7)]
        assert customers.rows("id", "name", "_frazil_deleted", "_kafka_offset") == expected


@pytest.mark.parametrize("is_soft", [pytest.param(False, marks=pytest.mark.full), True])
def test_truncate_with_order_column_deletes_older_rows_of_all_partitions(
    tmp_path: Path, spark: SparkSession, is_soft: bool
) -> None:
    """With a column to order by it takes older rows of all partitions of its topic, wherever their offsets are."""
    customers = Customers(spark, sqlite(tmp_path), soft=is_soft)
    merge = replace(SOFT if is_soft else MERGE, order_by="version")
    customers.land(customers.change(1, [upsert(50, 1, "a", 1), upsert(0, 2, "b", 9, 1), upsert(60, 3, "c", 7)]), merge)
    changes = [upsert(51, 4, "d", 4), truncate(2, 5, 1), upsert(1, 5, "e", 6, 1), upsert(70, 1, "late", 2)]
    customers.land(customers.change(2, changes), merge)
    customers.land(customers.change(3, [upsert(71, 6, "f", 8)]), merge)
    stay = [(2, "b", 9), (3, "c", 7), (5, "e", 6), (6, "f", 8)]
    if not is_soft:
        assert customers.rows("id", "name", "version") == stay
    else:
        deleted = [(1, "late", True, 5), (4, "d", True, 5)]
        rows = customers.rows("id", "name", "_frazil_deleted", "version")
        assert [row for row in rows if row[2]] == deleted
        assert [(row[0], row[1], row[3]) for row in rows if not row[2]] == stay


@pytest.mark.parametrize("is_soft", [False, pytest.param(True, marks=pytest.mark.full)])
def test_truncate_takes_rows_of_other_partitions_by_timestamp(
    tmp_path: Path, spark: SparkSession, is_soft: bool
) -> None:
    """In its own partition the offset decides; a row without timestamp is older. In the table and in the batch."""
    customers, merge = Customers(spark, sqlite(tmp_path), soft=is_soft), SOFT if is_soft else MERGE
    first = [upsert(50, 1, "older", partition=1, time=4), upsert(0, 2, "later", partition=1, time=6)]
    first += [upsert(8, 3, "own", time=3), upsert(1, 4, "none", partition=2, time=None)]
    customers.land(customers.change(1, first), merge)
    second = [
        truncate(9, time=5),
        upsert(60, 5, "older", partition=1, time=5),
        upsert(61, 6, "tie", partition=1, time=6),
    ]
    second += [delete(10, 7, time=9), upsert(11, 8, "own", time=1)]
    customers.land(customers.change(2, second), merge)
    rows = customers.rows("id", "name", *(["_frazil_deleted"] if is_soft else []))
    remaining = [row[:2] for row in rows if not row[2:] or not row[2]]
    assert remaining == [(2, "later"), (5, "older"), (6, "tie"), (8, "own")]


_TIMES = {0: (1, 4, 4, 9, 12, 12), 1: (2, 3, 8, 8, 8, 13), 2: (None, 1, 4, 10, 11, 12)}
"""Partition -> times of its records, which do not go back."""

_CUTS: dict[str, Callable[[Changed], int]] = {
    "none": lambda _: 0,
    "partitions": lambda change: (2, 0, 1)[change.partition],
    "offsets": lambda change: (change.offset + change.partition) // 3,
}


@pytest.mark.short("1-partitions")
@pytest.mark.parametrize("cut", _CUTS)
@pytest.mark.parametrize("seed", range(1, 8))
def test_keys_of_several_partitions_come_out_the_same_however_batches_are_cut(
    tmp_path: Path, spark: SparkSession, seed: int, cut: str
) -> None:
    """Where times do not go back within a partition: the last change of a key is the one with the greatest time."""
    chance, changes = Random(seed), []
    for partition, times in _TIMES.items():
        for offset, time in enumerate(times):
            op, name = ("delete", None) if chance.random() < 0.3 else ("upsert", f"{partition}-{offset}")
            changes.append(Changed(offset, op, chance.randrange(4), name, partition=partition, time=time))
    last = {
        change.id: change
        for change in sorted(
            changes, key=lambda change: (-1 if change.time is None else change.time, change.partition, change.offset)
        )
    }
    expected = [
        (key, change.name, change.op == "delete", change.partition, change.offset)
        for key, change in sorted(last.items())
    ]
    customers, n, part_of = Customers(spark, sqlite(tmp_path), soft=True), 0, _CUTS[cut]
    for n, part in enumerate(sorted({part_of(change) for change in changes}), 1):
        batch = [change for change in changes if part_of(change) == part]
        chance.shuffle(batch)
        customers.land(customers.change(n, batch), SOFT)
    customers.land(customers.change(n + 1, changes), SOFT)  # a replay
    rows = customers.rows("id", "name", "_frazil_deleted", "_kafka_partition", "_kafka_offset")
    assert [(row[0], None if row[2] else row[1], *row[2:]) for row in rows] == expected


def test_clock_that_goes_back_in_a_partition_ends_no_run_and_mixes_no_records(soft: Customers) -> None:
    """Each partition's last change is by its offset, whatever its time; a row's values and coordinates are one record's."""
    first = [upsert(0, 1, "a", time=10), delete(1, 1, time=5), upsert(0, 1, "b", partition=1, time=7)]
    soft.land(soft.change(1, first), SOFT)
    columns = ("id", "name", "_frazil_deleted", "_kafka_partition")
    assert soft.rows(*columns) == [(1, "b", False, 1)]
    soft.land(soft.change(2, [upsert(1, 1, "c", partition=1, time=2)]), SOFT)
    soft.land(soft.change(3, [upsert(2, 1, "late", time=1)]), SOFT)
    assert soft.rows(*columns) == [(1, "c", False, 1)]


def test_key_in_two_topics_goes_by_timestamp_with_hard_deletes(customers: Customers) -> None:
    """Offsets of two partitions say nothing of each other, in a batch as against the table."""
    second_change = replace(upsert(0, 1, "b", time=2), topic="other")
    customers.land(customers.change(1, [upsert(9, 1, "a", time=1), second_change]))
    assert customers.rows() == [(1, "b")]
    customers.land(customers.change(2, [delete(10, 1, time=1), upsert(11, 2, "c", time=1)]))
    assert customers.rows() == [(1, "b"), (2, "c")]
    customers.land(customers.change(3, [delete(11, 1, time=3), replace(delete(1, 2, time=9), topic="other")]))
    assert customers.rows() == []


def test_order_column_decides_last_change(customers: Customers) -> None:
    """With a column to order by the larger value wins, over partitions and batches; of equals the one that always does."""
    merge = replace(MERGE, order_by="version")
    customers.land(
        customers.change(1, [upsert(9, 1, "old", 1), upsert(0, 1, "new", 2, 1), upsert(1, 2, "b", 5)]), merge
    )
    customers.land(customers.change(2, [upsert(10, 1, "late", 1), delete(11, 2, 4), upsert(12, 3, "x", 7, 1)]), merge)
    customers.land(customers.change(3, [upsert(1, 3, "loser", 7), upsert(3, 2, "same", 5)]), merge)
    assert customers.rows() == [(1, "new"), (2, "same"), (3, "x")]


def test_recreated_topic_is_newer_than_its_past(customers: Customers) -> None:
    """Its offsets begin at 0 again: rows of the earlier incarnation are older than any of its changes."""
    customers.land(customers.change(1, [upsert(100, 1, "a"), upsert(101, 2, "b", partition=3)]))
    anew = replace(MERGE, since={"c's": 2})
    customers.land(customers.change(2, [upsert(1, 1, "new"), upsert(2, 2, "new")]), anew)
    customers.land(customers.change(3, [upsert(0, 1, "older"), upsert(3, 2, "newer")]), anew)
    assert customers.rows() == [(1, "new"), (2, "newer")]


@pytest.mark.short("name")
@pytest.mark.parametrize("partition_by", [["id"], ["bucket(4, id)"], ["name"]], ids=["id", "bucket", "name"])
def test_partitioned_table_keeps_one_row_per_key(tmp_path: Path, spark: SparkSession, partition_by: list[str]) -> None:
    """Rows are found wherever they are, also in another partition than they go to."""
    customers = Customers(spark, sqlite(tmp_path), partition_by=partition_by)
    customers.land(customers.change(1, [upsert(number, number, "a") for number in range(20)]))
    customers.land(customers.change(2, [upsert(30, 3, "b"), delete(31, 4), upsert(32, 99, "c")]))
    expected = dict.fromkeys(range(20), "a") | {3: "b", 99: "c"}
    del expected[4]
    assert dict(customers.rows()) == expected
    assert len(customers.rows()) == 20


def test_table_altered_meanwhile_loses_no_values(customers: Customers) -> None:
    """A column that others added keeps its values where rows change, and is null in new ones, whatever its name."""
    customers.land(customers.change(1, [upsert(0, 1, "a")]))
    change = customers.change(2, [upsert(1, 1, "b"), upsert(2, 2, "c")])
    name = f"`{customers.lake.name}`.{TABLE}"
    customers.spark.sql(f"ALTER TABLE {name} ADD COLUMNS (note string, _frazil_op int)").collect()
    customers.spark.sql(f"UPDATE {name} SET note = 'kept', _frazil_op = 7").collect()  # noqa: S608
    customers.land(change)
    assert customers.rows("id", "name", "note", "_frazil_op") == [(1, "b", "kept", 7), (2, "c", None, None)]


@pytest.mark.parametrize("is_soft", [False, pytest.param(True, marks=pytest.mark.full)])
def test_new_keys_are_appended_without_join(
    tmp_path: Path, spark: SparkSession, is_soft: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys beyond all that are there are added, the last change of each; one that may be there is merged."""
    customers, merge = (
        Customers(spark, sqlite(tmp_path), soft=is_soft, partition_by=["bucket(4, id)"]),
        SOFT if is_soft else MERGE,
    )
    customers.land(customers.change(1, [upsert(number, number, "a") for number in range(10)]), merge)
    with monkeypatch.context() as patched:
        patched.setattr("frazil.spark.writes.merge._merge", lambda *_: pytest.fail("merged"))
        added = [upsert(20, 11, "b"), upsert(21, 11, "c"), upsert(22, 12, "d"), delete(23, 12), delete(24, 13)]
        customers.land(customers.change(2, added), merge)
    assert mark_of(read_summary(customers.metadata, KEY, TABLE)) == BatchMark(2, "id-2", 0)
    last_rows = customers.rows("id", "name", "_kafka_offset")[10:]
    assert last_rows == ([(11, "c", 21), (12, "d", 23), (13, None, 24)] if is_soft else [(11, "c", 21)])
    customers.land(customers.change(3, [upsert(20, 11, "b"), upsert(30, 5, "e")]), merge)
    assert [row for row in customers.rows() if row[0] in (5, 11)] == [(5, "e"), (11, "c")]
