"""Decoded columns: the kinds of their Arrow types, their single values, and these as JSON with every digit.

Single values are physical, so that Python has each of them: dates and times are integers in the unit of their type (Python's datetime
ends at year 9999), a struct is a tuple in the order of its fields, a map a list of pairs, a uuid its 16 bytes.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from functools import partial
from math import isfinite, isnan
from typing import Any, Final
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from frazil.records.json.intermediate_types import list_window
from frazil.records.model.dead_letter import DeadCode, Rejection
from frazil.records.model.json_number import SHOWN_CHARACTERS, JsonValue, Number, compact, describe

NANOS: Final = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
"""Nanoseconds of Arrow's time units."""

DAY_NANOS: Final = 86_400 * NANOS["s"]


class Kind(Enum):
    """Kinds of Arrow types. The value is the kind's name in messages."""

    NULL = "null"
    BOOL = "bool"
    INT = "integer"
    FLOAT = "float"
    DECIMAL = "decimal"
    TEXT = "text"
    BYTES = "binary"
    UUID = "uuid"
    DATE = "date"
    TIME = "time"
    STAMP = "timestamp"
    STRUCT = "object"
    LIST = "list"
    MAP = "map"
    OTHER = "value"


_TESTS: Final[Mapping[Kind, tuple[Callable[[pa.DataType], bool], ...]]] = {
    Kind.NULL: (types.is_null,),
    Kind.BOOL: (types.is_boolean,),
    Kind.INT: (types.is_integer,),
    Kind.FLOAT: (types.is_floating,),
    Kind.DECIMAL: (types.is_decimal,),
    Kind.TEXT: (types.is_string, types.is_large_string, types.is_string_view),
    Kind.BYTES: (types.is_binary, types.is_large_binary, types.is_binary_view, types.is_fixed_size_binary),
    Kind.UUID: (pa.uuid().equals,),
    Kind.DATE: (types.is_date,),
    Kind.TIME: (types.is_time,),
    Kind.STAMP: (types.is_timestamp,),
    Kind.STRUCT: (types.is_struct,),
    Kind.LIST: (types.is_list, types.is_large_list, types.is_fixed_size_list),
    Kind.MAP: (types.is_map,),
}
"""Kind -> tests, one of which its types pass."""
_KINDS: Final[dict[int, Kind]] = {}
"""Cache of kinds by Arrow's type id. Extension types share one id, so they are not cached."""

NESTED: Final = frozenset({Kind.STRUCT, Kind.LIST, Kind.MAP})


def kind_of(data_type: pa.DataType) -> Kind:
    """Return the kind of a plain type; OTHER for one that no table has (durations, unions)."""
    number = data_type.id
    if (kind := _KINDS.get(number)) is None:
        kind = next((kind for kind, tests in _TESTS.items() if any(test(data_type) for test in tests)), Kind.OTHER)
        if not isinstance(data_type, pa.BaseExtensionType):
            _KINDS[number] = kind
    return kind


def plain_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type of the values of a dictionary, of run ends, or of an extension other than uuid; any other type as it is."""
    if types.is_dictionary(data_type) or types.is_run_end_encoded(data_type):
        return plain_type(data_type.value_type)
    if isinstance(data_type, pa.BaseExtensionType) and data_type != pa.uuid():
        return plain_type(data_type.storage_type)
    return data_type


def plain(array: pa.Array) -> pa.Array:
    """Return an array as one of its `plain_type`, without a copy if it has that. Arrays nested in it stay as they are."""
    if types.is_dictionary(array.type):
        return plain(array.dictionary_decode())
    if types.is_run_end_encoded(array.type):
        return plain(pc.run_end_decode(array))
    if isinstance(array.type, pa.BaseExtensionType) and array.type != pa.uuid():
        return plain(array.storage)
    return array


def child_fields(data_type: pa.DataType) -> list[pa.Field]:
    """Return the child fields of a plain type under Iceberg's names; for a map only the field of its values."""
    match kind_of(data_type):
        case Kind.STRUCT:
            return list(data_type)
        case Kind.LIST:
            return [data_type.value_field.with_name("element")]
        case Kind.MAP:
            return [data_type.item_field.with_name("value")]
    return []


