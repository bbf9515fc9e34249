"""Avro's binary encoding to Python values, with a check of everything that the bytes claim.

A reader takes the bytes and a position and returns the value and the position behind it. `fastavro` reads the same
encoding in C and is no judge of it: it takes negative numbers of branches and symbols, varints of any length, integers
beyond 32 bits, and recursive values until the process crashes. Compiled readers cost about as much per value, and columns of
many values a tenth (`avro_columns`); what is suspect there is decided here.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

from frazil.records.cells import CellCount
from frazil.records.dead import MAX_DEPTH, DeadCode, Rejection

Read = Callable[[bytes, int], tuple[Any, int]]

_LONG_BYTES: Final = 10
_MORE: Final = 0x80
_INT32: Final = 1 << 31
_INT64: Final = 1 << 63


def invalid(expected: str, found: object) -> Rejection:
    """Return the verdict on bytes that the schema's writer can't have written."""
    return Rejection(DeadCode.INVALID_AVRO, f"expected {expected}, found {found}")


def cut_off(expected: str) -> Rejection:
    """Return the verdict on a value that ends early."""
    return invalid(expected, "the end of the value")


def read_null(_: bytes, at: int) -> tuple[None, int]:
    """Read nothing."""
    return None, at


def read_boolean(data: bytes, at: int) -> tuple[bool, int]:
    """Read a byte that is 0 or 1."""
    found = data[at]
    if found > 1:
        raise invalid("a boolean as 0x00 or 0x01", f"0x{found:02x}")
    return found == 1, at + 1


def read_long(data: bytes, at: int) -> tuple[int, int]:
    """Read a zigzag varint of at most 64 bits."""
    byte = data[at]
    at += 1
    if byte < _MORE:
        return (byte >> 1) ^ -(byte & 1), at
    number, shift = byte & 0x7F, 7
    while byte >= _MORE:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if shift > 7 * _LONG_BYTES:
            raise invalid("a long of at most 10 bytes", "a longer one")
    if number >= 2 * _INT64:
        raise invalid("a long of 64 bits", "a longer one")
    return (number >> 1) ^ -(number & 1), at


def read_int(data: bytes, at: int) -> tuple[int, int]:
    """Read a zigzag varint of at most 32 bits."""
    number, at = read_long(data, at)
    if -_INT32 <= number < _INT32:
        return number, at
    raise invalid("an int of 32 bits", number)


def read_float(data: bytes, at: int) -> tuple[float, int]:
    """Read 4 bytes, little-endian."""
    return _FLOAT(data, at)[0], at + 4


def read_double(data: bytes, at: int) -> tuple[float, int]:
    """Read 8 bytes, little-endian."""
    return _DOUBLE(data, at)[0], at + 8


_FLOAT: Final = struct.Struct("<f").unpack_from
_DOUBLE: Final = struct.Struct("<d").unpack_from


def read_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    """Read a length and as many bytes."""
    length, at = read_long(data, at)
    end = at + length
    if length < 0:
        raise invalid("a length", length)
    if end > len(data):
        raise cut_off(f"{length} bytes")
    return data[at:end], end


def read_string(data: bytes, at: int) -> tuple[str, int]:
    """Read a length and as many bytes of UTF-8."""
    raw, at = read_bytes(data, at)
    return raw.decode(), at


def fixed(size: int) -> Read:
    """Return the reader of `size` bytes."""

    def read(data: bytes, at: int) -> tuple[bytes, int]:
        end = at + size
        if end > len(data):
            raise cut_off(f"{size} bytes")
        return data[at:end], end

    return read


def enum(symbols: Sequence[str]) -> Read:
    """Return the reader of a symbol's number."""

    def read(data: bytes, at: int) -> tuple[str, int]:
        index, at = read_long(data, at)
        if 0 <= index < len(symbols):
            return symbols[index], at
        raise invalid(f"one of {len(symbols)} symbols", f"number {index}")

    return read


