"""What Avro's integers, bytes and texts mean beyond themselves, for many values at once: see `logical`, which decides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.formats import logical
from frazil.records.formats.avro.columns import PRIMITIVES, ColumnReader, read_fixed
from frazil.records.formats.avro.cursors import Cursors, Longs, read_spans, read_varints
from frazil.records.json.times import DAY

_MOST_MILLIS: Final = (1 << 63) // 1_000 - 1
_NANOS: Final = 1_000
_UUID_CHARACTERS: Final = 36

NumberConverter = Callable[[Cursors, Longs], Longs]
"""Converts encoded numbers; values that can't be converted become suspect."""


def _millis_to_micros(cursors: Cursors, millis: Longs) -> Longs:
    cursors.mark_suspect((millis < -_MOST_MILLIS) | (millis > _MOST_MILLIS))
    return millis * 1_000


def _nanos_to_micros(cursors: Cursors, nanos: Longs) -> Longs:
    cursors.mark_suspect(nanos % _NANOS != 0)
    return nanos // _NANOS


def _time_of_day(cursors: Cursors, micros: Longs) -> Longs:
    cursors.mark_suspect((micros < 0) | (micros >= DAY))
    return micros


def _millis_of_day(cursors: Cursors, millis: Longs) -> Longs:
    return _time_of_day(cursors, _millis_to_micros(cursors, millis))


def _nanos_of_day(cursors: Cursors, nanos: Longs) -> Longs:
    return _time_of_day(cursors, _nanos_to_micros(cursors, nanos))


_NUMBERS: Final[Mapping[logical.Convert, NumberConverter]] = {
    logical.millis: _millis_to_micros,
    logical.nanos: _nanos_to_micros,
    logical.time_of_day: _time_of_day,
    logical.millis_of_day: _millis_of_day,
    logical.nanos_of_day: _nanos_of_day,
    logical.whole_nanos: lambda _, nanos: nanos // _NANOS,
    logical.whole_nanos_of_day: lambda cursors, nanos: _time_of_day(cursors, nanos // _NANOS),
}


def _decimals(decimal_type: pa.DataType, size: int | None) -> ColumnReader:
    """Return the reader of decimals: big-endian integers in two's complement.

    Args:
        decimal_type: The type of the column, a decimal.
        size: Number of bytes of each; None if a length stands before them.
    """
    width, widest_type = (16, pa.decimal128(38, 0)) if decimal_type.bit_width == 128 else (32, pa.decimal256(76, 0))  # noqa: PLR2004
    most = 10**decimal_type.precision - 1
    least, greatest = (pa.scalar(Decimal(sign * most), widest_type) for sign in (-1, 1))

    def read(cursors: Cursors) -> pa.Array:
        start, end = _byte_spans(cursors, size)
        length = end - start
        cursors.mark_suspect((length < 1) | (length > width))
        digits = pa.py_buffer(_little_endian(cursors, start, end, width))
        numbers = pa.Array.from_buffers(widest_type, len(cursors), [None, digits])
        fits = pc.and_(pc.greater_equal(numbers, least), pc.less_equal(numbers, greatest))
        cursors.mark_suspect(~fits.to_numpy(zero_copy_only=False))
        return pa.Array.from_buffers(decimal_type, len(cursors), [None, digits])

    return read


def _byte_spans(cursors: Cursors, size: int | None) -> tuple[Longs, Longs]:
    if size is None:
        return read_spans(cursors)
    start = cursors.position
    cursors.position = start + size
    return start, cursors.position


def _little_endian(cursors: Cursors, start: Longs, end: Longs, width: int) -> npt.NDArray[np.uint8]:
    length = np.clip(end - start, 0, width)
    used = max(int(length.max(initial=0)), 1)
    octets = cursors.bytes_at((end - 1)[:, None] - np.arange(used))
    sign = np.where(cursors.bytes_at(start) & 0x80, np.uint8(0xFF), np.uint8(0))
    padded = np.repeat(sign[:, None], width, axis=1)
    padded[:, :used] = np.where(np.arange(used) < length[:, None], octets, sign[:, None])
    return padded


def _hex_digits() -> npt.NDArray[np.uint8]:
    table = np.full(256, 0xFF, np.uint8)
    for digit in "0123456789abcdefABCDEF":
        table[ord(digit)] = int(digit, 16)
    return table


_HEX: Final = _hex_digits()
_HYPHENS: Final = [8, 13, 18, 23]
_DIGITS: Final = [index for index in range(_UUID_CHARACTERS) if index not in _HYPHENS]


def _uuids(cursors: Cursors) -> pa.Array:
    """Read uuids that are texts."""
    start, end = read_spans(cursors)
    cursors.mark_suspect(end - start != _UUID_CHARACTERS)
    raw = replace(cursors, position=start, end=end).read_numpy(f"V{_UUID_CHARACTERS}")
    texts = raw.view(np.uint8).reshape(len(cursors), _UUID_CHARACTERS)
    digits = _HEX.take(texts[:, _DIGITS])
    bad = (texts[:, _HYPHENS] != ord("-")).any(axis=1) | (digits == 0xFF).any(axis=1)  # noqa: PLR2004
    cursors.mark_suspect(bad)
    packed = (digits[:, 0::2] << 4) | (digits[:, 1::2] & 0xF)
    return pa.Array.from_buffers(pa.binary(16), len(cursors), [None, pa.py_buffer(np.ascontiguousarray(packed))])


def leaf_reader(kind: str, size: int, data_type: pa.DataType, convert: logical.Convert | None) -> ColumnReader:
    """Return the reader of a type without types within it.

    Args:
        kind: Name of the type.
        size: Of a fixed one.
        data_type: Type of the column.
        convert: What makes its values of the encoded ones.
    """
    if convert is None:
        read_plain = read_fixed(size) if kind == "fixed" else PRIMITIVES[kind]
        return read_plain if data_type == pa.uuid() else lambda cursors: read_plain(cursors).cast(data_type)
    if pa.types.is_decimal(data_type):
        return _decimals(data_type, size if kind == "fixed" else None)
    if data_type == pa.uuid():
        return _uuids
    to_micros = _NUMBERS[convert]
    return lambda cursors: pa.array(to_micros(cursors, read_varints(cursors))).cast(data_type)