def unit_nanos(data_type: pa.DataType) -> int:
    """Return the nanoseconds of one unit of a date, time or timestamp."""
    if types.is_date(data_type):
        return DAY_NANOS if types.is_date32(data_type) else NANOS["ms"]
    return NANOS[data_type.unit]


def integers(array: pa.Array) -> pa.Array:
    """Return dates, times or timestamps as the integers that they store, in int64."""
    narrow = types.is_date32(array.type) or types.is_time32(array.type)
    return array.cast(pa.int32()).cast(pa.int64()) if narrow else array.cast(pa.int64())


def as_lists(array: pa.Array) -> pa.Array:
    """Return lists of fixed size as lists."""
    if types.is_fixed_size_list(array.type):
        return array.cast(pa.list_(array.type.value_field))
    return array


def physical_values(array: pa.Array) -> list[Any]:
    """Return the physical values of an array; null is None."""
    plain_values = plain(array)
    kind = kind_of(plain_values.type)
    if kind is Kind.STRUCT:
        return _structs(plain_values)
    if kind is Kind.LIST:
        lists = as_lists(plain_values)
        return _runs(lists, physical_values, lists.values)
    if kind is Kind.MAP:
        return _runs(plain_values, _pairs, plain_values.keys, plain_values.items)
    if kind in {Kind.DATE, Kind.TIME, Kind.STAMP}:
        plain_values = integers(plain_values)
    elif kind is Kind.OTHER:
        return [None if missing else str(plain_values.type) for missing in plain_values.is_null().to_pylist()]
    elif kind is Kind.UUID:
        plain_values = plain_values.storage
    return plain_values.to_pylist()  # type: ignore[no-any-return]


def _structs(array: pa.StructArray) -> list[Any]:
    children = [physical_values(child) for child in array.flatten()]
    rows = list(zip(*children, strict=True)) if children else [()] * len(array)
    return [row if valid else None for row, valid in zip(rows, array.is_valid().to_pylist(), strict=True)]


def _pairs(keys: pa.Array, items: pa.Array) -> list[Any]:
    return list(zip(physical_values(keys), physical_values(items), strict=True))


def _runs(array: pa.Array, read: Callable[..., list[Any]], *parts: pa.Array) -> list[Any]:
    offsets, first, last = list_window(array)
    items = read(*(part.slice(first, last - first) for part in parts))
    edges, valid = offsets.to_pylist(), array.is_valid().to_pylist()
    return [items[edges[row] : edges[row + 1]] if is_valid else None for row, is_valid in enumerate(valid)]


_DOC: Final = b"frazil.doc"
"""Metadata of a field: its description in the schema."""

_LONGEST_DOC: Final = 255
"""Characters of a doc: a Hive Metastore takes 256, Glue 255 in one line."""


def with_doc(field: pa.Field, text: object) -> pa.Field:
    """Return a field with its doc as metadata: one line of bounded length. Only a text is a doc."""
    line = " ".join(text.split()) if type(text) is str else ""  # not `isinstance`: a `Number` is no doc
    doc = "".join(char for char in line[: _LONGEST_DOC + 1] if char.isprintable())
    doc = doc if len(line) <= _LONGEST_DOC else f"{doc[: _LONGEST_DOC - 1]}…"
    return field.with_metadata({**(field.metadata or {}), _DOC: doc.encode()}) if doc else field


