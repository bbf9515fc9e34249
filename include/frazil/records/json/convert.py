"""Converts JSON values to values of an Arrow type, scalar or nested. Each type has a converter, which is compiled once.

No kind of value is cast to another unless its column says so (`Reading`): text is not a number, a number is not text, an epoch number
is not a time. Types that JSON lacks are texts in a fixed form: base64 for binary and fixed, 8-4-4-4-12 digits for uuid, and the forms
of `frazil.records.json.times`. An object or list in a text column becomes compact JSON text. The caller decides whether null is
allowed.
"""

from __future__ import annotations

import base64
import binascii
import re
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from math import isinf
from typing import Any, Final, TypeVar

import pyarrow as pa

from frazil.error_codes import FIELDS_UNFIT
from frazil.records.json import times
from frazil.records.json.exact import Fold, fold_fields
from frazil.records.model.column import AS_IT_IS, Reading, type_name
from frazil.records.model.dead_letter import DeadCode, Rejection
from frazil.records.model.json_number import JsonValue, Number, compact, describe, double_holds, exact_value, number_in

Converter = Callable[[Any], object]
"""Takes a JSON value that is not null, returns what `pa.array` takes for the type, or raises `Rejection`."""

UUID_BYTES: Final = 16
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_SINGLE: Final = struct.Struct("<f")
_INT64_CHARACTERS: Final = 20
"""Of the longest int64: a sign and nineteen digits. Longer texts may have a million digits, so they are not given to `int`."""
_INT_NAMES: Final = {32: "int", 64: "long"}
"""Bits -> the integer's name in pipeline files; Kafka Connect has integers of other sizes, too."""


def wrong_type(expected: str, value: JsonValue) -> Rejection:
    """Return the rejection of a value of the wrong kind."""
    return Rejection(DeadCode.WRONG_TYPE, f"expected {expected}, found {describe(value)}")


def to_bool(value: JsonValue) -> bool:
    """Convert true and false."""
    if isinstance(value, bool):
        return value
    raise wrong_type("boolean", value)


def to_int(bits: int, value: JsonValue) -> int:
    """Convert a number to an integer of `bits` bits. Its exact value must be whole, as those of 1.0 and 1e2 are."""
    if type(value) is not Number:
        raise wrong_type(_int_name(bits), value)
    is_plain = len(value) <= _INT64_CHARACTERS and value.lstrip("-").isdigit()
    number = int(value) if is_plain else _whole(bits, value)
    if -(1 << (bits - 1)) <= number < 1 << (bits - 1):
        return number
    raise _out_of_range(_int_name(bits), value)


def _int_name(bits: int) -> str:
    return _INT_NAMES.get(bits, f"int{bits}")


def _whole(bits: int, value: Number) -> int:
    exact = exact_value(value)
    if exact.magnitude > len(str(1 << (bits - 1))):
        raise _out_of_range(_int_name(bits), value)
    if exact.exponent < 0:
        raise Rejection(
            DeadCode.LOSSY_CAST, f"expected {_int_name(bits)}, found {describe(value)}, which is no integer"
        )
    return exact.integer()


def to_float64(value: JsonValue) -> float:
    """Convert a number that a double holds with all its digits."""
    if type(value) is not Number:
        raise wrong_type("double", value)
    number = float(value)
    if isinf(number):
        raise _out_of_range("double", value)
    if not double_holds(value, number):
        raise Rejection(DeadCode.LOSSY_CAST, f"expected double, found {describe(value)}, which has more digits")
    return number


def to_float32(value: JsonValue) -> float:
    """Convert a number to the float32 nearest to its nearest double. Arrow would round as well, but then equal map keys go unnoticed."""
    if type(value) is not Number:
        raise wrong_type("float", value)
    try:
        number: float = _SINGLE.unpack(_SINGLE.pack(float(value)))[0]
    except OverflowError as e:
        raise _out_of_range("float", value) from e
    if isinf(number):
        raise _out_of_range("float", value)
    return number


def to_decimal(precision: int, scale: int, value: JsonValue) -> Decimal:
    """Convert a number that decimal(precision, scale) holds exactly."""
    expected = f"decimal({precision},{scale})"
    if type(value) is not Number:
        raise wrong_type(expected, value)
    exact = exact_value(value)
    if exact.magnitude > precision - scale:
        raise _out_of_range(expected, value)
    if exact.exponent < -scale:
        raise Rejection(DeadCode.LOSSY_CAST, f"expected {expected}, found {describe(value)}, which has more decimals")
    return exact.decimal()


