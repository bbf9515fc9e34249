"""One form for a value, whether it was read from JSON or from a table, and a hash of it.

| type | canonical |
|---|---|
| boolean, int, long, string | itself |
| float, double | itself; a float is the double of the same value |
| decimal | the whole number of its smallest units |
| date, time, timestamp, timestamptz | days, or microseconds, as the table specification counts them |
| uuid, fixed, binary | bytes |
| list | tuple |
| struct | tuple, in the order of the declared fields |
| map | tuple of (key, value), sorted by key (by its notation, if it has parts): a map has no order |

One difference can't be seen: PyIceberg 0.12 hands out a list of structs that is null as an empty one (its projection
rebuilds such lists without their null mask), so an empty list of structs counts as null here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import MAX_PREC, Context
from hashlib import blake2b
from typing import Any

import pyarrow as pa

from frazil.pipeline.syntax.types import ColumnType, ListOf, MapOf, Primitive, StructOf

Digest = bytes
"""8 bytes: two different values have the same one once in 10^19 times, and nobody chooses them to collide."""

_BYTES = 8
_UUID = pa.binary(16)
_EXACT = Context(prec=MAX_PREC)


def digest(values: object) -> Digest:
    """Hash of a canonical value. Python's own notation tells 1, 1.0, True, "1" and b"1" apart, and 0.0 from -0.0."""
    return blake2b(repr(values).encode("utf-8", "surrogatepass"), digest_size=_BYTES).digest()


def column_values(column: pa.Array, of: ColumnType) -> list[Any]:
    """Canonical values of a stored column."""
    plain = _plain_type(column.type)
    values: list[Any] = (column if plain == column.type else column.cast(plain)).to_pylist()
    freeze = _freezer(of)
    return values if freeze is None else [None if value is None else freeze(value) for value in values]


def _plain_type(of: pa.DataType) -> pa.DataType:
    """The type with whole numbers for dates and times, and bytes for uuids."""
    if pa.types.is_date32(of):
        return pa.int32()
    if pa.types.is_timestamp(of) or pa.types.is_time64(of):
        return pa.int64()
    if pa.types.is_nested(of):
        return _plain_nested(of)
    return _UUID if of == pa.uuid() else of


def _plain_nested(of: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(of):
        return pa.struct([_plain_field(field) for field in of])
    if pa.types.is_map(of):
        return pa.map_(_plain_field(of.key_field), _plain_field(of.item_field))
    make = pa.large_list if pa.types.is_large_list(of) else pa.list_
    return make(_plain_field(of.value_field))


def _plain_field(field: pa.Field) -> pa.Field:
    return field.with_type(_plain_type(field.type))


Freeze = Callable[[Any], Any]


def _freezer(of: ColumnType) -> Freeze | None:
    """What makes a value of PyArrow canonical; None where it is already."""
    match of:
        case ListOf(element):
            return _list_freezer(element)
        case StructOf(fields):
            parts = [(name, _optional(_freezer(of_field))) for name, of_field in fields]
            return lambda struct: tuple([freeze(struct[name]) for name, freeze in parts])
        case MapOf(key, value):
            return _map_freezer(_optional(_freezer(key)), _optional(_freezer(value)))
        case Primitive("decimal", (_, scale)):
            return lambda number: int(number.scaleb(scale, _EXACT))
    return None


def _list_freezer(element: ColumnType) -> Freeze:
    inner, empty = _optional(_freezer(element)), empty_list(element)
    return lambda items: tuple([inner(item) for item in items]) or empty


def empty_list(element: ColumnType) -> tuple[()] | None:
    """What a list without elements is."""
    return None if isinstance(element, StructOf) else ()


def _map_freezer(freeze_key: Freeze, freeze: Freeze) -> Freeze:
    def of_pairs(pairs: Mapping[Any, Any] | Sequence[tuple[Any, Any]]) -> tuple[Any, ...]:
        items = pairs.items() if isinstance(pairs, Mapping) else pairs
        return ordered((freeze_key(key), freeze(value)) for key, value in items)

    return of_pairs


def ordered(entries: Iterable[tuple[Any, Any]]) -> tuple[tuple[Any, Any], ...]:
    """The entries of a map by key. Keys with parts may hold nulls, which have no order: their notation has one."""
    return tuple(sorted(entries, key=lambda entry: repr(entry[0]) if isinstance(entry[0], tuple) else entry[0]))


def _optional(freeze: Freeze | None) -> Freeze:
    if freeze is None:
        return lambda value: value
    return lambda value: None if value is None else freeze(value)
