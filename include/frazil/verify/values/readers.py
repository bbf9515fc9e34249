"""Readers of JSON values into a column's type, one per type.

They return the canonical form that `frazil.verify.values.canonical` also gives to what a table stores: whole numbers for
dates, times and decimals, bytes for uuid, fixed and binary, tuples for lists, structs and maps.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from frazil.pipeline.syntax.types import ColumnType, ListOf, MapOf, Primitive, StructOf
from frazil.verify.values import canonical
from frazil.verify.values.canonical import empty_list, sorted_entries
from frazil.verify.values.json_document import (
    Misfit,
    NumberText,
    Unfit,
    compact,
    double,
    folded_fields,
    integer,
    micros_of_units,
    number_text,
    scaled_integer,
    single,
)

Read = Callable[[Any], Any]
"""Takes a JSON value that is not null and returns its canonical form, or raises Unfit."""


@dataclass(frozen=True, slots=True)
class Options:
    """How the values of a column are read, at any level of its type.

    Attributes:
        unit: Unit of numbers that stand for times; None: numbers are no times.
        drops_offset: Whether a text with an offset may become a timestamp without zone.
        casts: Whether numbers and booleans become texts, and texts of digits become times in the unit.
        any_case: Whether field names of structs are case-insensitive.
        once: Whether two fields whose names differ in case only make the value unfit.
        in_orc: Whether the column is in ORC files, which don't keep every timestamp.
        rescues: Whether a field of a struct is null if its value does not fit.
        truncates: Whether times are truncated to microseconds.
    """

    unit: str | None = None
    drops_offset: bool = True
    casts: bool = False
    any_case: bool = False
    once: bool = False
    in_orc: bool = False
    rescues: bool = False
    truncates: bool = False


NO_OPTIONS = Options()


def reader(column_type: ColumnType, options: Options = NO_OPTIONS) -> Read:
    """The reader of a column's type."""
    match column_type:
        case ListOf(element):
            return list_reader(reader(element, options), empty_list(element))
        case MapOf(Primitive("string"), value):
            return _named_map_reader(reader(value, options))
        case MapOf(key, value):
            return _keyed_map_reader(key, reader(key, options), reader(value, options))
        case StructOf(fields):
            return _struct_reader([(name, reader(inner, options)) for name, inner in fields], options)
        case Primitive():
            return _primitive_reader(column_type, options)


def _primitive_reader(column_type: Primitive, options: Options) -> Read:
    match column_type:
        case Primitive("decimal", (precision, scale)):
            return lambda value: scaled_integer(number_text(value), precision, scale)
        case Primitive("fixed", (width,)):
            return lambda value: _fixed(value, width)
        case Primitive("string") if options.casts:
            return _string_as_sent
        case Primitive("time" | "timestamp" | "timestamptz" as name):
            return kept_in_orc(_any_time_reader(name, options), name, options)
        case Primitive(name):
            return _PRIMITIVES[name]


def list_reader(read: Read, empty: tuple[()] | None) -> Read:
    """The reader of a list; one without elements becomes `empty`."""

    def read_list(value: Any) -> tuple[Any, ...] | None:
        if not isinstance(value, list):
            raise Misfit("not a list")
        return tuple([None if item is None else read(item) for item in value]) or empty

    return read_list


def _named_map_reader(read: Read) -> Read:
    def read_map(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, dict):
            raise Misfit("not an object")
        return tuple(sorted((_stored(key), None if item is None else read(item)) for key, item in value.items()))

    return read_map


def _keyed_map_reader(key: ColumnType, read_key: Read, read: Read) -> Read:
    def read_map(value: Any) -> tuple[Any, ...]:
        entries = {_key(read_key, name): None if item is None else read(item) for name, item in _entries(key, value)}
        if len(entries) < len(value):
            raise Unfit("a key is there twice")
        return sorted_entries(entries.items())

    return read_map


def _key(read: Read, name: Any) -> Any:
    if name is None:
        raise Unfit("a key is null")
    return read(name)


def _entries(key: ColumnType, value: Any) -> list[tuple[Any, Any]]:
    """Keys and values of an object, whose names are the keys as text, or of a list of entries."""
    if isinstance(value, dict):
        return [(_key_value(key, name), item) for name, item in value.items()]
    if isinstance(value, list):
        return [_entry(item) for item in value]
    raise Unfit("neither an object nor a list of entries")


NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
"""A number in JSON's form."""

NUMERIC = frozenset({"int", "long", "float", "double", "decimal"})
TIMES = frozenset({"time", "timestamp", "timestamptz"})


def _key_value(key: ColumnType, name: str) -> Any:
    """The JSON value of a map key that is written as the name of a field."""
    if key == Primitive("boolean"):
        return {"true": True, "false": False}.get(name, name)
    is_number = isinstance(key, Primitive) and key.name in NUMERIC | TIMES and NUMBER.fullmatch(name)
    return NumberText(name) if is_number else name


