"""What values of a shape need that their table does not have: the types of a schema are held against those of the columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import pyarrow as pa

from frazil.records.casting.nested import ExactPlan
from frazil.records.casting.renames import former_names
from frazil.records.casting.scalar import FitRules
from frazil.records.casting.source import Kind, kind_of, plain_type
from frazil.records.evolution.schema_requests import Asked, Path, room
from frazil.records.evolution.types import (
    NOTHING,
    column_type,
    held_names,
    leaves,
    only,
    placeable,
    unplaced,
    variant_name,
)
from frazil.records.model.column import ColumnSpec
from frazil.records.model.spec import RecordSpec


@dataclass
class Shape:
    """What is known of values of one shape.

    Attributes:
        asked: What they need, whatever they hold.
        wider: What they need as well if a value is out of its column's range.
        rest: Names of fields at the top that are kept as they are, in the column for rescued fields, and for each the paths
            of the fields that no column takes, because of which it is.
        others: Names of those that tell no type.
        fields: The fields under the names of the columns that take them.
    """

    asked: Asked
    wider: Asked
    rest: dict[str, set[Path]] = field(default_factory=dict)
    others: set[str] = field(default_factory=set)
    fields: tuple[pa.Field, ...] = ()


class Shapes:
    """Looks at shapes.

    Args:
        spec: What is wanted of the values, with an evolution.
        rules: What they may become.
    """

    def __init__(self, spec: RecordSpec, rules: FitRules) -> None:
        if spec.evolution is None:
            raise ValueError("a table that does not evolve asks for nothing")
        self._evolution: Final = spec.evolution
        self._fold: Final = spec.fold is not None
        self._rules: Final = rules
        self._inferred_rules: Final = replace(rules, number_texts=True, json_texts=True)
        self._declares: Final = spec.declares
        # JSON tells a value, not the type that it could have had.
        self._by_value: Final = spec.format.name == "json"
        self._room: Final = room(spec)
        self._held: Final = held_names(spec.columns)
        columns = [column for column in spec.column_specs if column.name != spec.rescued_column]
        self._columns: Final = {
            self._key(of.name): spec.columns.field(of.name) for of in columns if of.steps == (of.name,)
        }
        self._by_name: Final[dict[str, ColumnSpec]] = {of.name: of for of in columns}
        self._taken: Final = {self._key(of.steps[0]) for of in columns if of.steps}
        occupied = (*spec.columns.names, *spec.evolution.reserved, spec.rescued_column)
        self._occupied: Final = {self._key(name) for name in occupied}
        self._of_key: Final = {self._key(name) for name in spec.key_names}
        self._takes_all: Final = bool(spec.whole_columns)
        self._column_type: Final = partial(column_type, as_text=spec.evolution.as_text)

    def _key(self, name: str) -> str:
        return name.casefold() if self._fold else name

    def has(self, name: str) -> bool:
        """Return whether a field at the top has a column."""
        return self._key(name) in self._taken

    def of(self, schema: pa.Schema) -> Shape:
        """Look at a shape."""
        shape = Shape(Asked(self._fold), Asked(self._fold))
        shape.fields = tuple(self._fields(list(schema), self._columns, (), None, shape))
        return shape

    def _fields(
        self, source: Sequence[pa.Field], columns: dict[str, pa.Field], path: Path, top: str | None, shape: Shape
    ) -> list[pa.Field]:
        """Look at fields beside each other; return them under the names of their columns."""
        names = {self._key(of.name) for of in source}
        for position, of in enumerate(source):
            if self._key(of.name) not in columns:
                self._unknown(of, names, path, top, shape, position)
        return [self._field(of, names, columns, path, top, shape) for of in source]

    def _field(
        self, of: pa.Field, names: set[str], columns: dict[str, pa.Field], path: Path, top: str | None, shape: Shape
    ) -> pa.Field:
        column = columns.get(self._key(of.name))
        if column is None:
            return of
        fitting = self._fitting(of.type, column.type, (*path, column.name), top or of.name, shape)
        if fitting is not None:
            return of.with_type(fitting)
        found = self._whole(of.type, path)
        may_be_null = column.nullable or self._evolution.relaxes(*path, column.name)
        may_move = self._evolution.on_incompatible == "variant_column" and may_be_null
        if not may_move or found is None or found in {NOTHING, column.type}:
            return of
        other = variant_name(column.name, found)
        key = self._key(other)
        if key in names or (not path and key in self._occupied - columns.keys()):
            return of
        if (beside := columns.get(key)) is not None:
            moved = self._fitting(of.type, beside.type, (*path, beside.name), top or of.name, shape)
            return of if moved is None else pa.field(beside.name, moved)
        if self._room:
            shape.asked.add((*path, other), found)
        return of

    def _unknown(self, of: pa.Field, names: set[str], path: Path, top: str | None, shape: Shape, position: int) -> None:
        key = self._key(of.name)
        if top is None and (
            self._takes_all or key in self._of_key or (key in self._taken and key not in self._columns)
        ):
            return
        whole = self._column_type(of.type)
        if self._by_value:  # shapes are sorted by name, and may be of several values: they have no order of their own
            whole, position = unplaced(whole), 0
        if top is None and key in self._occupied:
            if whole == NOTHING:
                shape.others.add(of.name)
            else:
                shape.rest.setdefault(of.name, set()).add((of.name,))
            return
        found = self._pruned(whole, path)
        if found == NOTHING and kind_of(plain_type(of.type)) is not Kind.NULL:
            shape.asked.tells_nothing((*path, of.name))
        if found == NOTHING and whole == NOTHING:
            shape.others.update([of.name] if top is None else [])
            return
        fits = bool(self._room) and placeable(of.name, self._evolution.max_name_length, self._held)
        if found != whole or not fits:
            shape.rest.setdefault(top or of.name, set()).add((*path, of.name))
        if fits and found != NOTHING:
            former = [name for name in former_names(of) if self._key(name) not in names]
            shape.asked.add((*path, of.name), found, former, position=position)

    def _whole(self, of: pa.DataType, path: Path) -> pa.DataType | None:
        """Return the type of a column for all of a value, or None if it would be too deep."""
        found = self._column_type(of)
        return found if self._pruned(found, path) == found else None

    def _pruned(self, of: pa.DataType, path: Path) -> pa.DataType:
        """Return a type at a path without what lies too deep, or has a name that no column can have."""
        deepest, longest = self._evolution.max_depth - len(path) - 1, self._evolution.max_name_length
        kept = (leaf for leaf in leaves(of) if len(leaf) <= deepest and all(placeable(name, longest) for name in leaf))
        return only(of, frozenset(kept))

    def _fitting(self, of: pa.DataType, column: pa.DataType, path: Path, top: str, shape: Shape) -> pa.DataType | None:
        """Return a type under the names of the columns that take its fields; None if no value of it gets there."""
        source, found = plain_type(of), None
        match kind_of(source), kind_of(column):
            case Kind.NULL, _:
                found = of  # of `[]`, or of what is null in all records
            case Kind.STRUCT, Kind.STRUCT:
                inner = {self._key(each.name): each for each in column}
                found = pa.struct(self._fields(list(source), inner, path, top, shape))
            case Kind.STRUCT, Kind.MAP if kind_of(column.key_type) is Kind.TEXT:
                found = self._entries(source, column, path, top, shape)
            case Kind.LIST, Kind.LIST:
                element = self._fitting(source.value_type, column.value_type, (*path, "element"), top, shape)
                found = None if element is None else _like(source, source.value_field.with_type(element))
            case Kind.MAP, Kind.MAP:
                value = self._fitting(source.item_type, column.item_type, (*path, "value"), top, shape)
                found = None if value is None else pa.map_(source.key_field, source.item_field.with_type(value))
            case _:
                found = self._whole_fitting(of, column, path, shape)
        return found

    def _entries(
        self, source: pa.StructType, column: pa.MapType, path: Path, top: str, shape: Shape
    ) -> pa.DataType | None:
        """Return the type of a struct whose fields become entries of a map, under their own names."""
        at = (*path, "value")
        values = [self._fitting(each.type, column.item_type, at, top, shape) for each in source]
        if None in values:
            return None
        return pa.struct([each.with_type(value) for each, value in zip(source, values, strict=True)])

    def _whole_fitting(self, of: pa.DataType, column: pa.DataType, path: Path, shape: Shape) -> pa.DataType | None:
        """Return a type whose values become those of a column as they are, or None."""
        source = plain_type(of)
        if self._evolution.widens and (wider := _wider(source, column)) is not None:
            (shape.wider if self._by_value else shape.asked).widen(path, wider)
            return of
        plan = ExactPlan(self._rules if self._declares(path[0]) else self._inferred_rules)
        plan.exact(source, column, "")
        narrows = self._evolution.on_incompatible == "variant_column" and _narrows(source, column)
        return None if plan.problems or narrows else of

    def required(self) -> list[str]:
        """Return the names of columns without default that must have a value."""
        return [of.name for of in self._columns.values() if not of.nullable and not self._by_name[of.name].has_default]


def _like(source: pa.DataType, element: pa.Field) -> pa.DataType:
    return pa.large_list(element) if pa.types.is_large_list(source) else pa.list_(element)


def _wider(source: pa.DataType, column: pa.DataType) -> pa.DataType | None:
    """Return the type that a column can be widened to for all values of a type, or None if it needs or has none."""
    if kind_of(source) not in {Kind.INT, Kind.FLOAT, Kind.DECIMAL}:
        return None
    found = column_type(source)
    if (column, found) in {(pa.int32(), pa.int64()), (pa.float32(), pa.float64())}:
        return found
    if not (pa.types.is_decimal128(found) and pa.types.is_decimal128(column)) or found.scale > column.scale:
        return None
    digits = found.precision - found.scale + column.scale
    return pa.decimal128(digits, column.scale) if column.precision < digits <= _MOST_DIGITS else None


_MOST_DIGITS: Final = 38

_NARROWING: Final = {
    (Kind.INT, Kind.INT),
    (Kind.FLOAT, Kind.INT),
    (Kind.FLOAT, Kind.FLOAT),
    (Kind.DECIMAL, Kind.INT),
    (Kind.DECIMAL, Kind.DECIMAL),
}


def _narrows(source: pa.DataType, column: pa.DataType) -> bool:
    """Return whether only some numbers of a type fit a column."""
    if (kind_of(source), kind_of(column)) not in _NARROWING or (found := column_type(source)) == NOTHING:
        return False
    if kind_of(source) is not Kind.DECIMAL or kind_of(column) is Kind.INT:
        return found != column and (found, column) not in {(pa.int32(), pa.int64()), (pa.float32(), pa.float64())}
    whole = found.precision - found.scale > column.precision - column.scale
    return bool(whole or found.scale > column.scale)
