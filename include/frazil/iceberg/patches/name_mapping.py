"""Reads data files that have no field ids, and columns that the table's name mapping does not name.

Iceberg's libraries leave such columns out; PyIceberg 0.12 refuses the file, and with it every read of the table. Importing this
module mends that for this process; `tests/unit/iceberg/patches/test_name_mapping.py` says when a newer PyIceberg makes it needless.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyiceberg.io.pyarrow as pyiceberg_arrow
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import MappedField, NameMapping, apply_name_mapping
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType


def _apply(schema_without_ids: Schema, name_mapping: NameMapping) -> Schema:
    return apply_name_mapping(Schema(*_named_fields(schema_without_ids.fields, name_mapping)), name_mapping)


def _named_fields(fields: Iterable[NestedField], mapping: Iterable[MappedField]) -> Iterator[NestedField]:
    """The fields to which the mapping gives an id. Of lists and maps it must name all parts."""
    named = {name: mapped for mapped in mapping for name in mapped.names if mapped.field_id is not None}
    for field in fields:
        if (mapped := named.get(field.name)) is not None:
            field_type = _named_type(field.field_type, mapped.fields)
            if field_type is not None:
                yield field.model_copy(update={"field_type": field_type})


def _named_type(field_type: IcebergType, mapping: Iterable[MappedField]) -> IcebergType | None:
    match field_type:
        case StructType():
            return StructType(*_named_fields(field_type.fields, mapping))
        case ListType():
            parts = [*_named_fields([field_type.element_field], mapping)]
            return ListType(-1, parts[0].field_type, element_required=parts[0].required) if parts else None
        case MapType():
            parts = [*_named_fields([field_type.key_field, field_type.value_field], mapping)]
            if len(parts) < 2:  # noqa: PLR2004 - key and value
                return None
            key, value = parts
            return MapType(-1, key.field_type, -1, value.field_type, value_required=value.required)
    return field_type


pyiceberg_arrow.apply_name_mapping = _apply  # type: ignore[attr-defined]
"""Called by this name where a file's schema is read (`pyarrow_to_schema`)."""
