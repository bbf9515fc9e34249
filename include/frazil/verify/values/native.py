"""Converts fields of typed formats, and of transformed records, to the canonical value that a column must have.

If that value can't be derived here, the functions raise `UnjudgedError`: the cell is counted and not compared.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal
from math import isfinite
from struct import Struct
from typing import Any, Final
from uuid import UUID

from frazil.pipeline.syntax.types import ColumnType, ListOf, MapOf, Primitive, StructOf
from frazil.verify.values import canonical
from frazil.verify.values.canonical import empty_list, sorted_entries
from frazil.verify.values.json_document import EPOCH, Misfit, NumberText, Unfit, micros_of_units, scaled_integer
from frazil.verify.values.readers import (
    NUMBER,
    NUMERIC,
    TIMES,
    Options,
    Read,
    boolean,
    kept_in_orc,
    list_reader,
    reader,
)

UNKNOWN: Final = type("Unknown", (), {"__repr__": lambda _: "unknown"})()
"""A field whose value can't be derived here."""

BARE: Final = "value"
"""Name of the single field of a value without fields."""

LARGEST_NUMBER: Final = 4_096
"""Most bytes of a decimal that is converted, which takes half a millisecond, and four times as long for twice the bytes. No column
holds a decimal of 17 bytes.
"""

EXACT: Final = Context(prec=3 * LARGEST_NUMBER)
"""Does not round a decimal of at most so many bytes, as Python's default context of 28 digits would."""

Fields = dict[str, Any]

Schema = tuple[str, Mapping[str, str]]
"""Text of a schema; name -> text of each schema that it refers to."""


@dataclass(frozen=True, slots=True)
class SchemaReader:
    """Reads the schemas of a registry.

    Attributes:
        read: Reads a schema by its id, or raises UnjudgedError.
        framing: How records name its schemas: `framing` of the registry in the settings.
    """

    read: Callable[[int | UUID], Schema]
    framing: str = "confluent"


class UnjudgedError(Exception):
    """The expected value can't be derived here."""


def zigzag(raw: bytes, position: int) -> tuple[int, int]:
    """Read a zigzag varint of at most 10 bytes, as Avro and Kafka's serializers write it. Returns the number and the position
    after it.

    Raises:
        Unfit: The bytes end within it.
        UnjudgedError: It is longer.
    """
    if position < len(raw) and (byte := raw[position]) < 0x80:  # noqa: PLR2004 - most numbers: one byte
        return (byte >> 1) ^ -(byte & 1), position + 1
    value = shift = 0
    for byte in raw[position : position + _NUMBER_BYTES]:
        value |= (byte & 0x7F) << shift
        shift, position = shift + 7, position + 1
        if byte < 0x80:  # noqa: PLR2004 - the bit that says that more follow
            if value >> 64:
                break
            return (value >> 1) ^ -(value & 1), position
    if shift < 7 * _NUMBER_BYTES:
        raise Unfit("the bytes end within a number")
    raise UnjudgedError("a number of more than 64 bits")


_NUMBER_BYTES: Final = 10


@dataclass(frozen=True, slots=True)
class Json:
    """A field of a value that has a JSON Schema, not converted by that schema."""

    value: Any


class LineText(str):
    """A field of a delimited line, or the text of a header: only the column knows its type."""

    __slots__ = ()


_SURE_OF_JSON: Final = {"boolean", "int", "long", "double", "decimal", "date", "timestamptz", "uuid"}
"""Types of columns that take the same value of a JSON field whatever its schema says."""

_SINGLE: Final = Struct("<f")


def native_reader(column_type: ColumnType, options: Options) -> Read:
    """Returns the function that reads fields of any format into a column of this type."""
    plain, as_json = _reader(column_type, options), reader(column_type, options)

    def read(value: Any) -> Any:
        if isinstance(value, Json):
            return _read_json(value.value, column_type, as_json)
        if isinstance(value, LineText):
            return _read_line_text(value, column_type, options, as_json)
        return plain(value)

    return read


