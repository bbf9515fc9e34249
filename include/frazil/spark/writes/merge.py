"""Merges changes, with truncates among them, into a table with one row per key, by writes to a temporary branch.

Of each key the last change in the batch counts, and it applies if it is later than the table's row. So changes that come again
change nothing, however they are cut into batches.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pyspark.sql import functions as f
from pyspark.sql.types import DateType, DecimalType, IntegerType, LongType, StringType

from frazil.batch.changes import DELETE, OP, PLACE, TRUNCATE, UPSERT, Merge
from frazil.error_codes import INTERNAL
from frazil.iceberg.ledger.inspection import Ranges
from frazil.pipeline.models.layout import DELETED
from frazil.spark.errors import fetch_rows
from frazil.spark.writes.rows import (
    Target,
    change_columns,
    is_of_earlier_topic,
    lacks_offset,
    not_older,
    order_between,
    order_within,
    place_of,
    quote_name,
    row_column,
    tuple_of,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


Truncate: TypeAlias = Mapping[str, Any]
"""Column -> value, as text, of a truncate's coordinates and order."""


def apply_truncates(
    spark: SparkSession, target: Target, merge: Merge, staged: DataFrame
) -> tuple[DataFrame, tuple[Callable[[], None], ...]]:
    """Apply truncates to staged changes. A truncate removes rows of its own topic, from any partition.

    Returns:
        The changes, with a delete behind each change that a truncate follows; and functions that remove rows from the table. They
        are to be called after the merge, which must find the rows with their last changes.
    """
    removals = []
    for end in _truncates(staged, target, merge):
        staged = _delete_rows_before(target, staged, merge, end)
        removals.append(partial(_remove_rows_before, spark, target, merge, end))
    return staged, tuple(removals)


def _truncates(staged: DataFrame, target: Target, merge: Merge) -> list[Truncate]:
    """The last truncate of each partition."""
    ends = staged.where(f.col(quote_name(OP)) == TRUNCATE).alias("c")
    facts = f.struct(*(row_column("c", name).cast(StringType()).alias(name) for name in change_columns(merge)))
    order = [row_column("c", name) for name in (merge.order_by, merge.columns.offset) if name is not None]
    last = ends.groupBy(place_of(merge, "c").alias("place")).agg(f.max_by(facts, tuple_of(*order)).alias("facts"))
    truncates: list[Truncate] = fetch_rows(last, f"table {target.table}").column(1).to_pylist()
    return truncates


def _is_before(target: Target, merge: Merge, row: str, end: Truncate) -> Column:
    """Whether a row's last change is older than a truncate."""
    names, facts = merge.columns, _coordinates(target, merge, end)
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
    """Add a delete, at the truncate's place, for each change before a truncate."""
    before = _is_before(target, merge, "c", end) & (row_column("c", OP) != TRUNCATE)
    facts = _coordinates(target, merge, end) | {OP: f.lit(DELETE)}
    columns = [facts.get(name, row_column("c", name)).alias(name) for name in staged.columns]
    return staged.unionByName(staged.alias("c").where(before).select(*columns))


def _coordinates(target: Target, merge: Merge, end: Truncate) -> dict[str, Column]:
    """A truncate's coordinates and order as values of columns."""
    return {name: target.literal(name, end[name]) for name in change_columns(merge)}


def _remove_rows_before(spark: SparkSession, target: Target, merge: Merge, end: Truncate) -> None:
    """Delete the branch's rows before a truncate, or mark them as deleted: a merge with one source row, which matches all of them."""
    writer = spark.range(1).mergeInto(target.branch, _is_before(target, merge, target.row, end))
    if merge.deleted is None:
        writer.whenMatched().delete().merge()
        return
    values = _coordinates(target, merge, end) | {merge.deleted: f.lit(True)}  # noqa: FBT003
    writer.whenMatched().update({quote_name(name): value for name, value in values.items()}).merge()


_LAST, _LAST_UPSERT = f"{OP}.last", f"{OP}.last_upsert"
"""Columns beside those of a batch's keys: a key may have any name but one that staged columns have."""

_CHANGE: Final = f"s.{quote_name(_LAST)}"
"""A key's last change, in conditions of a merge."""

_NEWEST_ROW: Final = f"s.{quote_name(_LAST_UPSERT)}"
"""A key's last upsert, in conditions of a merge."""

_MOST_VALUES: Final = 100
"""Most values of a partition column that a merge's condition lists."""

_BOUNDED: Final = (IntegerType, LongType, StringType, DateType)
"""Types whose values may bound a merge."""

