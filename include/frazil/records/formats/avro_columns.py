"""Many Avro values at once: each reader takes one field of all values, and returns a column.

What `avro_read` refuses is suspect here, and so is what only that reads: types within themselves, the few values that have more items
than all others, maps that repeat a key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.cells import width
from frazil.records.formats.avro_places import Longs, Marks, Places, longs, spans
from frazil.records.formats.scalar import split_texts

FEW: Final = 32
"""So few values are read faster one by one."""

_INT32: Final = 1 << 31

Columnar = Callable[[Places], pa.Array]
"""Reads a field of all values, and moves their places behind it."""


def read_nulls(places: Places) -> pa.Array:
    """Read nothing."""
    return pa.nulls(len(places), pa.string())


def read_booleans(places: Places) -> pa.Array:
    """Read bytes that are 0 or 1."""
    found = places.octets(places.at)
    places.at += 1
    places.doubt(found > 1)
    return pa.array(found == 1)


def read_longs(places: Places) -> pa.Array:
    """Read longs."""
    return pa.array(longs(places))


def read_ints(places: Places) -> pa.Array:
    """Read ints."""
    found = longs(places)
    places.doubt((found < -_INT32) | (found >= _INT32))
    return pa.array(found.astype(np.int32))


def read_floats(places: Places) -> pa.Array:
    """Read 4 bytes, little-endian."""
    return pa.array(places.taken("<f4"))


def read_doubles(places: Places) -> pa.Array:
    """Read 8 bytes, little-endian."""
    return pa.array(places.taken("<f8"))


def read_bytes(places: Places) -> pa.Array:
    """Read lengths and as many bytes."""
    return _cut(places, *spans(places))


def read_strings(places: Places) -> pa.Array:
    """Read lengths and as many bytes of UTF-8."""
    found = read_bytes(places)
    try:
        return found.cast(pa.string())
    except pa.ArrowInvalid:  # at least one is not; the block does not say which
        marks = np.zeros(len(places), np.bool_)
        marks[list(split_texts(found)[2])] = True
        places.doubt(marks)
        return pc.if_else(pa.array(marks), pa.scalar(b"", pa.binary()), found).cast(pa.string())


def read_fixed(size: int) -> Columnar:
    """Return the reader of `size` bytes."""

    def read(places: Places) -> pa.Array:
        if not size:
            return pa.array([b""] * len(places), pa.binary(0))
        lacking = places.end - places.at < size
        if lacking.any():  # of values of a few bytes none gets a column of many
            places.doubt(lacking)
            return _of_branch(places, ~lacking, read)
        found = pa.py_buffer(places.taken(f"V{size}"))
        return pa.Array.from_buffers(pa.binary(size), len(places), [None, found])

    return read


def _cut(places: Places, start: Longs, end: Longs) -> pa.BinaryArray:
    """Return bytes from each start to its end: taken out of an array of them and of what is in between."""
    edges = np.stack([start, end], axis=1).astype(np.int32)
    count = max(2 * len(places) - 1, 0)
    buffers = [None, pa.py_buffer(edges), pa.py_buffer(places.data)]
    both = pa.Array.from_buffers(pa.binary(), count, buffers) if count else pa.array([], pa.binary())
    return both.take(pa.array(np.arange(0, count, 2)))


PRIMITIVES: Final[Mapping[str, Columnar]] = {
    "null": read_nulls,
    "boolean": read_booleans,
    "int": read_ints,
    "long": read_longs,
    "float": read_floats,
    "double": read_doubles,
    "bytes": read_bytes,
    "string": read_strings,
}
"""By their names."""


def read_enums(symbols: Sequence[str]) -> Columnar:
    """Return the reader of symbols' numbers."""
    if not symbols:
        return suspects(pa.string())
    named = pa.array(symbols, pa.string())

    def read(places: Places) -> pa.Array:
        return named.take(pa.array(_number(places, len(named))))

    return read


def _number(places: Places, below: int) -> Longs:
    found = longs(places)
    bad = (found < 0) | (found >= below)
    places.doubt(bad)
    return np.where(bad, 0, found)


def record(fields: Sequence[tuple[pa.Field, Columnar]]) -> Columnar:
    """Return the reader of fields, one after the other."""
    named = [field for field, _ in fields]

    def read(places: Places) -> pa.Array:
        return pa.StructArray.from_arrays([take(places) for _, take in fields], fields=named)

    return read


