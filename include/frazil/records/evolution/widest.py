"""The narrowest type that takes the values of several: of numbers a wider one, of structs all fields, else text.

Types form a lattice: which of them are put together first, and how often, makes no difference. So the schema that a batch
asks for does not depend on how it was split over tasks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from frazil.batch.schema_change import REMEMBERED
from frazil.records.casting.source import Kind, kind_of
from frazil.records.evolution.types import (
    LARGE,
    NOTHING,
    WRITTEN_OUT,
    list_of,
    map_of,
    order_key,
    placed,
    position_of,
    struct_of,
)

_MOST_DIGITS: Final = 38
"""Of a decimal in Iceberg."""

_MOST_EVIDENCE: Final = 76
"""Of a decimal that stands for numbers that a double holds (`number_evidence`)."""

_INT_DIGITS: Final = {pa.int32(): 10, pa.int64(): 19, LARGE: 19}
_NUMBERS: Final = {Kind.INT, Kind.FLOAT, Kind.DECIMAL}


@dataclass(slots=True)
class Room:
    """How many more fields are remembered of records that are looked at together: keys may be data."""

    left: int = REMEMBERED

    def take(self) -> bool:
        """Return whether there is room for one more, and take it."""
        self.left -= 1
        return self.left >= 0


@dataclass
class Widest:
    """Types that were met in one place. Another one costs what it is long, however many there were.

    Attributes:
        fold: Whether names that differ in case only are the same field.
        room: For the fields of structs; a field beyond it is forgotten. None: for any number.
        scalar: The widest of those without parts.
        fields: Of structs, by the folded name: the first in order of its spellings, its first position, and what was met there.
        items: What was met in lists.
        keys: What was met as keys of maps.
        values: What was met as their values.
    """

    fold: bool = False
    room: Room | None = None
    scalar: pa.DataType = NOTHING
    fields: dict[str, tuple[str, int, Widest]] = field(default_factory=dict)
    items: Widest | None = None
    keys: Widest | None = None
    values: Widest | None = None

    def take(self, of: pa.DataType) -> Widest:
        """Meet a type, as `column_type` has it."""
        match kind_of(of):
            case Kind.NULL:
                pass
            case Kind.STRUCT:
                for index, each in enumerate(of):
                    self._take_field(each, position_of(each, index))
            case Kind.LIST:
                self.items = (self.items or Widest(self.fold, self.room)).take(of.value_type)
            case Kind.MAP:
                self.keys = (self.keys or Widest(self.fold, self.room)).take(of.key_type)
                self.values = (self.values or Widest(self.fold, self.room)).take(of.item_type)
            case _:
                self.scalar = _wider(self.scalar, of)
        return self

    def _take_field(self, of: pa.Field, position: int) -> None:
        key = of.name.casefold() if self.fold else of.name
        if (known := self.fields.get(key)) is None:
            if self.room is not None and not self.room.take():
                return
            known = of.name, position, Widest(self.fold, self.room)
        name, first, met = known
        self.fields[key] = (min(name, of.name), min(first, position), met.take(of.type))

    def _struct(self) -> pa.DataType:
        fields = sorted(self.fields.values(), key=lambda each: order_key(each[0], each[1]))
        return struct_of([placed(pa.field(name, met.type), position) for name, position, met in fields])

    @property
    def type(self) -> pa.DataType:
        """The narrowest type for all; `NOTHING` if none was met."""
        found = [
            self.scalar,
            self._struct(),
            NOTHING if self.items is None else list_of(self.items.type),
            NOTHING if self.keys is None or self.values is None else map_of(self.keys.type, self.values.type),
        ]
        kinds = [of for of in found if of != NOTHING]
        if not kinds:
            return NOTHING
        return kinds[0] if len(kinds) == 1 else pa.string()


def widest(left: pa.DataType, right: pa.DataType, *, fold: bool = False) -> pa.DataType:
    """Return the narrowest type for the values of two."""
    return Widest(fold).take(left).take(right).type


def _wider(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """Return the wider of two types without parts."""
    if left in {right, NOTHING}:
        return right
    kinds = {kind_of(left), kind_of(right)}
    if kinds <= _NUMBERS:
        return _wider_number(left, right)
    return pa.binary() if kinds == {Kind.BYTES} else pa.string()


def _wider_number(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    both = (left, right)
    if any(kind_of(each) is Kind.FLOAT for each in both):
        return pa.float64()
    if all(kind_of(each) is Kind.INT for each in both):
        return LARGE if LARGE in both else pa.int64()
    whole = max(_INT_DIGITS[each] if each in _INT_DIGITS else each.precision - max(each.scale, 0) for each in both)
    scale = max(0 if each in _INT_DIGITS else max(each.scale, 0) for each in both)
    if LARGE in both or any(pa.types.is_decimal128(each) and each.scale != WRITTEN_OUT for each in both):
        return pa.decimal128(whole + scale, scale) if whole + scale <= _MOST_DIGITS else pa.float64()
    if not any(map(pa.types.is_decimal256, both)):
        return pa.decimal128(whole, WRITTEN_OUT)
    return pa.decimal256(whole + scale, scale) if whole + scale <= _MOST_EVIDENCE else pa.float64()
