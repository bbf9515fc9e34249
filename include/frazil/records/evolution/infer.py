"""Infers the column type of a JSON value, and finds the narrowest type that holds the values of several types.

Integers are longs, numbers with a fraction or an exponent are doubles, and strings are strings, whatever they look like.
Numbers that a long or a double can't hold are decimals. Null, `[]`, `{}`, and values that contain nothing else have no type.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Final

import pyarrow as pa

from frazil.batch.schema_change import MOST_DEMANDS
from frazil.records.casting.source import Kind, kind_of
from frazil.records.evolution.types import (
    LARGE,
    MAX_EVIDENCE_PRECISION,
    MAX_PRECISION,
    NO_TYPE,
    WRITTEN_OUT,
    can_name_column,
    list_of,
    map_of,
    number_evidence,
    order_key,
    position_of,
    struct_of,
    with_position,
)
from frazil.records.json.exact import Fold
from frazil.records.model.json_number import SURE_DIGITS, JsonObject, JsonValue, Number, exact_value
from frazil.records.model.spec import Evolution

# Types form a lattice: the order and the number of merges make no difference. So the schema that a batch requests does not
# depend on how the batch was split into tasks.

_INTEGER_DIGITS: Final = {pa.int32(): 10, pa.int64(): 19, LARGE: 19}
_NUMBER_KINDS: Final = {Kind.INT, Kind.FLOAT, Kind.DECIMAL}


@dataclass(slots=True)
class FieldBudget:
    """The number of fields that may still be remembered for a group of records: keys may be data, so there may be any number."""

    remaining: int = MOST_DEMANDS

    def take(self) -> bool:
        """Spend one field; return whether the budget had one left."""
        self.remaining -= 1
        return self.remaining >= 0


@dataclass
class Widest:
    """Accumulates the types of one field. The time to add a type depends on its size alone, not on what was added before.

    Attributes:
        fold: Whether names that differ in case only are the same field.
        budget: Limits the struct fields; a field beyond is ignored. None: no limit.
        scalar: The widest of the types without parts.
        fields: Struct fields by casefolded name: the spelling that sorts first, the lowest position, and the types.
        items: Types of list elements.
        keys: Types of map keys.
        values: Types of map values.
    """

    fold: bool = False
    budget: FieldBudget | None = None
    scalar: pa.DataType = NO_TYPE
    fields: dict[str, tuple[str, int, Widest]] = field(default_factory=dict)
    items: Widest | None = None
    keys: Widest | None = None
    values: Widest | None = None

    def add(self, data_type: pa.DataType) -> Widest:
        """Add a type that `column_type` or `infer` returned."""
        match kind_of(data_type):
            case Kind.NULL:
                pass
            case Kind.STRUCT:
                for index, child in enumerate(data_type):
                    self._add_field(child, position_of(child, index))
            case Kind.LIST:
                self.items = (self.items or Widest(self.fold, self.budget)).add(data_type.value_type)
            case Kind.MAP:
                self.keys = (self.keys or Widest(self.fold, self.budget)).add(data_type.key_type)
                self.values = (self.values or Widest(self.fold, self.budget)).add(data_type.item_type)
            case _:
                self.scalar = _wider(self.scalar, data_type)
        return self

    def _add_field(self, struct_field: pa.Field, position: int) -> None:
        key = struct_field.name.casefold() if self.fold else struct_field.name
        if (previous := self.fields.get(key)) is None:
            if self.budget is not None and not self.budget.take():
                return
            previous = struct_field.name, position, Widest(self.fold, self.budget)
        name, first, widest_type = previous
        self.fields[key] = (min(name, struct_field.name), min(first, position), widest_type.add(struct_field.type))

    def has(self, path: Sequence[str]) -> bool:
        """Return whether the field at a path from here is remembered."""
        if not path:
            return True
        part = {"element": self.items, "key": self.keys, "value": self.values}.get(path[0])
        if part is not None and part.has(path[1:]):
            return True
        field = self.fields.get(path[0].casefold() if self.fold else path[0])
        return field is not None and field[2].has(path[1:])

    def _struct(self) -> pa.DataType:
        fields = sorted(self.fields.values(), key=lambda each: order_key(each[0], each[1]))
        return struct_of(
            [with_position(pa.field(name, widest_type.type), position) for name, position, widest_type in fields]
        )

    @property
    def type(self) -> pa.DataType:
        """The narrowest type that holds all added ones; `NO_TYPE` if none was added."""
        candidates = [
            self.scalar,
            self._struct(),
            NO_TYPE if self.items is None else list_of(self.items.type),
            NO_TYPE if self.keys is None or self.values is None else map_of(self.keys.type, self.values.type),
        ]
        kinds = [candidate for candidate in candidates if candidate != NO_TYPE]
        if not kinds:
            return NO_TYPE
        return kinds[0] if len(kinds) == 1 else pa.string()


def widest(first: pa.DataType, second: pa.DataType, *, fold: bool = False) -> pa.DataType:
    """Return the narrowest type that holds the values of two types."""
    return Widest(fold).add(first).add(second).type


def _wider(first: pa.DataType, second: pa.DataType) -> pa.DataType:
    """Return the narrowest type that holds two types without parts."""
    if first in {second, NO_TYPE}:
        return second
    kinds = {kind_of(first), kind_of(second)}
    if kinds <= _NUMBER_KINDS:
        return _wider_number(first, second)
    return pa.binary() if kinds == {Kind.BYTES} else pa.string()


def _wider_number(first: pa.DataType, second: pa.DataType) -> pa.DataType:
    numbers = (first, second)
    if any(kind_of(number) is Kind.FLOAT for number in numbers):
        return pa.float64()
    if all(kind_of(number) is Kind.INT for number in numbers):
        return LARGE if LARGE in numbers else pa.int64()
    whole = max(
        _INTEGER_DIGITS[number] if number in _INTEGER_DIGITS else number.precision - max(number.scale, 0)
        for number in numbers
    )
    scale = max(0 if number in _INTEGER_DIGITS else max(number.scale, 0) for number in numbers)
    if LARGE in numbers or any(pa.types.is_decimal128(number) and number.scale != WRITTEN_OUT for number in numbers):
        return pa.decimal128(whole + scale, scale) if whole + scale <= MAX_PRECISION else pa.float64()
    if not any(map(pa.types.is_decimal256, numbers)):
        return pa.decimal128(whole, WRITTEN_OUT)
    return pa.decimal256(whole + scale, scale) if whole + scale <= MAX_EVIDENCE_PRECISION else pa.float64()


_LONG_DIGITS: Final = 20
_LONG_LIMIT: Final = 1 << 63
_ANY_DIGIT: Final = str.maketrans("23456789", "11111111")


def infer(
    value: JsonValue, depth: int, evolution: Evolution, *, fold: Fold | None = None, budget: FieldBudget | None = None
) -> tuple[pa.DataType, bool]:
    """Return the column type for a value, and whether such a column takes the whole value.

    The type leaves out fields that are nested too deep, have a name that no column can have, or exceed the budget.

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
    """Yield the items that decide about the element type, without repeating a kind: most long lists have items of one kind."""
    kinds = {type(item): item for item in items}
    if any(issubclass(kind, dict | list) for kind in kinds):
        yield from (item for item in items if isinstance(item, dict | list) and item)
    if Number in kinds:
        yield from _distinct_numbers(items)
    yield from (item for kind, item in kinds.items() if not issubclass(kind, dict | list | Number))


def _distinct_numbers(items: list[JsonValue]) -> Iterator[Number]:
    """Yield one number of each form, such as `-1.1` for all with digits in these places, and each number that is longer."""
    shapes: set[str] = set()
    for item in items:
        if not isinstance(item, Number):
            continue
        if len(item) <= SURE_DIGITS:
            # The places of the digits decide about the column type of a short number; with an exponent, its value does.
            shape = "1" if item.isdecimal() else item if "e" in item or "E" in item else item.translate(_ANY_DIGIT)
            if shape in shapes:
                continue
            shapes.add(shape)
        yield item


def _infer_struct(
    value: JsonObject, depth: int, evolution: Evolution, fold: Fold | None, budget: FieldBudget
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
        fits = exact.exponent >= -column_type.scale and column_type.precision < digits <= MAX_PRECISION
        return pa.decimal128(digits, column_type.scale) if fits else None
    return None
