"""Columns cast to numbers and booleans as Java casts them, and which rows can't be."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

_INTEGER: Final = r"^[+-]?[0-9]+$"
_PLAIN: Final = r"^-?[0-9]{1,18}$"
"""Integers that surely fit, and that Arrow reads as Python does."""
_FLOAT: Final = r"^[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)$"
_TRUTHS: Final = {"true": True, "false": False}
_LARGEST_FLOAT: Final = 3.4028235677973366e38
"""From here on, the nearest float is infinite (half a step above the largest one)."""
_MICROS_PER_MILLI: Final = 1000
_DIGITS: Final = 5000
"""A text of more digits is no number that a column holds, and costs Python's int() too much."""


@dataclass(frozen=True, slots=True)
class Cast:
    """Values cast to another type, and the rows on which that failed."""

    values: pa.Array
    failed: list[int] = field(default_factory=list)


def to_integers(values: pa.Array, bits: int) -> Cast | None:
    """Cast to integers of `bits` bits, carried as int64 or (up to 32) int32; None where the type can't be cast.

    Fractions are cut off, booleans are 0 and 1, dates are days, times and timestamps milliseconds since 1970 or midnight.
    Texts are decimal digits with an optional sign. What is out of range fails.
    """
    whole = _whole(values)
    if whole is None:
        return None
    inside = pc.and_(pc.greater_equal(whole, -(1 << (bits - 1))), pc.less_equal(whole, (1 << (bits - 1)) - 1))
    integers = pc.if_else(inside, whole, pa.scalar(None, pa.int64()))
    return _with_failed_rows(values, integers if bits > 32 else integers.cast(pa.int32()))  # noqa: PLR2004 - bits of the carrier


def to_floats(values: pa.Array, float_type: pa.DataType) -> Cast | None:
    """Cast to float32 or float64, to the nearest number; what becomes infinite by that fails."""
    doubles = _doubles(values)
    if doubles is None:
        return None
    if float_type == pa.float32():
        huge = pc.and_(pc.is_finite(doubles), pc.greater_equal(pc.abs(doubles), _LARGEST_FLOAT))
        doubles = pc.if_else(huge, pa.scalar(None, pa.float64()), doubles)
    return _with_failed_rows(values, doubles.cast(float_type, safe=False))


def to_booleans(values: pa.Array) -> Cast | None:
    """Cast to booleans: numbers are true unless their whole part is 0; texts are `true` or `false`, in any case."""
    data_type = values.type
    if _is_text(data_type):
        return _with_failed_rows(values, _each(values, pa.bool_(), lambda text: _TRUTHS.get(text.lower())))
    if pa.types.is_boolean(data_type):
        return Cast(values)
    if pa.types.is_integer(data_type):
        return Cast(pc.not_equal(values, 0))
    if pa.types.is_floating(data_type):
        return Cast(pc.greater_equal(pc.abs(values), 1))
    if pa.types.is_decimal(data_type):
        return Cast(pc.not_equal(pc.trunc(values), pa.scalar(0, pc.trunc(values).type)))
    return None


def _whole(values: pa.Array) -> pa.Int64Array | None:  # noqa: PLR0911 - a type per line
    data_type = values.type
    if _is_text(data_type):
        if pc.all(pc.match_substring_regex(values, _PLAIN)).as_py() is not False:
            return values.cast(pa.int64())
        return _each(values, pa.int64(), lambda text: _int64(int(text)), _INTEGER)
    if pa.types.is_integer(data_type) or pa.types.is_boolean(data_type):
        return values.cast(pa.int64())
    if pa.types.is_date(data_type):
        return values.cast(pa.int32()).cast(pa.int64())
    if pa.types.is_time(data_type):
        return pc.divide(values.cast(pa.int64()), _MICROS_PER_MILLI)
    if pa.types.is_timestamp(data_type):
        return pc.floor_temporal(values, unit="millisecond").cast(pa.timestamp("ms", data_type.tz)).cast(pa.int64())
    if pa.types.is_floating(data_type):
        # 2**63 is the first double that is too large; NaN compares false and becomes null as well.
        doubles = values.cast(pa.float64())
        inside = pc.and_(pc.greater_equal(doubles, -(2.0**63)), pc.less(doubles, 2.0**63))
        return pc.trunc(pc.if_else(inside, doubles, pa.scalar(None, pa.float64()))).cast(pa.int64())
    if pa.types.is_decimal(data_type):
        return _each(values, pa.int64(), lambda number: _int64(int(number)))
    return None


def _doubles(values: pa.Array) -> pa.DoubleArray | None:
    data_type = values.type
    if _is_text(data_type):
        return _each(values, pa.float64(), _finite, _FLOAT)
    if pa.types.is_boolean(data_type):
        return values.cast(pa.int8()).cast(pa.float64())
    if pa.types.is_decimal(data_type):
        return _each(values, pa.float64(), float)
    if pa.types.is_integer(data_type) or pa.types.is_floating(data_type):
        return values.cast(pa.float64(), safe=False)
    return None


def _each(values: pa.Array, data_type: pa.DataType, read: Callable[[Any], object], form: str | None = None) -> pa.Array:
    """Read values one by one; null where a text has another form."""
    fits = re.compile(form or "", re.ASCII | re.DOTALL)
    return pa.array(
        [
            None if value is None or (form and (len(value) > _DIGITS or not fits.fullmatch(value))) else read(value)
            for value in values.to_pylist()
        ],
        data_type,
    )


def _int64(number: int) -> int | None:
    return number if -(1 << 63) <= number < 1 << 63 else None


def _finite(text: str) -> float | None:
    number = float(text)
    return None if math.isinf(number) and "Inf" not in text else number


def _is_text(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_string(data_type) or pa.types.is_large_string(data_type))


def _with_failed_rows(values: pa.Array, cast: pa.Array) -> Cast:
    if cast.null_count == values.null_count:
        return Cast(cast)
    return Cast(cast, pc.indices_nonzero(pc.and_(values.is_valid(), cast.is_null())).to_pylist())
