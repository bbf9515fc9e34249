"""The type of a column for a JSON value, from nothing but the value.

Integers are longs, numbers with a fraction or an exponent are doubles, texts are texts whatever they look like. Numbers that these
don't hold are decimals. Null, `[]`, `{}` and what holds nothing else tell no type.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite
from typing import Final

import pyarrow as pa

from frazil.records.evolution.types import NOTHING, list_of, number_evidence, placeable, placed, struct_of
from frazil.records.evolution.widest import Room, Widest
from frazil.records.json.names import Fold
from frazil.records.model.evolution_policy import Evolution
from frazil.records.model.json_number import SURE_DIGITS, Number, scaled
from frazil.records.model.json_text import JsonValue

_MOST_DIGITS: Final = 38
_LONG_DIGITS: Final = 20
_LONG_LIMIT: Final = 1 << 63
_ANY_DIGIT: Final = str.maketrans("23456789", "11111111")


def infer(
    value: JsonValue, outer: int, evolution: Evolution, *, fold: Fold | None = None, room: Room | None = None
) -> tuple[pa.DataType, bool]:
    """Return the type of a column for a value, and whether it takes all of it.

    What lies too deep has no place in the type, nor have fields whose names no column can have.

    Args:
        value: The value.
        outer: Levels around it.
        evolution: Says how deep columns may be, and which names they may have.
        fold: What fields mean that differ in case only.
        room: Takes count of the fields; what is beyond has no place either.
    """
    if outer > evolution.max_depth or not tells(value):
        return NOTHING, not tells(value)
    room = room or Room()
    if isinstance(value, dict):
        return _struct(value, outer + 1, evolution, fold, room)
    if isinstance(value, list):
        return _list(value, outer + 1, evolution, fold, room)
    if isinstance(value, Number):
        return number_evidence(value), True
    return (pa.bool_() if isinstance(value, bool) else pa.string()), True


def _list(
    value: list[JsonValue], outer: int, evolution: Evolution, fold: Fold | None, room: Room
) -> tuple[pa.DataType, bool]:
    met, is_whole = Widest(fold is not None), True
    for item in _telling(value):
        found, whole = infer(item, outer, evolution, fold=fold, room=room)
        met.take(found)
        is_whole = is_whole and whole
    return list_of(met.type), is_whole


def _telling(items: list[JsonValue]) -> Iterator[JsonValue]:
    """Yield items of a list that tell all that the list tells: most lists hold millions of one kind, if they are long."""
    kinds = {type(item): item for item in items}
    if any(issubclass(kind, dict | list) for kind in kinds):
        yield from (item for item in items if isinstance(item, dict | list) and item)
    if Number in kinds:
        yield from _numbers(items)
    yield from (item for kind, item in kinds.items() if not issubclass(kind, dict | list | Number))


def _numbers(items: list[JsonValue]) -> Iterator[Number]:
    """Yield one of all short numbers whose digits stand in the same places, and each longer one."""
    shapes: set[str] = set()
    for item in items:
        if not isinstance(item, Number):
            continue
        if len(item) <= SURE_DIGITS:
            # What a number says of its column depends on its digits' places, and on an exponent's value.
            shape = "1" if item.isdecimal() else item if "e" in item or "E" in item else item.translate(_ANY_DIGIT)
            if shape in shapes:
                continue
            shapes.add(shape)
        yield item


def _struct(
    value: dict[str, JsonValue], outer: int, evolution: Evolution, fold: Fold | None, room: Room
) -> tuple[pa.DataType, bool]:
    fields: dict[str, pa.Field] = {}
    is_whole = True
    for position, (name, item) in enumerate(value.items()):
        found, whole = infer(item, outer, evolution, fold=fold, room=room)
        if found != NOTHING and not (placeable(name, evolution.max_name_length) and room.take()):
            found, whole = NOTHING, False
        is_whole = is_whole and whole
        key = name if fold is None else name.casefold()
        if found == NOTHING:  # no field is made: Arrow has no such name as half a character
            fields.pop(key, None)
        else:
            fields[key] = placed(pa.field(name, found), position)
    return struct_of(fields.values()), is_whole


def tells(value: JsonValue) -> bool:
    """Return whether a value holds anything that tells a type."""
    if isinstance(value, dict):
        return any(tells(item) for item in value.values())
    if isinstance(value, list):
        return any(map(tells, value))
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