_LONGEST_BOUND: Final = 200
"""Most characters of a text that bounds a merge."""


def merge_rows(
    spark: SparkSession, target: Target, merge: Merge, staged: DataFrame, may_hold: Callable[[Ranges], bool]
) -> None:
    """Merge staged changes into a branch. Nothing else may use the session meanwhile.

    If the branch can't have a row with one of their keys, rows are appended without a merge. `may_hold` decides that by the
    bounds of the branch's files, not by the kind of change: a record that says "insert" comes again in a replay, in a snapshot, or
    from a connector that starts over.

    Raises:
        Terminal: A change has no key, or no value in the column that orders changes.
    """
    staged = staged if PLACE in staged.columns else staged.withColumn(PLACE, f.lit(0))
    staged, removals = apply_truncates(spark, target, merge, staged)
    changes = _last_changes(staged.where(f.col(quote_name(OP)) != TRUNCATE), target, merge).persist()
    try:
        ranges = _key_ranges(changes, target, merge)
        if ranges is not None:
            if may_hold(ranges):
                bounds = (*_range_conditions(target, ranges), *_partition_conditions(changes, target, merge))
                _merge(target, merge, changes, staged.columns, bounds)
            else:
                _append(target, merge, changes, staged.columns)
    finally:
        changes.unpersist()
    for remove in removals:
        remove()


def _last_changes(staged: DataFrame, target: Target, merge: Merge) -> DataFrame:
    """One row per key with its last change, and its last upsert if deleted rows stay: by partition first, then over all."""
    row, order = f.struct(*(row_column("c", name) for name in staged.columns)), order_within(merge, "c")
    last = {_LAST: f.max_by(row, order)}
    if merge.deleted is not None:
        last[_LAST_UPSERT] = f.max_by(row, f.when(row_column("c", OP) == UPSERT, order))
    keys = [row_column("c", name).cast(target.types[name]).alias(name) for name in merge.keys]
    places = [row_column("c", name).alias(name) for name in (merge.columns.topic, merge.columns.partition)]
    changes = (
        staged.alias("c").groupBy(*keys, *places).agg(*(aggregate.alias(name) for name, aggregate in last.items()))
    )
    for name in last:
        its = row_column("p", name)
        last[name] = f.max_by(its, f.when(its.isNotNull(), order_between(merge, f"p.{quote_name(name)}"))).alias(name)
    changes = changes.alias("p").groupBy(*(row_column("p", name) for name in merge.keys)).agg(*last.values()).alias("s")
    if merge.deleted is None:
        return changes
    # If the last change is an upsert, take it for the last upsert as well: a row's values and coordinates must come from one
    # record, even if timestamps in a partition decrease.
    newest = f.when(row_column(_CHANGE, OP) == UPSERT, row_column("s", _LAST)).otherwise(row_column("s", _LAST_UPSERT))
    return changes.withColumn(_LAST_UPSERT, newest).alias("s")


def _key_ranges(changes: DataFrame, target: Target, merge: Merge) -> Ranges | None:
    """The least and the largest value of each key column, so that other files need not be read; None without changes.

    Raises:
        Terminal: A key is null, or the value that orders its changes.
    """
    bounded = [name for name in merge.keys if isinstance(target.types[name], (*_BOUNDED, DecimalType))]
    needed = [row_column("s", name) for name in merge.keys]
    if merge.order_by is not None:
        needed.append(row_column(_CHANGE, merge.order_by))
    is_null = functools.reduce(lambda first, second: first | second, (value.isNull() for value in needed))
    # As texts, because Python has no dates beyond the year 9999.
    ends = [aggregate(row_column("s", name)).cast(StringType()) for name in bounded for aggregate in (f.min, f.max)]
    aggregates = [f.count(f.lit(1)), f.count_if(is_null), *ends]
    answer = fetch_rows(
        changes.agg(*(aggregate.alias(f"c{number}") for number, aggregate in enumerate(aggregates))),
        f"table {target.table}",
    )
    count, nulls, *values = (cells[0].as_py() for cells in answer.columns)
    if nulls:
        raise INTERNAL.terminal(
            f"table {target.table}: {nulls:,} staged changes have no value in {', '.join((*merge.keys, merge.order_by or ''))}",
            next_step="this is a fault of Frazil, not of the data: please report it",
        )
    if not count:
        return None
    ends_of = zip(bounded, zip(values[::2], values[1::2], strict=True), strict=True)
    return {name: ends for name, ends in ends_of if all(len(end) <= _LONGEST_BOUND for end in ends)}


