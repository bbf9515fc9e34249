"""Reads many Avro values at once, which lie one behind the other in Arrow's buffer: each reader takes one field of all values, at their
cursors, and returns a column.

Values that `avro.read` would refuse become suspect. So do values that only `avro.read` can decode: those of recursive types, the few
ones with more items than all others, and maps that repeat a key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.formats.scalar.scalar import split_texts
from frazil.records.model.cells import STEP_BYTES, StepTooWide, cells_per_value, is_single_record

# Each value has a cursor: the position where its next field begins. A reader decodes one field of all values and moves all cursors behind
# it. A value with impossible bytes is marked as suspect: its decoded fields mean nothing, and the row reader decodes it again and decides.
# Cursors only move forwards, so a cursor that does not end at its value's end shows a bad value.

_STEP_CELLS: Final = STEP_BYTES // 8

Longs = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_LAST_SHIFT: Final = 63
"""Bits before the tenth byte of a varint, which has the last one of 64."""


@dataclass(slots=True)
class Cursors:
    """The cursors of some values.

    Attributes:
        data: Bytes of all values.
        position: Where the next field of each value begins in `data`.
        end: Where each value ends. Values are in the order of their bytes.
        values: Indexes of these values among all values.
        suspect: For all values, whether the row reader must decide about them.
        cells: For all values, the cells that their lists make so far.
        max_cells: For all values, the cells that their lists may make.
    """

    data: npt.NDArray[np.uint8]
    position: Longs
    end: Longs
    values: Longs
    suspect: Mask
    cells: Longs
    max_cells: Longs

    def __len__(self) -> int:
        return len(self.position)

    def select(self, indices: Longs) -> Cursors:
        """Return the cursors of some of these values."""
        return Cursors(
            self.data,
            self.position[indices],
            self.end[indices],
            self.values[indices],
            self.suspect,
            self.cells,
            self.max_cells,
        )

    def count_cells(self, items: Longs, cells_per_item: int) -> Longs:
        """Count the cells of each value's items. Return the number of items to read, which is 0 for values with too many cells.

        Raises:
            StepTooWide: all values together have more cells than one step may hold in memory.
        """
        np.add.at(self.cells, self.values, items * cells_per_item)
        self.suspect |= self.cells > self.max_cells
        if len(self.cells) > 1 and not is_single_record() and int(self.cells[~self.suspect].sum()) > _STEP_CELLS:
            raise StepTooWide
        return np.where(self.suspect[self.values], 0, items)

    def mark_suspect(self, mask: Mask) -> None:
        """Leave the masked values to the row reader."""
        self.suspect[self.values[mask]] = True

    def bytes_at(self, positions: Longs) -> npt.NDArray[np.uint8]:
        """Return the bytes at positions; beyond the data, the last byte. The check of each value's end notices that."""
        return self.data.take(positions, mode="clip")

    def read_numpy(self, dtype: str) -> npt.NDArray[Any]:
        """Read one numpy value at each cursor, aligned or not, and move the cursors behind it."""
        width = np.dtype(dtype).itemsize
        last = len(self.data) - width
        # Overlapping windows of `width` bytes, one from each byte on, so that nothing is copied.
        windows = np.ndarray(max(last + 1, 0), dtype, self.data.data, strides=(1,))
        values = windows[np.minimum(self.position, last)] if last >= 0 else np.zeros(len(self), dtype)
        self.position += width
        return values


def read_varints(cursors: Cursors) -> Longs:
    """Read zigzag varints of at most 64 bits."""
    byte = cursors.bytes_at(cursors.position)
    cursors.position += 1
    number = (byte & 0x7F).astype(np.uint64)
    continued = np.flatnonzero(byte & 0x80)
    for shift in range(7, _LAST_SHIFT + 1, 7):
        if not len(continued):
            break
        byte = cursors.bytes_at(cursors.position[continued])
        cursors.position[continued] += 1
        number[continued] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        if shift == _LAST_SHIFT:
            cursors.suspect[cursors.values[continued[byte > 1]]] = True
        continued = continued[byte > 0x7F]  # noqa: PLR2004
    sign = -(number & np.uint64(1)).view(np.int64)
    return (number >> np.uint64(1)).view(np.int64) ^ sign


def read_spans(cursors: Cursors) -> tuple[Longs, Longs]:
    """Read a length per value, move behind that many bytes, and return where they start and end."""
    length = read_varints(cursors)
    start = cursors.position
    bad = (length < 0) | (length > cursors.end - start)
    if bad.any():
        cursors.mark_suspect(bad)
        start, length = np.minimum(start, cursors.end), np.where(bad, 0, length)
    cursors.position = start + length
    return start, cursors.position


MIN_BLOCK_VALUES: Final = 32
"""Reading fewer values than this one by one is faster."""

_INT32: Final = 1 << 31

