"""Casts of whole arrays from one scalar type to another. A cast marks a value as in doubt rather than guess."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import partial, reduce
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.casting.scalar import NO_COLUMNS, FitRules, Pair
from frazil.records.casting.source import DAY_NANOS, NANOS, Kind, integers, kind_of, unit_nanos
from frazil.records.json.convert import UUID_BYTES
from frazil.records.json.intermediate_types import ArrayCast, CastResult, carrier, keep_certain, or_masks
from frazil.records.model.column import Reading
from frazil.records.model.json_number import SURE_DOUBLE

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
    target_carrier = carrier(pair.target, Reading(truncates=pair.rules.truncates))
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


_INT64_DIGITS: Final = 19
_MOST_DIGITS: Final = 76
_DOUBLE_INTEGER: Final = 1 << 53
_SINGLE_INTEGER: Final = 1 << 24
_DOUBLE_DIGITS: Final = 15
"""A decimal of so many digits, made a double, is still named by them."""


def plan_scalar_cast(source: pa.DataType, target: pa.DataType, rules: FitRules) -> ArrayCast | None:
    """Return the cast from one plain scalar type to another; None if only single values can be converted."""
    if kind_of(source) is Kind.NULL:
        return partial(_no_values, target)
    if source == target and target not in NO_COLUMNS:
        return _same
    find = None if target in NO_COLUMNS else _CASTS.get((kind_of(source), kind_of(target)))
    return find(Pair(source, target, rules)) if find else None


def _no_values(target: pa.DataType, array: pa.Array) -> CastResult:
    return pa.nulls(len(array), target), None


def _same(array: pa.Array) -> CastResult:
    return array, None


def _cast(target: pa.DataType, array: pa.Array) -> CastResult:
    return array.cast(target), None


def _ints(pair: Pair) -> ArrayCast | None:
    if pair.source == pa.uint64() or not pa.types.is_signed_integer(pair.target):
        return None
    limit = 1 << (pair.target.bit_width - 1)
    return partial(_bounded, pair.target, -limit, limit - 1)


def _bounded(target: pa.DataType, low: int, high: int, array: pa.Array) -> CastResult:
    numbers = array.cast(pa.int64())
    passed, doubt = keep_certain(numbers, is_between(numbers, low, high))
    return passed.cast(target, safe=False), doubt


def _int_float(pair: Pair) -> ArrayCast | None:
    limits = {pa.float64(): _DOUBLE_INTEGER, pa.float32(): _SINGLE_INTEGER}
    if pair.source == pa.uint64() or pair.target not in limits:
        return None
    return partial(_bounded, pair.target, -limits[pair.target], limits[pair.target])


def _int_decimal(pair: Pair) -> ArrayCast | None:
    if pair.source == pa.uint64() or not pa.types.is_decimal128(pair.target) or pair.target.scale < 0:
        return None
    whole = min(pair.target.precision - pair.target.scale, _INT64_DIGITS)
    high = min(10**whole, 1 << 63) - 1
    return partial(_int_to_decimal, pair.target, high)


def _int_to_decimal(target: pa.DataType, high: int, array: pa.Array) -> CastResult:
    numbers = array.cast(pa.int64())
    passed, doubt = keep_certain(numbers, is_between(numbers, -high, high))
    return passed.cast(pa.decimal128(_INT64_DIGITS, 0)).cast(target), doubt


def _floats(pair: Pair) -> ArrayCast | None:
    if pair.source == pa.float64() and pair.target == pa.float32():
        return _narrow_float
    return partial(_cast, pair.target) if pa.types.is_float64(pair.target) or pa.types.is_float32(pair.target) else None


def _narrow_float(array: pa.Array) -> CastResult:
    singles = array.cast(pa.float32(), safe=False)
    same = pc.or_(pc.equal(singles.cast(pa.float64()), array), pc.is_nan(array))
    return keep_certain(singles, same)


def _decimals(pair: Pair) -> ArrayCast | None:
    if not pa.types.is_decimal128(pair.target) or min(pair.source.scale, pair.target.scale) < 0:
        return None
    if (
        pair.target.scale >= pair.source.scale
        and pair.target.precision - pair.target.scale >= pair.source.precision - pair.source.scale
    ):
        return partial(_cast, pair.target)
    return partial(_narrow_decimal, pair.target)


def _narrow_decimal(target: pa.DataType, array: pa.Array) -> CastResult:
    passed, doubt = keep_certain(array, _fits(array, target.precision - target.scale, target.scale))
    return passed.cast(target), doubt


def _fits(array: pa.Array, whole: int, scale: int) -> pa.BooleanArray:
    """Return where decimals have at most `whole` digits before the point and no more than `scale` after it."""
    kind = array.type
    checks = [array.is_valid()]
    if kind.precision - kind.scale > whole:
        checks.append(pc.less(pc.abs(array), pa.scalar(Decimal(10) ** whole, kind)))
    if kind.scale > scale:
        # Arrow refuses to round where no digit might be left; more digits than any decimal here has are always left.
        roomy = (
            array if kind.precision - kind.scale + scale > 0 else array.cast(pa.decimal256(_MOST_DIGITS, kind.scale))
        )
        checks.append(pc.equal(pc.round(roomy, ndigits=scale, round_mode="towards_zero"), roomy))
    return pc.or_kleene(reduce(pc.and_kleene, checks), array.is_null())


def _decimal_int(pair: Pair) -> ArrayCast | None:
    if not 0 <= pair.source.scale < _MOST_DIGITS or not pa.types.is_signed_integer(pair.target):
        return None
    return partial(_decimal_to_int, pair.target)


def _decimal_to_int(target: pa.DataType, array: pa.Array) -> CastResult:
    # One digit less than the type's largest number has: the few values in between are decided one by one.
    digits = len(str(1 << (target.bit_width - 1))) - 1
    passed, doubt = keep_certain(array, _fits(array, digits, 0))
    return passed.cast(target), doubt


def _decimal_float(pair: Pair) -> ArrayCast | None:
    if (
        pair.target != pa.float64()
        or pair.source.precision > _DOUBLE_DIGITS
        or not 0 <= pair.source.scale <= pair.source.precision
    ):
        return None
    return _decimal_to_double


def _decimal_to_double(array: pa.Array) -> CastResult:
    # By text, because parsing rounds correctly; the cast of decimals multiplies by an inexact power of ten.
    return array.cast(pa.string()).cast(pa.float64()), None


_DOUBLE: Final = f"^{SURE_DOUBLE}$"


def _text_int(pair: Pair) -> ArrayCast | None:
    bounded = _ints(pair._replace(source=pa.int64())) if pair.rules.text_casts else None
    return partial(_cast_matching, _DIGITS, bounded) if bounded else None


def _cast_matching(form: str, cast: ArrayCast, array: pa.Array) -> CastResult:
    passed, unmatched = keep_certain(array, pc.match_substring_regex(array, form))
    kind = pa.int64() if form is _DIGITS else pa.float64()
    numbers, doubt = cast(passed.cast(kind))
    return numbers, or_masks([doubt, unmatched])


def _text_float(pair: Pair) -> ArrayCast | None:
    return partial(_cast_matching, _DOUBLE, _same) if pair.rules.text_casts and pair.target == pa.float64() else None


def _text_decimal(pair: Pair) -> ArrayCast | None:
    whole, scale = (pair.target.precision - pair.target.scale, pair.target.scale) if pair.rules.text_casts else (0, 0)
    if whole < 1 or scale < 0 or not pa.types.is_decimal128(pair.target):
        return None
    fraction = rf"(?:\.[0-9]{{1,{scale}}})?" if scale else ""
    return partial(_plain_decimals, rf"^-?[0-9]{{1,{whole}}}{fraction}$", pair.target)


def _plain_decimals(form: str, target: pa.DataType, array: pa.Array) -> CastResult:
    passed, doubt = keep_certain(array, pc.match_substring_regex(array, form))
    return passed.cast(target), doubt


def _bytes(pair: Pair) -> ArrayCast | None:
    if not pa.types.is_fixed_size_binary(pair.target):
        return partial(_cast, pair.target)
    return None if pa.types.is_fixed_size_binary(pair.source) else partial(_sized, pair.target)


def _sized(target: pa.DataType, array: pa.Array) -> CastResult:
    binaries = array.cast(pa.binary())
    passed, doubt = keep_certain(binaries, pc.equal(pc.binary_length(binaries), target.byte_width))
    return passed.cast(target), doubt


def _from_uuid(pair: Pair) -> ArrayCast | None:
    fits = not pa.types.is_fixed_size_binary(pair.target) or pair.target.byte_width == UUID_BYTES
    return partial(_cast_storage, pair.target) if fits else None


def _cast_storage(target: pa.DataType, array: pa.Array) -> CastResult:
    return array.storage.cast(target), None


def _to_uuid(pair: Pair) -> ArrayCast | None:
    return partial(_cast, pair.target) if pair.source == pa.binary(UUID_BYTES) else None


_CASTS: Final[dict[tuple[Kind, Kind], Callable[[Pair], ArrayCast | None]]] = {
    (Kind.INT, Kind.INT): _ints,
    (Kind.INT, Kind.FLOAT): _int_float,
    (Kind.INT, Kind.DECIMAL): _int_decimal,
    (Kind.INT, Kind.TEXT): lambda pair: partial(_cast, pair.target) if pair.rules.number_texts else None,
    (Kind.FLOAT, Kind.FLOAT): _floats,
    (Kind.DECIMAL, Kind.DECIMAL): _decimals,
    (Kind.DECIMAL, Kind.INT): _decimal_int,
    (Kind.DECIMAL, Kind.FLOAT): _decimal_float,
    (Kind.TEXT, Kind.TEXT): lambda pair: partial(_cast, pair.target),
    (Kind.TEXT, Kind.INT): _text_int,
    (Kind.TEXT, Kind.FLOAT): _text_float,
    (Kind.TEXT, Kind.DECIMAL): _text_decimal,
    (Kind.TEXT, Kind.UUID): carrier_texts,
    (Kind.TEXT, Kind.DATE): text_times,
    (Kind.TEXT, Kind.TIME): text_times,
    (Kind.TEXT, Kind.STAMP): text_times,
    (Kind.BYTES, Kind.BYTES): _bytes,
    (Kind.BYTES, Kind.UUID): _to_uuid,
    (Kind.UUID, Kind.BYTES): _from_uuid,
    (Kind.INT, Kind.TIME): counted_times,
    (Kind.INT, Kind.STAMP): counted_times,
    (Kind.TIME, Kind.TIME): rescaled_times,
    (Kind.TIME, Kind.TEXT): clock_texts,
    (Kind.STAMP, Kind.STAMP): rescaled_times,
    (Kind.DATE, Kind.STAMP): rescaled_times,
}