def _read_json(value: Any, column_type: ColumnType, read: Read) -> Any:
    """Read a value that has a JSON Schema, if its schema can't change the result."""
    if value is None:
        return None
    is_sure = isinstance(column_type, Primitive) and (
        column_type.name in _SURE_OF_JSON or (column_type.name == "string" and type(value) is str)
    )
    if not is_sure:
        raise UnjudgedError("its JSON Schema decides")
    try:
        return read(value)
    except Unfit as unfit:
        raise UnjudgedError("its JSON Schema decides") from unfit


def _read_line_text(value: str, column_type: ColumnType, options: Options, read: Read) -> Any:
    if not isinstance(column_type, Primitive):
        raise Unfit("a text")
    if column_type.name in NUMERIC or (
        column_type.name in TIMES and options.unit is not None and NUMBER.fullmatch(value)
    ):
        if not NUMBER.fullmatch(value):
            raise UnjudgedError("a text that is no number of JSON's form")
        return read(NumberText(value))
    if column_type.name == "boolean":
        if value not in ("true", "false"):
            raise UnjudgedError("neither true nor false")
        return value == "true"
    return read(str(value))


def _reader(column_type: ColumnType, options: Options) -> Read:
    match column_type:
        case ListOf(element):
            return _refuse_unknown(list_reader(_reader(element, options), empty_list(element)))
        case MapOf(key, value):
            return _map(_reader(key, options), _reader(value, options))
        case StructOf(fields):
            return _struct([(name, _reader(inner, options)) for name, inner in fields], options)
        case Primitive():
            return _refuse_unknown(_primitive(column_type, options))


def _refuse_unknown(read: Read) -> Read:
    def read_known(value: Any) -> Any:
        if value is UNKNOWN:
            raise UnjudgedError("a part that is not read here")
        return read(value)

    return read_known


def _optional(value: Any, read: Read) -> Any:
    return None if value is None else read(value)


def _map(read_key: Read, read: Read) -> Read:
    def read_map(value: Any) -> Any:
        if not isinstance(value, dict):
            raise UnjudgedError("no map")
        return sorted_entries((read_key(key), _optional(part, read)) for key, part in value.items())

    return read_map


def _struct(fields: list[tuple[str, Read]], options: Options) -> Read:
    def read_struct(value: Any) -> Any:
        if not isinstance(value, dict) or options.any_case:
            raise UnjudgedError("no struct, or names of any case")
        return tuple([_optional(value.get(name), read) for name, read in fields])

    return read_struct


def _primitive(column_type: Primitive, options: Options) -> Read:
    match column_type:
        case Primitive("decimal", (precision, scale)):
            return lambda value: _decimal(value, precision, scale)
        case Primitive("fixed", (width,)):
            return lambda value: _bytes(value, width)
        case Primitive("string"):
            return lambda value: _string(value, options)
        case Primitive("timestamp" | "timestamptz" | "time" as name):
            return kept_in_orc(lambda value: _time(value, name, options), name, options)
        case Primitive(name):
            return _PRIMITIVES[name]


def _number(value: Any) -> int | float | Decimal:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise Misfit("not a number")
    return value


def _whole(value: Any, bits: int) -> int:
    number = _number(value)
    if not isinstance(number, int):
        if not isfinite(number) or number != int(number):
            raise Misfit("no whole number")
        number = int(number)
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise Misfit("out of range")
    return number


def _double(value: Any) -> float:
    number = _number(value)
    if isinstance(number, float):
        return number
    try:
        nearest = float(number)
    except OverflowError as error:
        raise Misfit("out of range") from error
    if isinstance(number, Decimal) and Decimal(nearest) != number:
        raise UnjudgedError("a decimal that no double is exactly")
    if nearest != number:
        raise Misfit("more digits than a double holds")
    return nearest


def _single(value: Any) -> float:
    number = _double(value)
    if not isfinite(number):
        return number
    try:
        nearest: float = _SINGLE.unpack(_SINGLE.pack(number))[0]
    except OverflowError as error:
        raise Misfit("out of range") from error
    if nearest != number:
        raise Misfit("more digits than a float holds")
    return nearest


