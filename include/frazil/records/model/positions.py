"""Arrays of ascending positions of records in a batch, and the ages of records: Arrow kernels, no loop over records."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from frazil.batch.facts import FLOOR_SECONDS, GROWTH, LAST
from frazil.records.model.kafka_schema import TIMESTAMP


def mask_without(size: int, left_out: Iterable[int]) -> pa.BooleanArray:
    """Return true for `size` positions, but for those left out."""
    marks = bytearray(b"\1") * size
    for position in left_out:
        marks[position] = 0
    return pa.Array.from_buffers(pa.uint8(), size, [None, pa.py_buffer(marks)]).cast(pa.bool_())


def complement(size: int, excluded: pa.Int64Array) -> pa.Int64Array:
    """Return the positions below `size` that are not in `excluded`, which is ascending and has no duplicates."""
    if len(excluded) == size:
        return pa.array([], pa.int64())
    marks = pc.scatter(excluded, excluded, max_index=size - 1)
    return pa.arange(0, size).filter(marks.is_null())


def distinct_positions(positions: pa.Int64Array) -> pa.Int64Array:
    """Return each of ascending positions once."""
    rises = pc.greater(positions[1:], positions[:-1])
    return positions if pc.all(rises).as_py() in {True, None} else pc.unique(positions)


def take_distinct(column: pa.Array, positions: pa.Int64Array) -> pa.Array:
    """Return the values at ascending positions, none of which repeats; all of them without a copy."""
    return column if len(positions) == len(column) else column.take(positions)


def take_records(records: pa.RecordBatch, positions: pa.Int64Array) -> pa.RecordBatch:
    """Return the records at ascending positions, which may repeat; all of them, each once, without a copy."""
    is_all = len(positions) == len(records) and len(distinct_positions(positions)) == len(records)
    return records if is_all else records.take(positions)


_MICROSECONDS = 1_000_000


def record_ages(timestamps: pa.Array, instant: datetime) -> dict[int, int]:
    """Count by age: class of `frazil.batch.facts` -> records. Those without a timestamp are left out."""
    # Unsafe casts: no timestamp whatever may be a reason to fail.
    written = timestamps.cast(TIMESTAMP, safe=False).cast(pa.int64())
    written = written.filter(pc.greater_equal(written, 0))  # Spark has -1 ms where Kafka has no timestamp
    elapsed = pc.subtract(round(instant.timestamp() * _MICROSECONDS), written).cast(pa.float64(), safe=False)
    age = pc.divide(elapsed, float(_MICROSECONDS))
    # Classes grow by a constant factor: the class is the logarithm of the age to that base.
    grown = pc.ln(pc.max_element_wise(pc.divide(age, FLOOR_SECONDS), 1.0))
    classes = pc.min_element_wise(pc.ceil(pc.divide(grown, math.log(GROWTH))), float(LAST)).cast(pa.int64())
    return {count["values"].as_py(): count["counts"].as_py() for count in pc.value_counts(classes)}