ColumnReader = Callable[[Cursors], pa.Array]
"""Reads one field of all values, and moves their cursors behind it."""


def read_nulls(cursors: Cursors) -> pa.Array:
    """Read nothing."""
    return pa.nulls(len(cursors), pa.string())


def read_booleans(cursors: Cursors) -> pa.Array:
    """Read bytes that are 0 or 1."""
    octets = cursors.bytes_at(cursors.position)
    cursors.position += 1
    cursors.mark_suspect(octets > 1)
    return pa.array(octets == 1)


def read_longs(cursors: Cursors) -> pa.Array:
    """Read longs."""
    return pa.array(read_varints(cursors))


def read_ints(cursors: Cursors) -> pa.Array:
    """Read ints."""
    numbers = read_varints(cursors)
    cursors.mark_suspect((numbers < -_INT32) | (numbers >= _INT32))
    return pa.array(numbers.astype(np.int32))


def read_floats(cursors: Cursors) -> pa.Array:
    """Read 4 bytes, little-endian."""
    return pa.array(cursors.read_numpy("<f4"))


def read_doubles(cursors: Cursors) -> pa.Array:
    """Read 8 bytes, little-endian."""
    return pa.array(cursors.read_numpy("<f8"))


def read_bytes(cursors: Cursors) -> pa.Array:
    """Read lengths, and bytes of these lengths."""
    # The edges also delimit the bytes between two spans, so only every second slice is taken.
    edges = np.stack(read_spans(cursors), axis=1).astype(np.int32)
    count = max(2 * len(cursors) - 1, 0)
    buffers = [None, pa.py_buffer(edges), pa.py_buffer(cursors.data)]
    alternating = pa.Array.from_buffers(pa.binary(), count, buffers) if count else pa.array([], pa.binary())
    return alternating.take(pa.array(np.arange(0, count, 2)))


def read_strings(cursors: Cursors) -> pa.Array:
    """Read lengths, and texts in UTF-8 of these lengths."""
    raw = read_bytes(cursors)
    try:
        return raw.cast(pa.string())
    except pa.ArrowInvalid:  # at least one is no UTF-8; the error does not tell which
        invalid = np.zeros(len(cursors), np.bool_)
        invalid[list(split_texts(raw)[2])] = True
        cursors.mark_suspect(invalid)
        return pc.if_else(pa.array(invalid), pa.scalar(b"", pa.binary()), raw).cast(pa.string())


def read_fixed(size: int) -> ColumnReader:
    """Return the reader of `size` bytes."""

    def read(cursors: Cursors) -> pa.Array:
        if not size:
            return pa.array([b""] * len(cursors), pa.binary(0))
        too_short = cursors.end - cursors.position < size
        if too_short.any():  # a value of a few bytes must not get a column of many
            cursors.mark_suspect(too_short)
            return _read_masked(cursors, ~too_short, read)
        buffer = pa.py_buffer(cursors.read_numpy(f"V{size}"))
        return pa.Array.from_buffers(pa.binary(size), len(cursors), [None, buffer])

    return read


PRIMITIVES: Final[Mapping[str, ColumnReader]] = {
    "null": read_nulls,
    "boolean": read_booleans,
    "int": read_ints,
    "long": read_longs,
    "float": read_floats,
    "double": read_doubles,
    "bytes": read_bytes,
    "string": read_strings,
}
"""Readers of primitive types by their names."""


def read_enums(symbols: Sequence[str]) -> ColumnReader:
    """Return the reader of an enum: the number of a symbol."""
    if not symbols:
        return all_suspect(pa.string())
    symbol_array = pa.array(symbols, pa.string())

    def read(cursors: Cursors) -> pa.Array:
        return symbol_array.take(pa.array(_read_indexes(cursors, len(symbol_array))))

    return read


def _read_indexes(cursors: Cursors, limit: int) -> Longs:
    numbers = read_varints(cursors)
    bad = (numbers < 0) | (numbers >= limit)
    cursors.mark_suspect(bad)
    return np.where(bad, 0, numbers)


def record(fields: Sequence[tuple[pa.Field, ColumnReader]]) -> ColumnReader:
    """Return the reader of fields, one after the other."""
    arrow_fields = [field for field, _ in fields]

    def read(cursors: Cursors) -> pa.Array:
        return pa.StructArray.from_arrays([read_field(cursors) for _, read_field in fields], fields=arrow_fields)

    return read


def all_suspect(data_type: pa.DataType) -> ColumnReader:
    """Return the reader of a type that only the row reader decodes. It makes all values suspect."""

    def read(cursors: Cursors) -> pa.Array:
        cursors.mark_suspect(np.ones(len(cursors), np.bool_))
        return pa.nulls(len(cursors), data_type)

    return read


