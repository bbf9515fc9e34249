"""Readers of JSON values into a column's type, one per type.

They return the canonical form that `frazil.verify.canonical` also gives to what a table stores: whole numbers for
dates, times and decimals, bytes for uuid, fixed and binary, tuples for lists, structs and maps.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Callable
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, InvalidOperation, Overflow, Underflow
from math import isinf
from struct import Struct
from typing import Any

from frazil.pipeline.types import ColumnType, ListOf, MapOf, Primitive, StructOf
from frazil.verify import moments
from frazil.verify.canonical import empty_list

Read = Callable[[Any], Any]
"""Takes a JSON value that is not null and returns its canonical form, or raises Unfit."""


class Unfit(ValueError):
    """A value can't become its column's type, so its record is a dead letter."""


class Figure(str):
    """The text of a JSON number: which digits count is known only with the column."""

    __slots__ = ()


def reader(of: ColumnType) -> Read:
    """The reader of a column's type."""
    match of:
        case ListOf(element):
            return _list_reader(reader(element), empty_list(element))
        case MapOf(_, value):
            return _map_reader(reader(value))
        case StructOf(fields):
            return _struct_reader([(name, reader(inner)) for name, inner in fields])
        case Primitive("decimal", (precision, scale)):
            return lambda value: _decimal(value, precision, scale)
        case Primitive("fixed", (width,)):
            return lambda value: _fixed(value, width)
        case Primitive(name):
            return _PRIMITIVES[name]


def _list_reader(read: Read, empty: tuple[()] | None) -> Read:
    def read_list(value: Any) -> tuple[Any, ...] | None:
        if not isinstance(value, list):
            raise Unfit("not a list")
        return tuple([None if item is None else read(item) for item in value]) or empty

    return read_list


def _map_reader(read: Read) -> Read:
    def read_map(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, dict):
            raise Unfit("not an object")
        return tuple(sorted((_stored(key), None if item is None else read(item)) for key, item in value.items()))

    return read_map


def _struct_reader(fields: list[tuple[str, Read]]) -> Read:
    def read_struct(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, dict):
            raise Unfit("not an object")
        return tuple([None if value.get(name) is None else read(value[name]) for name, read in fields])

    return read_struct


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise Unfit("not true or false")
    return value


def _figure(value: Any) -> Figure:
    if type(value) is not Figure:
        raise Unfit("not a number")
    return value


_SHORT = 18
"""Digits, sign included, that surely are a whole number of 64 bits."""


def _whole(value: Any, bits: int) -> int:
    text = _figure(value)
    number = int(text) if len(text) <= _SHORT and text.removeprefix("-").isdecimal() else _scaled(text, 20, 0)
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise Unfit("out of range")
    return number


def _decimal(value: Any, precision: int, scale: int) -> int:
    return _scaled(_figure(value), precision, scale)


def _scaled(text: str, precision: int, scale: int) -> int:
    """The exact value times 10^scale."""
    whole, _, fraction = text.partition(".")
    fraction = fraction.rstrip("0")
    if len(text) <= _SHORT and len(fraction) <= scale and f"{whole.removeprefix('-')}{fraction}".isdecimal():
        number = int(whole + fraction.ljust(scale, "0"))
        if abs(number) < 10**precision:
            return number
    return _scaled_exactly(text, precision, scale)


def _scaled_exactly(text: str, precision: int, scale: int) -> int:
    """The same for any text: exponents, more digits than the column has, zeros at the end."""
    traps = [InvalidOperation, Overflow, Underflow]
    exact = Context(prec=max(len(text), precision) + 1, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=traps)
    try:
        number = exact.create_decimal(text)
    except (InvalidOperation, Overflow, Underflow) as error:  # an exponent that no Decimal has
        if Decimal(text.lower().partition("e")[0]).is_zero():
            return 0
        raise Unfit("out of range") from error
    if number.is_zero():
        return 0
    if number.adjusted() >= precision - scale:
        raise Unfit("out of range")
    sign, digits, exponent = number.normalize(exact).as_tuple()
    if not isinstance(exponent, int) or exponent < -scale:
        raise Unfit("more digits than the column holds")
    units = int("".join(map(str, digits)) + "0" * (exponent + scale))
    return -units if sign else units


def _double(value: Any) -> float:
    number = float(_figure(value))
    if isinf(number):
        raise Unfit("out of range")
    return number


_FLOAT = Struct("<f")


def _single(value: Any) -> float:
    try:
        packed = _FLOAT.pack(_double(value))
    except OverflowError as error:
        raise Unfit("out of range") from error
    found: float = _FLOAT.unpack(packed)[0]
    return found


def _string(value: Any) -> str:
    if type(value) is str:
        return _stored(value)
    if isinstance(value, dict | list):
        parts: list[str] = []
        _compact(value, parts)
        return _stored("".join(parts))
    raise Unfit("not a text")


def _stored(text: str) -> str:
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise Unfit("half of a surrogate pair")
    return text


def _compact(value: Any, parts: list[str]) -> None:
    """JSON without blanks, numbers as they were sent."""
    if isinstance(value, dict):
        for at, (key, item) in enumerate(value.items()):
            parts += ["," if at else "{", json.dumps(key, ensure_ascii=False), ":"]
            _compact(item, parts)
        parts.append("}" if value else "{}")
    elif isinstance(value, list):
        for at, item in enumerate(value):
            parts.append("," if at else "[")
            _compact(item, parts)
        parts.append("]" if value else "[]")
    else:
        parts.append(value if isinstance(value, Figure) else json.dumps(value, ensure_ascii=False))


_UUID_FORM = re.compile(r"[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}")
_UUID_BYTES = 16


def _uuid(value: Any) -> bytes:
    if type(value) is not str or not _UUID_FORM.fullmatch(value):
        raise Unfit("not a uuid")
    return bytes.fromhex(value.replace("-", ""))


def _binary(value: Any) -> bytes:
    if type(value) is not str:
        raise Unfit("not a text")
    try:
        return b64decode(value, validate=True)
    except ValueError as error:
        raise Unfit("not base64") from error


def _fixed(value: Any, width: int) -> bytes:
    if width == _UUID_BYTES and type(value) is str and _UUID_FORM.fullmatch(value):
        return _uuid(value)  # sixteen bytes may be written as a uuid
    found = _binary(value)
    if len(found) != width:
        raise Unfit(f"not {width} bytes")
    return found


def _moment(read: Callable[[str], int]) -> Read:
    def read_moment(value: Any) -> int:
        if type(value) is not str:
            raise Unfit("not a text")
        try:
            return read(value)
        except ValueError as error:
            raise Unfit(str(error)) from error

    return read_moment


_PRIMITIVES: dict[str, Read] = {
    "boolean": _boolean,
    "int": lambda value: _whole(value, 32),
    "long": lambda value: _whole(value, 64),
    "float": _single,
    "double": _double,
    "date": _moment(moments.day_number),
    "time": _moment(moments.clock_micros),
    "timestamp": _moment(moments.wall_micros),
    "timestamptz": _moment(moments.instant_micros),
    "string": _string,
    "uuid": _uuid,
    "binary": _binary,
}