def _decimal(value: Any, precision: int, scale: int) -> int:
    number = _number(value)
    if not isinstance(number, float):
        return scaled_integer(format(Decimal(number), "f"), precision, scale)
    if not isfinite(number):
        raise Misfit("not finite")
    try:
        return scaled_integer(format(Decimal(repr(number)), "f"), precision, scale)
    except Unfit as unfit:
        raise UnjudgedError("digits of a fraction") from unfit


def _string(value: Any, options: Options) -> str:
    if type(value) is str:
        if any("\ud800" <= character <= "\udfff" for character in value):
            raise Unfit("half of a surrogate pair")
        return value
    if options.casts and isinstance(value, bool | int):
        return json.dumps(value)
    if options.casts or not isinstance(value, bool | int | float | Decimal | bytes):
        raise UnjudgedError("the text of a value that is none")
    raise Misfit("not a text")


def _bytes(value: Any, width: int | None = None) -> bytes:
    if not isinstance(value, bytes):
        raise UnjudgedError("no bytes") if isinstance(value, UUID) else Misfit("no bytes")
    if width is not None and len(value) != width:
        raise Unfit("another width")
    return value


def _uuid(value: Any) -> Any:
    if isinstance(value, UUID):
        return value.bytes
    if isinstance(value, str):
        return reader(Primitive("uuid"))(value)
    raise UnjudgedError("no uuid")


def _date(value: Any) -> int:
    if isinstance(value, date) and not isinstance(value, datetime):
        return (value - EPOCH.date()).days
    return _read_text(value, canonical.day_number)


def _read_text(value: Any, read: Callable[[str], int]) -> int:
    if type(value) is not str:
        raise (
            Misfit("no time")
            if isinstance(value, bool | int | float | Decimal | bytes)
            else UnjudgedError("another kind of time")
        )
    try:
        return read(value)
    except ValueError as error:
        raise Unfit(str(error)) from error


def _time(value: Any, name: str, options: Options) -> int:
    if isinstance(value, time) and name == "time":
        return (datetime.combine(EPOCH, value, UTC) - EPOCH) // timedelta(microseconds=1)
    if isinstance(value, datetime) and name != "time":
        if value.tzinfo is None and name == "timestamptz":
            raise UnjudgedError("a time without zone")
        instant = value.replace(tzinfo=UTC) if value.tzinfo is None else value
        return (instant - EPOCH) // timedelta(microseconds=1)
    if isinstance(value, int) and not isinstance(value, bool) and options.unit is not None:
        first, last = canonical.DAY_BOUNDS if name == "time" else canonical.BOUNDS
        return micros_of_units(str(value), options.unit, first, last, truncates=options.truncates)
    if type(value) is str:
        micros: int = reader(Primitive(name), options)(value)
        return micros
    return _read_text(value, int)


_PRIMITIVES: Final[Mapping[str, Read]] = {
    "boolean": boolean,
    "int": lambda value: _whole(value, 32),
    "long": lambda value: _whole(value, 64),
    "float": _single,
    "double": _double,
    "date": _date,
    "uuid": _uuid,
    "binary": _bytes,
}


def python_value(column_type: ColumnType, value: Any) -> Any:  # noqa: C901, PLR0911 - a case for each type
    """The plain Python value of a canonical value, as transforms see it."""
    if value is None:
        return None
    match column_type:
        case ListOf(element):
            return [python_value(element, part) for part in value]
        case MapOf(_, inner):
            return {key: python_value(inner, part) for key, part in value}
        case StructOf(fields):
            return {name: python_value(inner, part) for (name, inner), part in zip(fields, value, strict=True)}
        case Primitive("decimal", (_, scale)):
            return Decimal(value).scaleb(-scale, EXACT)
        case Primitive("date"):
            return EPOCH.date() + timedelta(days=value)
        case Primitive("timestamptz"):
            return EPOCH + timedelta(microseconds=value)
        case Primitive("timestamp"):
            return (EPOCH + timedelta(microseconds=value)).replace(tzinfo=None)
        case Primitive("time"):
            return (EPOCH + timedelta(microseconds=value)).time()
        case Primitive("uuid"):
            return UUID(bytes=value)
    return value
