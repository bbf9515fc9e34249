"""Truncates: each deletes older rows of the table, and older changes in its own batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.sql import functions as f
from pyspark.sql.types import StringType

from frazil.batch.changes import DELETE, OP, TRUNCATE, Merge
from frazil.spark.errors import fetch_rows
from frazil.spark.writes.change_order import (
    Target,
    facts_of,
    is_of_earlier_topic,
    lacks_offset,
    place_of,
    row_column,
    tuple_of,
)
from frazil.spark.writes.quoting import quote_name

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


Truncate: TypeAlias = Mapping[str, Any]
"""What a truncate says of itself, as texts, by column."""


def apply_truncates(
    spark: SparkSession, target: Target, merge: Merge, staged: DataFrame
) -> tuple[DataFrame, tuple[Callable[[], None], ...]]:
    """Carry out the truncates among staged changes.

    A truncate concerns rows of its own topic, whichever partition they are of.

    Returns:
        The changes, with deletes behind those that a truncate follows; and what takes the rows of the table out. That comes
        after the merge, which must find rows as their last changes left them.
    """
    removals = []
    for end in _truncates(staged, target, merge):
        staged = _delete_rows_before(target, staged, merge, end)
        removals.append(partial(_empty, spark, target, merge, end))
    return staged, tuple(removals)


def _truncates(staged: DataFrame, target: Target, merge: Merge) -> list[Truncate]:
    """The last truncate of each partition, with its coordinates as strings."""
    ends = staged.where(f.col(quote_name(OP)) == TRUNCATE).alias("c")
    facts = f.struct(*(row_column("c", name).cast(StringType()).alias(name) for name in facts_of(merge)))
    order = [row_column("c", name) for name in (merge.order_by, merge.columns.offset) if name is not None]
    last = ends.groupBy(place_of(merge, "c").alias("place")).agg(f.max_by(facts, tuple_of(*order)).alias("facts"))
    truncates: list[Truncate] = fetch_rows(last, f"table {target.table}").column(1).to_pylist()
    return truncates


def _is_before(target: Target, merge: Merge, row: str, end: Truncate) -> Column:
    """Whether a row's last change is older than a truncate."""
    names, facts = merge.columns, _facts(target, merge, end)
    offset = row_column(row, names.offset)
    if merge.order_by is None:
        partition, stamp = row_column(row, names.partition), row_column(row, merge.timestamp)
        between = tuple_of(stamp, partition) < tuple_of(facts[merge.timestamp], facts[names.partition])
        same_place = partition == facts[names.partition]
        older = lacks_offset(merge, row) | f.when(same_place, offset < facts[names.offset]).otherwise(between)
    else:
        its, mine = row_column(row, merge.order_by), facts[merge.order_by]
        end_place = tuple_of(facts[names.topic], facts[names.partition])
        tie = tuple_of(place_of(merge, row), offset) < tuple_of(end_place, facts[names.offset])
        older = (
            is_of_earlier_topic(merge, row)
            | its.isNull()
            | (its < mine)
            | ((its == mine) & (lacks_offset(merge, row) | tie))
        )
    return (row_column(row, names.topic) == facts[names.topic]) & older


def _delete_rows_before(target: Target, staged: DataFrame, merge: Merge, end: Truncate) -> DataFrame:
    """Add, for each change before a truncate, a deletion after it."""
    before = _is_before(target, merge, "c", end) & (row_column("c", OP) != TRUNCATE)
    facts = _facts(target, merge, end) | {OP: f.lit(DELETE)}
    columns = [facts.get(name, row_column("c", name)).alias(name) for name in staged.columns]
    return staged.unionByName(staged.alias("c").where(before).select(*columns))


def _facts(target: Target, merge: Merge, end: Truncate) -> dict[str, Column]:
    """A record's coordinates as values of columns."""
    return {name: target.literal(name, end[name]) for name in facts_of(merge)}


def _empty(spark: SparkSession, target: Target, merge: Merge, end: Truncate) -> None:
    """Delete the branch's rows before a truncate, or mark them as deleted, by a merge whose single row matches no key."""
    writer = spark.range(1).mergeInto(target.branch, _is_before(target, merge, target.row, end))
    if merge.deleted is None:
        writer.whenMatched().delete().merge()
        return
    values = _facts(target, merge, end) | {merge.deleted: f.lit(True)}  # noqa: FBT003
    writer.whenMatched().update({quote_name(name): value for name, value in values.items()}).merge()
