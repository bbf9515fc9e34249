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

from frazil.verify.facts.coverage import rolled_back_batches
from frazil.verify.facts.ledger import Batch, Range

_LANDED = "landed_batch"
"""Column of the dead letters: the batch that landed one after all."""


def unlanded_filter(columns: Schema, batches: Sequence[Batch]) -> BooleanExpression:
    """Filter for dead letters that have no row: never landed, or landed by a batch that was rolled back.

    A letter names only the batch that landed it last. If that batch was rolled back, an earlier landing may still
    stand: then the row is there, which the ledger knows and the letter does not.
    """
    if all(column.name != _LANDED for column in columns.fields):
        return AlwaysTrue()
    never_landed: BooleanExpression = IsNull(_LANDED)  # type: ignore[call-arg, arg-type]
    undone = rolled_back_batches(batches)
    if not undone:
        return never_landed
    landed_by_undone = In(_LANDED, undone)  # type: ignore[call-arg, arg-type]
    return Or(
        never_landed,
        And(
            landed_by_undone,
            Not(_any_condition([_letters_before_batch(r, n) for r, n in _standing_landings(batches, undone)])),
        ),
    )


def _standing_landings(batches: Sequence[Batch], undone: frozenset[int]) -> Iterator[tuple[Range, int]]:
    """Ranges, with batch numbers, that a standing batch landed and a rolled-back batch landed too."""
    landings = [batch for batch in batches if batch.kind == "dead_letters"]
    undone_ranges = [r for batch in landings if batch.n in undone for r in batch.ranges]
    for batch in landings:
        for r in batch.ranges if batch.n not in undone else ():
            if any(_overlap(r, lost_range) for lost_range in undone_ranges):
                yield r, batch.n


def _overlap(first: Range, second: Range) -> bool:
    is_same_partition = (first.topic, first.partition) == (second.topic, second.partition)
    return is_same_partition and first.start < second.end and second.start < first.end


def _letters_before_batch(r: Range, n: int) -> BooleanExpression:
    """Filter for letters of a range that were written before batch `n`."""
    in_partition = And(EqualTo("topic", r.topic), EqualTo("partition", r.partition))  # type: ignore[call-arg, arg-type]
    in_range = And(GreaterThanOrEqual("offset", r.start), LessThan("offset", r.end))  # type: ignore[call-arg, arg-type]
    return And(in_partition, in_range, LessThan("_frazil_batch", n))  # type: ignore[call-arg, arg-type]


def _any_condition(conditions: Sequence[BooleanExpression]) -> BooleanExpression:
    """The disjunction of conditions, as a balanced tree: a chain of a thousand would exceed the recursion limit."""
    if not conditions:
        return AlwaysFalse()
    middle = len(conditions) // 2
    return Or(_any_condition(conditions[:middle]), _any_condition(conditions[middle:])) if middle else conditions[0]


_DESTINATION = "destination"
"""Column of the dead letters: the table that the record does not fit; null: the record as a whole."""

_BATCH = "_frazil_batch"


def letters_filter(
    letters: Table, name: str, unlanded: BooleanExpression, absent: Collection[int]
) -> BooleanExpression:
    """Filter for letters that are outcomes of a destination: its own, and those of whole records, unless they became rows.
    Letters of batches from before the destination existed (`absent`) do not count.
    """
    column_names = {column.name for column in letters.schema().fields}
    parts: list[BooleanExpression] = []
    # Below, mypy sees the fields of PyIceberg's models and not their __init__.
    if _DESTINATION in column_names:
        parts.append(Or(IsNull(_DESTINATION), EqualTo(_DESTINATION, name)))  # type: ignore[call-arg, arg-type]
    if absent:
        parts.append(NotIn(_BATCH, absent))  # type: ignore[call-arg, arg-type]
    return reduce(And, parts, unlanded)
