"""Infers the column type of a JSON value from the value alone.

Integers are longs, numbers with a fraction or an exponent are doubles, and strings are strings, whatever they look like.
Numbers that a long or a double can't hold are decimals. Null, `[]`, `{}` and what holds nothing else have no type.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite
from typing import Final

import pyarrow as pa

from frazil.records.evolution.types import (
    NO_TYPE,
    can_name_column,
    list_of,
    number_evidence,
    struct_of,
    with_position,
)
from frazil.records.evolution.widest import FieldBudget, Widest
from frazil.records.json.exact import Fold
from frazil.records.model.evolution_policy import Evolution
from frazil.records.model.json_number import SURE_DIGITS, Number, exact_value
from frazil.records.model.json_text import JsonValue

_MAX_PRECISION: Final = 38
_LONG_DIGITS: Final = 20
_LONG_LIMIT: Final = 1 << 63
_ANY_DIGIT: Final = str.maketrans("23456789", "11111111")


def infer(
    value: JsonValue, depth: int, evolution: Evolution, *, fold: Fold | None = None, budget: FieldBudget | None = None
) -> tuple[pa.DataType, bool]:
    """Return the column type for a value, and whether such a column takes the whole value.

    The type leaves out fields that are nested too deep, that no column can be named after, or that exceed the budget.

    `depth` is the number of levels around the value.
    """
    if depth > evolution.max_depth or not has_evidence(value):
        return NO_TYPE, not has_evidence(value)
    budget = budget or FieldBudget()
    if isinstance(value, dict):
        return _infer_struct(value, depth + 1, evolution, fold, budget)
    if isinstance(value, list):
        return _infer_list(value, depth + 1, evolution, fold, budget)
    if isinstance(value, Number):
        return number_evidence(value), True
    return (pa.bool_() if isinstance(value, bool) else pa.string()), True


def _infer_list(
    value: list[JsonValue], depth: int, evolution: Evolution, fold: Fold | None, budget: FieldBudget
) -> tuple[pa.DataType, bool]:
    element, is_whole = Widest(fold is not None), True
    for item in _distinct_evidence(value):
        item_type, is_whole_item = infer(item, depth, evolution, fold=fold, budget=budget)
        element.add(item_type)
        is_whole = is_whole and is_whole_item
    return list_of(element.type), is_whole


def _distinct_evidence(items: list[JsonValue]) -> Iterator[JsonValue]:
    """Yield the items that decide about the element type, without repetition: a long list mostly holds one kind of value."""
    kinds = {type(item): item for item in items}
    if any(issubclass(kind, dict | list) for kind in kinds):
        yield from (item for item in items if isinstance(item, dict | list) and item)
    if Number in kinds:
        yield from _distinct_numbers(items)
    yield from (item for kind, item in kinds.items() if not issubclass(kind, dict | list | Number))


def _distinct_numbers(items: list[JsonValue]) -> Iterator[Number]:
    """Yield one number of each form (digits in the same places), and every number too long for that."""
    shapes: set[str] = set()
    for item in items:
        if not isinstance(item, Number):
            continue
        if len(item) <= SURE_DIGITS:
            # The places of the digits decide about the column type of a short number, with an exponent its value as well.
            shape = "1" if item.isdecimal() else item if "e" in item or "E" in item else item.translate(_ANY_DIGIT)
            if shape in shapes:
                continue
            shapes.add(shape)
        yield item


def _infer_struct(
    value: dict[str, JsonValue], depth: int, evolution: Evolution, fold: Fold | None, budget: FieldBudget
) -> tuple[pa.DataType, bool]:
    fields: dict[str, pa.Field] = {}
    is_whole = True
    for position, (name, item) in enumerate(value.items()):
        field_type, is_whole_field = infer(item, depth, evolution, fold=fold, budget=budget)
        if field_type != NO_TYPE and not (can_name_column(name, evolution.max_name_length) and budget.take()):
            field_type, is_whole_field = NO_TYPE, False
        is_whole = is_whole and is_whole_field
        key = name if fold is None else name.casefold()
        if field_type == NO_TYPE:  # build no field: Arrow refuses a name with a lone surrogate
            fields.pop(key, None)
        else:
            fields[key] = with_position(pa.field(name, field_type), position)
    return struct_of(fields.values()), is_whole


def has_evidence(value: JsonValue) -> bool:
    """Return whether a value shows a type: somewhere in it is something other than null."""
    if isinstance(value, dict):
        return any(has_evidence(item) for item in value.values())
    if isinstance(value, list):
        return any(map(has_evidence, value))
    return value is not None


def wider_scalar(number: Number, column_type: pa.DataType) -> pa.DataType | None:
    """Return the type that a column must be widened to for a number that it can't hold; None if no widening helps."""
    if column_type == pa.int32():
        exact = exact_value(number)
        is_long = (
            exact.exponent >= 0 and exact.magnitude < _LONG_DIGITS and -_LONG_LIMIT <= exact.integer() < _LONG_LIMIT
        )
        return pa.int64() if is_long else None
    if column_type == pa.float32():
        return pa.float64() if isfinite(float(number)) else None
    if pa.types.is_decimal128(column_type):
        exact = exact_value(number)
        digits = exact.magnitude + column_type.scale
        fits = exact.exponent >= -column_type.scale and column_type.precision < digits <= _MAX_PRECISION
        return pa.decimal128(digits, column_type.scale) if fits else None
    return None
