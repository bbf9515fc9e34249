"""The narrowest type that holds the values of several types: the wider number, a struct of all fields, or else string.

Types form a lattice: the order and the number of merges make no difference. So the schema that a batch asks for does not
depend on how the batch was split over tasks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from frazil.batch.schema_change import REMEMBERED
from frazil.records.casting.source import Kind, kind_of
from frazil.records.evolution.types import (
    LARGE,
    NO_TYPE,
    WRITTEN_OUT,
    list_of,
    map_of,
    order_key,
    position_of,
    struct_of,
    with_position,
)

_MAX_PRECISION: Final = 38
"""Of a decimal in Iceberg."""

_MAX_EVIDENCE_PRECISION: Final = 76
"""Of a decimal that stands for numbers that a double holds (`number_evidence`)."""

_INTEGER_DIGITS: Final = {pa.int32(): 10, pa.int64(): 19, LARGE: 19}
_NUMBER_KINDS: Final = {Kind.INT, Kind.FLOAT, Kind.DECIMAL}


@dataclass(slots=True)
class FieldBudget:
    """The number of further fields that may be remembered for a group of records: JSON keys may be data, without end."""

    remaining: int = REMEMBERED

    def take(self) -> bool:
        """Spend one field; return whether the budget had one left."""
        self.remaining -= 1
        return self.remaining >= 0


@dataclass
class Widest:
    """Accumulates the types of one field. Adding a type costs time by its own size, whatever was added before.

    Attributes:
        fold: Whether names that differ in case only are the same field.
        budget: Limits the struct fields; one beyond it is forgotten. None: no limit.
        scalar: The widest of the types without children.
        fields: Struct fields by folded name: the spelling that sorts first, the lowest position, and their types.
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
        """Add a type, as `column_type` returns it."""
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

    def _struct(self) -> pa.DataType:
        fields = sorted(self.fields.values(), key=lambda each: order_key(each[0], each[1]))
        return struct_of(
            [with_position(pa.field(name, widest_type.type), position) for name, position, widest_type in fields]
        )

    @property
    def type(self) -> pa.DataType:
        """The narrowest type that holds all added ones; `NO_TYPE` if there is none."""
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
    """Return the narrowest type that holds two types without children."""
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
        return pa.decimal128(whole + scale, scale) if whole + scale <= _MAX_PRECISION else pa.float64()
    if not any(map(pa.types.is_decimal256, numbers)):
        return pa.decimal128(whole, WRITTEN_OUT)
    return pa.decimal256(whole + scale, scale) if whole + scale <= _MAX_EVIDENCE_PRECISION else pa.float64()
