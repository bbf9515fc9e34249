"""Truncates: what is older than one goes, in the table and among the changes of its batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.sql import functions as f

from frazil.batch.changes import DELETE, OP, TRUNCATE
from frazil.batch.merge import Merge
from frazil.errors import Terminal
from frazil.spark.answer import answered
from frazil.spark.change_order import place_of, replaced, unplaced
from frazil.spark.quoting import quoted, text
from frazil.spark.target import Target, assigned, facts_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Truncate: TypeAlias = Mapping[str, Any]
"""What a truncate says of itself, as texts, by column."""


def truncated(
    spark: SparkSession, target: Target, merge: Merge, staged: DataFrame
) -> tuple[DataFrame, tuple[str, ...]]:
    """Carry out the truncates among staged changes.

    A truncate concerns rows of its own topic, whichever partition they are of; without a column to order by, it must have
    the topic's only one.

    Returns:
        The changes, with deletes behind those that a truncate follows; and statements for the rows of the table. They come
        after the merge, which must find rows as their last changes left them.

    Raises:
        Terminal: Nobody can tell what is older.
        Retryable: Spark's answer was cut off.
    """
    statements = []
    for end in _truncates(staged, target, merge):
        if merge.order_by is None:
            _refuse_other_partitions(spark, target, merge, staged, end)
        staged = _ended(staged, merge, end)
        statements.append(_emptied(target, merge, end))
    return staged, tuple(statements)


def _truncates(staged: DataFrame, target: Target, merge: Merge) -> list[Truncate]:
    """Of each partition the last truncate: what it says of itself, as texts."""
    names = merge.columns
    ends = staged.where(f"{quoted(OP)} = {text(TRUNCATE)}").alias("c")
    said = f"struct({', '.join(f'CAST(c.{quoted(name)} AS STRING) AS {quoted(name)}' for name in facts_of(merge))})"
    order = ", ".join(f"c.{quoted(name)}" for name in (merge.order_by, names.offset) if name is not None)
    last = ends.groupBy(f.expr(place_of(merge, "c"))).agg(f.expr(f"max_by({said}, struct({order}))"))
    found: list[Truncate] = answered(last, f"table {target.table}").column(1).to_pylist()
    return found


def _before(merge: Merge, row: str, end: Truncate, types: Mapping[str, str]) -> str:
    """Whether a row's last change is older than a truncate."""
    names, said = merge.columns, _said_of(end, merge, types)
    topic, offset = f"{row}.{quoted(names.topic)}", f"{row}.{quoted(names.offset)}"
    if merge.order_by is None:
        older = f"{unplaced(merge, row)} OR {offset} < {said[names.offset]}"
    else:
        its, mine = f"{row}.{quoted(merge.order_by)}", said[merge.order_by]
        ends = f"struct(struct({said[names.topic]}, {said[names.partition]}), {said[names.offset]})"
        tie = f"struct({place_of(merge, row)}, {offset}) < {ends}"
        older = f"{replaced(merge, row)} OR {its} IS NULL OR {its} < {mine} OR ({its} = {mine} AND ({unplaced(merge, row)} OR {tie}))"
    return f"{topic} = {said[names.topic]} AND ({older})"


def _refuse_other_partitions(
    spark: SparkSession, target: Target, merge: Merge, staged: DataFrame, end: Truncate
) -> None:
    names = merge.columns
    elsewhere = (
        f"c.{quoted(names.topic)} = {text(end[names.topic])} AND c.{quoted(names.partition)} <> {end[names.partition]}"
    )
    held = spark.table(target.branch).alias("c").where(f"{elsewhere} AND NOT {unplaced(merge, 'c')}")
    if any(rows.limit(1).count() for rows in (staged.alias("c").where(elsewhere), held)):
        raise Terminal(
            f"table {target.table}: topic {end[names.topic]}, partition {end[names.partition]}, offset {end[names.offset]}"
            " is a truncate, and changes of the topic are in other partitions: nobody can tell which of them came before it",
            next_step="name a column of the source's order under order_by, then give the table its part anew: frazil settle"
            f" PIPELINE --table {target.table} --restage --reason …",
        )


def _ended(staged: DataFrame, merge: Merge, end: Truncate) -> DataFrame:
    """A row before a truncate is followed by its deletion, which the truncate brought."""
    types = dict(staged.dtypes)
    before = f"{_before(merge, 'c', end, types)} AND c.{quoted(OP)} <> {text(TRUNCATE)}"
    said = _said_of(end, merge, types) | {OP: text(DELETE)}
    columns = [f"{said.get(name, f'c.{quoted(name)}')} AS {quoted(name)}" for name in staged.columns]
    return staged.unionByName(staged.alias("c").where(before).selectExpr(*columns))


def _said_of(end: Truncate, merge: Merge, types: Mapping[str, str]) -> dict[str, str]:
    """What a record says of itself, as values of columns."""
    values = {name: end[name] for name in facts_of(merge)}
    return {
        name: "NULL" if value is None else f"CAST({text(value)} AS {types[name]})" for name, value in values.items()
    }


def _emptied(target: Target, merge: Merge, end: Truncate) -> str:
    rows = _before(merge, "t", end, target.types)
    if merge.deleted is None:
        return f"DELETE FROM {target.branch} AS t WHERE {rows}"  # noqa: S608 - quoted
    said = assigned(_said_of(end, merge, target.types) | {merge.deleted: "true"})
    return f"UPDATE {target.branch} AS t SET {said} WHERE {rows}"  # noqa: S608 - quoted