def union(count: int, branches: Mapping[int, ColumnReader], struct_fields: Sequence[pa.Field] | None) -> ColumnReader:
    """Return the reader of a union: the number of a branch, then its value.

    Args:
        count: Number of branches.
        branches: Readers of the branches that are not null, by the branch's number.
        struct_fields: Fields of these branches in a struct, one of which is set; None: the column is the value alone.
    """

    def read(cursors: Cursors) -> pa.Array:
        branch = _read_indexes(cursors, count)
        columns = [_read_masked(cursors, branch == index, read_branch) for index, read_branch in branches.items()]
        if not columns:
            return pa.nulls(len(cursors), pa.string())
        if struct_fields is None:
            return columns[0]
        unset = ~np.isin(branch, list(branches))
        return pa.StructArray.from_arrays(columns, fields=list(struct_fields), mask=pa.array(unset))

    return read


def _read_masked(cursors: Cursors, mask: Mask, read: ColumnReader) -> pa.Array:
    """Read the values where `mask` is true; the others are null, and their cursors stay."""
    if mask.all():
        return read(cursors)
    selected = np.flatnonzero(mask)
    part = cursors.select(selected)
    values = read(part)
    cursors.position[selected] = part.position
    return values.take(pa.array(np.cumsum(mask) - 1, mask=~mask))


def array(read_item: ColumnReader, item_type: pa.DataType) -> ColumnReader:
    """Return the reader of an array: blocks of items, each of which takes at least a byte."""

    def read(cursors: Cursors) -> pa.Array:
        offsets, items, _ = _read_items(cursors, read_item, item_type)
        return pa.ListArray.from_arrays(offsets, items)

    return read


def entries(read_item: ColumnReader, item_type: pa.DataType) -> ColumnReader:
    """Return the reader of maps: blocks of a key and an item each. A value that repeats a key is suspect."""
    entry_fields = [pa.field("key", pa.string()), pa.field("value", item_type)]
    read_entry = record([(entry_fields[0], read_strings), (entry_fields[1], read_item)])

    def read(cursors: Cursors) -> pa.Array:
        offsets, items, holders = _read_items(cursors, read_entry, pa.struct(entry_fields))
        keys, values = items.flatten()
        distinct_keys = keys.dictionary_encode()
        # Value and key make one number: if a number repeats, a value repeats a key.
        value_keys = np.asarray(holders) * len(distinct_keys.dictionary) + distinct_keys.indices.to_numpy()
        order = np.argsort(value_keys, kind="stable")
        repeated = order[1:][value_keys[order[1:]] == value_keys[order[:-1]]]
        cursors.suspect[cursors.values[holders[repeated]]] = True
        return pa.MapArray.from_arrays(offsets, keys, values)

    return read


def _read_items(cursors: Cursors, read_item: ColumnReader, item_type: pa.DataType) -> tuple[pa.Array, pa.Array, Longs]:
    """Read the first item of every value, then the second item of values that have one, and so on.

    Returns:
        List offsets, the items, and per item the index of its value (ascending).
    """
    cells_per_item = cells_per_value(item_type)
    remaining = cursors.count_cells(_read_block_count(cursors), cells_per_item)
    unfinished = np.flatnonzero(remaining)
    rounds: list[tuple[Longs, Any]] = []
    while len(unfinished):
        part = cursors.select(unfinished)
        if len(unfinished) < MIN_BLOCK_VALUES:
            cursors.suspect[part.values] = True
            break
        rounds.append((unfinished, read_item(part)))
        remaining[unfinished] -= 1
        exhausted = np.flatnonzero(remaining[unfinished] == 0)
        at_block_end = part.select(exhausted)
        remaining[unfinished[exhausted]] = at_block_end.count_cells(_read_block_count(at_block_end), cells_per_item)
        part.position[exhausted] = at_block_end.position
        cursors.position[unfinished] = part.position
        unfinished = unfinished[remaining[unfinished] > 0]
    if not rounds:
        return pa.array(np.zeros(len(cursors) + 1, np.int32)), pa.array([], item_type), unfinished[:0]
    holders = np.concatenate([part_holders for part_holders, _ in rounds])
    items = pa.concat_arrays([part_items for _, part_items in rounds])
    order = np.argsort(holders, kind="stable")
    offsets = np.append(0, np.cumsum(np.bincount(holders, minlength=len(cursors)))).astype(np.int32)
    return pa.array(offsets), items.take(pa.array(order)), holders[order]


def _read_block_count(cursors: Cursors) -> Longs:
    """Read the number of items of a block. The size of the block in bytes, which follows a negative number, is ignored."""
    count = read_varints(cursors)
    with_byte_size = np.flatnonzero(count < 0)
    if len(with_byte_size):
        part = cursors.select(with_byte_size)
        read_varints(part)
        cursors.position[with_byte_size] = part.position
        count[with_byte_size] = -count[with_byte_size]
    bad = (count < 0) | (count > cursors.end - cursors.position)
    cursors.mark_suspect(bad)
    return np.where(bad, 0, count)
