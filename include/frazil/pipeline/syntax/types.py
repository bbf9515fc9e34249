"""Column types in Iceberg's own spelling: ``long``, ``decimal(38,2)``, ``list<string>``, ``struct<a: int, b: string>``.

The types are plain data, so that a pipeline file is checked without PyIceberg; `frazil.iceberg.schema.schema` converts them to
Iceberg's. A field name that is no word is in backticks, with those in the name doubled: ``struct<`a-b`: int>``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TypeVar

PRIMITIVES = (
    "boolean",
    "int",
    "long",
    "float",
    "double",
    "date",
    "time",
    "timestamp",
    "timestamptz",
    "string",
    "uuid",
    "binary",
    "variant",
)
REFUSED = {
    "timestamp_ns": "declare timestamp with value.sub_micros: truncate, or long for the number of nanoseconds",
    "timestamptz_ns": "declare timestamptz with value.sub_micros: truncate, or long for the number of nanoseconds",
    "geometry": "declare string for its text (WKT, GeoJSON), or binary for WKB",
    "geography": "declare string for its text (WKT, GeoJSON), or binary for WKB",
}
"""Types of format version 3 that no writer here supports -> the type to declare instead. PyIceberg 0.12 writes no table of that
version, and Spark has no such types.
"""

MAX_DECIMAL_PRECISION = 38
"""Iceberg's limit (table specification, primitive types)."""

T = TypeVar("T")

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Primitive:
    """A type without parts. Its `arguments` are precision and scale of a decimal, or the length of a fixed."""

    name: str
    arguments: tuple[int, ...] = ()

    def __str__(self) -> str:
        inside = ",".join(map(str, self.arguments))
        brackets = {"decimal": f"({inside})", "fixed": f"[{inside}]"}
        return self.name + brackets.get(self.name, "")


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list; its elements may be null."""

    element: ColumnType

    def __str__(self) -> str:
        return f"list<{self.element}>"


@dataclass(frozen=True, slots=True)
class MapOf:
    """A map; its values may be null, its keys may not."""

    key: ColumnType
    value: ColumnType

    def __str__(self) -> str:
        return f"map<{self.key}, {self.value}>"


@dataclass(frozen=True, slots=True)
class StructOf:
    """A struct of named, optional fields."""

    fields: tuple[tuple[str, ColumnType], ...]

    def __str__(self) -> str:
        return "struct<" + ", ".join(f"{_spelled(name)}: {field_type}" for name, field_type in self.fields) + ">"


def _spelled(name: str) -> str:
    return name if _WORD.fullmatch(name) else "`" + name.replace("`", "``") + "`"


ColumnType = Primitive | ListOf | MapOf | StructOf


VARIANT = Primitive("variant")
"""A JSON document of any shape; only a whole column can be one."""


def holds(column_type: ColumnType, kind: Primitive) -> bool:
    """Whether a type, or any part of it, is of this kind."""
    match column_type:
        case ListOf(element):
            inner = [element]
        case MapOf(key, value):
            inner = [key, value]
        case StructOf(fields):
            inner = [field_type for _, field_type in fields]
        case _:
            return column_type == kind
    return any(holds(inner_type, kind) for inner_type in inner)


def parse_type(text: str) -> ColumnType:
    """Parse Iceberg's spelling of a type.

    Raises:
        ValueError: The text is no type. The message has the wrong part, and the most similar type for an unknown name.
    """
    parser = _TypeParser(text)
    try:
        parsed = parser.type()
    except RecursionError as error:
        raise ValueError(f"{text[:40]!r}… is not a type: too deeply nested") from error
    parser.end()
    return parsed


class _TypeParser:
    """A recursive-descent parser of one text."""

    _TOKEN = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*|`(?:[^`]|``)+`|\d+|[<>(),:\[\]])")

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = self._TOKEN.findall(text)
        self.at = 0
        if self._TOKEN.sub("", text).strip():
            raise ValueError(f"{text!r} is not a type")

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self, expected: str | None = None) -> str:
        token = self.peek()
        if not token or (expected is not None and token != expected):
            raise ValueError(
                f"{self.text!r} is not a type: expected {expected or 'more'!r}, found {token or 'its end'!r}"
            )
        self.at += 1
        return token

    def end(self) -> None:
        if self.peek():
            raise ValueError(f"{self.text!r} is not a type: {self.peek()!r} is too much")

    def type(self) -> ColumnType:
        name = self.take().lower()
        if name == "list":
            return ListOf(*self.listed("<", ">", self.type, 1))
        if name == "map":
            return MapOf(*self.listed("<", ">", self.type, 2))
        if name == "struct":
            return self.struct()
        if name == "decimal":
            return self.decimal()
        if name == "fixed":
            return self.fixed()
        if name in REFUSED:
            raise ValueError(
                f"type {name} can't be written: tables that have it are of format version 3, PyIceberg writes none of these, and"
                f" Spark has no type for it; {REFUSED[name]}"
            )
        if name not in PRIMITIVES:
            raise ValueError(self.unknown_type(name))
        return Primitive(name)

    def listed(self, opening: str, closing: str, read: Callable[[], T], count: int | None = None) -> list[T]:
        """Read `count` parts in brackets; all parts, if `count` is None."""
        self.take(opening)
        parts = [read()]
        while len(parts) < count if count else self.peek() == ",":
            self.take(",")
            parts.append(read())
        self.take(closing)
        return parts

    def struct(self) -> StructOf:
        fields = self.listed("<", ">", self.field)
        names = [name for name, _ in fields]
        if len(set(names)) < len(names):
            raise ValueError(f"{self.text!r} names a struct field twice")
        return StructOf(tuple(fields))

    def field(self) -> tuple[str, ColumnType]:
        name = self.take()
        if name.startswith("`"):
            name = name[1:-1].replace("``", "`")
        elif not name.isidentifier():
            raise ValueError(f"{self.text!r} is not a type: expected the name of a field, found {name!r}")
        self.take(":")
        return name, self.type()

    def number(self) -> int:
        token = self.take()
        if not token.isdecimal():
            raise ValueError(f"{self.text!r} is not a type: expected a number, found {token!r}")
        return int(token)

    def decimal(self) -> Primitive:
        precision, scale = self.listed("(", ")", self.number, 2)
        if not 1 <= precision <= MAX_DECIMAL_PRECISION or scale > precision:
            raise ValueError(
                f"decimal({precision},{scale}): precision is 1 to {MAX_DECIMAL_PRECISION}, scale at most the precision"
            )
        return Primitive("decimal", (precision, scale))

    def fixed(self) -> Primitive:
        (length,) = self.listed("[", "]", self.number, 1)
        if length == 0:
            raise ValueError(f"{self.text!r} is not a type: a fixed has at least one byte")
        return Primitive("fixed", (length,))

    @staticmethod
    def unknown_type(name: str) -> str:
        type_names = [*PRIMITIVES, "decimal", "fixed", "list", "map", "struct"]
        similar = get_close_matches(
            {"bigint": "long", "integer": "int", "bool": "boolean", "text": "string"}.get(name, name), type_names, 1
        )
        return f"unknown type {name!r}" + (
            f", did you mean {similar[0]!r}?" if similar else f"; known: {', '.join(type_names)}"
        )
