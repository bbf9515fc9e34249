"""The type `variant` of format version 3, which PyIceberg 0.12 does not know: enough of it to read such tables.

Importing this module teaches PyIceberg, for this process, the name of the type, and to read the other columns of data files
that have one. Values of variants can't be read, and no snapshot is made: PyIceberg does not write version 3 (Spark does).
`tests/unit/iceberg/patches/test_variant.py` says when a newer PyIceberg makes it needless.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyiceberg.io.pyarrow as pyiceberg_arrow
from pydantic import ValidatorFunctionWrapHandler
from pyiceberg.io.pyarrow import pyarrow_to_schema
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import IcebergBaseModel
from pyiceberg.types import IcebergType, PrimitiveType, StringType

FORMAT_VERSION = 3
"""The first version of the table format that knows the type."""

_FIELD_ID = b"PARQUET:field_id"


class VariantType(PrimitiveType):
    """A value of any shape. Primitive to PyIceberg, whose visitors ask nothing about what is inside."""

    root: str = "variant"

    def __str__(self) -> str:
        return "variant"

    def __repr__(self) -> str:
        return "VariantType()"


def as_text(schema: Schema) -> Schema:
    """A schema with texts in place of variants at its top: what their rows are staged as."""
    fields = [
        field.model_copy(update={"field_type": StringType()}) if isinstance(field.field_type, VariantType) else field
        for field in schema.fields
    ]
    return Schema(*fields, schema_id=schema.schema_id, identifier_field_ids=schema.identifier_field_ids)


def unreadable(schema: Schema) -> tuple[str, ...]:
    """Names of the columns whose values only an engine can read."""
    return tuple(field.name for field in schema.fields if isinstance(field.field_type, VariantType))


def metadata_text(metadata: TableMetadata) -> str:
    """The file of a new table's metadata, of any version. Of a table with snapshots PyIceberg would leave out row ids."""
    if metadata.snapshots:
        raise ValueError("only a table without snapshots can be written")
    of_version = (
        metadata.model_copy(update={"next_row_id": 0}) if metadata.format_version >= FORMAT_VERSION else metadata
    )
    return IcebergBaseModel.model_dump_json(of_version)


_known_type = IcebergType.handle_primitive_type.__func__


def _type(cls: type[IcebergType], value: Any, handler: ValidatorFunctionWrapHandler) -> IcebergType:
    iceberg_type: IcebergType = VariantType() if value == "variant" else _known_type(cls, value, handler)
    return iceberg_type


IcebergType.handle_primitive_type = classmethod(_type)  # type: ignore[assignment, method-assign]
"""Called by this name where the type of a field is read (`NestedField.convert_field_type`)."""


def _file_schema(schema: pa.Schema, *args: Any, **kwargs: Any) -> Schema:
    """The schema of a data file, without the variants in it: groups whose parts have no field ids."""
    return pyarrow_to_schema(
        pa.schema([field for field in schema if not _is_variant(field)], schema.metadata), *args, **kwargs
    )


def _is_variant(field: pa.Field) -> bool:
    names = {inner.name for inner in field.type} if pa.types.is_struct(field.type) else set()
    return (
        {"metadata", "value"} <= names
        and _FIELD_ID in (field.metadata or {})
        and not any(_FIELD_ID in (inner.metadata or {}) for inner in field.type)
    )


pyiceberg_arrow.pyarrow_to_schema = _file_schema
