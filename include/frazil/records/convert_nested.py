"""Converters of structs, lists and maps, and the schema's say on null and missing fields."""

from __future__ import annotations

from functools import partial
from typing import Final

import pyarrow as pa

from frazil.errors import Terminal
from frazil.records.convert import Converter, check_characters, scalar_converter, wrong_type
from frazil.records.dead import DeadCode, Rejection
from frazil.records.json_text import JsonValue, compact

Fields = tuple[tuple[str, Converter], ...]


def converter(data_type: pa.DataType) -> Converter:
    """Return the converter of any supported type.

    Raises:
        Terminal: the type, or one nested in it, has no JSON form here.
    """
    if pa.types.is_struct(data_type):
        return partial(to_struct, tuple((field.name, nullable(field)) for field in data_type))
    if pa.types.is_list(data_type) or pa.types.is_large_list(data_type):
        return partial(to_list, nullable(data_type.value_field))
    if pa.types.is_map(data_type):
        return _map_converter(data_type)
    return scalar_converter(data_type)


def _map_converter(data_type: pa.MapType) -> Converter:
    if not (pa.types.is_string(data_type.key_type) or pa.types.is_large_string(data_type.key_type)):
        raise Terminal(
            f"JSON objects can't become {data_type}: their names are text",
            next_step="declare the map's key as string",
        )
    return partial(to_map, nullable(data_type.item_field))


def nullable(field: pa.Field) -> Converter:
    """Return the converter of `field`'s type that also takes null, where the field is optional."""
    convert = converter(field.type)
    if field.nullable:
        return lambda value: None if value is None else convert(value)
    return partial(_required, str(field.type), convert)


def _required(expected: str, convert: Converter, value: JsonValue) -> object:
    if value is None:
        raise missing(expected)
    return convert(value)


def missing(expected: str) -> Rejection:
    """Return the verdict on a required field that is missing or null."""
    return Rejection(DeadCode.MISSING_REQUIRED, f"expected {expected}, found null or no such field")


def to_struct(fields: Fields, value: JsonValue) -> dict[str, object]:
    """Take an object; fields that the struct does not have are left out."""
    if not isinstance(value, dict):
        raise wrong_type("object", value)
    return {name: _step(name, convert, value.get(name)) for name, convert in fields}


def to_list(convert: Converter, value: JsonValue) -> list[object]:
    """Take a list."""
    if not isinstance(value, list):
        raise wrong_type("list", value)
    return [_step(f"[{index}]", convert, item) for index, item in enumerate(value)]


def to_map(convert: Converter, value: JsonValue) -> list[tuple[str, object]]:
    """Take an object as a map from its names."""
    if not isinstance(value, dict):
        raise wrong_type("object", value)
    return [_entry(name, convert, item) for name, item in value.items()]


def _entry(name: str, convert: Converter, value: JsonValue) -> tuple[str, object]:
    step = f"[{compact(name)}]"
    _step(step, check_characters, name)
    return name, _step(step, convert, value)


def _step(step: str, convert: Converter, value: JsonValue) -> object:
    try:
        return convert(value)
    except Rejection as e:
        raise e.within(step) from e


_EXTENSIONS: Final = {pa.uuid(): pa.binary(16)}


def storage_type(data_type: pa.DataType) -> pa.DataType:
    """Return `data_type` with extensions as what they store: `pa.array` can't nest them."""
    if pa.types.is_struct(data_type):
        return pa.struct([field.with_type(storage_type(field.type)) for field in data_type])
    if pa.types.is_list(data_type):
        return pa.list_(_stored(data_type.value_field))
    if pa.types.is_large_list(data_type):
        return pa.large_list(_stored(data_type.value_field))
    if pa.types.is_map(data_type):
        return pa.map_(data_type.key_field, _stored(data_type.item_field))
    return _EXTENSIONS.get(data_type, data_type)


def _stored(field: pa.Field) -> pa.Field:
    return field.with_type(storage_type(field.type))
