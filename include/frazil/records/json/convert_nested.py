"""Converters of structs and lists, with the schema's rules for null and missing fields."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

import pyarrow as pa

from frazil.error_codes import FIELDS_UNFIT
from frazil.records.json.convert import Converter, scalar_converter, wrong_type
from frazil.records.json.convert_map import convert_at, map_converter, to_map
from frazil.records.json.names import Fold, fold_fields
from frazil.records.model.column import AS_IT_IS, Reading, type_name
from frazil.records.model.dead_letter import DeadCode, Rejection
from frazil.records.model.json_text import JsonValue

__all__ = ["converter", "missing_value", "nullable_converter", "storage_type", "to_list", "to_map", "to_struct"]

Fields = tuple[tuple[str, Converter], ...]


def converter(data_type: pa.DataType, reading: Reading = AS_IT_IS) -> Converter:
    """Return the converter of any supported type.

    Raises:
        Terminal: the type, or one nested in it, has no JSON form here.
    """
    if pa.types.is_struct(data_type):
        return _struct_converter(data_type, reading)
    if pa.types.is_list(data_type) or pa.types.is_large_list(data_type):
        return partial(to_list, nullable_converter(data_type.value_field, reading))
    if pa.types.is_map(data_type):
        key = converter(data_type.key_type, reading)
        return map_converter(data_type, key, nullable_converter(data_type.item_field, reading))
    return scalar_converter(data_type, reading)


def _struct_converter(data_type: pa.StructType, reading: Reading = AS_IT_IS) -> Converter:
    fold = reading.fold
    if fold is None:
        return partial(to_struct, tuple((field.name, nullable_converter(field, reading)) for field in data_type))
    fields = {field.name.casefold(): (field.name, nullable_converter(field, reading)) for field in data_type}
    if len(fields) < len(data_type):
        raise FIELDS_UNFIT.terminal(
            f"fields of {data_type} differ in case only", next_step="set value.field_names to exact, or rename a field"
        )
    return partial(_to_folded_struct, fields, fold)


def nullable_converter(field: pa.Field, reading: Reading = AS_IT_IS) -> Converter:
    """Return the converter of `field`'s type that also takes null, where the field is optional."""
    convert = converter(field.type, reading)
    if field.nullable:
        return lambda value: None if value is None else convert(value)
    return partial(_required, type_name(field.type), convert)


def _required(expected: str, convert: Converter, value: JsonValue) -> object:
    if value is None:
        raise missing_value(expected)
    return convert(value)


def missing_value(expected: str) -> Rejection:
    """Return the rejection of a required field that is missing or null."""
    return Rejection(DeadCode.MISSING_REQUIRED, f"expected {expected}, found null or no such field")


def to_struct(fields: Fields, value: JsonValue) -> dict[str, object]:
    """Convert an object; fields that the struct does not have are left out."""
    if not isinstance(value, dict):
        raise wrong_type("object", value)
    return {name: convert_at(name, convert, value.get(name)) for name, convert in fields}


def _to_folded_struct(fields: Mapping[str, tuple[str, Converter]], fold: Fold, value: JsonValue) -> dict[str, object]:
    if not isinstance(value, dict):
        raise wrong_type("object", value)
    values = fold_fields(value, fields, fold)
    return {name: convert_at(name, convert, values.get(key)) for key, (name, convert) in fields.items()}


def to_list(convert: Converter, value: JsonValue) -> list[object]:
    """Convert a list."""
    if not isinstance(value, list):
        raise wrong_type("list", value)
    return [convert_at(f"[{index}]", convert, item) for index, item in enumerate(value)]


_EXTENSIONS: Final = {pa.uuid(): pa.binary(16)}


def storage_type(data_type: pa.DataType) -> pa.DataType:
    """Return `data_type` with extensions as what they store: `pa.array` can't nest them."""
    if pa.types.is_struct(data_type):
        return pa.struct([field.with_type(storage_type(field.type)) for field in data_type])
    if pa.types.is_list(data_type):
        return pa.list_(_storage_field(data_type.value_field))
    if pa.types.is_large_list(data_type):
        return pa.large_list(_storage_field(data_type.value_field))
    if pa.types.is_map(data_type):
        return pa.map_(_storage_field(data_type.key_field), _storage_field(data_type.item_field))
    return _EXTENSIONS.get(data_type, data_type)


def _storage_field(field: pa.Field) -> pa.Field:
    return field.with_type(storage_type(field.type))
