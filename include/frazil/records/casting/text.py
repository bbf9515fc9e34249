"""Values of Arrow columns as JSON: with every digit, bytes as base64, times in ISO 8601.

Of numbers the shortest text is taken that names them: a float32 of 0.1 is `0.1`. JSON has no NaN; as in the JSON mapping
of Protocol Buffers it becomes the text `"NaN"`. Years beyond 9999 have a sign and six digits or more, as ISO 8601 allows.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable
from functools import partial
from math import isfinite, isnan
from typing import Any, Final
from uuid import UUID

import pyarrow as pa

from frazil.records.casting.source import DAY_NANOS, NANOS, NESTED, Kind, kind_of, plain_type, unit_nanos
from frazil.records.model.dead_letter import DeadCode, Rejection
from frazil.records.model.json_number import SHOWN_CHARACTERS, JsonValue, Number, compact, describe

JsonForm = Callable[[Any], JsonValue]

_SINGLE_DIGITS: Final = 9
"""So many digits tell any two float32 apart."""
_YEAR_END: Final = 9999
_ERA_DAYS: Final = 146_097
"""Days of 400 years, after which the calendar repeats."""
_YEAR_ZERO_MARCH: Final = 719_468
"""Days from 0000-03-01 to 1970-01-01."""


def json_form(data_type: pa.DataType) -> JsonForm:
    """Return the function that converts a physical value of a type to JSON.

    It raises Rejection: DUPLICATE_KEY for a map that names a key twice, WRONG_TYPE for a type without a JSON form.
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
    """Return the shortest decimal text that names a finite float64, or float32 if `single`."""
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
    json_value: JsonValue = value
    return json_value


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
    # Years that begin in March put the leap day last, so that months have a regular length before it.
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
