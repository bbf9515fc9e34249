"""Times that ORC files do not give back as they were: their records are dead letters, rather than changed in silence.

Measured with ORC of Iceberg 1.12 (Java) and Arrow's reader. The format has seconds and nanoseconds apart, and no sign for
the second before 1970: Java's writer and reader differ about it, so most instants of it come back a second late. Arrow, which
verify, reset and replay read with, counts nanoseconds, which end in 1677 and 2262. No option of either changes that.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.model.dead_letter import DeadCode, Reason
from frazil.records.model.rows import Block, drop_dead_rows
from frazil.records.model.spec import RecordSpec

_SECOND: Final = 1_000_000
_FAR: Final = 2**63 // 1000 - 1
"""Microseconds from 1970 that nanoseconds can count."""

_ADVICE: Final = (
    "a time within the second before 1970, or before 1677 or after 2262: ORC files would give back another one;"
    " mend the producer, declare the column as string, or land into a table of Parquet files"
)


def without_altered_times(spec: RecordSpec, block: Block, records: pa.RecordBatch) -> tuple[Block, dict[int, Reason]]:
    """Return the rows that ORC files would give back unchanged, and the reasons of the other records."""
    if spec.file_format != "orc":
        return block, {}
    dead: dict[int, Reason] = {}
    columns = dict(zip(block.rows.schema.names, block.rows.columns, strict=True))
    if spec.kafka_columns is not None:
        columns[spec.kafka_columns.timestamp] = records.column("timestamp").take(block.positions)
    for name, column in columns.items():
        altered = block.positions.filter(_altered(column))
        dead |= dict.fromkeys(altered.to_pylist(), Reason(DeadCode.OUT_OF_RANGE, _ADVICE, name))
    return drop_dead_rows(block, dead), dead


def _altered(array: pa.Array) -> pa.BooleanArray:
    """Return which values hold, at any depth, a time that ORC files would alter."""
    data_type = array.type
    is_altered = pa.repeat(pa.scalar(value=False), len(array))
    if pa.types.is_timestamp(data_type):
        return pc.fill_null(_is_altered(array), fill_value=False)
    if pa.types.is_struct(data_type):
        for part in array.flatten():
            is_altered = pc.or_(is_altered, _altered(part))
    elif pa.types.is_map(data_type):
        return _altered(array.cast(pa.list_(pa.struct([data_type.key_field, data_type.item_field]))))
    elif pa.types.is_list(data_type) or pa.types.is_large_list(data_type):
        rows = pc.list_parent_indices(array).filter(_altered(array.flatten()))
        return pc.is_in(pa.arange(0, len(array)), value_set=rows.cast(pa.int64()))
    return is_altered


def _is_altered(times: pa.Array) -> pa.BooleanArray:
    micros = times.cast(pa.timestamp("us", times.type.tz)).cast(pa.int64())
    before_1970 = pc.and_(pc.greater(micros, -_SECOND), pc.less(micros, 0))
    return pc.or_(before_1970, pc.or_(pc.greater(micros, _FAR), pc.less(micros, -_FAR)))