def suspects(of: pa.DataType) -> Columnar:
    """Return the reader of what can only be read one by one."""

    def read(places: Places) -> pa.Array:
        places.doubt(np.ones(len(places), np.bool_))
        return pa.nulls(len(places), of)

    return read


def union(count: int, branches: Mapping[int, Columnar], names: Sequence[pa.Field] | None) -> Columnar:
    """Return the reader of a branch's number and its value.

    Args:
        count: Number of branches.
        branches: Those that are not null, by their number.
        names: Fields of these branches in a struct, of which one is set; None for the value alone.
    """

    def read(places: Places) -> pa.Array:
        number = _number(places, count)
        found = [_of_branch(places, number == at, take) for at, take in branches.items()]
        if not found:
            return pa.nulls(len(places), pa.string())
        if names is None:
            return found[0]
        unset = ~np.isin(number, list(branches))
        return pa.StructArray.from_arrays(found, fields=list(names), mask=pa.array(unset))

    return read


def _of_branch(places: Places, here: Marks, take: Columnar) -> pa.Array:
    """Return the values of a branch, null where another one is set."""
    if here.all():
        return take(places)
    chosen = np.flatnonzero(here)
    part = places.some(chosen)
    found = take(part)
    places.at[chosen] = part.at
    return found.take(pa.array(np.cumsum(here) - 1, mask=~here))


def array(item: Columnar, of: pa.DataType) -> Columnar:
    """Return the reader of blocks of items of a type; each takes at least a byte."""

    def read(places: Places) -> pa.Array:
        offsets, items, _ = _items(places, item, of)
        return pa.ListArray.from_arrays(offsets, items)

    return read


def entries(item: Columnar, of: pa.DataType) -> Columnar:
    """Return the reader of maps: blocks of a key and an item each. A value that repeats a key is suspect."""
    pair = [pa.field("key", pa.string()), pa.field("value", of)]
    both = record([(pair[0], read_strings), (pair[1], item)])

    def read(places: Places) -> pa.Array:
        offsets, items, holders = _items(places, both, pa.struct(pair))
        keys, values = items.flatten()
        names = keys.dictionary_encode()
        known = np.asarray(holders) * len(names.dictionary) + names.indices.to_numpy()
        order = np.argsort(known, kind="stable")
        again = order[1:][known[order[1:]] == known[order[:-1]]]
        places.suspect[places.values[holders[again]]] = True
        return pa.MapArray.from_arrays(offsets, keys, values)

    return read


def _items(places: Places, item: Columnar, of: pa.DataType) -> tuple[pa.Array, pa.Array, Longs]:
    """Read the first item of all, then the second of those that have one, and so on.

    Returns:
        Where each value's items begin, the items, and the (ascending) numbers of the places they are of.
    """
    each = width(of)
    left = places.counted(_block(places), each)
    having = np.flatnonzero(left)
    rounds: list[tuple[Longs, Any]] = []
    while len(having):
        part = places.some(having)
        if len(having) < FEW:
            places.suspect[part.values] = True
            break
        rounds.append((having, item(part)))
        left[having] -= 1
        over = np.flatnonzero(left[having] == 0)
        ended = part.some(over)
        left[having[over]] = ended.counted(_block(ended), each)
        part.at[over] = ended.at
        places.at[having] = part.at
        having = having[left[having] > 0]
    if not rounds:
        return pa.array(np.zeros(len(places) + 1, np.int32)), pa.array([], of), having[:0]
    holders = np.concatenate([holding for holding, _ in rounds])
    items = pa.concat_arrays([found for _, found in rounds])
    order = np.argsort(holders, kind="stable")
    offsets = np.append(0, np.cumsum(np.bincount(holders, minlength=len(places)))).astype(np.int32)
    return pa.array(offsets), items.take(pa.array(order)), holders[order]


def _block(places: Places) -> Longs:
    """Read how many items come: of a negative number the block's size in bytes follows, for those who skip it."""
    count = longs(places)
    sized = np.flatnonzero(count < 0)
    if len(sized):
        part = places.some(sized)
        longs(part)
        places.at[sized] = part.at
        count[sized] = -count[sized]
    bad = (count < 0) | (count > places.end - places.at)
    places.doubt(bad)
    return np.where(bad, 0, count)
