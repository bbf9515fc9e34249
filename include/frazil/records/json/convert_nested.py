"""Converters of structs, lists and maps, with the schema's rules for null and missing fields."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, TypeVar

import pyarrow as pa

from frazil.error_codes import FIELDS_UNFIT
from frazil.records.json.convert import Converter, check_characters, scalar_converter, wrong_type
from frazil.records.json.exact import Fold, fold_fields
from frazil.records.model.column import AS_IT_IS, Reading, type_name
from frazil.records.model.dead_letter import DeadCode, Rejection
from frazil.records.model.json_number import JsonValue, compact, describe, number_in

T = TypeVar("T")
V = TypeVar("V")
Entries = list[tuple[object, object]]

_BOOLEANS: Final = {"true": True, "false": False}
_PAIR: Final = 2


def map_converter(data_type: pa.MapType, key: Converter, item: Converter) -> Converter:
    """Return the converter of a map type, from those of its keys and of its values.

    A map with text keys is an object. One with other keys is an object whose names are the keys as text (`{"1": …}`,
    `{"2024-01-01": …}`, `{"true": …}`), or a list of entries, each `{"key": …, "value": …}` or, as Kafka Connect writes them,
    `[key, value]`. Two keys that are equal once they are read make the record a dead letter: which value is meant can't be known.
    """
    if _is_text(data_type.key_type):
        return partial(to_map, item)
    return partial(to_keyed_map, data_type.key_type, key, item)


def to_map(convert: Converter, value: JsonValue) -> Entries:
    """Convert an object to the entries of a map with text keys."""
    if not isinstance(value, dict):
        raise wrong_type("object", value)
    return [_text_entry(name, convert, item) for name, item in value.items()]


def _text_entry(name: str, convert: Converter, value: JsonValue) -> tuple[object, object]:
    place = f"[{compact(name)}]"
    convert_at(place, check_characters, name)
    return name, convert_at(place, convert, value)


def to_keyed_map(key_type: pa.DataType, key: Converter, item: Converter, value: JsonValue) -> Entries:
    """Convert an object or a list of entries to the entries of a map whose keys are not text."""
    if isinstance(value, dict):
        entries = ((f"[{compact(name)}]", _key_of(key_type, name), content) for name, content in value.items())
    elif isinstance(value, list):
        entries = ((f"[{index}]", *convert_at(f"[{index}]", _entry, entry)) for index, entry in enumerate(value))
    else:
        raise wrong_type("object or list of entries", value)
    return distinct_entries(
        (place, _key(place, str(key_type), key, raw_key), convert_at(place, item, content))
        for place, raw_key, content in entries
    )


def _key(place: str, expected: str, convert: Converter, value: JsonValue) -> object:
    if value is None:
        raise Rejection(DeadCode.MISSING_REQUIRED, f"expected a key of {expected}, found null", place)
    return convert_at(place, convert, value)


def _key_of(key_type: pa.DataType, name: str) -> JsonValue:
    """Return the JSON value that an object's name stands for."""
    if pa.types.is_boolean(key_type):
        return _BOOLEANS.get(name, name)
    counted = pa.types.is_primitive(key_type) or pa.types.is_decimal(
        key_type
    )  # times are primitive, and may be counted
    return (number_in(name) or name) if counted else name


def _entry(value: JsonValue) -> tuple[JsonValue, JsonValue]:
    if isinstance(value, dict) and "key" in value:
        return value["key"], value.get("value")
    if isinstance(value, list) and len(value) == _PAIR:
        return value[0], value[1]
    raise wrong_type('an entry {"key": …, "value": …}', value)


def distinct_entries(entries: Iterable[tuple[str, object, object]]) -> Entries:
    """Return the entries of a map, whose keys must be distinct.

    Each entry is its path step, converted key and converted value.

    Raises:
        Rejection: DUPLICATE_KEY.
    """
    seen_keys: set[object] = set()
    unique_entries: Entries = []
    for place, key, value in entries:
        # Keys may be structs or lists, which a Python set can't hold.
        hashable = key if getattr(key, "__hash__", None) else repr(key)
        if hashable in seen_keys:
            raise Rejection(DeadCode.DUPLICATE_KEY, f"expected each key once, found {describe(str(key))} again", place)
        seen_keys.add(hashable)
        unique_entries.append((key, value))
    return unique_entries


def convert_at(place: str, convert: Callable[[V], T], value: V) -> T:
    """Convert a nested value. The path of a rejection then begins with `place`: a field name or `[index]`."""
    try:
        return convert(value)
    except Rejection as e:
        raise e.with_parent(place) from e


def _is_text(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_string(data_type) or pa.types.is_large_string(data_type))


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
    return partial(required, type_name(field.type), convert)


def required(expected: str, convert: Converter, value: JsonValue) -> object:
    """Convert the value of a required field."""
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
