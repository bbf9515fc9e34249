"""Decodes Avro values into fields with fastavro, after a check of the sizes that the bytes claim.

fastavro trusts these sizes: six bytes can make it build an array of millions of nulls, and a recursive type can crash the process.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any, Final

import fastavro
from fastavro.schema import SchemaParseException, UnknownType, parse_schema

from frazil.verify.values.json_document import EPOCH, Unfit
from frazil.verify.values.native import BARE, LARGEST_NUMBER, UNKNOWN, Fields, Schema, UnjudgedError, zigzag


def avro_reader(schema: Schema, _message: str | None) -> Callable[[bytes], Fields]:
    """Make the reader of values of a schema.

    Raises:
        UnjudgedError: The schema is not valid.
    """
    text, references = schema
    named: dict[str, Any] = {}
    try:
        for reference_text in references.values():
            parse_schema(json.loads(reference_text), named)
        parsed = parse_schema(json.loads(text), named)
        bounds, convert = _Bounds(named, parsed), _Fields(named).part(parsed)
    except (SchemaParseException, UnknownType, ValueError, TypeError, KeyError, RecursionError) as error:
        raise UnjudgedError("its schema is none of Avro's") from error
    is_record = isinstance(parsed, dict) and parsed.get("type") == "record"

    def read(raw: bytes) -> Fields:
        if raw[:2] == b"\xc3\x01":
            raise UnjudgedError("Avro's single-object encoding, or a value that begins like it")
        bounds.check(raw)
        try:
            value = fastavro.schemaless_reader(io.BytesIO(raw), parsed, None)
        except OverflowError as error:
            raise UnjudgedError("a time that Python does not have") from error
        except (EOFError, ValueError, IndexError, KeyError, TypeError, struct.error) as error:
            raise Unfit("not of its schema") from error
        fields = convert(value)
        return fields if is_record else {BARE: fields}

    return read


_Walk = Callable[[bytes, int], int]
"""Takes bytes and the position of a value, and returns the position after it, which may exceed the number of bytes."""

_MOST_LEVELS: Final = 50
"""Deepest nesting of records. A deeper value is a dead letter for every table."""

_MOST_PARTS: Final = 2_000_000
"""Most fields and items of one value, unless it has more bytes than half of that: then two per byte."""

_MOST_EMPTY: Final = 10_000
"""Most fields and items of one value that take no byte: five bytes can claim millions of them."""


class _Bounds:
    """Walks over the bytes of a value by its schema, and refuses claims beyond the bounds."""

    def __init__(self, named: Mapping[str, Any], schema: Any) -> None:
        self._named = named
        self._known: dict[str, _Walk] = {}
        self._levels = self._parts = self._empty = 0
        self._walk = self._part(schema)

    def check(self, raw: bytes) -> None:
        """Refuse a value that fastavro must not read.

        Raises:
            Unfit: The bytes end within the value, or go on after it.
            UnjudgedError: It is too deep or too large, or has parts that no Avro writer makes.
        """
        self._levels, self._parts, self._empty = 0, max(_MOST_PARTS, 2 * len(raw)), _MOST_EMPTY
        try:
            end = self._walk(raw, 0)
        except IndexError as error:
            raise Unfit("not of its schema") from error
        except RecursionError as error:
            raise UnjudgedError("a value of too many levels") from error
        if end != len(raw):
            raise Unfit("bytes behind the value" if end < len(raw) else "not of its schema")

    def _part(self, schema: Any) -> _Walk:  # noqa: PLR0911 - a case for each kind
        match schema:
            case str():
                return _WALKS[schema] if schema in _WALKS else self._named_part(schema)
            case list():
                return _one_of([self._part(branch) for branch in schema])
            case {"type": "record" | "error" | "enum" | "fixed", "name": str(name)}:
                return self._named_part(name)
            case {"type": "array"}:
                return self._blocks(self._part(schema["items"]))
            case {"type": "map"}:
                value = self._part(schema["values"])
                return self._blocks(lambda raw, position: value(raw, _bytes(raw, position)))
            case {"type": "bytes", "logicalType": "decimal"}:
                return _decimal
            case {"type": inner_type}:
                return self._part(inner_type)
        raise TypeError("no type of Avro's")

    def _named_part(self, name: str) -> _Walk:
        if name not in self._known:
            self._known[name] = partial(self._recursive_walk, name)
            self._known[name] = self._named_type(self._named[name])
        return self._known[name]

    def _recursive_walk(self, name: str, raw: bytes, position: int) -> int:
        """Walk a value of a recursive type, whose walk is looked up only now: it did not exist when the schema was read."""
        return self._known[name](raw, position)

    def _named_type(self, schema: Any) -> _Walk:
        if schema["type"] == "enum":
            return _one_of([lambda _, position: position] * len(schema["symbols"]))
        if schema["type"] == "fixed":
            size = int(schema["size"])
            if schema.get("logicalType") == "decimal" and size > LARGEST_NUMBER:
                return _refuse
            return lambda _, position: position + size
        fields = [self._part(field["type"]) for field in schema["fields"]]

        def walk(raw: bytes, position: int) -> int:
            self._count(len(fields))
            self._levels += 1
            if self._levels > _MOST_LEVELS:
                raise UnjudgedError(f"a value of more than {_MOST_LEVELS} levels")
            for field in fields:
                position = self._walk_part(field, raw, position)
            self._levels -= 1
            return position

        return walk

    def _blocks(self, item: _Walk) -> _Walk:
        def walk(raw: bytes, position: int) -> int:
            count, position = zigzag(raw, position)
            while count:
                if count < 0:  # the block's size in bytes follows
                    _, position = zigzag(raw, position)
                self._count(abs(count))
                for _ in range(abs(count)):
                    position = self._walk_part(item, raw, position)
                count, position = zigzag(raw, position)
            return position

        return walk

    def _walk_part(self, part: _Walk, raw: bytes, position: int) -> int:
        """The position after a field or an item; counts those without bytes."""
        end = part(raw, position)
        if end == position:
            self._empty -= 1
            if self._empty < 0:
                raise UnjudgedError(f"a value of more than {_MOST_EMPTY} fields or items without bytes")
        return end

    def _count(self, parts: int) -> None:
        self._parts -= parts
        if self._parts < 0:
            raise UnjudgedError("a value of too many fields or items")


def _bytes(raw: bytes, position: int) -> int:
    length, position = zigzag(raw, position)
    if length < 0:
        raise UnjudgedError("a length below 0")
    return position + length


def _decimal(raw: bytes, position: int) -> int:
    length, begin = zigzag(raw, position)
    return _refuse(raw, position) if not 0 <= length <= LARGEST_NUMBER else begin + length


def _refuse(_raw: bytes, _position: int) -> int:
    raise UnjudgedError(f"a number of more than {LARGEST_NUMBER} bytes")


def _boolean(raw: bytes, position: int) -> int:
    if raw[position] > 1:
        raise UnjudgedError("a boolean that is neither 0 nor 1")
    return position + 1


def _int(raw: bytes, position: int) -> int:
    number, position = zigzag(raw, position)
    if not -(1 << 31) <= number < 1 << 31:
        raise UnjudgedError("an int of more than 32 bits")
    return position


def _one_of(walks: list[_Walk]) -> _Walk:
    """Returns the walk over a number, of a branch or symbol, and the value that it selects."""

    def walk(raw: bytes, position: int) -> int:
        number, position = zigzag(raw, position)
        if not 0 <= number < len(walks):
            raise UnjudgedError("a branch or symbol that its schema does not have")
        return walks[number](raw, position)

    return walk


_WALKS: Final[Mapping[str, _Walk]] = {
    "null": lambda _, position: position,
    "boolean": _boolean,
    "int": _int,
    "long": lambda raw, position: zigzag(raw, position)[1],
    "float": lambda _, position: position + 4,
    "double": lambda _, position: position + 8,
    "bytes": _bytes,
    "string": _bytes,
}


def _same(value: Any) -> Any:
    return value


def _unknown(_value: Any) -> Any:
    return UNKNOWN


_CONNECT_PACKAGES: Final = ("io.debezium.time.", "org.apache.kafka.connect.data.")


def _day(value: int) -> Any:
    try:
        return EPOCH.date() + timedelta(days=value)
    except OverflowError:
        return UNKNOWN


def _wall_time(micros: int, value: int) -> Any:
    """The local time that is `value` units of `micros` microseconds after 1970: Debezium sends times without a zone."""
    try:
        return (EPOCH + timedelta(microseconds=micros * value)).replace(tzinfo=None)
    except OverflowError:
        return UNKNOWN


_CONNECT_TIMES: Final[Mapping[str, Callable[[int], Any]]] = {
    "io.debezium.time.Date": _day,
    "io.debezium.time.Timestamp": partial(_wall_time, 1_000),
    "io.debezium.time.MicroTimestamp": partial(_wall_time, 1),
}
"""Name of a logical type of Debezium -> conversion to its value. Values of other types in these packages are not known here."""


class _Fields:
    """Makes the converters from fastavro values to fields; each named type is converted once."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._known: dict[str, Callable[[Any], Any]] = {}

    def part(self, schema: Any) -> Callable[[Any], Any]:  # noqa: C901, PLR0911 - a case for each kind
        """The converter of values of this schema to fields."""
        match schema:
            case str():
                return _same if schema in _WALKS else self._named_part(schema)
            case list():
                branches = [branch for branch in schema if branch != "null"]
                return self._optional(branches[0]) if len(branches) == 1 else _unknown
            case {"logicalType": str(logical)} if logical not in _LOGICAL:
                return _unknown
            case {"connect.name": str(name), "type": "int" | "long"} if "logicalType" not in schema:
                return _CONNECT_TIMES.get(name, _unknown if name.startswith(_CONNECT_PACKAGES) else _same)
            case {"type": "fixed", "size": int(size)} if size > LARGEST_NUMBER:
                return _unknown
            case {"type": "record", "name": str(name)}:
                return self._named_part(name)
            case {"type": "array" | "map" as kind}:
                inner = self.part(schema["items" if kind == "array" else "values"])
                if kind == "array":
                    return lambda value: [inner(element) for element in value]
                return lambda value: {name: inner(element) for name, element in value.items()}
            case {"type": "enum" | "fixed"}:
                return _same
            case {"type": inner_type}:
                return self.part(inner_type)
        return _unknown

    def _optional(self, schema: Any) -> Callable[[Any], Any]:
        inner = self.part(schema)
        return lambda value: None if value is None else inner(value)

    def _named_part(self, name: str) -> Callable[[Any], Any]:
        if name not in self._known:
            schema = self._named.get(name, {})
            self._known[name] = _unknown  # for a recursive field, which Frazil stores as JSON text
            if schema.get("type") == "record":
                parts = {field["name"]: self.part(field["type"]) for field in schema["fields"]}
                aliases = {alias for field in schema["fields"] for alias in field.get("aliases", ())} - parts.keys()
                former = dict.fromkeys(
                    aliases, UNKNOWN
                )  # a column with the name of an alias may get the field's values
                self._known[name] = lambda value: former | {field: part(value[field]) for field, part in parts.items()}
            elif schema:
                self._known[name] = self.part(schema)
        return self._known[name]


_LOGICAL: Final = {
    *("decimal", "uuid", "date", "time-millis", "time-micros"),
    *("timestamp-millis", "timestamp-micros", "local-timestamp-millis", "local-timestamp-micros"),
}
