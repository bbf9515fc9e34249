"""Counts the records of an Arrow batch by their age."""

from __future__ import annotations

import math
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from frazil.batch.facts import FLOOR_SECONDS, GROWTH, LAST
from frazil.records.kafka import TIMESTAMP

_MICROSECONDS = 1_000_000


def record_ages(timestamps: pa.Array, at: datetime) -> dict[int, int]:
    """Count by age: class of `frazil.batch.facts` -> records. Those without a timestamp are left out.

    Args:
        timestamps: Of the records, `frazil.records.kafka.TIMESTAMP`.
        at: The instant at which they are so old.
    """
    # Unsafe casts: no timestamp whatever may be a reason to fail.
    written = timestamps.cast(TIMESTAMP, safe=False).cast(pa.int64())
    written = written.filter(pc.greater_equal(written, 0))  # Spark has -1 ms where Kafka has no timestamp
    elapsed = pc.subtract(round(at.timestamp() * _MICROSECONDS), written).cast(pa.float64(), safe=False)
    age = pc.divide(elapsed, float(_MICROSECONDS))
    grown = pc.ln(pc.max_element_wise(pc.divide(age, FLOOR_SECONDS), 1.0))
    classes = pc.min_element_wise(pc.ceil(pc.divide(grown, math.log(GROWTH))), float(LAST)).cast(pa.int64())
    return {of["values"].as_py(): of["counts"].as_py() for of in pc.value_counts(classes)}
