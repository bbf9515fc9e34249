"""Applies changes of columns to a schema, at any depth: additions, wider types, null, comments. Also writes changes of a table as
Spark SQL.

Paths are followed name by name: PyIceberg's own update joins them with dots, and a name may contain one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from frazil.batch.schema_change import SchemaChange
from frazil.error_codes import TABLE_UNFIT
from frazil.iceberg.schema.schema import iceberg_type, promotes
from frazil.pipeline.models.pipeline_file import Destination
from frazil.pipeline.settings.catalogs import refused_properties
from frazil.pipeline.syntax.types import ColumnType, ListOf, MapOf, Primitive, StructOf, parse_type


class _Overtaken(Exception):
    """A change no longer fits its column: another writer has changed the column's type meanwhile."""


def apply_changes(
    schema: Schema, changes: Iterable[SchemaChange], ids: Iterator[int], table: str, *, fold: bool = False
) -> tuple[Schema, tuple[SchemaChange, ...]]:
    """The schema after changes of columns, and those of the changes that it did not have before.

    A change is left out if its column is gone, or has a type by now that the change does not fit. Records that still need it
    ask for it again.

    A column comes before its fields. With `fold`, names that differ only in case are the same column, and an existing column
    keeps its spelling.

    Raises:
        Terminal: A column that identifies rows can't be null.
    """
    fields, applied = schema.fields, []
    for change in (change for change in changes if change.kind in _COLUMN_KINDS):
        try:
            after = _parts(
                _ColumnChange(change, ids, table, schema, fold).change_nested(StructType(*fields), change.path)
            )
        except _Overtaken:
            continue
        if after != fields:
            applied.append(change)
        fields = after
    docs = {_key(path, fold=fold): doc for change in applied for path, doc in change.docs}
    if docs:
        fields = _parts(_with_docs(StructType(*fields), docs, schema.highest_field_id, fold=fold))
    return Schema(*fields, identifier_field_ids=schema.identifier_field_ids), tuple(applied)


def _with_docs(
    parent: IcebergType, docs: Mapping[tuple[str, ...], str], last_id: int, path: tuple[str, ...] = (), *, fold: bool
) -> IcebergType:
    """The type with comments on its new fields: those with a higher id than `last_id`."""
    if parent.is_primitive:
        return parent
    fields = []
    for field in _parts(parent):
        field_path = (*path, field.name)
        update = {"field_type": _with_docs(field.field_type, docs, last_id, field_path, fold=fold)}
        doc = docs.get(_key(field_path, fold=fold)) if field.field_id > last_id else None
        fields.append(field.model_copy(update=update if doc is None else update | {"doc": doc}))
    return _with_parts(parent, fields)


def _key(path: tuple[str, ...], *, fold: bool) -> tuple[str, ...]:
    return tuple(name.casefold() for name in path) if fold else path


_COLUMN_KINDS = ("add", "widen", "optional", "doc")


@dataclass(frozen=True, slots=True)
class _ColumnChange:
    """Applies one change to the column that its path names."""

    change: SchemaChange
    ids: Iterator[int]
    table: str
    schema: Schema
    fold: bool

    def key(self, name: str) -> str:
        return name.casefold() if self.fold else name

    def change_nested(self, parent: IcebergType, path: Sequence[str]) -> IcebergType:
        """The type with the change applied to the field that the path names."""
        fields = _parts(parent)
        if parent.is_primitive:
            raise _Overtaken
        name, rest = path[0], path[1:]
        existing_name = next((field.name for field in fields if self.key(field.name) == self.key(name)), None)
        if existing_name is None:
            is_new = not rest and self.change.kind == "add" and isinstance(parent, StructType)
            return StructType(*fields, self.new_field(name, parse_type(self.change.type))) if is_new else parent
        if isinstance(parent, MapType) and name == "key":
            raise _Overtaken  # keys of maps never change
        return _with_parts(
            parent, [self.change_field(field, rest) if field.name == existing_name else field for field in fields]
        )

    def new_field(self, name: str, column_type: ColumnType) -> NestedField:
        return NestedField(next(self.ids), name, iceberg_type(column_type, self.ids), required=False)

    def change_field(self, field: NestedField, rest: Sequence[str]) -> NestedField:
        if rest:
            return field.model_copy(update={"field_type": self.change_nested(field.field_type, rest)})
        if self.change.kind == "optional":
            return self.optional(field)
        if self.change.kind == "doc":
            return field.model_copy(update={"doc": self.change.type})
        new_type = parse_type(self.change.type)
        change_type = self.widen if self.change.kind == "widen" else self.union
        return field.model_copy(update={"field_type": change_type(field.field_type, new_type)})

    def optional(self, field: NestedField) -> NestedField:
        if field.field_id in self.schema.identifier_field_ids:
            raise TABLE_UNFIT.terminal(
                f"table {self.table}, column {field.name}: it identifies rows, so it can't be null",
                next_step="declare evolve: widen, add or none; records without this value then become dead letters",
            )
        return field.model_copy(update={"required": False})

    def widen(self, current: IcebergType, new_type: ColumnType) -> IcebergType:
        target = iceberg_type(new_type, self.ids)
        if promotes(current, target):
            return target
        if not promotes(target, current):
            raise _Overtaken
        return current

    def union(self, current: IcebergType, new_type: ColumnType) -> IcebergType:
        """The current type with the missing fields of the new type. No type is widened: a change of its own does that."""
        match current, new_type:
            case StructType(), StructOf(fields):
                return self.join_structs(current, fields)
            case ListType(), ListOf(element):
                return _with_parts(current, [self.merge_field(current.element_field, element)])
            case MapType(), MapOf(key, value):
                self.union(current.key_type, key)
                return _with_parts(current, [current.key_field, self.merge_field(current.value_field, value)])
            case ((StructType() | ListType() | MapType()), _) | (_, (StructOf() | ListOf() | MapOf())):
                raise _Overtaken
        target = iceberg_type(new_type, self.ids)
        if not (promotes(current, target) or promotes(target, current)):
            raise _Overtaken
        return current

    def join_structs(self, struct: StructType, new_fields: Sequence[tuple[str, ColumnType]]) -> StructType:
        existing_names, types = (
            {self.key(field.name) for field in struct.fields},
            {self.key(name): column_type for name, column_type in new_fields},
        )
        merged_fields = [
            self.merge_field(field, types[self.key(field.name)]) if self.key(field.name) in types else field
            for field in struct.fields
        ]
        return StructType(
            *merged_fields,
            *(
                self.new_field(name, column_type)
                for name, column_type in new_fields
                if self.key(name) not in existing_names
            ),
        )

    def merge_field(self, field: NestedField, new_type: ColumnType) -> NestedField:
        return field.model_copy(update={"field_type": self.union(field.field_type, new_type)})


