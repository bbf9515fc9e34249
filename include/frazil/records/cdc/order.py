"""When changes happened, and where in the source's log they are: as text that sorts as the log does."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.error_codes import FIELDS_UNFIT
from frazil.records.model.kafka_schema import TIMESTAMP
from frazil.records.transforms.fields import find

_DIGITS: Final = 20
"""An unsigned 64-bit number has so many."""

_MICROS: Final = {"s": 1_000_000, "ms": 1_000}


def sortable_positions(format_name: str, path: str, values: pa.Array) -> pa.StringArray:
    """Return positions in a source's log as texts that sort like them: numbers, also those sent as text, get leading zeros.

    Raises:
        Terminal: They are neither numbers nor texts.
    """
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), pa.string())
    if pa.types.is_integer(values.type):
        values = values.cast(pa.string())
    if not pa.types.is_string(values.type):
        raise FIELDS_UNFIT.terminal(
            f"changes.format {format_name}: expected {path} as number or text, found {values.type}",
            next_step=f"declare {path} as long under value.fields",
        )
    is_number = pc.match_substring_regex(values, "^[0-9]+$")
    return pc.if_else(is_number, pc.utf8_lpad(values, _DIGITS, "0"), values)


def read_instants(format_name: str, value: pa.RecordBatch, path: str, unit: str) -> pa.TimestampArray:
    """Return the instants of a field that holds numbers since 1970, or timestamps; null where they are out of range.

    Raises:
        Terminal: It is neither.
    """
    values = find(value, path)
    if values is None or pa.types.is_null(values.type):
        return pa.nulls(value.num_rows, TIMESTAMP)
    if pa.types.is_timestamp(values.type):
        return values.cast(TIMESTAMP)
    if not pa.types.is_integer(values.type):
        raise FIELDS_UNFIT.terminal(
            f"changes.format {format_name}: expected {path} as long, found {values.type}",
            next_step=f"declare {path} as long under value.fields",
        )
    micros, limit = _MICROS[unit], pa.scalar(2**63 // _MICROS[unit] - 1, pa.int64())
    wide = values.cast(pa.int64())
    inside = pc.and_(pc.less_equal(wide, limit), pc.greater_equal(wide, pc.negate(limit)))
    return pc.multiply(pc.if_else(inside, wide, None), pa.scalar(micros, pa.int64())).cast(TIMESTAMP)