def _range_conditions(target: Target, ranges: Ranges) -> Iterator[Column]:
    """Conditions that every row with a key of the batch meets."""
    for name, ends in ranges.items():
        least, most = (target.literal(name, end) for end in ends)
        yield row_column(target.row, name).between(least, most)


def _partition_conditions(changes: DataFrame, target: Target, merge: Merge) -> Iterator[Column]:
    """Conditions with the partition values of a batch, for key columns that are partition columns."""
    for name in merge.keys:
        if name not in target.partitioned_by or not isinstance(target.types[name], _BOUNDED):
            continue
        values = (
            changes.select(row_column("s", name).cast(StringType()).alias("value")).distinct().limit(_MOST_VALUES + 1)
        )
        texts = fetch_rows(values, f"table {target.table}").column(0).to_pylist()
        if len(texts) <= _MOST_VALUES:
            yield row_column(target.row, name).isin(*(target.literal(name, value) for value in texts))


def _merge(target: Target, merge: Merge, changes: DataFrame, staged: Sequence[str], bounds: Sequence[Column]) -> None:
    same = (row_column(target.row, name) == row_column("s", name) for name in merge.keys)
    writer = changes.mergeInto(target.branch, functools.reduce(lambda first, second: first & second, (*same, *bounds)))
    later, op = not_older(merge, target.row, _CHANGE), row_column(_CHANGE, OP)
    if merge.deleted is None:
        values = _hard_values(target, merge, staged)
        writer = writer.whenMatched((op == DELETE) & later).delete()
        writer = writer.whenMatched((op == UPSERT) & later).update(_quoted(values))
        writer = writer.whenNotMatched(op == UPSERT).insert(_quoted(_all_columns(target, merge, values)))
    else:
        values = _soft_values(target, merge, staged, merge.deleted)
        writer = writer.whenMatched(later).update(_quoted(_deleted_row(target, merge, values)))
        writer = writer.whenNotMatched().insert(_quoted(_all_columns(target, merge, values)))
    writer.merge()


def _deleted_row(target: Target, merge: Merge, values: Mapping[str, Column]) -> dict[str, Column]:
    """A deleted row that stays keeps its values, and gets the coordinates of its delete, so that no older change restores it."""
    facts = (*change_columns(merge), merge.deleted)
    is_news = f.col(_NEWEST_ROW).isNotNull() & not_older(merge, target.row, _NEWEST_ROW)
    return {
        name: value if name in facts else f.when(is_news, value).otherwise(row_column(target.row, name))
        for name, value in values.items()
    }


def _append(target: Target, merge: Merge, changes: DataFrame, staged: Sequence[str]) -> None:
    """Append the rows that a merge would insert into a branch without any of the keys."""
    if merge.deleted is None:
        rows, values = changes.where(row_column(_CHANGE, OP) == UPSERT), _hard_values(target, merge, staged)
    else:
        rows, values = changes, _soft_values(target, merge, staged, merge.deleted)
    every = _all_columns(target, merge, values)
    rows.select(*(value.alias(name) for name, value in every.items())).writeTo(target.branch).append()


def _hard_values(target: Target, merge: Merge, staged: Sequence[str]) -> dict[str, Column]:
    names = _columns(target, merge, staged)
    values = {name: target.value(name, row_column(_CHANGE, name)) for name in names}
    if DELETED in target.types:  # a column from a time when deleted rows stayed
        values[DELETED] = f.lit(False)  # noqa: FBT003
    return values


def _soft_values(target: Target, merge: Merge, staged: Sequence[str], deleted: str) -> dict[str, Column]:
    facts, names = change_columns(merge), _columns(target, merge, staged)
    rows = {name: target.value(name, row_column(_CHANGE if name in facts else _NEWEST_ROW, name)) for name in names}
    return rows | {deleted: row_column(_CHANGE, OP) == DELETE}


def _columns(target: Target, merge: Merge, staged: Sequence[str]) -> Iterator[str]:
    return (name for name in staged if name in target.types and name not in (*merge.keys, OP, PLACE))


def _all_columns(target: Target, merge: Merge, values: Mapping[str, Column]) -> dict[str, Column]:
    """Values of all columns of the table; columns that were added since staging are null."""
    absent = {name: target.literal(name, None) for name in target.types if name not in (*values, *merge.keys)}
    every = absent | dict(values) | {name: row_column("s", name) for name in merge.keys}
    return {name: every[name] for name in target.types}


def _quoted(values: Mapping[str, Column]) -> dict[str, Column]:
    """New values by quoted column, for Spark's merge, which parses the names as SQL."""
    return {quote_name(name): value for name, value in values.items()}
