"""Changes merged into a table that has one row per key, by statements on a branch that nobody reads.

Of each key the last change in the batch counts, and of the table's row and that change the later one. So what comes again
changes nothing, however changes are cut into batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f

from frazil.batch.changes import DELETE, OP, PLACE, TRUNCATE, UPSERT
from frazil.batch.merge import Merge
from frazil.errors import Terminal
from frazil.iceberg.key_ranges import Ranges
from frazil.pipeline.changes import DELETED
from frazil.spark.answer import answered
from frazil.spark.change_order import not_older, order_of, place_of, told_keys
from frazil.spark.quoting import quoted, text
from frazil.spark.target import Target, assigned, facts_of
from frazil.spark.truncate import truncated

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CHANGES: Final = "frazil_changes"
"""Name of the view of a batch's changes, in a session of its own."""

_VALUES_NAMED: Final = 100
"""Values of a partition column that a statement names one by one."""

_BOUNDED: Final = ("int", "bigint", "string", "date")
_LONGEST_BOUND: Final = 200
"""Characters of a text in a statement."""


def merge_rows(
    spark: SparkSession, target: Target, merge: Merge, staged: DataFrame, may_hold: Callable[[Ranges], bool]
) -> None:
    """Merge staged changes into a branch. The session is used by nobody else meanwhile.

    Where the branch can't hold any of their keys, rows are added without a look at those that are there. That is proven by
    the files' bounds, never by what a change says of itself: an insert comes again by a replay, a snapshot or a connector
    that starts anew.

    Args:
        spark: Its settings go into the snapshots.
        target: The branch.
        merge: Which rows are one, and which change is the later one.
        staged: See `frazil.batch.changes`.
        may_hold: Whether the branch may hold a row whose keys are within these ranges.

    Raises:
        Terminal: Changes of a key are of two partitions, and nothing but their offsets orders them; or one has no key.
        Retryable: Spark's answer was cut off.
    """
    staged = _placed(staged)
    staged, truncates = truncated(spark, target, merge, staged)
    changes = _last_changes(staged.where(f"{quoted(OP)} <> {text(TRUNCATE)}"), target, merge).persist()
    try:
        ranges = _checked(changes, target, merge)
        if ranges is not None:
            changes.createOrReplaceTempView(_CHANGES)
            if may_hold(ranges):
                bounds = (*_between(target, ranges), *_named_values(changes, target, merge))
                spark.sql(_statement(target, merge, staged.columns, bounds)).collect()
            else:
                spark.sql(_addition(target, merge, staged.columns)).collect()
    finally:
        changes.unpersist()
    for statement in truncates:
        spark.sql(statement).collect()


def _placed(staged: DataFrame) -> DataFrame:
    return staged if PLACE in staged.columns else staged.selectExpr("*", f"0 AS {quoted(PLACE)}")


def _last_changes(staged: DataFrame, target: Target, merge: Merge) -> DataFrame:
    """One row per key: its last change `l`; where deleted rows stay, its last row `u`; the first and last of its places."""
    rows = staged.alias("c")
    row, order = f"struct({', '.join(f'c.{quoted(name)}' for name in staged.columns)})", order_of(merge, "c")
    place = place_of(merge, "c")
    found = [f"max_by({row}, {order}) AS l", f"min({place}) AS first_place", f"max({place}) AS last_place"]
    if merge.deleted is not None:
        found.append(f"max_by({row}, {order}) FILTER (WHERE c.{quoted(OP)} = {text(UPSERT)}) AS u")
    keys = [f"CAST(c.{quoted(name)} AS {target.types[name]}) AS {quoted(name)}" for name in merge.keys]
    return rows.groupBy(*(f.expr(key) for key in keys)).agg(*(f.expr(of) for of in found))


def _checked(changes: DataFrame, target: Target, merge: Merge) -> Ranges | None:
    """Least and largest value of keys, so that files beyond need not be read. None: no changes.

    Raises:
        Terminal: A key is null, or its changes can't be ordered.
        Retryable: Spark's answer was cut off.
    """
    bounded = [name for name in merge.keys if target.types[name].startswith((*_BOUNDED, "decimal"))]
    nulls = " OR ".join(f"{quoted(name)} IS NULL" for name in merge.keys)
    unordered = "false" if merge.order_by is None else f"l.{quoted(merge.order_by)} IS NULL"
    moved = "first_place <> last_place" if merge.order_by is None else "false"
    keys = told_keys(merge, "changes")
    # As texts: Python has no dates beyond the year 9999.
    ends = [f"CAST({of}({quoted(name)}) AS STRING)" for name in bounded for of in ("min", "max")]
    asked = changes.alias("changes").selectExpr(
        "count(*)",
        f"count_if({nulls} OR {unordered})",
        f"max(CASE WHEN {moved} THEN concat({keys}, ' in ', to_json(first_place), ' and ', to_json(last_place)) END)",
        *ends,
    )
    found = [column[0].as_py() for column in answered(asked, f"table {target.table}").columns]
    if found[1]:
        raise Terminal(
            f"table {target.table}: {found[1]:,} staged changes have no value in {', '.join((*merge.keys, merge.order_by or ''))}",
            next_step="this is a fault of Frazil, not of the data: please report it",
        )
    if found[2] is not None:
        raise moved_key(target.table, found[2])
    if not found[0]:
        return None
    values = found[3:]
    ends_of = zip(bounded, zip(values[::2], values[1::2], strict=True), strict=True)
    return {name: ends for name, ends in ends_of if all(len(end) <= _LONGEST_BOUND for end in ends)}


