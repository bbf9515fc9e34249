"""Which dead letters are outcomes of records, as far as one destination goes."""

from __future__ import annotations

from collections.abc import Collection
from functools import reduce

from pyiceberg.expressions import And, BooleanExpression, EqualTo, IsNull, NotIn, Or
from pyiceberg.table import Table

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
