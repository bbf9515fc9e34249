"""Whole arrays of texts, times and counts to times; and the checks that every fast way is made of."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.casting.scalar import Pair
from frazil.records.casting.source import DAY_NANOS, NANOS, integers, unit_nanos
from frazil.records.json.intermediate_types import Settled, any_of, carrier

Settle = Callable[[pa.Array], Settled]

_FIRST_SECOND: Final = -30_000_000_000
_LAST_SECOND: Final = 220_000_000_000
"""Years 1019 to 8941: surely within the years that counted times may have."""


_DIGITS: Final = "^-?[0-9]{1,18}$"
_ZONED: Final = r"(?:[Zz]|:[0-9.]+ *[+-][0-9:]+)$"


def _all(mask: pa.BooleanArray) -> bool:
    return bool(pc.all(mask).as_py() in {True, None})


def certain(array: pa.Array, certain: pa.BooleanArray) -> tuple[pa.Array, pa.BooleanArray | None]:
    """Return the values that passed a check, and a doubt about the others; null needs no check."""
    if _all(certain):
        return array, None
    doubt = pc.fill_null(pc.invert(certain), fill_value=False)
    return pc.if_else(certain, array, pa.scalar(None, array.type)), doubt


def within(array: pa.Array, low: int, high: int) -> pa.BooleanArray:
    """Return where int64 values are at least `low` and at most `high`."""
    return pc.and_(
        pc.greater_equal(array, pa.scalar(low, pa.int64())), pc.less_equal(array, pa.scalar(high, pa.int64()))
    )


def text_times(pair: Pair) -> Settle | None:
    """Return what settles texts as dates, times or timestamps."""
    found = carrier(pair.target)
    if found is None or unit_nanos(pair.target) not in {DAY_NANOS, NANOS["us"]}:
        return None
    unzoned = pair.rules.local_time == "reject" and pa.types.is_timestamp(pair.target) and not pair.target.tz
    spelled = partial(_by_carrier, found.settle, unzoned)
    if pair.rules.unit is None or not pair.rules.text_counts or pa.types.is_date(pair.target):
        return spelled
    counted = counts(pair._replace(source=pa.int64()))
    return None if counted is None else partial(_spelled_or_counted, spelled, counted)


def _spelled_or_counted(spelled: Settle, counted: Settle, array: pa.Array) -> Settled:
    texts = array.cast(pa.string())
    digits = pc.match_substring_regex(texts, _DIGITS)
    if not pc.any(digits).as_py():
        return spelled(texts)
    numbers, others = certain(texts, digits)  # a topic has one form of times: the other one is decided one by one
    made, doubt = counted(numbers.cast(pa.int64()))
    return made, any_of([doubt, others])


def _by_carrier(settle: Settle, unzoned: bool, array: pa.Array) -> Settled:  # noqa: FBT001 - bound by partial
    texts = array.cast(pa.string())
    if not unzoned:
        return settle(texts)
    passed, zoned = certain(texts, pc.invert(pc.match_substring_regex(texts, _ZONED)))
    made, doubt = settle(passed)
    return made, doubt if zoned is None else zoned if doubt is None else pc.or_(doubt, zoned)


def clock_texts(pair: Pair) -> Settle | None:
    """Return what settles times of day as texts: `12:30:00`, `12:30:00.5`."""
    return partial(_clock_texts, pair.target)


def _clock_texts(target: pa.DataType, array: pa.Array) -> Settled:
    day = DAY_NANOS // unit_nanos(array.type)
    times, doubt = certain(array, within(integers(array), 0, day - 1))
    texts = times.cast(pa.string())
    if unit_nanos(array.type) < NANOS["s"]:
        texts = pc.utf8_rtrim(pc.utf8_rtrim(texts, "0"), ".")
    return texts.cast(target), doubt


def by_carrier(pair: Pair) -> Settle | None:
    """Return what settles texts as carriers of JSON do."""
    found = carrier(pair.target)
    return None if found is None else partial(_by_carrier, found.settle, False)  # noqa: FBT003


def moments(pair: Pair) -> Settle | None:
    """Return what settles times as times, timestamps as timestamps, and dates as their midnights."""
    zone_lost = pa.types.is_timestamp(pair.source) and pair.source.tz and not pair.target.tz
    if pair.target.bit_width < 64 or (zone_lost and pair.rules.local_time == "reject"):  # noqa: PLR2004 - bits
        return None
    return partial(_rescaled, pair.target, unit_nanos(pair.source), unit_nanos(pair.target))


def _rescaled(target: pa.DataType, source_unit: int, target_unit: int, array: pa.Array) -> Settled:
    found = integers(array)
    if source_unit >= target_unit:
        factor = source_unit // target_unit
        limit = ((1 << 63) - 1) // factor
        passed, doubt = (found, None) if factor == 1 else certain(found, within(found, -limit, limit))
        return (passed if factor == 1 else pc.multiply(passed, factor)).cast(target), doubt
    factor = target_unit // source_unit
    whole = pc.divide(found, factor)
    passed, doubt = certain(whole, pc.equal(pc.multiply(whole, factor), found))
    return passed.cast(target), doubt


def counts(pair: Pair) -> Settle | None:
    """Return what settles numbers as the times that they count, by the declared unit."""
    unit, target = pair.rules.unit, pair.target
    if unit is None or unit_nanos(target) != NANOS["us"] or pair.source == pa.uint64():
        return None
    per_second = NANOS["s"] // NANOS[unit]
    stamp = pa.types.is_timestamp(target)
    low, high = (_FIRST_SECOND, _LAST_SECOND) if stamp else (0, DAY_NANOS // NANOS["s"])
    highest = min(high * per_second - 1, (1 << 63) - 1)
    return partial(_counted, target, NANOS[unit], (max(low * per_second, -1 << 63), highest))


def _counted(target: pa.DataType, unit: int, bounds: tuple[int, int], array: pa.Array) -> Settled:
    numbers = array.cast(pa.int64())
    passed, doubt = certain(numbers, within(numbers, *bounds))
    made, finer = _rescaled(target, unit, NANOS["us"], passed)
    return made, any_of([doubt, finer])
