"""The canonical form of a value from a record or a table, and its hash. Also parses texts of dates and times into the integers
that tables store.

| type | canonical |
|---|---|
| boolean, int, long, string | itself |
| float, double | itself; a float is the double of the same value |
| decimal | the whole number of its smallest units |
| date, time, timestamp, timestamptz | days, or microseconds, as the table specification counts them |
| uuid, fixed, binary | bytes |
| list | tuple |
| struct | tuple, in the order of the declared fields |
| map | tuple of (key, value), sorted by key (by its `repr`, if it is a list, map or struct), because a map has no order |

One difference can't be detected: PyIceberg 0.12 returns a list of structs that is null as an empty one (its projection
rebuilds such lists without their null mask), so an empty list of structs counts as null here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import MAX_PREC, Context
from hashlib import blake2b
from typing import Any

import pyarrow as pa

from frazil.pipeline.syntax.types import ColumnType, ListOf, MapOf, Primitive, StructOf

Digest = bytes
"""8 bytes: two different values collide once in 10^19 times, and a producer gains nothing from a collision."""

LONG = Primitive("long")
_BYTES = 8
_UUID = pa.binary(16)
_EXACT = Context(prec=MAX_PREC)


def digest(values: object) -> Digest:
    """Hash of a canonical value. Its `repr` tells 1, 1.0, True, "1" and b"1" apart, and 0.0 from -0.0."""
    return blake2b(repr(values).encode("utf-8", "surrogatepass"), digest_size=_BYTES).digest()


def column_values(column: pa.Array, column_type: ColumnType) -> list[Any]:
    """Canonical values of a stored column."""
    plain = _plain_type(column.type)
    values: list[Any] = (column if plain == column.type else column.cast(plain)).to_pylist()
    convert = _converter(column_type)
    return values if convert is None else [None if value is None else convert(value) for value in values]


def _plain_type(arrow_type: pa.DataType) -> pa.DataType:
    """The Arrow type with integers for dates and times, and bytes for uuids."""
    if pa.types.is_date32(arrow_type):
        return pa.int32()
    if pa.types.is_timestamp(arrow_type) or pa.types.is_time64(arrow_type):
        return pa.int64()
    if pa.types.is_nested(arrow_type):
        return _plain_nested(arrow_type)
    return _UUID if arrow_type == pa.uuid() else arrow_type


def _plain_nested(arrow_type: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(arrow_type):
        return pa.struct([_plain_field(field) for field in arrow_type])
    if pa.types.is_map(arrow_type):
        return pa.map_(_plain_field(arrow_type.key_field), _plain_field(arrow_type.item_field))
    make = pa.large_list if pa.types.is_large_list(arrow_type) else pa.list_
    return make(_plain_field(arrow_type.value_field))


def _plain_field(field: pa.Field) -> pa.Field:
    return field.with_type(_plain_type(field.type))


Convert = Callable[[Any], Any]


def _converter(column_type: ColumnType) -> Convert | None:
    """Returns the function that makes values from PyArrow canonical; None if they already are."""
    match column_type:
        case ListOf(element):
            return _list_converter(element)
        case StructOf(fields):
            parts = [(name, _null_or(_converter(field_type))) for name, field_type in fields]
            return lambda struct: tuple([convert(struct[name]) for name, convert in parts])
        case MapOf(key, value):
            return _map_converter(_null_or(_converter(key)), _null_or(_converter(value)))
        case Primitive("decimal", (_, scale)):
            return lambda number: int(number.scaleb(scale, _EXACT))
    return None


def _list_converter(element: ColumnType) -> Convert:
    inner, empty = _null_or(_converter(element)), empty_list(element)
    return lambda items: tuple([inner(item) for item in items]) or empty


def empty_list(element: ColumnType) -> tuple[()] | None:
    """The canonical form of a list without elements."""
    return None if isinstance(element, StructOf) else ()


def _map_converter(convert_key: Convert, convert: Convert) -> Convert:
    def convert_map(pairs: Mapping[Any, Any] | Sequence[tuple[Any, Any]]) -> tuple[Any, ...]:
        items = pairs.items() if isinstance(pairs, Mapping) else pairs
        return sorted_entries((convert_key(key), convert(value)) for key, value in items)

    return convert_map


def sorted_entries(entries: Iterable[tuple[Any, Any]]) -> tuple[tuple[Any, Any], ...]:
    """The entries of a map, sorted by key. Keys with parts are sorted by their `repr`, because nulls in them don't compare."""
    return tuple(sorted(entries, key=lambda entry: repr(entry[0]) if isinstance(entry[0], tuple) else entry[0]))


def _null_or(convert: Convert | None) -> Convert:
    if convert is None:
        return lambda value: value
    return lambda value: None if value is None else convert(value)


def null_empty_values(value: Any) -> Any:
    """A canonical value with null in place of lists, maps and structs that are empty or have only nulls."""
    if not isinstance(value, tuple):
        return value
    parts = tuple(null_empty_values(part) for part in value)
    return None if all(part is None for part in parts) else parts


