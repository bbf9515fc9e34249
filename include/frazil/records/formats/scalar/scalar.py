"""Values that are one text, one run of bytes or one number, as Kafka's own serializers write them. They make one column.

Numbers have a fixed width and the most significant byte first (`org.apache.kafka.common.serialization`). A text or a run of bytes
may be empty: that is a value, and no tombstone. Text stays as it is; even a byte order mark stays.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.model.dead_letter import DeadCode, Reason
from frazil.records.model.format import BARE, Decoded, Shaped
from frazil.records.model.rows import mask_without

_RUN: Final = 256
"""Values of a run that is decoded at once, in search of values that are not UTF-8."""


@dataclass(frozen=True, slots=True)
class _Fixed:
    """A number: the type code of Python's `array`, its bytes, the Arrow type of that width, and the column's type."""

    code: str
    width: int
    stored: pa.DataType
    column: pa.DataType


_FIXED: Final = {
    "boolean": _Fixed("B", 1, pa.uint8(), pa.bool_()),
    "short": _Fixed("h", 2, pa.int16(), pa.int32()),
    "int": _Fixed("i", 4, pa.int32(), pa.int32()),
    "long": _Fixed("q", 8, pa.int64(), pa.int64()),
    "float": _Fixed("f", 4, pa.float32(), pa.float32()),
    "double": _Fixed("d", 8, pa.float64(), pa.float64()),
}


@dataclass(frozen=True, slots=True)
class ScalarFormat:
    """Decodes values of one kind into the column `BARE`, never null.

    Attributes:
        kind: Name of the format. `short` and `int` become int32, `long` becomes int64; `float` and `double` keep every bit, also
            of NaN.
    """

    kind: str

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decode values. See `frazil.records.model.format.Format`."""
        if self.kind == "bytes":
            return _decoded(values, _all_positions(values), {})
        if self.kind == "string":
            return _decoded(*split_texts(values))
        return _numbers(self.kind, _FIXED[self.kind], values)


def scalar_type(kind: str) -> pa.DataType:
    """Return the type of the column."""
    if kind in _FIXED:
        return _FIXED[kind].column
    return pa.binary() if kind == "bytes" else pa.string()


def _utf8_reason(raw: bytes) -> Reason | None:
    """Return why bytes are no text, with the first bad byte; None if they are one."""
    try:
        raw.decode()
    except UnicodeDecodeError as e:
        message = f"expected UTF-8, found byte 0x{raw[e.start]:02x} at position {e.start}: {e.reason}"
        return Reason(DeadCode.INVALID_UTF8, message)
    return None


def split_texts(values: pa.BinaryArray) -> tuple[pa.StringArray, pa.Int64Array, dict[int, Reason]]:
    """Return the values that are UTF-8, their positions, and the reasons of the others; none of the values is null."""
    try:
        return values.cast(pa.string()), _all_positions(values), {}
    except pa.ArrowInvalid:  # at least one is no UTF-8; the error does not tell which
        dead = _utf8_reasons(values, _suspects(values))
    try:
        return _drop_dead(values, dead)
    except pa.ArrowInvalid:  # halves of a character, at the edges of two neighbours, look like a whole one
        return _drop_dead(values, _utf8_reasons(values, range(len(values))))


def _drop_dead(
    values: pa.BinaryArray, dead: dict[int, Reason]
) -> tuple[pa.StringArray, pa.Int64Array, dict[int, Reason]]:
    good = mask_without(len(values), dead)
    return values.filter(good).cast(pa.string()), _all_positions(values).filter(good), dead


def _utf8_reasons(values: pa.BinaryArray, suspects: Iterable[int]) -> dict[int, Reason]:
    reasons = ((position, _utf8_reason(values[position].as_py())) for position in suspects)
    return {position: reason for position, reason in reasons if reason is not None}


def _suspects(values: pa.BinaryArray) -> Iterator[int]:
    """Yield the positions of values that are no text. Runs of values are decoded at once, each again behind a bad value."""
    _, raw_offsets, data = values.buffers()
    offsets, octets = memoryview(raw_offsets).cast("i")[values.offset :], memoryview(data)
    start = 0
    while start < len(values):
        end = min(start + _RUN, len(values))
        try:
            str(octets[offsets[start] : offsets[end]], "utf-8")
            start = end
        except UnicodeDecodeError as e:
            start = bisect_right(offsets, offsets[start] + e.start, start, end)
            yield start - 1


def _numbers(kind: str, fixed: _Fixed, values: pa.BinaryArray) -> Decoded:
    fits = pc.equal(pc.binary_length(values), fixed.width)
    if kind == "boolean":
        fits = pc.is_in(values, value_set=pa.array([b"\0", b"\1"], values.type))
    if pc.all(fits).as_py() in {True, None}:
        return _decoded(_read(fixed, values), _all_positions(values), {})
    dead = {
        position: _no_number(kind, fixed, values[position].as_py())
        for position in pc.indices_nonzero(pc.invert(fits)).to_pylist()
    }
    return _decoded(_read(fixed, values.filter(fits)), _all_positions(values).filter(fits), dead)


def _no_number(kind: str, fixed: _Fixed, raw: bytes) -> Reason:
    if len(raw) == fixed.width:
        return Reason(DeadCode.INVALID_SCALAR, f"expected a boolean as byte 0x00 or 0x01, found 0x{raw.hex()}")
    plural = "" if fixed.width == 1 else "s"
    return Reason(DeadCode.INVALID_SCALAR, f"expected a {kind} of {fixed.width} byte{plural}, found {len(raw)}")


def _read(fixed: _Fixed, values: pa.BinaryArray) -> pa.Array:
    """Return the numbers of values that all have the right width. They lie one behind the other in Arrow's buffer."""
    numbers = array(fixed.code)
    if len(values):
        _, offsets, data = values.buffers()
        start = memoryview(offsets).cast("i")[values.offset]
        numbers.frombytes(memoryview(data)[start : start + len(values) * fixed.width])
    if sys.byteorder == "little":
        numbers.byteswap()
    stored = pa.Array.from_buffers(fixed.stored, len(values), [None, pa.py_buffer(numbers)])
    return stored.cast(fixed.column)


def _decoded(column: pa.Array, positions: pa.Int64Array, dead: dict[int, Reason]) -> Decoded:
    if not len(positions):
        return Decoded((), dead)
    schema = pa.schema([pa.field(BARE, column.type, nullable=False)])
    return Decoded((Shaped(pa.RecordBatch.from_arrays([column], schema=schema), positions),), dead)


def _all_positions(values: pa.Array) -> pa.Int64Array:
    return pa.arange(0, len(values))
