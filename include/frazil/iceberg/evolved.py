"""What a schema is after changes: which of them it has already, which it takes, and which don't go with it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pyiceberg.schema import Schema
from pyiceberg.types import (
    IcebergType,
    ListType,
    MapType,
    NestedField,
    StructType,
)

from frazil.batch.schema_change import SchemaChange
from frazil.errors import Terminal
from frazil.iceberg.promotion import promotes
from frazil.iceberg.schema import iceberg_type
from frazil.pipeline.types import ColumnType, ListOf, MapOf, StructOf, parse_type


@dataclass(frozen=True, slots=True)
class Evolved:
    """A schema after changes.

    Attributes:
        schema: The whole of it.
        made: The changes that it did not have before.
    """

    schema: Schema
    made: tuple[SchemaChange, ...]


class _Overtaken(Exception):
    """A column has a type that does not go with a change: somebody else made it so since records were looked at."""


def evolved(
    schema: Schema, changes: Iterable[SchemaChange], ids: Iterator[int], table: str, *, fold: bool = False
) -> Evolved:
    """A schema with changes made.

    Left out is one whose column is gone meanwhile, or has become of a type that does not go with it: records are held against
    the columns as they are then, and whoever still needs a change asks again.

    Args:
        schema: As it is.
        changes: What it is to have, a column before its fields.
        ids: Gives new fields their ids.
        table: Its name, for messages.
        fold: Whether names that differ in case only are the same column; the one that is there keeps its spelling.

    Raises:
        Terminal: A column that identifies rows can't be null.
    """
    fields, made = schema.fields, []
    for change in changes:
        try:
            after = _parts(_Changing(change, ids, table, schema, fold).within(StructType(*fields), change.path))
        except _Overtaken:
            continue
        if after != fields:
            made.append(change)
        fields = after
    return Evolved(Schema(*fields, identifier_field_ids=schema.identifier_field_ids), tuple(made))


@dataclass(frozen=True, slots=True)
class _Changing:
    """One change on its way down to its column."""

    change: SchemaChange
    ids: Iterator[int]
    table: str
    schema: Schema
    fold: bool

    def key(self, name: str) -> str:
        return name.casefold() if self.fold else name

    def within(self, of: IcebergType, path: Sequence[str]) -> IcebergType:
        """A type with a field inside it changed."""
        fields = _parts(of)
        if of.is_primitive:
            raise _Overtaken
        name, rest = path[0], path[1:]
        there = next((field.name for field in fields if self.key(field.name) == self.key(name)), None)
        if there is None:
            is_new = not rest and self.change.kind == "add" and isinstance(of, StructType)
            return StructType(*fields, self.new(name, parse_type(self.change.type))) if is_new else of
        if isinstance(of, MapType) and name == "key":
            raise _Overtaken  # keys of maps never change
        return _with_parts(of, [self.changed(field, rest) if field.name == there else field for field in fields])

    def new(self, name: str, of: ColumnType) -> NestedField:
        return NestedField(next(self.ids), name, iceberg_type(of, self.ids), required=False)

    def changed(self, field: NestedField, rest: Sequence[str]) -> NestedField:
        if rest:
            return field.model_copy(update={"field_type": self.within(field.field_type, rest)})
        if self.change.kind == "optional":
            return self.optional(field)
        wanted = parse_type(self.change.type)
        take = self.widened if self.change.kind == "widen" else self.union
        return field.model_copy(update={"field_type": take(field.field_type, wanted)})

    def optional(self, field: NestedField) -> NestedField:
        if field.field_id in self.schema.identifier_field_ids:
            raise Terminal(
                f"table {self.table}, column {field.name}: it identifies rows, so it can't be null",
                next_step="records without it are dead letters: declare evolve: widen or less",
            )
        return field.model_copy(update={"required": False})

    def widened(self, found: IcebergType, wanted: ColumnType) -> IcebergType:
        to = iceberg_type(wanted, self.ids)
        if promotes(found, to):
            return to
        if not promotes(to, found):
            raise _Overtaken
        return found

    def union(self, found: IcebergType, wanted: ColumnType) -> IcebergType:
        """What is there with the fields that are wanted and not there. A narrower type stays: whoever needs more asks."""
        match found, wanted:
            case StructType(), StructOf(fields):
                return self.joined(found, fields)
            case ListType(), ListOf(element):
                return _with_parts(found, [self.merged(found.element_field, element)])
            case MapType(), MapOf(key, value):
                self.union(found.key_type, key)
                return _with_parts(found, [found.key_field, self.merged(found.value_field, value)])
            case ((StructType() | ListType() | MapType()), _) | (_, (StructOf() | ListOf() | MapOf())):
                raise _Overtaken
        to = iceberg_type(wanted, self.ids)
        if not (promotes(found, to) or promotes(to, found)):
            raise _Overtaken
        return found

    def joined(self, found: StructType, wanted: Sequence[tuple[str, ColumnType]]) -> StructType:
        there, types = {self.key(field.name) for field in found.fields}, {self.key(name): of for name, of in wanted}
        kept = [
            self.merged(field, types[self.key(field.name)]) if self.key(field.name) in types else field
            for field in found.fields
        ]
        return StructType(*kept, *(self.new(name, of) for name, of in wanted if self.key(name) not in there))

    def merged(self, field: NestedField, wanted: ColumnType) -> NestedField:
        return field.model_copy(update={"field_type": self.union(field.field_type, wanted)})


def _parts(of: IcebergType) -> tuple[NestedField, ...]:
    match of:
        case StructType():
            return of.fields
        case ListType():
            return (of.element_field,)
        case MapType():
            return (of.key_field, of.value_field)
    return ()


def _with_parts(of: IcebergType, parts: Sequence[NestedField]) -> IcebergType:
    match of:
        case ListType():
            (element,) = parts
            return ListType(element.field_id, element.field_type, element_required=element.required)
        case MapType():
            key, value = parts
            return MapType(
                key.field_id, key.field_type, value.field_id, value.field_type, value_required=value.required
            )
    return StructType(*parts)
