"""Casts whole arrays from one scalar type to another. A value that a cast is not sure about is in doubt."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import partial, reduce
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.casting.scalar import NO_COLUMNS, FitRules, Pair
from frazil.records.casting.source import DAY_NANOS, NANOS, Kind, integers, kind_of, unit_nanos
from frazil.records.json.convert import UUID_BYTES, to_uuid
from frazil.records.json.intermediate_types import (
    ArrayCast,
    CastResult,
    intermediate_text,
    intermediate_type,
    keep_certain,
    or_masks,
)
from frazil.records.model.column import Reading
from frazil.records.model.json_number import SURE_DOUBLE

_FIRST_SECOND: Final = -30_000_000_000
_LAST_SECOND: Final = 220_000_000_000
"""Seconds since 1970 of the years 1019 to 8941, which surely lie within the years that timestamps may have."""

_DIGITS: Final = "^-?[0-9]{1,18}$"
"""The text of an integer that surely has 64 bits."""


def is_between(array: pa.Array, low: int, high: int) -> pa.BooleanArray:
    """Return where int64 values are at least `low` and at most `high`."""
    return pc.and_(
        pc.greater_equal(array, pa.scalar(low, pa.int64())), pc.less_equal(array, pa.scalar(high, pa.int64()))
    )


def text_times(pair: Pair) -> ArrayCast | None:
    """Return the cast of texts to dates, times or timestamps."""
    reading = Reading(local_time=pair.rules.local_time, truncates=pair.rules.truncates)
    intermediate = intermediate_type(pair.target, reading)
    if intermediate is None or unit_nanos(pair.target) not in {DAY_NANOS, NANOS["us"]}:
        return None
    cast_texts = partial(_cast_strings, intermediate.cast)
    if pair.rules.unit is None or not pair.rules.text_counts or pa.types.is_date(pair.target):
        return cast_texts
    cast_counts = counted_times(pair._replace(source=pa.int64()))
    return None if cast_counts is None else partial(_cast_texts_or_counts, cast_texts, cast_counts)


def _cast_texts_or_counts(cast_texts: ArrayCast, cast_counts: ArrayCast, array: pa.Array) -> CastResult:
    """Cast texts that are times, or numbers of times. A topic seldom mixes both: among numbers, texts are in doubt."""
    texts = array.cast(pa.string())
    has_digits = pc.match_substring_regex(texts, _DIGITS)
    if not pc.any(has_digits).as_py():
        return cast_texts(texts)
    numbers, unmatched = keep_certain(texts, has_digits)
    times, doubt = cast_counts(numbers.cast(pa.int64()))
    return times, or_masks([doubt, unmatched])


def _cast_strings(cast: ArrayCast, array: pa.Array) -> CastResult:
    return cast(array.cast(pa.string()))


def _clock_texts(target: pa.DataType, array: pa.Array) -> CastResult:
    """Cast times of day to texts: `12:30:00`, `12:30:00.5`."""
    day = DAY_NANOS // unit_nanos(array.type)
    times, doubt = keep_certain(array, is_between(integers(array), 0, day - 1))
    texts = times.cast(pa.string())
    if unit_nanos(array.type) < NANOS["s"]:
        texts = pc.utf8_rtrim(pc.utf8_rtrim(texts, "0"), ".")
    return texts.cast(target), doubt


def rescaled_times(pair: Pair) -> ArrayCast | None:
    """Return the cast of times or timestamps to another unit, and of dates to timestamps at midnight."""
    zone_lost = pa.types.is_timestamp(pair.source) and pair.source.tz and not pair.target.tz
    if pair.target.bit_width < 64 or (zone_lost and pair.rules.local_time == "dead_letter"):  # noqa: PLR2004 - bits
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
    """Return the cast of numbers, in the declared unit, to times or timestamps."""
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
"""A double keeps a decimal of so many digits: its shortest text has the same digits."""


def plan_scalar_cast(source: pa.DataType, target: pa.DataType, rules: FitRules) -> ArrayCast | None:
    """Return the cast from one plain scalar type to another; None if only single values can be converted."""
    if kind_of(source) is Kind.NULL:
        return partial(_nulls, target)
    if target in NO_COLUMNS:
        return None
    if source == target:
        return _same
    plan = _CASTS.get((kind_of(source), kind_of(target)))
    return plan(Pair(source, target, rules)) if plan else None


def _nulls(target: pa.DataType, array: pa.Array) -> CastResult:
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
    source = array.type
    checks = [array.is_valid()]
    if source.precision - source.scale > whole:
        checks.append(pc.less(pc.abs(array), pa.scalar(Decimal(10) ** whole, source)))
    if source.scale > scale:
        # Arrow refuses to round if the type might have no digit after rounding; with the most digits it always has some.
        has_room = source.precision - source.scale + scale > 0
        wide = array if has_room else array.cast(pa.decimal256(_MOST_DIGITS, source.scale))
        checks.append(pc.equal(pc.round(wide, ndigits=scale, round_mode="towards_zero"), wide))
    return pc.or_kleene(reduce(pc.and_kleene, checks), array.is_null())


def _decimal_int(pair: Pair) -> ArrayCast | None:
    if not 0 <= pair.source.scale < _MOST_DIGITS or not pa.types.is_signed_integer(pair.target):
        return None
    return partial(_decimal_to_int, pair.target)


def _decimal_to_int(target: pa.DataType, array: pa.Array) -> CastResult:
    # One digit less than the type's largest number has: the few numbers in between are in doubt.
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
    # Through text, because parsing rounds correctly; the cast of decimals multiplies by an inexact power of ten.
    return array.cast(pa.string()).cast(pa.float64()), None


_DOUBLE: Final = f"^{SURE_DOUBLE}$"


def _text_int(pair: Pair) -> ArrayCast | None:
    bounded = _ints(pair._replace(source=pa.int64())) if pair.rules.text_casts else None
    return partial(_cast_matching, _DIGITS, pa.int64(), bounded) if bounded else None


def _cast_matching(pattern: str, number_type: pa.DataType, cast: ArrayCast, array: pa.Array) -> CastResult:
    """Cast the texts that match a pattern to numbers, and these with `cast`; the other texts are in doubt."""
    passed, unmatched = keep_certain(array, pc.match_substring_regex(array, pattern))
    numbers, doubt = cast(passed.cast(number_type))
    return numbers, or_masks([doubt, unmatched])


def _text_float(pair: Pair) -> ArrayCast | None:
    if not pair.rules.text_casts or pair.target != pa.float64():
        return None
    return partial(_cast_matching, _DOUBLE, pa.float64(), _same)


def _text_decimal(pair: Pair) -> ArrayCast | None:
    whole, scale = pair.target.precision - pair.target.scale, pair.target.scale
    if not pair.rules.text_casts or whole < 1 or scale < 0 or not pa.types.is_decimal128(pair.target):
        return None
    fraction = rf"(?:\.[0-9]{{1,{scale}}})?" if scale else ""
    return partial(_cast_matching, rf"^-?[0-9]{{1,{whole}}}{fraction}$", pair.target, _same)


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
    (Kind.TEXT, Kind.UUID): lambda pair: partial(_cast_strings, intermediate_text(to_uuid, pair.target).cast),
    (Kind.TEXT, Kind.DATE): text_times,
    (Kind.TEXT, Kind.TIME): text_times,
    (Kind.TEXT, Kind.STAMP): text_times,
    (Kind.BYTES, Kind.BYTES): _bytes,
    (Kind.BYTES, Kind.UUID): _to_uuid,
    (Kind.UUID, Kind.BYTES): _from_uuid,
    (Kind.INT, Kind.TIME): counted_times,
    (Kind.INT, Kind.STAMP): counted_times,
    (Kind.TIME, Kind.TIME): rescaled_times,
    (Kind.TIME, Kind.TEXT): lambda pair: partial(_clock_texts, pair.target),
    (Kind.STAMP, Kind.STAMP): rescaled_times,
    (Kind.DATE, Kind.STAMP): rescaled_times,
}
