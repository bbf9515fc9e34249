"""Values that are one text, one run of bytes or one number, as Kafka's own serializers write them. They make one column.

Numbers have a fixed width and the most significant byte first (`org.apache.kafka.common.serialization`). A text or a run of bytes
may be empty: that is a value, and no tombstone. Text stays as it is; even a byte order mark stays.
"""

from __future__ import annotations

import sys
from array import array
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.json.exact import decode_utf8, utf8_texts
from frazil.records.model.dead_letter import DeadCode, Reason, Rejection
from frazil.records.model.format import BARE, Decoded, Shaped


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


def split_texts(values: pa.BinaryArray) -> tuple[pa.StringArray, pa.Int64Array, dict[int, Reason]]:
    """Return the values that are UTF-8, their positions, and the reasons of the others; none of the values is null."""
    texts = utf8_texts(values)
    if not texts.null_count:
        return texts, _all_positions(values), {}
    dead: dict[int, Reason] = {}
    for position in pc.indices_nonzero(texts.is_null()).to_pylist():
        try:
            decode_utf8(values[position].as_py())
        except Rejection as e:
            dead[position] = e.reason
    return texts.drop_null(), _all_positions(values).filter(texts.is_valid()), dead


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
