"""Turns declared columns into an Iceberg schema, partition spec and sort order, and a table's schema into Arrow. Also compares
types.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import IdentityTransform, Transform, parse_transform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from frazil.error_codes import BAD_SCHEMA, TABLE_UNFIT
from frazil.iceberg.patches.metadata import VariantType, as_text
from frazil.pipeline.models import pipeline_file
from frazil.pipeline.models.layout import DELETED, HISTORY_COLUMNS
from frazil.pipeline.syntax.types import ColumnType, ListOf, MapOf, Primitive, StructOf


def takes_table_columns(destination: pipeline_file.Destination) -> bool:
    """Whether rows have all columns of the table, not only the declared ones."""
    return destination.evolves != "none" or not destination.columns


def same_shape(declared: IcebergType, actual: IcebergType) -> bool:
    """Whether two types are equal, field ids aside."""
    return _shape(declared) == _shape(actual)


def _shape(iceberg_type: IcebergType) -> object:
    """A type without field ids."""
    match iceberg_type:
        case ListType():
            return ("list", _shape(iceberg_type.element_type))
        case MapType():
            return ("map", _shape(iceberg_type.key_type), _shape(iceberg_type.value_type))
        case StructType():
            return ("struct", *((f.name, _shape(f.field_type)) for f in iceberg_type.fields))
    return str(iceberg_type)


def promotes(current: IcebergType, target: IcebergType) -> bool:
    """Whether a column may be promoted to another type, as in table format version 2 (table specification, "Schema Evolution").

    Each type promotes to itself.
    """
    match current, target:
        case (IntegerType(), LongType()) | (FloatType(), DoubleType()):
            return True
        case DecimalType(), DecimalType():
            return current.scale == target.scale and current.precision <= target.precision
    return current == target


_PLAIN: dict[str, IcebergType] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "date": DateType(),
    "time": TimeType(),
    "timestamp": TimestampType(),
    "timestamptz": TimestamptzType(),
    "string": StringType(),
    "uuid": UUIDType(),
    "binary": BinaryType(),
    "variant": VariantType(),
}
UNWRITABLE = {
    ("uuid", "identity"),
    ("time", "bucket"),
    ("binary", "truncate"),
    ("float", "identity"),
    ("double", "identity"),
}
"""Type and partition transform that the table specification allows and that PyIceberg 0.12 can't write, or not without doubling 0.0
and -0.0. They are refused before anything is read."""

_FIRST_PARTITION_FIELD_ID = 1000
"""The table specification reserves ids below 1000 for columns."""

_PARTITIONS: Final = b"frazil.partitions"
"""Key in an Arrow schema's metadata: names of the table's partition fields, as JSON."""


def plain_types() -> dict[IcebergType, str]:
    """Primitive Iceberg types -> their spelling in pipeline files."""
    return {plain_type: name for name, plain_type in _PLAIN.items()}


def iceberg_type(declared: ColumnType, ids: Iterator[int]) -> IcebergType:
    """The Iceberg type of a declared type; nested fields take their ids from `ids`."""
    match declared:
        case Primitive("decimal", (precision, scale)):
            return DecimalType(precision, scale)
        case Primitive("fixed", (length,)):
            return FixedType(length)
        case Primitive(name):
            return _PLAIN[name]
        case ListOf(element):
            return ListType(next(ids), iceberg_type(element, ids), element_required=False)
        case MapOf(key, value):
            return MapType(next(ids), iceberg_type(key, ids), next(ids), iceberg_type(value, ids), value_required=False)
        case StructOf(fields):
            return StructType(
                *(NestedField(next(ids), name, iceberg_type(inner, ids), required=False) for name, inner in fields)
            )


def arrow_type(declared: ColumnType) -> pa.DataType:
    """The Arrow type of a declared type, as tables have it."""
    return schema_to_pyarrow(
        as_text(Schema(NestedField(0, "_", iceberg_type(declared, itertools.count(1))))), include_field_ids=False
    )[0].type


def declared_schema(destination: pipeline_file.Destination) -> Schema:
    """Schema of a new table: the declared columns, then the Kafka columns, the batch number, and the mark of soft deletes."""
    ids = itertools.count(1)
    # A history has several rows per key, and rows of truncates, which have no key.
    is_history = destination.is_history
    required = {name for name, column in destination.columns.items() if column.required and not is_history}
    fields = [
        NestedField(next(ids), name, iceberg_type(column.parsed, ids), required=name in required, doc=column.doc)
        for name, column in destination.columns.items()
    ]
    added: list[tuple[str, IcebergType, str]] = []
    if kafka := destination.kafka_columns:
        added += [
            (kafka.topic, StringType(), "Kafka topic of the record"),
            (kafka.partition, IntegerType(), "Kafka partition of the record"),
            (kafka.offset, LongType(), "Kafka offset of the record"),
            (kafka.timestamp, TimestamptzType(), "Kafka timestamp of the record"),
            (kafka.batch, LongType(), "Number of the batch that landed the record"),
        ]
    if destination.deleted_column is not None:
        added.append((destination.deleted_column, BooleanType(), "Whether the row was deleted"))
    if is_history:
        op, place = HISTORY_COLUMNS
        added += [(op, StringType(), "What happened"), (place, IntegerType(), "Number among its record's changes")]
    fields += [NestedField(next(ids), name, field_type, required=False, doc=doc) for name, field_type, doc in added]
    key = () if is_history else destination.identifier
    return Schema(*fields, identifier_field_ids=[field.field_id for field in fields if field.name in key])


def declared_spec(destination: pipeline_file.Destination, schema: Schema) -> PartitionSpec:
    """Partition spec of a new table. Fields on columns that records will add are left out until then.

    Raises:
        Terminal: A transform does not take its column's type; or the file declares no columns and no evolution.
    """
    if not destination.columns and destination.evolves == "none":
        raise BAD_SCHEMA.terminal(
            f"table {destination.table} does not exist, and nothing declares its columns",
            next_step="declare columns; or remove evolve, and the records determine them",
        )
    existing_names = {field.name for field in schema.fields}
    fields = [field for field in destination.partition_fields if destination.columns or field.column in existing_names]
    numbered = enumerate(fields, _FIRST_PARTITION_FIELD_ID)
    return PartitionSpec(*(partition_field(field, schema, number, destination.table) for number, field in numbered))


def partition_field(field: pipeline_file.PartitionField, schema: Schema, field_id: int, table: str) -> PartitionField:
    """A field of a partition spec.

    Raises:
        Terminal: Its transform does not take the type of its column.
    """
    transform = _transform(field)
    source = next(candidate for candidate in schema.fields if candidate.name == field.column)
    if not transform.can_transform(source.field_type) or (str(source.field_type), field.transform) in UNWRITABLE:
        raise TABLE_UNFIT.terminal(f"table {table}: {field} can't partition a column of type {source.field_type}")
    return PartitionField(source.field_id, field_id, transform, field.name)


def declared_order(destination: pipeline_file.Destination, schema: Schema) -> SortOrder:
    """Sort order of a table, by declared fields whose columns it has.

    Raises:
        Terminal: A transform does not take the type of its column.
    """
    fields, existing_names = [], {field.name for field in schema.fields}
    declared = zip(destination.sort_by, destination.sort_fields, strict=True)
    for text, field in (
        (text, field) for text, field in declared if destination.columns or field.column in existing_names
    ):
        transform, source = _transform(field), schema.find_field(field.column)
        if not transform.can_transform(source.field_type):
            raise TABLE_UNFIT.terminal(
                f"table {destination.table}: {text} can't sort a column of type {source.field_type}"
            )
        direction = SortDirection.DESC if field.descending else SortDirection.ASC
        nulls = NullOrder.NULLS_FIRST if field.nulls_first else NullOrder.NULLS_LAST
        fields.append(SortField(source.field_id, transform, direction, nulls))
    return SortOrder(*fields) if fields else UNSORTED_SORT_ORDER


def check_layout(destination: pipeline_file.Destination) -> None:
    """Refuse a destination for which no table can be created.

    Raises:
        Terminal: A transform of the partition spec or the sort order does not take the type of its column.
    """
    schema = declared_schema(destination)
    declared_spec(destination, schema)
    declared_order(destination, schema)


def _transform(field: pipeline_file.PartitionField | pipeline_file.SortField) -> Transform[Any, Any]:
    return parse_transform(field.transform if field.size is None else f"{field.transform}[{field.size}]")


def identity_columns(metadata: TableMetadata) -> tuple[str, ...]:
    """Columns by whose values the table is partitioned, without a transform."""
    fields = (field for field in metadata.spec().fields if isinstance(field.transform, IdentityTransform))
    return tuple(filter(None, (metadata.schema().find_column_name(field.source_id) for field in fields)))


def arrow_columns(table: Table, destination: pipeline_file.Destination) -> pa.Schema:
    """The columns of rows with the Arrow types of the table; required ones are not nullable.

    They are the declared ones in their order; or all of the table's, without those that Frazil adds.
    """
    names = json.dumps([field.name for field in table.spec().fields])
    return schema_columns(table.schema(), destination).with_metadata({_PARTITIONS: names.encode()})


def partition_names(columns: pa.Schema) -> list[str]:
    """Names of the partition fields of an existing table, which may differ from the pipeline file's."""
    names: list[str] = json.loads((columns.metadata or {}).get(_PARTITIONS, b"[]"))
    return names