def _entry(item: Any) -> tuple[Any, Any]:
    if isinstance(item, dict) and "key" in item:
        return item["key"], item.get("value")
    if isinstance(item, list) and len(item) == len(("key", "value")):
        return item[0], item[1]
    raise Unfit("not an entry of a map")


def _struct_reader(fields: list[tuple[str, Read]], options: Options) -> Read:
    if options.any_case:
        fields = [(name.casefold(), read) for name, read in fields]
    folded_names = {name for name, _ in fields}
    if options.rescues:
        fields = [(name, null_if_misfit(read)) for name, read in fields]

    def read_struct(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, dict):
            raise Misfit("not an object")
        if options.any_case:
            value = folded_fields(value, folded_names, once=options.once)
        return tuple([None if value.get(name) is None else read(value[name]) for name, read in fields])

    return read_struct


def null_if_misfit(read: Read) -> Read:
    """The same reader, which returns None for a value of another kind, for columns that rescue such values."""

    def read_or_null(value: Any) -> Any:
        try:
            return read(value)
        except Misfit:
            return None

    return read_or_null


def boolean(value: Any) -> bool:
    """The value, which must be true or false."""
    if not isinstance(value, bool):
        raise Misfit("not true or false")
    return value


def _string(value: Any) -> str:
    if type(value) is str:
        return _stored(value)
    if isinstance(value, dict | list):
        return _stored(compact(value))
    raise Misfit("not a text")


def _string_as_sent(value: Any) -> str:
    return compact(value) if isinstance(value, bool | NumberText) else _string(value)


def _stored(text: str) -> str:
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise Unfit("half of a surrogate pair")
    return text


_UUID_FORM = re.compile(r"[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}")
_UUID_BYTES = 16


def _uuid(value: Any) -> bytes:
    if type(value) is not str:
        raise Misfit("not a text")
    if not _UUID_FORM.fullmatch(value):
        raise Unfit("not a uuid")
    return bytes.fromhex(value.replace("-", ""))


def _binary(value: Any) -> bytes:
    if type(value) is not str:
        raise Misfit("not a text")
    try:
        return b64decode(value, validate=True)
    except ValueError as error:
        raise Unfit("not base64") from error


def _fixed(value: Any, width: int) -> bytes:
    if width == _UUID_BYTES and type(value) is str and _UUID_FORM.fullmatch(value):
        return _uuid(value)  # 16 bytes may be written as a UUID
    raw = _binary(value)
    if len(raw) != width:
        raise Unfit(f"not {width} bytes")
    return raw


def _moment(read: Callable[[str], int]) -> Read:
    def read_moment(value: Any) -> int:
        if type(value) is not str:
            raise Misfit("not a text")
        try:
            return read(value)
        except ValueError as error:
            raise Unfit(str(error)) from error

    return read_moment


def kept_in_orc(read: Read, name: str, options: Options) -> Read:
    """The same reader of times; if the column is in ORC files, it refuses times that these don't keep."""
    if name == "time" or not options.in_orc:
        return read

    def read_kept_time(value: Any) -> Any:
        micros = read(value)
        if canonical.is_lost_in_orc(micros):
            raise Unfit("a time that ORC files don't keep")
        return micros

    return read_kept_time


def _any_time_reader(name: str, options: Options) -> Read:
    """The reader of times: of texts, and of numbers if a unit is declared."""
    read = _PRIMITIVES[name] if options.drops_offset or name != "timestamp" else _moment(canonical.unzoned_micros)
    if options.truncates:
        read = _without_fraction(read)
    unit, first, last = options.unit, *(canonical.DAY_BOUNDS if name == "time" else canonical.BOUNDS)
    if unit is None:
        return read

    def read_time(value: Any) -> Any:
        is_text = options.casts and type(value) is str and NUMBER.fullmatch(value)
        if not is_text and type(value) is not NumberText:
            return read(value)
        return micros_of_units(value, unit, first, last, truncates=options.truncates)

    return read_time


def _without_fraction(read: Read) -> Read:
    def read_shortened(value: Any) -> Any:
        before, point, after = value.partition(".") if type(value) is str else ("", "", "")
        digits = len(after) - len(after.lstrip("0123456789"))
        return read(f"{before}{point}{after[: min(digits, 6)]}{after[digits:]}" if digits else value)

    return read_shortened


_PRIMITIVES: dict[str, Read] = {
    "boolean": boolean,
    "int": lambda value: integer(value, 32),
    "long": lambda value: integer(value, 64),
    "float": single,
    "double": double,
    "date": _moment(canonical.day_number),
    "time": _moment(canonical.clock_micros),
    "timestamp": _moment(canonical.wall_micros),
    "timestamptz": _moment(canonical.instant_micros),
    "string": _string,
    "uuid": _uuid,
    "binary": _binary,
}
