"""The type of a column for a JSON value, from nothing but the value.

Integers are longs, numbers with a fraction or an exponent are doubles, texts are texts whatever they look like. Null, `[]`,
`{}` and what holds nothing else tell no type.
"""

from __future__ import annotations

from math import isfinite
from typing import Final

import pyarrow as pa

from frazil.records.evolve.types import NOTHING, list_of, placeable, struct_of
from frazil.records.evolve.widest import Widest
from frazil.records.json.names import Fold
from frazil.records.json.number import Number, scaled
from frazil.records.json.text import JsonValue

_MOST_DIGITS: Final = 38
_LONG_DIGITS: Final = 20
_LONG_LIMIT: Final = 1 << 63


def infer(value: JsonValue, depth: int, *, fold: Fold | None = None) -> tuple[pa.DataType, bool]:
    """Return the type of a column for a value, and whether it takes all of it.

    What lies deeper than `depth` more levels has no place in the type, nor have fields whose names no column can have.
    """
    if depth < 0 or not tells(value):
        return NOTHING, not tells(value)
    if isinstance(value, dict):
        return _struct(value, depth - 1, fold)
    if isinstance(value, list):
        return _list(value, depth - 1, fold)
    if isinstance(value, Number):
        return (pa.int64() if value.lstrip("-").isdecimal() else pa.float64()), True
    return (pa.bool_() if isinstance(value, bool) else pa.string()), True


def _list(value: list[JsonValue], depth: int, fold: Fold | None) -> tuple[pa.DataType, bool]:
    met, is_whole = Widest(fold is not None), True
    for item in value:
        found, whole = infer(item, depth, fold=fold)
        met.take(found)
        is_whole = is_whole and whole
    return list_of(met.type), is_whole


def _struct(value: dict[str, JsonValue], depth: int, fold: Fold | None) -> tuple[pa.DataType, bool]:
    fields: dict[str, tuple[str, pa.DataType]] = {}
    is_whole = True
    for name, item in value.items():
        found, whole = infer(item, depth, fold=fold)
        if found != NOTHING and not placeable(name):
            found, whole = NOTHING, False
        is_whole = is_whole and whole
        fields[name if fold is None else name.casefold()] = (name, found)
    return struct_of(dict(fields.values())), is_whole


def tells(value: JsonValue) -> bool:
    """Return whether a value holds anything that tells a type."""
    if isinstance(value, dict):
        return any(tells(item) for item in value.values())
    if isinstance(value, list):
        return any(tells(item) for item in value)
    return value is not None


def wider_scalar(number: Number, of: pa.DataType) -> pa.DataType | None:
    """Return the type that a column can be widened to for a number that it does not take, or None."""
    if of == pa.int32():
        exact = scaled(number)
        is_long = (
            exact.exponent >= 0 and exact.magnitude < _LONG_DIGITS and -_LONG_LIMIT <= exact.integer() < _LONG_LIMIT
        )
        return pa.int64() if is_long else None
    if of == pa.float32():
        return pa.float64() if isfinite(float(number)) else None
    if pa.types.is_decimal128(of):
        exact = scaled(number)
        digits = exact.magnitude + of.scale
        fits = exact.exponent >= -of.scale and of.precision < digits <= _MOST_DIGITS
        return pa.decimal128(digits, of.scale) if fits else None
    return None
