"""Types of columns that records bring."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from frazil.records.fit.source import Kind, kind_of, plain_type

NOTHING: Final = pa.null()
"""The type of what tells none: null, `[]`, `{}`."""

_MOST_DIGITS: Final = 38
"""Of a decimal in Iceberg."""

_UNSIGNED: Final = {8: pa.int32(), 16: pa.int32(), 32: pa.int64(), 64: pa.decimal128(20, 0)}
_SINGLE: Final = 32

_SAME: Final = {
    Kind.BOOL: pa.bool_(),
    Kind.TEXT: pa.string(),
    Kind.UUID: pa.uuid(),
    Kind.DATE: pa.date32(),
    Kind.TIME: pa.time64("us"),
}


def list_of(element: pa.DataType) -> pa.DataType:
    """Return the list of optional elements, as tables have it; of elements without a type it has none either."""
    return NOTHING if element == NOTHING else pa.list_(pa.field("element", element))


def map_of(key: pa.DataType, value: pa.DataType) -> pa.DataType:
    """Return the map of optional values."""
    return NOTHING if NOTHING in {key, value} else pa.map_(key, value)


def struct_of(fields: dict[str, pa.DataType]) -> pa.DataType:
    """Return the struct of those fields, by their names, that have a type."""
    found = [pa.field(name, fields[name]) for name in sorted(fields) if fields[name] != NOTHING]
    return pa.struct(found) if found else NOTHING


def column_type(of: pa.DataType) -> pa.DataType:
    """Return the type that a column for values of any Arrow type has in a table; `NOTHING` if there is none."""
    found = plain_type(of)
    kind = kind_of(found)
    if kind in {Kind.INT, Kind.FLOAT, Kind.DECIMAL}:
        return _number(kind, found)
    match kind:
        case Kind.LIST:
            return list_of(column_type(found.value_type))
        case Kind.MAP:
            return map_of(column_type(found.key_type), column_type(found.item_type))
        case Kind.STRUCT:
            return struct_of({field.name: column_type(field.type) for field in found})
    return _plain(kind, found)


def _plain(kind: Kind, of: pa.DataType) -> pa.DataType:
    if kind is Kind.BYTES:
        return of if pa.types.is_fixed_size_binary(of) else pa.binary()
    if kind is Kind.STAMP:
        return pa.timestamp("us", None if of.tz is None else "UTC")
    return _SAME.get(kind, NOTHING)


def _number(kind: Kind, of: pa.DataType) -> pa.DataType:
    if kind is Kind.FLOAT:
        return pa.float32() if of.bit_width <= _SINGLE else pa.float64()
    if kind is Kind.INT:
        if not pa.types.is_signed_integer(of):
            return _UNSIGNED[of.bit_width]
        return pa.int32() if of.bit_width <= _SINGLE else pa.int64()
    fits = of.scale >= 0 and max(of.precision, of.scale) <= _MOST_DIGITS
    return pa.decimal128(max(of.precision, of.scale), of.scale) if fits else NOTHING


def leaves(of: pa.DataType, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the paths of a type's parts that have no parts, as Iceberg names them. A map has its values, keys go along."""
    match kind_of(of):
        case Kind.STRUCT:
            for field in of:
                yield from leaves(field.type, (*path, field.name))
        case Kind.LIST:
            yield from leaves(of.value_type, (*path, "element"))
        case Kind.MAP:
            yield from leaves(of.item_type, (*path, "value"))
        case _:
            yield path


def only(of: pa.DataType, kept: frozenset[tuple[str, ...]], path: tuple[str, ...] = ()) -> pa.DataType:
    """Return the type of some of a type's leaves."""
    match kind_of(of):
        case Kind.STRUCT:
            return struct_of({field.name: only(field.type, kept, (*path, field.name)) for field in of})
        case Kind.LIST:
            return list_of(only(of.value_type, kept, (*path, "element")))
        case Kind.MAP:
            return map_of(of.key_type, only(of.item_type, kept, (*path, "value")))
    return of if path in kept else NOTHING


def placeable(name: str) -> bool:
    """Return whether a column can have a name. Dots part names in paths, so a name with dots may be two fields at once."""
    return bool(name) and "." not in name and name.isprintable()


def variant_name(name: str, of: pa.DataType) -> str:
    """Return the name of the column beside another one that takes its values of a type."""
    return f"{name}__{_WORDS.get(kind_of(of)) or _SIZED[of]}"


_WORDS: Final = {
    Kind.BOOL: "boolean",
    Kind.DECIMAL: "decimal",
    Kind.TEXT: "string",
    Kind.BYTES: "binary",
    Kind.UUID: "uuid",
    Kind.DATE: "date",
    Kind.TIME: "time",
    Kind.STAMP: "timestamp",
    Kind.STRUCT: "struct",
    Kind.LIST: "list",
    Kind.MAP: "map",
}
_SIZED: Final = {pa.int32(): "int", pa.int64(): "long", pa.float32(): "float", pa.float64(): "double"}