def moved_key(table: str, what: str) -> Terminal:
    """The error of a key whose changes are in two partitions."""
    return Terminal(
        f"table {table}: row {what}: offsets of two partitions don't say which change is the later one;"
        " did the topic get partitions, or another key?",
        next_step="name a column of the source's order under order_by, then give the table its part anew: frazil settle"
        f" PIPELINE --table {table} --restage --reason …",
    )


def _between(target: Target, ranges: Ranges) -> Iterator[str]:
    """Conditions that every row with a key of the batch meets."""
    for name, ends in ranges.items():
        least, most = (_literal(target, name, end) for end in ends)
        yield f"t.{quoted(name)} BETWEEN {least} AND {most}"


def _named_values(changes: DataFrame, target: Target, merge: Merge) -> Iterator[str]:
    """Partition values, where a key can't be in two partitions."""
    for name in merge.keys:
        if name not in target.partitioned_by or not target.types[name].startswith(_BOUNDED):
            continue
        values = changes.selectExpr(f"CAST({quoted(name)} AS STRING)").distinct().limit(_VALUES_NAMED + 1)
        found = answered(values, f"table {target.table}").column(0).to_pylist()
        if len(found) <= _VALUES_NAMED:
            yield f"t.{quoted(name)} IN ({', '.join(_literal(target, name, value) for value in found)})"


def _literal(target: Target, name: str, value: str) -> str:
    return f"CAST({text(value)} AS {target.types[name]})"


def _statement(target: Target, merge: Merge, staged: Sequence[str], bounds: tuple[str, ...]) -> str:
    on = " AND ".join([*(f"t.{quoted(name)} = s.{quoted(name)}" for name in merge.keys), *bounds])
    clauses = _hard(target, merge, staged) if merge.deleted is None else _soft(target, merge, staged, merge.deleted)
    return f"MERGE INTO {target.branch} AS t USING {_CHANGES} AS s ON {on} {' '.join(clauses)}"


def _addition(target: Target, merge: Merge, staged: Sequence[str]) -> str:
    """What the merge would insert where it finds no row of any key."""
    if merge.deleted is None:
        values, where = _hard_values(target, merge, staged), f"s.l.{quoted(OP)} = {text(UPSERT)}"
    else:
        values, where = _soft_values(target, merge, staged, merge.deleted), "true"
    every = _inserted(target, merge, values)
    return (
        f"INSERT INTO {target.branch} ({', '.join(map(quoted, every))})"  # noqa: S608 - quoted
        f" SELECT {', '.join(every.values())} FROM {_CHANGES} AS s WHERE {where}"
    )


def _hard_values(target: Target, merge: Merge, staged: Sequence[str]) -> dict[str, str]:
    values = {name: _value(target, "s.l", name) for name in _columns(target, merge, staged)}
    if DELETED in target.types:  # from when deleted rows stayed
        values[DELETED] = "false"
    return values


def _soft_values(target: Target, merge: Merge, staged: Sequence[str], deleted: str) -> dict[str, str]:
    facts = facts_of(merge)
    rows = {name: _value(target, "s.l" if name in facts else "s.u", name) for name in _columns(target, merge, staged)}
    return rows | {deleted: f"s.l.{quoted(OP)} = {text(DELETE)}"}


def _hard(target: Target, merge: Merge, staged: Sequence[str]) -> Iterator[str]:
    values = _hard_values(target, merge, staged)
    later, op = not_older(merge, "t", "s.l"), f"s.l.{quoted(OP)}"
    yield f"WHEN MATCHED AND {op} = {text(DELETE)} AND {later} THEN DELETE"
    yield f"WHEN MATCHED AND {op} = {text(UPSERT)} AND {later} THEN UPDATE SET {assigned(values)}"
    yield f"WHEN NOT MATCHED AND {op} = {text(UPSERT)} THEN {_insert(target, merge, values)}"


def _soft(target: Target, merge: Merge, staged: Sequence[str], deleted: str) -> Iterator[str]:
    """A deleted row keeps its values, and says which change deleted it: no older one brings it back."""
    facts, rows = facts_of(merge), _soft_values(target, merge, staged, deleted)
    is_news = f"s.u IS NOT NULL AND {not_older(merge, 't', 's.u')}"
    kept = {
        name: of if name in facts else f"CASE WHEN {is_news} THEN {of} ELSE t.{quoted(name)} END"
        for name, of in rows.items()
        if name != deleted
    }
    yield f"WHEN MATCHED AND {not_older(merge, 't', 's.l')} THEN UPDATE SET {assigned(kept | {deleted: rows[deleted]})}"
    yield f"WHEN NOT MATCHED THEN {_insert(target, merge, rows)}"


def _columns(target: Target, merge: Merge, staged: Sequence[str]) -> Iterator[str]:
    return (name for name in staged if name in target.types and name not in merge.keys)


def _value(target: Target, row: str, name: str) -> str:
    of = f"{row}.{quoted(name)}"
    return f"parse_json({of})" if name in target.variants else f"CAST({of} AS {target.types[name]})"


def _insert(target: Target, merge: Merge, values: Mapping[str, str]) -> str:
    every = _inserted(target, merge, values)
    return f"INSERT ({', '.join(map(quoted, every))}) VALUES ({', '.join(every.values())})"  # noqa: S608 - quoted


def _inserted(target: Target, merge: Merge, values: Mapping[str, str]) -> dict[str, str]:
    """All columns of the table; those that it got meanwhile are null."""
    keys = {name: f"s.{quoted(name)}" for name in merge.keys}
    return dict.fromkeys(target.types, "NULL") | dict(values) | keys