def declared_columns(destination: pipeline_file.Destination) -> pa.Schema:
    """The columns of rows as Arrow types, equal to `arrow_columns` of the created table."""
    return schema_columns(declared_schema(destination), destination)


def schema_columns(schema: Schema, destination: pipeline_file.Destination) -> pa.Schema:
    """The columns of rows, equal to `arrow_columns` of a table with this schema."""
    arrow = schema_to_pyarrow(as_text(schema), include_field_ids=False)
    declared = {name: not column.required for name, column in destination.columns.items()}
    if takes_table_columns(destination):
        relaxed = {} if destination.evolves == "full" else declared
        # Records can't fill the columns that Frazil uses in staged rows, or once added for soft deletes.
        op, place = HISTORY_COLUMNS
        left_out = {*destination.added_columns, op, *([place, DELETED] if destination.is_merged else [])}
        columns = [mark_identifier(field, schema) for field in arrow if field.name not in left_out]
        return pa.schema([field.with_nullable(field.nullable and relaxed.get(field.name, True)) for field in columns])
    return pa.schema([arrow.field(name).with_nullable(nullable) for name, nullable in declared.items()])


IDENTIFIES: Final = b"frazil.identifies"
"""Key in an Arrow field's metadata: the field is one of the table's identifier fields."""


def mark_identifier(field: pa.Field, schema: Schema) -> pa.Field:
    """The Arrow field, marked by `IDENTIFIES` if it, or a field inside it, is an identifier field of the schema."""
    keys = (schema.find_column_name(field_id) or "" for field_id in schema.identifier_field_ids)
    is_key = any(key == field.name or key.startswith(f"{field.name}.") for key in keys)
    return field.with_metadata({**(field.metadata or {}), IDENTIFIES: b""}) if is_key else field


def identifier_columns(table: Table) -> tuple[str, ...]:
    """Names of a table's identifier fields, in the order of its columns; a field in a struct has its path as name."""
    schema = table.schema()
    names = {number: schema.find_column_name(number) or "" for number in schema.identifier_field_ids}
    return tuple(names[number] for number in sorted(names, key=lambda number: list(schema.field_ids).index(number)))
