"""Carriers of dates and times: texts in the plain forms that Arrow casts exactly, or counts of a declared unit."""

from __future__ import annotations

from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.records import times
from frazil.records.column import Reading
from frazil.records.json.carrier import Carrier, Settled, all_of, unless

_SECONDS: Final = pa.decimal128(24, 6)
"""Seconds may have a fraction: read as a decimal, their unscaled value is microseconds."""

_NANOS: Final = 1000


def time_carrier(data_type: pa.DataType, reading: Reading) -> Carrier:
    """Return the carrier of a date, a time or a timestamp."""
    if reading.unit is None or pa.types.is_date(data_type):
        zoned = data_type.tz is not None if pa.types.is_timestamp(data_type) else False
        return Carrier(pa.string(), partial(_texts, data_type, zoned or reading.local_time == "keep"))
    if reading.unit == "s":
        return Carrier(_SECONDS, partial(_seconds, data_type))
    if reading.unit == "ns":
        return Carrier(pa.int64(), partial(_nanos, data_type))
    return Carrier(pa.int64(), partial(_counts, data_type, 10 ** times.SHIFTS[reading.unit]))


def _counts(data_type: pa.DataType, factor: int, array: pa.Array) -> Settled:
    first, end = _bounds(data_type)
    in_range = pc.and_(pc.greater_equal(array, first // factor), pc.less(array, end // factor))
    return pc.multiply(_where(in_range, array), factor).cast(data_type), unless(in_range)


def _seconds(data_type: pa.DataType, array: pa.Array) -> Settled:
    array.validate(full=True)  # pyarrow.json checks the scale and not the precision; a failure fails the block
    unscaled = pa.Array.from_buffers(
        pa.decimal128(_SECONDS.precision, 0), len(array), array.buffers(), array.null_count, array.offset
    )
    first, end = (pa.scalar(bound, unscaled.type) for bound in _bounds(data_type))
    in_range = pc.and_(pc.greater_equal(unscaled, first), pc.less(unscaled, end))
    return _where(in_range, unscaled).cast(pa.int64()).cast(data_type), unless(in_range)


def _nanos(data_type: pa.DataType, array: pa.Array) -> Settled:
    micros = pc.divide(array, _NANOS)
    whole = pc.equal(pc.multiply(micros, _NANOS), array)
    first, end = _bounds(data_type)
    certain = pc.and_(whole, pc.and_(pc.greater_equal(micros, first), pc.less(micros, end)))
    return _where(certain, micros).cast(data_type), unless(certain)


def _bounds(data_type: pa.DataType) -> tuple[int, int]:
    return (0, times.DAY) if pa.types.is_time(data_type) else (times.FIRST, times.END)


def _where(certain: pa.BooleanArray, array: pa.Array) -> pa.Array:
    return array if all_of(certain) else pc.if_else(certain, array, pa.scalar(None, array.type))


# Years 1000 to 8999, and the 29th of February of years that 4 divides and 100 does not: within these bounds Arrow's cast
# can't fail and can't leave the range that the exact decoder accepts. All else is rare enough to be decided there.
_DATE: Final = (
    r"(?:[1-8][0-9]{3}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    r"|02-(?:0[1-9]|1[0-9]|2[0-8]))|[1-8][0-9](?:0[48]|[2468][048]|[13579][26])-02-29)"
)
_TIME: Final = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?"
_ZONE: Final = r"(?:Z|[+-](?:[01][0-9]|2[0-3])(?::?[0-5][0-9])?)$"
_PLAIN_DATE: Final = f"^{_DATE}Z?$"
_PLAIN_TIME: Final = f"^{_TIME}Z?$"
_PLAIN_LOCAL: Final = f"^{_DATE}[T ]{_TIME}$"
_PLAIN_TIMESTAMP: Final = f"^{_DATE}[T ]{_TIME}{_ZONE[:-1]}?$"
_ZONED: Final = f":[0-5][0-9](?:\\.[0-9]+)?{_ZONE}"


def _texts(data_type: pa.DataType, zones: bool, array: pa.Array) -> Settled:  # noqa: FBT001 - bound by position
    plain = pc.match_substring_regex(array, _plain_form(data_type, zones=zones))
    return _cast(data_type, _where(plain, array)), unless(plain)


def _plain_form(data_type: pa.DataType, *, zones: bool) -> str:
    if pa.types.is_date(data_type):
        return _PLAIN_DATE
    if pa.types.is_time(data_type):
        return _PLAIN_TIME
    return _PLAIN_TIMESTAMP if zones else _PLAIN_LOCAL


def _cast(data_type: pa.DataType, texts: pa.Array) -> pa.Array:
    if pa.types.is_date(data_type):
        return pc.utf8_rtrim(texts, "Z").cast(data_type)
    if pa.types.is_time(data_type):  # Arrow casts no text to a time, but a timestamp
        walls = pc.utf8_rtrim(texts, "Z")
        stamps = pc.binary_join_element_wise("1970-01-01T", walls, "").cast(pa.timestamp("us"))
        return stamps.cast(data_type)
    zoned = pc.match_substring_regex(texts, _ZONED)
    if data_type.tz is None:
        walls = pc.replace_substring_regex(texts, _ZONE, "") if pc.any(zoned).as_py() else texts
        return walls.cast(data_type)
    # Arrow wants a zone in every text of a timestamp with zone.
    return pc.if_else(zoned, texts, pc.binary_join_element_wise(texts, "Z", "")).cast(data_type)