# The pipeline reference promises these forms: `YYYY-MM-DD`, `HH:MM[:SS[.fraction]]`, both joined by `T` or a blank, and a zone
# `Z`, `+HH`, `+HHMM` or `+HH:MM`. A date or a time alone may only have the zone UTC. Tables store microseconds, so further digits
# of a fraction must be zeros.

_CLOCK = r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2})(?:\.(?P<fraction>[0-9]+))?)?"
_ZONE = r"(?:(?P<utc>[Zz])|(?P<sign>[+-])(?P<zone_hour>[0-9]{2})(?::?(?P<zone_minute>[0-9]{2}))?)?"
_DAY_FORM = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_CLOCK_FORM = re.compile(_CLOCK + _ZONE)
_MOMENT_FORM = re.compile(rf"(?P<day>{_DAY_FORM.pattern})[Tt ]{_CLOCK}{_ZONE}")

_MICROSECOND = timedelta(microseconds=1)
_SECOND = 1_000_000
_LAST_HOUR, _LAST_MINUTE = 23, 59

BOUNDS = (
    (datetime.min - datetime(1970, 1, 1)) // _MICROSECOND,  # noqa: DTZ001, DTZ901 - wall clocks have no zone
    (datetime.max - datetime(1970, 1, 1)) // _MICROSECOND,  # noqa: DTZ001, DTZ901
)
"""The first and the last microsecond of years 1 to 9999."""

ORC_BOUNDS = (-(2**63 // 1000 - 1), 2**63 // 1000 - 1)
"""The first and the last microsecond whose nanoseconds fit 64 bits: ORC files are read as nanoseconds."""

DAY_BOUNDS = (0, timedelta(days=1) // _MICROSECOND - 1)
"""The first and the last microsecond of a day."""


def is_lost_in_orc(micros: int) -> bool:
    """Whether an ORC file would return another instant: it has no sign for the second before 1970."""
    first, last = ORC_BOUNDS
    return -_SECOND < micros < 0 or not first <= micros <= last


def day_number(text: str) -> int:
    """Days since 1970-01-01.

    Raises:
        ValueError: The text is no date in the form above.
    """
    day = text[:-1] if text.endswith(("Z", "z")) else text
    if not _DAY_FORM.fullmatch(day):
        raise ValueError("not a date")
    return (date.fromisoformat(day) - date(1970, 1, 1)).days


def clock_micros(text: str) -> int:
    """Microseconds since midnight.

    Raises:
        ValueError: The text is no time in the form above, or finer than microseconds.
    """
    match = _CLOCK_FORM.fullmatch(text)
    if match is None or _ahead(match):
        raise ValueError("not a time")
    moment = datetime.combine(date.min, _clock(match))
    return (moment - datetime.min) // _MICROSECOND  # noqa: DTZ901 - wall clocks have no zone


def wall_micros(text: str) -> int:
    """Microseconds from 1970-01-01T00:00 to the local time in a text, ignoring its zone.

    Raises:
        ValueError: The text is no timestamp in the form above, or finer than microseconds.
    """
    wall, _ = _moment(text)
    return (wall - datetime(1970, 1, 1)) // _MICROSECOND  # noqa: DTZ001 - wall clocks have no zone


def unzoned_micros(text: str) -> int:
    """Like `wall_micros`, for a text that must have no zone.

    Raises:
        ValueError: The text is no timestamp in the form above, has a zone, or is finer than microseconds.
    """
    match = _MOMENT_FORM.fullmatch(text)
    if match is not None and (match["utc"] or match["sign"]):
        raise ValueError("a timestamp with a zone")
    return wall_micros(text)


def instant_micros(text: str) -> int:
    """Microseconds from 1970-01-01T00:00Z to an instant. A text without zone is in UTC.

    Raises:
        ValueError: The text is no timestamp in the form above, finer than microseconds, or not in years 1 to 9999.
    """
    wall, ahead = _moment(text)
    try:
        utc = wall - ahead
    except OverflowError as error:
        raise ValueError("not in years 1 to 9999") from error
    return (utc - datetime(1970, 1, 1)) // _MICROSECOND  # noqa: DTZ001 - the zone was taken off


def _moment(text: str) -> tuple[datetime, timedelta]:
    match = _MOMENT_FORM.fullmatch(text)
    if match is None:
        raise ValueError("not a timestamp")
    return datetime.combine(date.fromisoformat(match["day"]), _clock(match)), _ahead(match)


def _clock(match: re.Match[str]) -> time:
    fraction = (match["fraction"] or "").ljust(6, "0")
    if fraction[6:].strip("0"):
        raise ValueError("finer than microseconds")
    return time(int(match["hour"]), int(match["minute"]), int(match["second"] or 0), int(fraction[:6]))


def _ahead(match: re.Match[str]) -> timedelta:
    """How far the zone is ahead of UTC."""
    if match["sign"] is None:
        return timedelta()
    hours, minutes = int(match["zone_hour"]), int(match["zone_minute"] or 0)
    if hours > _LAST_HOUR or minutes > _LAST_MINUTE:
        raise ValueError("not a zone")
    ahead = timedelta(hours=hours, minutes=minutes)
    return -ahead if match["sign"] == "-" else ahead