def to_text(value: JsonValue) -> str:
    """Convert text, or an object or list to compact JSON text."""
    if type(value) is str:
        text: str = value
    elif isinstance(value, dict | list):
        text = compact(value)
    else:
        raise wrong_type("text", value)
    # Most texts are ASCII, and have no surrogates.
    if not text.isascii():
        check_characters(text)
    return text


def to_text_as_sent(value: JsonValue) -> str:
    """Convert text as `to_text` does, and a number or a boolean to the text that it was sent as."""
    return compact(value) if type(value) is Number or isinstance(value, bool) else to_text(value)


def check_characters(text: str) -> None:
    """Refuse text that UTF-8 can't hold.

    Raises:
        Rejection: LONE_SURROGATE.
    """
    try:
        text.encode()
    except UnicodeEncodeError as e:
        half = f"\\u{ord(text[e.start]):04x}"
        raise Rejection(DeadCode.LONE_SURROGATE, f"expected text, found half a surrogate pair: {half}") from e


def from_text(expected: str, read: Callable[[str], object], value: JsonValue) -> object:
    """Convert text with `read`."""
    if type(value) is not str:
        raise wrong_type(expected, value)
    return read(value)


def from_text_or_number(
    expected: str, read: Callable[[str], object], count: Callable[[Number], object], value: JsonValue
) -> object:
    """Convert text with `read`, or a number with `count`."""
    return count(value) if type(value) is Number else from_text(expected, read, value)


def to_bytes(text: str) -> bytes:
    """Return the bytes of base64 text (RFC 4648 section 4, padded)."""
    try:
        return base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError) as e:
        cause = "not ASCII" if isinstance(e, UnicodeEncodeError) else e
        raise Rejection(DeadCode.INVALID_TEXT, f"expected base64, found {describe(text)}: {cause}") from e


def to_fixed(width: int, text: str) -> bytes:
    """Return the `width` bytes of base64 text."""
    data = to_bytes(text)
    if len(data) != width:
        raise Rejection(DeadCode.INVALID_TEXT, f"expected {width} bytes as base64, found {len(data)} bytes")
    return data


def to_uuid(text: str) -> bytes:
    """Return the 16 bytes of a uuid's text (RFC 9562 section 4)."""
    if _UUID.fullmatch(text) is None:
        raise Rejection(DeadCode.INVALID_TEXT, f"expected a uuid as 8-4-4-4-12 digits, found {describe(text)}")
    return bytes.fromhex(text.replace("-", ""))


def to_uuid_or_fixed(text: str) -> bytes:
    """Return the 16 bytes of a uuid's text, or of base64: some Arrow schemas store uuids as fixed(16)."""
    return to_uuid(text) if _UUID.fullmatch(text) else to_fixed(UUID_BYTES, text)


def _out_of_range(expected: str, value: Number) -> Rejection:
    return Rejection(DeadCode.OUT_OF_RANGE, f"expected {expected}, found {describe(value)}, which is out of its range")


def refuse_all(value: JsonValue) -> object:
    """Refuse every value: the converter for columns of type null, such as items of a list that is always empty."""
    raise wrong_type("null", value)


_EXACT_TYPES: Final[dict[pa.DataType, Converter]] = {
    pa.null(): refuse_all,
    pa.bool_(): to_bool,
    pa.int32(): partial(to_int, 32),
    pa.int64(): partial(to_int, 64),
    pa.float32(): to_float32,
    pa.float64(): to_float64,
    pa.string(): to_text,
    pa.large_string(): to_text,
    pa.binary(): partial(from_text, "binary as base64 text", to_bytes),
    pa.large_binary(): partial(from_text, "binary as base64 text", to_bytes),
    pa.uuid(): partial(from_text, "a uuid as text", to_uuid),
    pa.date32(): partial(from_text, "a date as text", times.days),
}


def _time_converter(what: str, read: Callable[[str], int], count: Callable[..., int], reading: Reading) -> Converter:
    if reading.truncates:
        read, count = partial(times.read_truncated, read), partial(count, truncates=True)
    if reading.unit is None:
        return partial(from_text, f"{what} as text", read)
    count_units = partial(count, times.SHIFTS[reading.unit])
    read_text = partial(_read_or_count, read, count_units) if reading.cast_text else read
    return partial(from_text_or_number, f"{what} as text or as a number of {reading.unit}", read_text, count_units)