def union(branches: Sequence[Read]) -> Read:
    """Return the reader of a branch's number and its value."""

    def read(data: bytes, at: int) -> tuple[Any, int]:
        index, at = read_long(data, at)
        if 0 <= index < len(branches):
            return branches[index](data, at)
        raise invalid(f"one of {len(branches)} branches of a union", f"number {index}")

    return read


def record(fields: Sequence[tuple[str, Read]]) -> Read:
    """Return the reader of fields, one after the other."""

    def read(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        row: dict[str, Any] = {}
        name = ""
        try:
            for name, take in fields:
                row[name], at = take(data, at)
        except FAULTS as e:
            raise rejected(e, name) from e
        return row, at

    return read


def array(item: Read, each: int, cells: CellCount) -> Read:
    """Return the reader of blocks of items; an item takes at least a byte, so a count can't ask for more than is there.

    Args:
        item: Reads an item.
        each: Cells that it makes in columns.
        cells: Counts them.
    """

    def read(data: bytes, at: int) -> tuple[list[Any], int]:
        items: list[Any] = []
        count, at = _block(data, at)
        while count:
            cells.add(count * each)
            try:
                for _ in range(count):
                    found, at = item(data, at)
                    items.append(found)
            except FAULTS as e:
                raise rejected(e, f"[{len(items)}]") from e
            count, at = _block(data, at)
        return items, at

    return read


def entries(item: Read, each: int, cells: CellCount) -> Read:
    """Return the reader of a map: blocks of a key and an item each. Of a repeated key the last one stays."""

    def read(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        found: dict[str, Any] = {}
        count, at = _block(data, at)
        while count:
            cells.add(count * each)
            for _ in range(count):
                key, at = read_string(data, at)
                try:
                    found[key], at = item(data, at)
                except FAULTS as e:
                    raise rejected(e, f"[{key[:20]!r}]") from e
            count, at = _block(data, at)
        return found, at

    return read


def _block(data: bytes, at: int) -> tuple[int, int]:
    count, at = read_long(data, at)
    if count < 0:  # then the block's size in bytes follows, for those who skip it
        _, at = read_long(data, at)
        count = -count
    if count > len(data) - at:
        raise invalid(f"at most {len(data) - at} items, as bytes are left", f"a block of {count}")
    return count, at


class Recursive:
    """Reader of a type within itself: knows its real reader later, and counts levels."""

    def __init__(self) -> None:
        self.read: Read = read_null
        self._depth = 0

    def __call__(self, data: bytes, at: int) -> tuple[Any, int]:
        """Read one level."""
        if self._depth >= MAX_DEPTH:
            found = f"at most {MAX_DEPTH} levels of a type within itself"
            raise Rejection(DeadCode.TOO_DEEP, f"expected {found}, found more")
        self._depth += 1
        try:
            return self.read(data, at)
        finally:
            self._depth -= 1


FAULTS: Final = (Rejection, IndexError, struct.error, UnicodeDecodeError)
"""What a reader raises: a verdict, or that the bytes ended, or that they are no text."""


def rejected(fault: Exception, step: str = "") -> Rejection:
    """Return the verdict of a reader's fault, seen from one level further out."""
    if isinstance(fault, Rejection):
        too_deep = fault.reason.code is DeadCode.TOO_DEEP  # a path of all the levels helps nobody
        return fault.within(step) if step and not too_deep else fault
    if isinstance(fault, UnicodeDecodeError):
        verdict = invalid("text in UTF-8", f"byte 0x{fault.object[fault.start]:02x}: {fault.reason}")
    else:
        verdict = cut_off("more bytes")
    return verdict.within(step) if step else verdict


def whole(read: Read, data: bytes, at: int = 0) -> Any:
    """Return the one value that bytes hold from a position to their end.

    Raises:
        Rejection: INVALID_AVRO, TOO_DEEP, or the verdict of a reader on its value.
    """
    try:
        value, end = read(data, at)
    except FAULTS as e:
        raise rejected(e) from e
    except RecursionError as e:
        raise Rejection(DeadCode.TOO_DEEP, "expected a value that can be read safely, found too many levels") from e
    if end != len(data):
        raise invalid(f"the value to end at byte {end - at}", f"{len(data) - end} more bytes")
    return value
