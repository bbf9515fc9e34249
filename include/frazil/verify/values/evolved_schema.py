"""Columns that records added to a table without a declaration, and how the schema changed since a batch landed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any, NamedTuple

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import DecimalType, FixedType, IcebergType, ListType, MapType, NestedField, StructType

from frazil.pipeline.models.changes import DELETED
from frazil.pipeline.models.pipeline_file import Destination
from frazil.pipeline.models.value import Column, Value
from frazil.pipeline.syntax.types import VARIANT, parse_type
from frazil.verify.values.column_readers import InferredColumn, RescuedColumn

Row = Mapping[str, Any]


def has_undeclared_columns(destination: Destination) -> bool:
    """Whether rows may have columns of the table that the pipeline file does not declare."""
    return destination.evolves != "none" or not destination.columns


def compared_columns(destination: Destination, schema: Schema, value: Value) -> dict[str, Column]:
    """The columns to compare: the declared ones, or all columns of the table that can be read here.

    Left out are the Kafka columns and the column for rescued fields.
    """
    if not has_undeclared_columns(destination):
        return dict(destination.columns)
    added_names = {*destination.added_columns, *([DELETED] if destination.is_merged else []), value.rescued_column}
    columns = {}
    for field in schema.fields:
        text = _type_text(field.field_type)
        if field.name in added_names or text is None:
            continue
        declared = destination.columns.get(field.name)
        is_required = field.required or (declared is not None and declared.required and destination.evolves != "full")
        own = {} if declared is None else declared.model_dump(by_alias=True, exclude_unset=True)
        kind = _column_class(field.name, destination) if declared is None else Column
        columns[field.name] = kind.model_validate(own | {"type": text, "required": is_required})
    return columns


def _column_class(name: str, destination: Destination) -> type[Column]:
    """The class of an undeclared column, which decides how its values are read."""
    if destination.evolves == "none":
        return Column
    sources = [column.source for column in destination.columns.values() if column.source is not None]
    is_taken = any(not path or path[0] == name for path in sources)
    return InferredColumn if is_taken or destination.on_incompatible != "rescue" else RescuedColumn


def _type_text(iceberg_type: IcebergType) -> str | None:
    """An Iceberg type in the syntax of pipeline files; None for one that they don't know."""
    match iceberg_type:
        case ListType():
            parts = [_type_text(iceberg_type.element_type)]
            text = f"list<{parts[0]}>"
        case MapType():
            parts = [_type_text(iceberg_type.key_type), _type_text(iceberg_type.value_type)]
            text = f"map<{parts[0]}, {parts[1]}>"
        case StructType():
            parts = [_type_text(field.field_type) for field in iceberg_type.fields]
            names = [f"`{field.name.replace('`', '``')}`" for field in iceberg_type.fields]
            text = f"struct<{', '.join(f'{name}: {part}' for name, part in zip(names, parts, strict=True))}>"
        case _:
            return (
                str(iceberg_type)
                if isinstance(iceberg_type, DecimalType | FixedType) or _is_readable(iceberg_type)
                else None
            )
    return None if None in parts else text


def _is_readable(iceberg_type: IcebergType) -> bool:
    """Whether values of a type can be read here: a variant only an engine can read."""
    try:
        return parse_type(str(iceberg_type)) != VARIANT
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class ColumnChanges:
    """Columns of a table that changed since a batch landed.

    Attributes:
        changed: Columns whose type, name or nullability changed: a record that fits now may have been a dead letter then.
        added: Of these the columns that were missing, or that lacked fields: their values may be null. So may those of columns
            that were widened from `float` to `double`, whose values have other digits.
        renamed: Of these the columns that had another name, or a field of another name: their values are of that name.
    """

    changed: frozenset[str] = frozenset()
    added: frozenset[str] = frozenset()
    renamed: frozenset[str] = frozenset()

    def __or__(self, changes: ColumnChanges) -> ColumnChanges:
        return ColumnChanges(self.changed | changes.changed, self.added | changes.added, self.renamed | changes.renamed)

    def restricted_to(self, columns: Collection[str]) -> ColumnChanges:
        """The changes restricted to some columns."""
        return ColumnChanges(*(names.intersection(columns) for names in (self.changed, self.added, self.renamed)))


def earlier_schemas(rows: Iterable[Row], table: str, metadata: TableMetadata) -> dict[int, ColumnChanges]:
    """Number of each batch that may have landed under another schema -> the columns that changed since.

    The snapshot of the batch names its schema. If the snapshot is expired, any former schema is possible.
    """
    present = metadata.schema()
    changes_per_schema = {schema.schema_id: _changes_between(schema, present) for schema in metadata.schemas}
    any_changes = reduce(or_, changes_per_schema.values(), ColumnChanges())
    schema_of_snapshot = {snapshot.snapshot_id: snapshot.schema_id for snapshot in metadata.snapshots}
    changes_per_batch: dict[int, ColumnChanges] = {}
    for row in rows:
        schema = schema_of_snapshot.get(row["snapshot_id"]) if row["table"] == table else None
        if schema in changes_per_schema:
            changes_per_batch[row["n"]] = changes_per_schema[schema]
        else:
            changes_per_batch.setdefault(row["n"], any_changes)
    return {n: changes for n, changes in changes_per_batch.items() if changes.changed}


def _changes_between(former: Schema, present: Schema) -> ColumnChanges:
    before = {part for field in former.fields for part in _parts(field)}
    places_before, paths_before = {_part_identity(part) for part in before}, {part.number: part.path for part in before}
    after = {field.name: frozenset(_parts(field)) for field in present.fields}
    return ColumnChanges(
        frozenset(name for name, parts in after.items() if not parts <= before),
        frozenset(
            name for name, parts in after.items() if not {_part_identity(part) for part in parts} <= places_before
        ),
        frozenset(
            name
            for name, parts in after.items()
            if any(paths_before.get(part.number, part.path) != part.path for part in parts)
        ),
    )


class _Part(NamedTuple):
    """A column or a nested field of one; comments on it don't count."""

    path: tuple[str, ...]
    number: int
    type: str
    required: bool


def _part_identity(part: _Part) -> tuple[tuple[str, ...], int, bool]:
    return part.path, part.number, part.type == "float"


def _parts(field: NestedField, above: tuple[str, ...] = ()) -> Iterator[_Part]:
    path, field_type = (*above, field.name), field.field_type
    inner = _inner(field_type)
    yield _Part(path, field.field_id, type(field_type).__name__ if inner else str(field_type), field.required)
    for part in inner:
        yield from _parts(part, path)


def _inner(iceberg_type: IcebergType) -> tuple[NestedField, ...]:
    match iceberg_type:
        case StructType():
            return iceberg_type.fields
        case ListType():
            return (iceberg_type.element_field,)
        case MapType():
            return iceberg_type.key_field, iceberg_type.value_field
        case _:
            return ()
