"""What a schema is after changes: which of them it has already, which it takes, and which don't go with it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NoReturn

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


def evolved(schema: Schema, changes: Iterable[SchemaChange], ids: Iterator[int], table: str) -> Evolved:
    """A schema with changes made. One whose column is gone meanwhile is left out: whoever needs it asks again.

    Args:
        schema: As it is.
        changes: What it is to have, a column before its fields.
        ids: Gives new fields their ids.
        table: Its name, for messages.

    Raises:
        Terminal: A column of that name has a type that does not go with a change.
    """
    fields, made = schema.fields, []
    for change in changes:
        after = _parts(_Changing(change, ids, table, schema).within(StructType(*fields), change.path))
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

    def within(self, of: IcebergType, path: Sequence[str]) -> IcebergType:
        """A type with a field inside it changed."""
        fields = _parts(of)
        if of.is_primitive:
            self.refuse(of)
        name, rest = path[0], path[1:]
        if all(field.name != name for field in fields):
            is_new = not rest and self.change.kind == "add" and isinstance(of, StructType)
            return StructType(*fields, self.new(name, parse_type(self.change.type))) if is_new else of
        if isinstance(of, MapType) and name == "key":
            self.refuse(of.key_type)  # keys of maps never change
        return _with_parts(of, [self.changed(field, rest) if field.name == name else field for field in fields])

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
        return found if promotes(to, found) else self.refuse(found)

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
            case ((StructType() | ListType() | MapType()), _):
                self.refuse(found)
            case _, (StructOf() | ListOf() | MapOf()):
                self.refuse(found)
        to = iceberg_type(wanted, self.ids)
        return found if promotes(found, to) or promotes(to, found) else self.refuse(found)

    def joined(self, found: StructType, wanted: Sequence[tuple[str, ColumnType]]) -> StructType:
        there, types = {field.name for field in found.fields}, dict(wanted)
        kept = [self.merged(field, types[field.name]) if field.name in types else field for field in found.fields]
        return StructType(*kept, *(self.new(name, of) for name, of in wanted if name not in there))

    def merged(self, field: NestedField, wanted: ColumnType) -> NestedField:
        return field.model_copy(update={"field_type": self.union(field.field_type, wanted)})

    def refuse(self, found: IcebergType) -> NoReturn:
        wanted = self.change.type or "one that may be null"
        raise Terminal(
            f"table {self.table}, column {'.'.join(self.change.path)}: records need {wanted}, the table has {found}; it was"
            " added or changed by somebody else at the same moment",
            next_step="run again: the records are held against the column as it is now, as on_incompatible says",
        )


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
