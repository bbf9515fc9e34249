"""Which dead letters are outcomes of records, as far as one destination goes."""

from __future__ import annotations

from collections.abc import Collection
from functools import reduce

from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, EqualTo, In, IsNull, NotIn, Or
from pyiceberg.table import Table

_LANDED = "landed_batch"
"""Column of the dead letters: the batch that landed one after all."""

_OF_TABLE = "destination"
"""Column of the dead letters: the table that the record does not fit; null: the record as a whole."""

_BATCH = "_frazil_batch"


def letters_of(letters: Table, name: str, undone: Collection[int], absent: Collection[int]) -> BooleanExpression:
    """Letters that are outcomes of a destination: its own and those of records as a whole, unless they became rows.

    Args:
        letters: The dead letters.
        name: The destination.
        undone: Numbers of batches that a rollback took back: what they landed is a letter again.
        absent: Numbers of batches that did not know the destination.
    """
    there = {column.name for column in letters.schema().fields}
    parts: list[BooleanExpression] = []
    # Below, mypy sees the fields of PyIceberg's models and not their __init__.
    if _LANDED in there:
        never: BooleanExpression = IsNull(_LANDED)  # type: ignore[call-arg, arg-type]
        parts.append(Or(never, In(_LANDED, undone)) if undone else never)  # type: ignore[call-arg, arg-type]
    if _OF_TABLE in there:
        parts.append(Or(IsNull(_OF_TABLE), EqualTo(_OF_TABLE, name)))  # type: ignore[call-arg, arg-type]
    if absent:
        parts.append(NotIn(_BATCH, absent))  # type: ignore[call-arg, arg-type]
    everything: BooleanExpression = AlwaysTrue()
    return reduce(And, parts, everything)
