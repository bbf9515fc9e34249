"""Reads Avro's binary encoding to Python values, and checks everything that the bytes claim.

A reader takes the bytes and a position, and returns the value and the position behind it. `fastavro` reads the same encoding in C, but
does not check it: it takes negative numbers of branches and symbols, varints of any length, integers beyond 32 bits, and recursive
values until the process crashes. These readers cost about as much per value. Reading column by column (`avro.columns`) costs a tenth;
values that are suspect there are read here.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

from frazil.records.model.cells import CellCount
from frazil.records.model.dead_letter import MAX_DEPTH, DeadCode, Rejection

RowReader = Callable[[bytes, int], tuple[Any, int]]

_LONG_BYTES: Final = 10
_MORE: Final = 0x80
_INT32: Final = 1 << 31
_INT64: Final = 1 << 63


def invalid_avro(expected: str, actual: object) -> Rejection:
    """Return the rejection of bytes that no writer with this schema writes."""
    return Rejection(DeadCode.INVALID_AVRO, f"expected {expected}, found {actual}")


def truncated(expected: str) -> Rejection:
    """Return the rejection of a value that ends early."""
    return invalid_avro(expected, "the end of the value")


def read_null(_: bytes, position: int) -> tuple[None, int]:
    """Read nothing."""
    return None, position


def read_boolean(data: bytes, position: int) -> tuple[bool, int]:
    """Read a byte that is 0 or 1."""
    byte = data[position]
    if byte > 1:
        raise invalid_avro("a boolean as 0x00 or 0x01", f"0x{byte:02x}")
    return byte == 1, position + 1


def read_long(data: bytes, position: int) -> tuple[int, int]:
    """Read a zigzag varint of at most 64 bits."""
    byte = data[position]
    position += 1
    if byte < _MORE:
        return (byte >> 1) ^ -(byte & 1), position
    number, shift = byte & 0x7F, 7
    while byte >= _MORE:
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if shift > 7 * _LONG_BYTES:
            raise invalid_avro("a long of at most 10 bytes", "a longer one")
    if number >= 2 * _INT64:
        raise invalid_avro("a long of 64 bits", "a longer one")
    return (number >> 1) ^ -(number & 1), position


def read_int(data: bytes, position: int) -> tuple[int, int]:
    """Read a zigzag varint of at most 32 bits."""
    number, position = read_long(data, position)
    if -_INT32 <= number < _INT32:
        return number, position
    raise invalid_avro("an int of 32 bits", number)


def read_float(data: bytes, position: int) -> tuple[float, int]:
    """Read 4 bytes, little-endian."""
    return _FLOAT(data, position)[0], position + 4


def read_double(data: bytes, position: int) -> tuple[float, int]:
    """Read 8 bytes, little-endian."""
    return _DOUBLE(data, position)[0], position + 8


_FLOAT: Final = struct.Struct("<f").unpack_from
_DOUBLE: Final = struct.Struct("<d").unpack_from


def read_bytes(data: bytes, position: int) -> tuple[bytes, int]:
    """Read a length, and bytes of this length."""
    length, position = read_long(data, position)
    end = position + length
    if length < 0:
        raise invalid_avro("a length of 0 or more", length)
    if end > len(data):
        raise truncated(f"{length} bytes")
    return data[position:end], end


def read_string(data: bytes, position: int) -> tuple[str, int]:
    """Read a length, and text in UTF-8 of this length."""
    raw, position = read_bytes(data, position)
    return raw.decode(), position


def fixed(size: int) -> RowReader:
    """Return the reader of `size` bytes."""

    def read(data: bytes, position: int) -> tuple[bytes, int]:
        end = position + size
        if end > len(data):
            raise truncated(f"{size} bytes")
        return data[position:end], end

    return read


def enum(symbols: Sequence[str]) -> RowReader:
    """Return the reader of an enum: the number of a symbol."""

    def read(data: bytes, position: int) -> tuple[str, int]:
        index, position = read_long(data, position)
        if 0 <= index < len(symbols):
            return symbols[index], position
        raise invalid_avro(f"one of {len(symbols)} symbols", f"number {index}")

    return read


def union(branches: Sequence[RowReader]) -> RowReader:
    """Return the reader of a union: the number of a branch, then its value."""

    def read(data: bytes, position: int) -> tuple[Any, int]:
        index, position = read_long(data, position)
        if 0 <= index < len(branches):
            return branches[index](data, position)
        raise invalid_avro(f"one of {len(branches)} branches of a union", f"number {index}")

    return read


def record(fields: Sequence[tuple[str, RowReader]]) -> RowReader:
    """Return the reader of fields, one after the other."""

    def read(data: bytes, position: int) -> tuple[dict[str, Any], int]:
        row: dict[str, Any] = {}
        name = ""
        try:
            for name, read_field in fields:
                row[name], position = read_field(data, position)
        except FAULTS as e:
            raise as_rejection(e, name) from e
        return row, position

    return read


def array(read_item: RowReader, cells_per_item: int, cells: CellCount) -> RowReader:
    """Return the reader of an array: blocks of items, each of which takes at least a byte, so that no count exceeds the bytes.

    Args:
        read_item: Reads an item.
        cells_per_item: Cells that an item makes in columns.
        cells: Counts the cells of a value.
    """

    def read(data: bytes, position: int) -> tuple[list[Any], int]:
        items: list[Any] = []
        count, position = _read_block_count(data, position)
        while count:
            cells.add(count * cells_per_item)
            try:
                for _ in range(count):
                    value, position = read_item(data, position)
                    items.append(value)
            except FAULTS as e:
                raise as_rejection(e, f"[{len(items)}]") from e
            count, position = _read_block_count(data, position)
        return items, position

    return read


def entries(read_item: RowReader, cells_per_item: int, cells: CellCount) -> RowReader:
    """Return the reader of a map: blocks of entries, each a key and an item. Of a repeated key the last entry counts."""

    def read(data: bytes, position: int) -> tuple[dict[str, Any], int]:
        pairs: dict[str, Any] = {}
        count, position = _read_block_count(data, position)
        while count:
            cells.add(count * cells_per_item)
            for _ in range(count):
                key, position = read_string(data, position)
                try:
                    pairs[key], position = read_item(data, position)
                except FAULTS as e:
                    raise as_rejection(e, f"[{key[:20]!r}]") from e
            count, position = _read_block_count(data, position)
        return pairs, position

    return read


def _read_block_count(data: bytes, position: int) -> tuple[int, int]:
    count, position = read_long(data, position)
    if count < 0:  # the size of the block in bytes follows, for readers that skip the block
        _, position = read_long(data, position)
        count = -count
    if count > len(data) - position:
        raise invalid_avro(f"at most {len(data) - position} items, as bytes are left", f"a block of {count}")
    return count, position


class Recursive:
    """Reads a recursive type and counts its levels. `read`, the reader of one level, is set once it is compiled."""

    def __init__(self) -> None:
        self.read: RowReader = read_null
        self._depth = 0

    def __call__(self, data: bytes, position: int) -> tuple[Any, int]:
        """Read one level."""
        if self._depth >= MAX_DEPTH:
            limit = f"at most {MAX_DEPTH} levels of a type within itself"
            raise Rejection(DeadCode.TOO_DEEP, f"expected {limit}, found more")
        self._depth += 1
        try:
            return self.read(data, position)
        finally:
            self._depth -= 1


FAULTS: Final = (Rejection, IndexError, struct.error, UnicodeDecodeError)
"""Errors of a reader: it rejects the value, the bytes end early (`IndexError`, `struct.error`), or they are not UTF-8."""


def as_rejection(fault: Exception, step: str = "") -> Rejection:
    """Return a reader's error as a rejection, with `step` in front of its path."""
    if isinstance(fault, Rejection):
        is_too_deep = fault.reason.code is DeadCode.TOO_DEEP  # a path of all levels helps nobody
        return fault.with_parent(step) if step and not is_too_deep else fault
    if isinstance(fault, UnicodeDecodeError):
        verdict = invalid_avro("text in UTF-8", f"byte 0x{fault.object[fault.start]:02x}: {fault.reason}")
    else:
        verdict = truncated("more bytes")
    return verdict.with_parent(step) if step else verdict


def read_whole(read: RowReader, data: bytes, position: int = 0) -> Any:
    """Return the value that bytes hold from a position to their end.

    Raises:
        Rejection: INVALID_AVRO, TOO_DEEP, or the code of a reader that rejects its value.
    """
    try:
        value, end = read(data, position)
    except FAULTS as e:
        raise as_rejection(e) from e
    except RecursionError as e:
        raise Rejection(DeadCode.TOO_DEEP, "expected a value that can be read safely, found too many levels") from e
    if end != len(data):
        raise invalid_avro(f"the value to end at byte {end - position}", f"{len(data) - end} more bytes")
    return value
