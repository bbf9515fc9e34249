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
from frazil.records.formats.avro_columns import PRIMITIVES, Columnar, read_fixed
from frazil.records.formats.avro_places import Longs, Places, longs, spans
from frazil.records.times import DAY

_MOST_MILLIS: Final = (1 << 63) // 1_000 - 1
_NANOS: Final = 1_000
_UUID_CHARACTERS: Final = 36

Numbers = Callable[[Places, Longs], Longs]
"""Converts numbers; those that can't be are suspect."""


def _millis(places: Places, found: Longs) -> Longs:
    places.doubt((found < -_MOST_MILLIS) | (found > _MOST_MILLIS))
    return found * 1_000


def _nanos(places: Places, found: Longs) -> Longs:
    places.doubt(found % _NANOS != 0)
    return found // _NANOS


def _of_day(places: Places, found: Longs) -> Longs:
    places.doubt((found < 0) | (found >= DAY))
    return found


def _millis_of_day(places: Places, found: Longs) -> Longs:
    return _of_day(places, _millis(places, found))


def _nanos_of_day(places: Places, found: Longs) -> Longs:
    return _of_day(places, _nanos(places, found))


_NUMBERS: Final[Mapping[logical.Convert, Numbers]] = {
    logical.millis: _millis,
    logical.nanos: _nanos,
    logical.time_of_day: _of_day,
    logical.millis_of_day: _millis_of_day,
    logical.nanos_of_day: _nanos_of_day,
}


def _decimals(of: pa.DataType, size: int | None) -> Columnar:
    """Return the reader of decimals: big-endian integers in two's complement.

    Args:
        of: The type of the column, a decimal.
        size: Number of bytes of each; None if they tell it.
    """
    width, wide = (16, pa.decimal128(38, 0)) if of.bit_width == 128 else (32, pa.decimal256(76, 0))  # noqa: PLR2004
    most = 10**of.precision - 1
    least, greatest = (pa.scalar(Decimal(sign * most), wide) for sign in (-1, 1))

    def read(places: Places) -> pa.Array:
        start, end = _passed(places, size)
        length = end - start
        places.doubt((length < 1) | (length > width))
        digits = pa.py_buffer(_little_endian(places, start, end, width))
        found = pa.Array.from_buffers(wide, len(places), [None, digits])
        fits = pc.and_(pc.greater_equal(found, least), pc.less_equal(found, greatest))
        places.doubt(~fits.to_numpy(zero_copy_only=False))
        return pa.Array.from_buffers(of, len(places), [None, digits])

    return read


def _passed(places: Places, size: int | None) -> tuple[Longs, Longs]:
    if size is None:
        return spans(places)
    start = places.at
    places.at = start + size
    return start, places.at


def _little_endian(places: Places, start: Longs, end: Longs, width: int) -> npt.NDArray[np.uint8]:
    length = np.clip(end - start, 0, width)
    used = max(int(length.max(initial=0)), 1)
    found = places.octets((end - 1)[:, None] - np.arange(used))
    sign = np.where(places.octets(start) & 0x80, np.uint8(0xFF), np.uint8(0))
    made = np.repeat(sign[:, None], width, axis=1)
    made[:, :used] = np.where(np.arange(used) < length[:, None], found, sign[:, None])
    return made


def _hex_digits() -> npt.NDArray[np.uint8]:
    table = np.full(256, 0xFF, np.uint8)
    for digit in "0123456789abcdefABCDEF":
        table[ord(digit)] = int(digit, 16)
    return table


_HEX: Final = _hex_digits()
_HYPHENS: Final = [8, 13, 18, 23]
_DIGITS: Final = [at for at in range(_UUID_CHARACTERS) if at not in _HYPHENS]


def _uuids(places: Places) -> pa.Array:
    """Read uuids that are texts."""
    start, end = spans(places)
    places.doubt(end - start != _UUID_CHARACTERS)
    found = replace(places, at=start, end=end).taken(f"V{_UUID_CHARACTERS}")
    texts = found.view(np.uint8).reshape(len(places), _UUID_CHARACTERS)
    digits = _HEX.take(texts[:, _DIGITS])
    bad = (texts[:, _HYPHENS] != ord("-")).any(axis=1) | (digits == 0xFF).any(axis=1)  # noqa: PLR2004
    places.doubt(bad)
    both = (digits[:, 0::2] << 4) | (digits[:, 1::2] & 0xF)
    return pa.Array.from_buffers(pa.binary(16), len(places), [None, pa.py_buffer(np.ascontiguousarray(both))])


def leaf(kind: str, size: int, of: pa.DataType, convert: logical.Convert | None) -> Columnar:
    """Return the reader of a type without types within it.

    Args:
        kind: Name of the type.
        size: Of a fixed one.
        of: Type of the column.
        convert: What makes its values of the encoded ones.
    """
    if convert is None:
        plain = read_fixed(size) if kind == "fixed" else PRIMITIVES[kind]
        return plain if of == pa.uuid() else lambda places: plain(places).cast(of)
    if pa.types.is_decimal(of):
        return _decimals(of, size if kind == "fixed" else None)
    if of == pa.uuid():
        return _uuids
    numbers = _NUMBERS[convert]
    return lambda places: pa.array(numbers(places, longs(places))).cast(of)
