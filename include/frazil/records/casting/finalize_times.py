"""Casts of whole arrays of texts, times and counts to times; and the checks that all scalar casts use."""

from __future__ import annotations

from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.casting.scalar import Pair
from frazil.records.casting.source import DAY_NANOS, NANOS, integers, unit_nanos
from frazil.records.json.intermediate_types import ArrayCast, CastResult, carrier, keep_certain, or_masks

_FIRST_SECOND: Final = -30_000_000_000
_LAST_SECOND: Final = 220_000_000_000
"""Years 1019 to 8941: surely within the years that counted times may have."""


_DIGITS: Final = "^-?[0-9]{1,18}$"
_ZONED: Final = r"(?:[Zz]|:[0-9.]+ *[+-][0-9:]+)$"


def is_between(array: pa.Array, low: int, high: int) -> pa.BooleanArray:
    """Return where int64 values are at least `low` and at most `high`."""
    return pc.and_(
        pc.greater_equal(array, pa.scalar(low, pa.int64())), pc.less_equal(array, pa.scalar(high, pa.int64()))
    )


def text_times(pair: Pair) -> ArrayCast | None:
    """Return the cast of texts to dates, times or timestamps."""
    target_carrier = carrier(pair.target)
    if target_carrier is None or unit_nanos(pair.target) not in {DAY_NANOS, NANOS["us"]}:
        return None
    unzoned = pair.rules.local_time == "reject" and pa.types.is_timestamp(pair.target) and not pair.target.tz
    spelled = partial(_by_carrier, target_carrier.cast, unzoned)
    if pair.rules.unit is None or not pair.rules.text_counts or pa.types.is_date(pair.target):
        return spelled
    counted = counted_times(pair._replace(source=pa.int64()))
    return None if counted is None else partial(_spelled_or_counted, spelled, counted)


def _spelled_or_counted(spelled: ArrayCast, counted: ArrayCast, array: pa.Array) -> CastResult:
    texts = array.cast(pa.string())
    digits = pc.match_substring_regex(texts, _DIGITS)
    if not pc.any(digits).as_py():
        return spelled(texts)
    numbers, unmatched = keep_certain(
        texts, digits
    )  # a topic seldom mixes both forms: texts among numbers are converted one by one
    times, doubt = counted(numbers.cast(pa.int64()))
    return times, or_masks([doubt, unmatched])


def _by_carrier(cast: ArrayCast, unzoned: bool, array: pa.Array) -> CastResult:  # noqa: FBT001 - bound by partial
    texts = array.cast(pa.string())
    if not unzoned:
        return cast(texts)
    passed, zoned = keep_certain(texts, pc.invert(pc.match_substring_regex(texts, _ZONED)))
    result, doubt = cast(passed)
    return result, or_masks([doubt, zoned])


def clock_texts(pair: Pair) -> ArrayCast | None:
    """Return the cast of times of day to texts: `12:30:00`, `12:30:00.5`."""
    return partial(_clock_texts, pair.target)


def _clock_texts(target: pa.DataType, array: pa.Array) -> CastResult:
    day = DAY_NANOS // unit_nanos(array.type)
    times, doubt = keep_certain(array, is_between(integers(array), 0, day - 1))
    texts = times.cast(pa.string())
    if unit_nanos(array.type) < NANOS["s"]:
        texts = pc.utf8_rtrim(pc.utf8_rtrim(texts, "0"), ".")
    return texts.cast(target), doubt


def carrier_texts(pair: Pair) -> ArrayCast | None:
    """Return the cast of texts that JSON columns of the target type use for their carrier."""
    target_carrier = carrier(pair.target)
    return None if target_carrier is None else partial(_by_carrier, target_carrier.cast, False)  # noqa: FBT003


def rescaled_times(pair: Pair) -> ArrayCast | None:
    """Return the cast of times or timestamps to another unit, and of dates to their midnights."""
    zone_lost = pa.types.is_timestamp(pair.source) and pair.source.tz and not pair.target.tz
    if pair.target.bit_width < 64 or (zone_lost and pair.rules.local_time == "reject"):  # noqa: PLR2004 - bits
        return None
    return partial(_rescaled, pair.target, unit_nanos(pair.source), unit_nanos(pair.target))


def _rescaled(target: pa.DataType, source_unit: int, target_unit: int, array: pa.Array) -> CastResult:
    counts = integers(array)
    if source_unit >= target_unit:
        factor = source_unit // target_unit
        limit = ((1 << 63) - 1) // factor
        passed, doubt = (counts, None) if factor == 1 else keep_certain(counts, is_between(counts, -limit, limit))
        return (passed if factor == 1 else pc.multiply(passed, factor)).cast(target), doubt
    factor = target_unit // source_unit
    whole = pc.divide(counts, factor)
    passed, doubt = keep_certain(whole, pc.equal(pc.multiply(whole, factor), counts))
    return passed.cast(target), doubt


def counted_times(pair: Pair) -> ArrayCast | None:
    """Return the cast of numbers to the times that they count in the declared unit."""
    unit, target = pair.rules.unit, pair.target
    if unit is None or unit_nanos(target) != NANOS["us"] or pair.source == pa.uint64():
        return None
    per_second = NANOS["s"] // NANOS[unit]
    stamp = pa.types.is_timestamp(target)
    low, high = (_FIRST_SECOND, _LAST_SECOND) if stamp else (0, DAY_NANOS // NANOS["s"])
    highest = min(high * per_second - 1, (1 << 63) - 1)
    return partial(_counted, target, NANOS[unit], (max(low * per_second, -1 << 63), highest))


def _counted(target: pa.DataType, unit: int, bounds: tuple[int, int], array: pa.Array) -> CastResult:
    numbers = array.cast(pa.int64())
    passed, doubt = keep_certain(numbers, is_between(numbers, *bounds))
    times, finer = _rescaled(target, unit, NANOS["us"], passed)
    return times, or_masks([doubt, finer])