def new_fields(parent: IcebergType, last_id: int, parent_id: int = -1) -> Iterator[tuple[int, NestedField]]:
    """The fields with a higher id than `last_id`, each with the id of the field that contains it, or -1; without those inside them."""
    for field in _parts(parent):
        if field.field_id > last_id:
            yield parent_id, field
        else:
            yield from new_fields(field.field_type, last_id, field.field_id)


def _parts(nested: IcebergType) -> tuple[NestedField, ...]:
    match nested:
        case StructType():
            return nested.fields
        case ListType():
            return (nested.element_field,)
        case MapType():
            return (nested.key_field, nested.value_field)
    return ()


def _with_parts(nested: IcebergType, parts: Sequence[NestedField]) -> IcebergType:
    match nested:
        case ListType():
            (element,) = parts
            return ListType(element.field_id, element.field_type, element_required=element.required)
        case MapType():
            key, value = parts
            return MapType(
                key.field_id, key.field_type, value.field_id, value.field_type, value_required=value.required
            )
    return StructType(*parts)


_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SPARK_NAMES: Final[Mapping[str, str]] = {"long": "bigint", "timestamp": "timestamp_ntz", "timestamptz": "timestamp"}
"""Types that have another name in Spark. It has no time, uuid and fixed: those keep Iceberg's name."""


def alter_statements(
    destination: Destination, changes: Iterable[SchemaChange], hidden: Callable[[str], str] = str
) -> Iterator[str]:
    """One statement for each change, in their order. `hidden` replaces secret values by references before they are quoted."""
    table = _path(destination.table.split("."))
    return (f"ALTER TABLE {table} {_clause(change, destination, hidden)}" for change in changes)


def _clause(change: SchemaChange, destination: Destination, hidden: Callable[[str], str]) -> str:
    path, text = _path(change.path), change.type
    match change.kind:
        case "add":
            clause = f"ADD COLUMN {path} {_spark_type(parse_type(text))}"
        case "widen":
            clause = f"ALTER COLUMN {path} TYPE {_spark_type(parse_type(text))}"
        case "optional":
            clause = f"ALTER COLUMN {path} DROP NOT NULL"
        case "doc":
            clause = f"ALTER COLUMN {path} COMMENT {_text(hidden(text))}"
        case "identifier":
            clause = f"SET IDENTIFIER FIELDS {', '.join(_path([name]) for name in change.path)}"
        case "partition":
            clause = f"ADD PARTITION FIELD {text}" if text else f"DROP PARTITION FIELD {path}"
        case "sort":
            clause = f"WRITE LOCALLY ORDERED BY {text}" if text else "WRITE UNORDERED"
        case _:
            (name,) = change.path
            # A property that needs the settings' permission may hold a secret.
            value = "…" if any(refused_properties([name], ())) else destination.properties.get(name, "")
            clause = f"SET TBLPROPERTIES ({_text(name)} = {_text(hidden(value))})"
    return clause


def _path(names: Iterable[str]) -> str:
    return ".".join(name if _WORD.fullmatch(name) else "`" + name.replace("`", "``") + "`" for name in names)


def _text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _spark_type(column_type: ColumnType) -> str:
    match column_type:
        case ListOf(element):
            return f"array<{_spark_type(element)}>"
        case MapOf(key, value):
            return f"map<{_spark_type(key)}, {_spark_type(value)}>"
        case StructOf(fields):
            return f"struct<{', '.join(f'{_path([name])}: {_spark_type(inner)}' for name, inner in fields)}>"
        case Primitive(name):
            return _SPARK_NAMES.get(name, str(column_type))
