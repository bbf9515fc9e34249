"""Which dead letters count as outcomes of a destination: its own, whose record did not become a row after all."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import reduce

from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThanOrEqual,
    In,
    IsNull,
    LessThan,
    Not,
    NotIn,
    Or,
)
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from frazil.verify.facts.coverage import rolled_back
from frazil.verify.facts.ledger import Batch, Range

_LANDED = "landed_batch"
"""Column of the dead letters: the batch that landed one after all."""


def not_landed(columns: Schema, batches: Sequence[Batch]) -> BooleanExpression:
    """Letters that are no rows: none landed them, or the batch that did was rolled back.

    A letter names the batch that landed it last. Where that one was rolled back and the rollback was taken back itself,
    an earlier landing may be the one that stands: then its row is there, and the ledger says so, not the mark.
    """
    if all(column.name != _LANDED for column in columns.fields):
        return AlwaysTrue()
    never: BooleanExpression = IsNull(_LANDED)  # type: ignore[call-arg, arg-type]
    undone = rolled_back(batches)
    if not undone:
        return never
    again = In(_LANDED, undone)  # type: ignore[call-arg, arg-type]
    return Or(never, And(again, Not(_any([_within(r, n) for r, n in _landed_before(batches, undone)]))))


def _landed_before(batches: Sequence[Batch], undone: frozenset[int]) -> Iterator[tuple[Range, int]]:
    """What standing batches landed of that which a later one landed too that was rolled back, and their numbers."""
    landings = [batch for batch in batches if batch.kind == "dead_letters"]
    lost = [r for batch in landings if batch.n in undone for r in batch.ranges]
    for batch in landings:
        for r in batch.ranges if batch.n not in undone else ():
            if any(_meet(r, other) for other in lost):
                yield r, batch.n


def _meet(one: Range, other: Range) -> bool:
    is_one = (one.topic, one.partition) == (other.topic, other.partition)
    return is_one and one.start < other.end and other.start < one.end


def _within(r: Range, n: int) -> BooleanExpression:
    """Letters of a range that were there before batch `n`."""
    place = And(EqualTo("topic", r.topic), EqualTo("partition", r.partition))  # type: ignore[call-arg, arg-type]
    offsets = And(GreaterThanOrEqual("offset", r.start), LessThan("offset", r.end))  # type: ignore[call-arg, arg-type]
    return And(place, offsets, LessThan("_frazil_batch", n))  # type: ignore[call-arg, arg-type]


def _any(found: Sequence[BooleanExpression]) -> BooleanExpression:
    """One of these: as a tree of small depth, for there may be a thousand."""
    if not found:
        return AlwaysFalse()
    middle = len(found) // 2
    return Or(_any(found[:middle]), _any(found[middle:])) if middle else found[0]


_OF_TABLE = "destination"
"""Column of the dead letters: the table that the record does not fit; null: the record as a whole."""

_BATCH = "_frazil_batch"


def letters_of(letters: Table, name: str, unlanded: BooleanExpression, absent: Collection[int]) -> BooleanExpression:
    """Letters that are outcomes of a destination: its own and those of records as a whole, unless they became rows.

    Args:
        letters: The dead letters.
        name: The destination.
        unlanded: Letters that did not become rows.
        absent: Numbers of batches that did not know the destination.
    """
    there = {column.name for column in letters.schema().fields}
    parts: list[BooleanExpression] = []
    # Below, mypy sees the fields of PyIceberg's models and not their __init__.
    if _OF_TABLE in there:
        parts.append(Or(IsNull(_OF_TABLE), EqualTo(_OF_TABLE, name)))  # type: ignore[call-arg, arg-type]
    if absent:
        parts.append(NotIn(_BATCH, absent))  # type: ignore[call-arg, arg-type]
    return reduce(And, parts, unlanded)
