"""Positions of records in a batch, ascending, as arrays: work on whole batches, none on each record."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc


def mask_without(size: int, left_out: Iterable[int]) -> pa.BooleanArray:
    """Return true for `size` positions, but for those left out."""
    marks = bytearray(b"\1") * size
    for position in left_out:
        marks[position] = 0
    return pa.Array.from_buffers(pa.uint8(), size, [None, pa.py_buffer(marks)]).cast(pa.bool_())


def others(size: int, taken: pa.Int64Array) -> pa.Int64Array:
    """Return those of `size` positions that are not among (ascending) `taken`, each of which is there once."""
    if len(taken) == size:
        return pa.array([], pa.int64())
    seen = pc.scatter(taken, taken, max_index=size - 1)
    return pa.arange(0, size).filter(seen.is_null())


def distinct(positions: pa.Int64Array) -> pa.Int64Array:
    """Return each of ascending positions once."""
    rises = pc.greater(positions[1:], positions[:-1])
    return positions if pc.all(rises).as_py() in {True, None} else pc.unique(positions)


def at(records: pa.RecordBatch, positions: pa.Int64Array) -> pa.RecordBatch:
    """Return the records at ascending positions, which may repeat; all of them, each once, without a copy."""
    is_all = len(positions) == len(records) and len(distinct(positions)) == len(records)
    return records if is_all else records.take(positions)