def docs_of(field: pa.Field, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield path and doc of a field, and of the fields inside it, where they have a doc; `path` leads to the field's parent."""
    if encoded := (field.metadata or {}).get(_DOC):
        yield (*path, field.name), encoded.decode()
    for child in child_fields(plain_type(field.type)):
        yield from docs_of(child, (*path, field.name))


STANDS_IN: Final = b"frazil.stands_in"
"""Metadata of a Protobuf field without presence: the text that stands for an absent value; empty for the zero of other types."""


def present_mask(field: pa.Field, array: pa.Array) -> pa.BooleanArray:
    """Return the mask of the values that were sent: those that are not null, and do not stand for an absent field."""
    values = plain(array)
    default = (field.metadata or {}).get(STANDS_IN)
    if default is None:
        return values.is_valid()
    return pc.and_kleene(values.is_valid(), pc.fill_null(_differs(values, default.decode()), False))  # noqa: FBT003


def is_present(field: pa.Field, value: object) -> bool:
    """Return whether one physical value was sent, as `present_mask` does for many."""
    default = (field.metadata or {}).get(STANDS_IN)
    if default is None or value is None:
        return value is not None
    return value != default.decode() if isinstance(value, str) else bool(value)


def _differs(values: pa.Array, default: str) -> pa.BooleanArray:
    data_type = values.type
    if pa.types.is_string(data_type):
        return pc.not_equal(values, default)
    if pa.types.is_binary(data_type):
        return pc.greater(pc.binary_length(values), 0)
    if pa.types.is_boolean(data_type):
        return values
    if pa.types.is_list(data_type):
        return pc.greater(pc.list_value_length(values), 0)
    if pa.types.is_map(data_type):
        offsets = values.offsets
        return pc.greater(pc.subtract(offsets[1:], offsets[:-1]), 0)
    return pc.not_equal(values, pa.scalar(0, pa.int64()).cast(data_type))


# A float becomes its shortest text: a float32 of 0.1 is `0.1`. JSON has no NaN, so it becomes the text `"NaN"`, as in the JSON mapping
# of Protocol Buffers. Years beyond 9999 have a sign and six digits or more, as ISO 8601 allows.

JsonForm = Callable[[Any], JsonValue]

_SINGLE_DIGITS: Final = 9
"""Digits that tell any two float32 apart."""
_YEAR_END: Final = 9999
_ERA_DAYS: Final = 146_097
"""Days of 400 years, after which the calendar repeats."""
_YEAR_ZERO_MARCH: Final = 719_468
"""Days from 0000-03-01 to 1970-01-01."""


def json_form(data_type: pa.DataType) -> JsonForm:
    """Return the function that converts a physical value of a type to JSON.

    It raises a Rejection: DUPLICATE_KEY for a map that has a key twice, WRONG_TYPE for a type without a JSON form.
    """
    plain_data_type = plain_type(data_type)
    kind = kind_of(plain_data_type)
    if kind in NESTED:
        return _nested(kind, plain_data_type)
    if kind is Kind.FLOAT:
        return partial(_float, single=not pa.types.is_float64(plain_data_type))
    if kind in {Kind.DATE, Kind.TIME, Kind.STAMP}:
        return partial(
            _TEMPORAL[kind], unit_nanos(plain_data_type), "Z" if kind is Kind.STAMP and plain_data_type.tz else ""
        )
    return _PLAIN[kind]


def _nested(kind: Kind, data_type: pa.DataType) -> JsonForm:
    if kind is Kind.STRUCT:
        return partial(_object, [(field.name, _optional(field.type)) for field in data_type])
    if kind is Kind.LIST:
        return partial(_list, _optional(data_type.value_type))
    return partial(_map, json_form(data_type.key_type), _optional(data_type.item_type))


def _optional(data_type: pa.DataType) -> JsonForm:
    return partial(_or_null, json_form(data_type))


def _or_null(form: JsonForm, value: Any) -> JsonValue:
    return None if value is None else form(value)


def _object(fields: list[tuple[str, JsonForm]], value: tuple[Any, ...]) -> JsonValue:
    return unique_members((name, form(item)) for (name, form), item in zip(fields, value, strict=True))


def _list(form: JsonForm, value: list[Any]) -> JsonValue:
    return [form(item) for item in value]


def _map(key: JsonForm, item: JsonForm, value: list[tuple[Any, Any]]) -> JsonValue:
    return unique_members((_name(key(name)), item(item_value)) for name, item_value in value)


def _name(key: JsonValue) -> str:
    return str(key) if isinstance(key, str) else compact(key)


def unique_members(members: Any) -> dict[str, Any]:
    """Return the members of an object by name.

    Raises:
        Rejection: DUPLICATE_KEY.
    """
    members_by_name: dict[str, Any] = {}
    for name, value in members:
        if name in members_by_name:
            raise Rejection(DeadCode.DUPLICATE_KEY, f"expected each name once, found {describe(name)} twice")
        members_by_name[name] = value
    return members_by_name


def shortest_text(value: float, *, single: bool) -> str:
    """Return the shortest decimal text of which a finite float64 (float32 if `single`) is the nearest."""
    if not single:
        return repr(value)
    texts = (f"{value:.{digits}g}" for digits in range(1, _SINGLE_DIGITS + 1))
    return next((text for text in texts if to_single(float(text)) == value), repr(value))


def to_single(value: float) -> float | None:
    """Return the float32 nearest to a float64, or None if it is beyond the largest."""
    try:
        single: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return None
    return single


def _float(value: float, *, single: bool) -> JsonValue:
    if isfinite(value):
        return Number(shortest_text(value, single=single))
    if isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _number(value: object) -> JsonValue:
    return Number(str(value))


def _base64(value: bytes) -> JsonValue:
    return base64.b64encode(value).decode("ascii")


def uuid_text(value: bytes) -> str:
    """Return the 8-4-4-4-12 digits of 16 bytes."""
    return str(UUID(bytes=value))


def _as_is(value: Any) -> JsonValue:
    return value  # type: ignore[no-any-return]


def _no_form(value: str) -> JsonValue:
    raise Rejection(DeadCode.WRONG_TYPE, f"expected a value that JSON has a form for, found a {value}")


def _date(unit: int, _zone: str, value: int) -> JsonValue:
    return _day_text(value * unit // DAY_NANOS)


def _time(unit: int, _zone: str, value: int) -> JsonValue:
    return _clock(value * unit)


def _timestamp(unit: int, zone: str, value: int) -> JsonValue:
    day, nanos = divmod(value * unit, DAY_NANOS)
    return f"{_day_text(day)}T{_clock(nanos)}{zone}"


def _clock(nanos: int) -> str:
    seconds, fraction = divmod(nanos, NANOS["s"])
    digits = f".{fraction:09d}".rstrip("0") if fraction else ""
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{digits}"


def _day_text(days: int) -> str:
    """Return the date of days since 1970-01-01 in the proleptic Gregorian calendar, of any year."""
    # If years begin in March, the leap day is their last one, and all months before it have regular lengths.
    era, day = divmod(days + _YEAR_ZERO_MARCH, _ERA_DAYS)
    year = (day - day // 1460 + day // 36524 - day // 146096) // 365
    rest = day - (365 * year + year // 4 - year // 100)
    month = (5 * rest + 2) // 153
    number = rest - (153 * month + 2) // 5 + 1
    year += era * 400 + (month > 9)  # noqa: PLR2004 - January and February belong to the next year
    month = month - 9 if month > 9 else month + 3  # noqa: PLR2004
    shown = f"{year:04d}" if 0 <= year <= _YEAR_END else f"{year:+07d}"
    return f"{shown}-{month:02d}-{number:02d}"


_PLAIN: Final[dict[Kind, JsonForm]] = {
    Kind.NULL: _as_is,
    Kind.BOOL: _as_is,
    Kind.INT: _number,
    Kind.DECIMAL: _number,
    Kind.TEXT: _as_is,
    Kind.BYTES: _base64,
    Kind.UUID: uuid_text,
    Kind.OTHER: _no_form,
}
_TEMPORAL: Final[dict[Kind, Callable[[int, str, int], JsonValue]]] = {
    Kind.DATE: _date,
    Kind.TIME: _time,
    Kind.STAMP: _timestamp,
}
_LABELLED_KINDS: Final = frozenset({Kind.BYTES, Kind.UUID, Kind.DATE, Kind.TIME, Kind.STAMP})


def describe_value(data_type: pa.DataType, value: Any) -> str:
    """Return kind and (cut) text of a value, such as `date 2024-01-31`."""
    kind = kind_of(plain_type(data_type))
    if kind is Kind.OTHER:
        return f"a {value}"
    cut = value[: SHOWN_CHARACTERS + 1] if kind is Kind.BYTES else value
    form = json_form(data_type)(cut)
    if kind not in _LABELLED_KINDS:
        return describe(form)
    text = str(form)
    return f"{kind.value} {text[:SHOWN_CHARACTERS]}{'…' if len(text) > SHOWN_CHARACTERS else ''}"
