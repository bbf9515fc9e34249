"""Changes merged by Spark: keys that look like something else, orders that contradict offsets, files that were edited."""

from __future__ import annotations

import io
from dataclasses import replace
from itertools import count
from pathlib import Path

import pyspark.util
import pytest
from pyspark.sql import SparkSession

from frazil.batch.position import LostTail
from frazil.errors import Retryable
from frazil.spark.errors import SPARK_FAILED, error_text
from tests.spark.changes import MERGE, Customers, delete, truncate, upsert
from tests.spark.documents import sqlite

ORDERED = replace(MERGE, order_by="version")


def test_key_that_looks_like_variable_is_not_doubled(tmp_path: Path, spark: SparkSession) -> None:
    """`${…}` in a key is data, where the bounds of keys stand in a statement too."""
    customers, merge = Customers(spark, sqlite(tmp_path)), replace(MERGE, keys=("name",))
    customers.land(customers.change(1, [upsert(0, 1, "order-${id}")]), merge)
    customers.land(customers.change(2, [upsert(1, 2, "order-${id}")]), merge)
    assert customers.rows() == [(2, "order-${id}")]


def test_error_of_spark_is_reported_without_quoted_values(spark: SparkSession) -> None:
    """Its condition, and what it is about, are names of Spark's; the value is the record's."""
    with pytest.raises(SPARK_FAILED) as failed:
        spark.sql("SELECT CAST('ann@example.org' AS INT)").collect()
    assert "ann@" in str(failed.value)
    assert "[CAST_INVALID_INPUT]" in error_text(failed.value)
    assert "ann@" not in error_text(failed.value)


def test_latest_truncate_of_batch_decides_by_order_column(tmp_path: Path, spark: SparkSession) -> None:
    """Of several in a batch the one counts that is the later by the column, not by the offset."""
    customers = Customers(spark, sqlite(tmp_path))
    customers.land(customers.change(1, [upsert(1, 1, "a", 60), truncate(10, 100), truncate(20, 50)]), ORDERED)
    customers.land(customers.change(2, [upsert(30, 2, "b", 120)]), ORDERED)
    assert customers.rows() == [(2, "b")]


def test_recreated_source_is_newer_than_its_past(tmp_path: Path, spark: SparkSession) -> None:
    """Its log begins low again: rows of the topic's earlier incarnation are older than any of its changes."""
    customers = Customers(spark, sqlite(tmp_path))
    customers.land(customers.change(1, [upsert(100, 1, "a", 90)]), ORDERED)
    customers.land(customers.change(2, [upsert(1, 1, "new", 5)]), replace(ORDERED, since={"c's": 2}))
    assert customers.rows() == [(1, "new")]


def test_row_of_a_lost_record_is_older_than_any_change(tmp_path: Path, spark: SparkSession) -> None:
    """From the cut on, and of batches before it; by a column to order by it is as late as that says, only its offset is void."""
    plain, ordered = Customers(spark, sqlite(tmp_path / "plain")), Customers(spark, sqlite(tmp_path / "ordered"))
    lost = {"c's": (LostTail(0, 50, 2), LostTail(3, 0, 2)), "other": (LostTail(0, 0, 9),)}
    before = [upsert(90, 1, "lost", 5), upsert(49, 2, "kept", 5), upsert(91, 3, "lost", 5), upsert(92, 4, "lost", 5, 1)]
    for customers, merge in ((plain, replace(MERGE, lost_tails=lost)), (ordered, replace(ORDERED, lost_tails=lost))):
        customers.land(customers.change(1, before), merge)
        changes = [
            upsert(55, 1, "new", 5),
            upsert(30, 2, "old", 5),
            upsert(56, 3, "new", 4),
            upsert(57, 4, "old", 5, 1),
        ]
        customers.land(customers.change(2, changes), merge)
        customers.land(customers.change(3, [upsert(54, 1, "older", 5)]), merge)
    assert plain.rows() == [(1, "new"), (2, "kept"), (3, "new"), (4, "lost")]
    assert ordered.rows() == [(1, "new"), (2, "kept"), (3, "lost"), (4, "lost")]


def test_truncate_after_a_cut_takes_rows_of_lost_records(tmp_path: Path, spark: SparkSession) -> None:
    """Its offset is the smaller one."""
    customers, merge = Customers(spark, sqlite(tmp_path)), replace(MERGE, lost_tails={"c's": (LostTail(0, 50, 2),)})
    customers.land(customers.change(1, [upsert(90, 1, "lost"), upsert(40, 2, "a")]), merge)
    customers.land(customers.change(2, [truncate(55), upsert(56, 3, "b")]), merge)
    assert customers.rows() == [(3, "b")]


def test_row_that_comes_back_is_no_longer_marked_deleted(tmp_path: Path, spark: SparkSession) -> None:
    """The file took soft deletes once, and hard ones now: the mark of a row that is written again goes."""
    customers = Customers(spark, sqlite(tmp_path), soft=True)
    customers.land(customers.change(1, [upsert(0, 1, "a"), delete(1, 1)]), replace(MERGE, deleted="_frazil_deleted"))
    assert customers.rows("id", "_frazil_deleted") == [(1, True)]
    customers.land(customers.change(2, [upsert(2, 1, "b")]))
    assert customers.rows("id", "name", "_frazil_deleted") == [(1, "b", False)]


@pytest.mark.short("keys")
@pytest.mark.parametrize("cut", [2, 3], ids=["truncates", "keys"])  # the first answer is of the branch that is made
def test_truncated_answer_fails_merge_and_leaves_table_unchanged(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, cut: int
) -> None:
    """A JVM that dies over its answer ends it early: another try is due, and the table is as it was."""
    customers, connected, numbers = Customers(spark, sqlite(tmp_path)), pyspark.util._create_local_socket, count(1)
    customers.land(customers.change(1, [upsert(0, 1, "a")]))

    def cut_off(socket: object) -> object:
        answer = connected(socket)
        if next(numbers) != cut:
            return answer
        answer.read()
        return io.BytesIO()

    with monkeypatch.context() as patch:
        patch.setattr(pyspark.util, "_create_local_socket", cut_off)
        with pytest.raises(Retryable, match=r"table shop\.customers: Spark's answer was cut off"):
            customers.land(customers.change(2, [upsert(2, 2, "b")]))
    assert customers.rows() == [(1, "a")]

    customers.land(customers.change(2, [upsert(2, 2, "b")]))
    assert customers.rows() == [(1, "a"), (2, "b")]
