"""Which of two changes of a row is the later one, as conditions of Spark's SQL.

Rows carry the topic, partition and offset of their last change, so a change that comes again, late, or by a run that slept
is told apart from news. Without a column to order by, offsets say so, which mean something within one partition only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from frazil.batch.changes import PLACE
from frazil.batch.merge import Merge
from frazil.spark.quoting import quoted, text

MOVED: Final = "frazil: a key moved: "
"""Begins what Spark is made to fail with when a row's last change is of another partition."""


def place_of(merge: Merge, row: str) -> str:
    """Topic and partition of a change."""
    return f"struct({_of(row, merge.columns.topic)}, {_of(row, merge.columns.partition)})"


def order_of(merge: Merge, row: str) -> str:
    """What is larger for the later one of two changes in one batch."""
    offset = [_of(row, merge.columns.offset), _of(row, PLACE)]
    if merge.order_by is None:
        return f"struct({', '.join(offset)})"
    place = [_of(row, name) for name in (merge.order_by, merge.columns.topic, merge.columns.partition)]
    return f"struct({', '.join([*place, *offset])})"


def not_older(merge: Merge, row: str, change: str) -> str:
    """Whether a change is later than a row's last one, or that very one. A key that moved ends the statement.

    Args:
        merge: What orders changes.
        row: The row of the table, an alias.
        change: The change, an alias or a struct.
    """
    names = merge.columns
    offset = f"{_of(change, names.offset)} >= {_of(row, names.offset)}"
    same_place = f"{place_of(merge, row)} = {place_of(merge, change)}"
    if merge.order_by is None:
        moved = f"CAST(raise_error(concat({text(MOVED)}, {told_keys(merge, row)}, {_told(merge, row)}, {_told(merge, change)})) AS BOOLEAN)"
        return f"(CASE WHEN {unplaced(merge, row)} THEN true WHEN {same_place} THEN {offset} ELSE {moved} END)"
    mine, its = _of(change, merge.order_by), _of(row, merge.order_by)
    ends = [_of(of, names.offset) for of in (change, row)]
    tie = f"struct({place_of(merge, change)}, {ends[0]}) >= struct({place_of(merge, row)}, {ends[1]})"
    return (
        f"(CASE WHEN {replaced(merge, row)} OR {its} IS NULL OR {mine} > {its} THEN true WHEN {mine} < {its} THEN false"
        f" WHEN {unplaced(merge, row)} THEN true ELSE {tie} END)"
    )


def unplaced(merge: Merge, row: str) -> str:
    """Whether a row's offset says nothing: no record changed it, or one of an earlier incarnation of its topic."""
    names = merge.columns
    nulls = (f"{_of(row, name)} IS NULL" for name in (names.topic, names.partition, names.offset))
    return f"({' OR '.join([*nulls, replaced(merge, row)])})"


def replaced(merge: Merge, row: str) -> str:
    """Whether a row's last change is of an earlier incarnation of its topic: it is older than any, whatever orders them."""
    names = merge.columns
    earlier = (
        f"coalesce({_of(row, names.topic)} = {text(topic)} AND coalesce({_of(row, names.batch)} < {n}, true), false)"
        for topic, n in sorted(merge.since.items())
    )
    return f"({' OR '.join(earlier) or 'false'})"


def _told(merge: Merge, row: str) -> str:
    """Coordinates of a change, for a message: parts of a text."""
    names = merge.columns
    parts: Iterator[str] = (
        f"{text(f', {label} ')}, CAST({_of(row, name)} AS STRING)"
        for label, name in (("topic", names.topic), ("partition", names.partition), ("offset", names.offset))
    )
    return ", ".join(parts)


def told_keys(merge: Merge, row: str) -> str:
    """Names and values of a row's key, for a message: parts of a text."""
    return ", ', ', ".join(f"{text(f'{name} ')}, CAST({_of(row, name)} AS STRING)" for name in merge.keys)


def _of(row: str, name: str) -> str:
    return f"{row}.{quoted(name)}"