def _read_or_count(read: Callable[[str], object], count: Callable[[Number], object], text: str) -> object:
    """Convert a text that is a time, with `read`, or the number of a time, with `count`."""
    number = number_in(text)
    return read(text) if number is None else count(number)


def _timestamp_reader(data_type: pa.TimestampType, reading: Reading) -> Callable[[str], int]:
    if data_type.tz is not None:
        return times.utc_micros
    return times.wall_micros if reading.local_time == "keep" else times.local_micros


def scalar_converter(data_type: pa.DataType, reading: Reading = AS_IT_IS) -> Converter:
    """Return the converter of a type that is not nested.

    Raises:
        Terminal: the type has no JSON form here.
    """
    if reading.cast_text and _is_text(data_type):
        return to_text_as_sent
    if (converter := _EXACT_TYPES.get(data_type)) is not None:
        return converter
    if data_type == pa.time64("us"):
        return _time_converter("a time", times.time_micros, times.clock_micros, reading)
    if pa.types.is_timestamp(data_type) and data_type.unit == "us":
        return _time_converter("a timestamp", _timestamp_reader(data_type, reading), times.epoch_micros, reading)
    if pa.types.is_decimal128(data_type) and data_type.scale >= 0:
        return partial(to_decimal, data_type.precision, data_type.scale)
    if pa.types.is_fixed_size_binary(data_type):
        width = data_type.byte_width
        read = to_uuid_or_fixed if width == UUID_BYTES else partial(to_fixed, width)
        return partial(from_text, f"{width} bytes as base64 text", read)
    raise FIELDS_UNFIT.terminal(
        f"JSON values can't become Arrow type {data_type}",
        next_step="declare the column with a type of Iceberg format v2, or as string",
    )


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
        entries = ((f"[{compact(name)}]", _key_value(key_type, name), content) for name, content in value.items())
    elif isinstance(value, list):
        entries = ((f"[{index}]", *convert_at(f"[{index}]", _entry, entry)) for index, entry in enumerate(value))
    else:
        raise wrong_type("object or list of entries", value)
    return distinct_entries(
        (place, _convert_key(place, str(key_type), key, raw_key), convert_at(place, item, content))
        for place, raw_key, content in entries
    )


def _convert_key(place: str, expected: str, convert: Converter, value: JsonValue) -> object:
    if value is None:
        raise Rejection(DeadCode.MISSING_REQUIRED, f"expected a key of {expected}, found null", place)
    return convert_at(place, convert, value)


def _key_value(key_type: pa.DataType, name: str) -> JsonValue:
    """Return the JSON value that an object's name stands for."""
    if pa.types.is_boolean(key_type):
        return _BOOLEANS.get(name, name)
    # Arrow calls times primitive, too: these may be numbers of a unit.
    may_be_number = pa.types.is_primitive(key_type) or pa.types.is_decimal(key_type)
    return (number_in(name) or name) if may_be_number else name


def _entry(value: JsonValue) -> tuple[JsonValue, JsonValue]:
    if isinstance(value, dict) and "key" in value:
        return value["key"], value.get("value")
    if isinstance(value, list) and len(value) == _PAIR:
        return value[0], value[1]
    raise wrong_type('an entry {"key": …, "value": …}', value)


def distinct_entries(entries: Iterable[tuple[str, object, object]]) -> Entries:
    """Return the entries of a map, whose keys must be distinct.

    Args:
        entries: Each entry's step of the path, its converted key and its converted value.

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
    """Convert a nested value. `place`, a field name or `[index]`, is put in front of the path of a rejection."""
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


def _struct_converter(data_type: pa.StructType, reading: Reading) -> Converter:
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
    """Return the converter of a field's type that also takes null: as null, or with a rejection if the field is required."""
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
    """Return a type with the storage types of its extension types, which `pa.array` can't nest."""
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


def build_array(values: Sequence[object], data_type: pa.DataType) -> pa.Array:
    """Return converted values as an array of exactly this type."""
    array = pa.array(values, storage_type(data_type))
    # Arrow breaks lists of nulls when it casts them to their own type.
    return array if array.type == data_type else array.cast(data_type)
