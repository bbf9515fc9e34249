"""Casts single values from one Arrow type to another, exactly: the result equals the input, or the value is rejected.

A fraction crosses between binary and decimal by the shortest text that names the binary one, in both directions: a double
0.1 is the decimal 0.1. Whole numbers cross by their exact value.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from math import isfinite
from typing import Any, Final, Literal, NamedTuple

import pyarrow as pa

from frazil.records.casting.source import (
    Kind,
    describe_value,
    json_form,
    kind_of,
    shortest_text,
    to_single,
    unit_nanos,
    uuid_text,
)
from frazil.records.json import convert, times
from frazil.records.model.column import TimeUnit, type_name
from frazil.records.model.dead_letter import DeadCode, Rejection
from frazil.records.model.json_number import Number, describe

_NUMBER: Final = re.compile(r"\+?(-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)")


def _parse_number(text: str) -> Number | None:
    """Return the number in a text; None if the text is no number."""
    match = _NUMBER.fullmatch(text)
    return None if match is None or text.startswith("+-") else Number(match[1])


ValueCast = Callable[[Any], object]
"""Takes a physical value that is not null, returns what `pa.array` takes for the target, or raises `Rejection`."""


@dataclass(frozen=True, slots=True)
class FitRules:
    """Which conversions a column allows besides those without loss.

    Attributes:
        text_casts: Whether text becomes numbers, bools and (as base64) bytes, and these become text.
        local_time: What a time with zone becomes in a column without zone: it keeps its wall time, or is a dead letter.
        case_insensitive: Whether field names that differ by case only are the same.
        strict: Whether fields of structs that the column doesn't have are refused.
        unit: Unit of numbers in columns of times; None refuses numbers there.
        number_texts: Whether numbers and bools become text.
        json_texts: Whether any value becomes its JSON text in a text column.
        text_counts: Whether numbers of a `unit` may be sent as text.
        truncates: Whether times are truncated to microseconds.
    """

    text_casts: bool = False
    local_time: Literal["keep", "dead_letter"] = "keep"
    case_insensitive: bool = False
    strict: bool = False
    unit: TimeUnit | None = None
    number_texts: bool = False
    json_texts: bool = False
    text_counts: bool = False
    truncates: bool = False


class Pair(NamedTuple):
    """A source and a target type, both not nested, and the rules for conversions between them."""

    source: pa.DataType
    target: pa.DataType
    rules: FitRules

    @property
    def kind(self) -> Kind:
        """The kind of the source."""
        return kind_of(self.source)


_MICROS: Final = pa.timestamp("us")
_NON_FINITE_TEXTS: Final = {"nan": "nan", "inf": "inf", "infinity": "inf", "-inf": "-inf", "-infinity": "-inf"}
_BOOLS: Final = {"true": True, "false": False}


def refuse(expected: str, source: pa.DataType, value: Any) -> object:
    """Refuse any value.

    Raises:
        Rejection: WRONG_TYPE, always.
    """
    raise Rejection(DeadCode.WRONG_TYPE, f"expected {expected}, found {describe_value(source, value)}")


NO_COLUMNS: Final = frozenset({pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(), pa.float16()})
"""Types that values may have, but no column of a table."""


def scalar_value_cast(source: pa.DataType, target: pa.DataType, rules: FitRules) -> ValueCast | None:
    """Return the converter between two plain types that are not nested, or None if there is none."""
    if kind_of(source) is Kind.NULL:
        return _as_is
    plan = None if target in NO_COLUMNS else _TARGETS.get(kind_of(target))
    return plan(Pair(source, target, rules)) if plan else None


def _as_is(value: Any) -> object:
    return value


def _bool(pair: Pair) -> ValueCast | None:
    if pair.kind is Kind.TEXT and pair.rules.text_casts:
        return _text_bool
    return _as_is if pair.kind is Kind.BOOL else None


def _text_bool(text: str) -> object:
    if (boolean := _BOOLS.get(text.lower())) is None:
        raise Rejection(DeadCode.INVALID_TEXT, f"expected true or false, found {describe(text)}")
    return boolean


def _number(pair: Pair) -> ValueCast | None:
    if pair.kind is Kind.FLOAT:
        read: Callable[[Any], Number] = partial(_float_number, str(pair.target), single=pair.source != pa.float64())
    elif pair.kind is Kind.TEXT and pair.rules.text_casts:
        read = partial(_text_number, str(pair.target))
    elif pair.kind in {Kind.INT, Kind.DECIMAL}:
        read = _digits
    else:
        return None
    if pa.types.is_decimal(pair.target):
        return partial(_chain, read, partial(convert.to_decimal, pair.target.precision, pair.target.scale))
    return partial(_chain, read, partial(convert.to_int, pair.target.bit_width))


def _chain(first: Callable[[Any], Any], second: Callable[[Any], object], value: Any) -> object:
    return second(first(value))


def _digits(value: object) -> Number:
    return Number(str(value))


def _float_number(expected: str, value: float, *, single: bool) -> Number:
    if not isfinite(value):
        raise Rejection(DeadCode.NOT_FINITE, f"expected {expected}, found {value}")
    return Number(str(int(value)) if value.is_integer() else shortest_text(value, single=single))


def _text_number(expected: str, text: str) -> Number:
    if text.lower() in _NON_FINITE_TEXTS:
        raise Rejection(DeadCode.NOT_FINITE, f"expected {expected}, found {describe(text)}")
    if (number := _parse_number(text)) is None:
        raise Rejection(DeadCode.INVALID_TEXT, f"expected {expected} as text, found {describe(text)}")
    return number


def _float(pair: Pair) -> ValueCast | None:
    single = pair.target == pa.float32()
    if pair.kind is Kind.FLOAT:
        return partial(_to_single, pair.source) if single and pair.source == pa.float64() else _as_is
    if pair.kind is Kind.TEXT and pair.rules.text_casts:
        return partial(_text_float, str(pair.target), convert.to_float32 if single else convert.to_float64)
    return partial(_from_digits, str(pair.target), single) if pair.kind in {Kind.INT, Kind.DECIMAL} else None


def _to_single(source: pa.DataType, value: float) -> object:
    single = to_single(value)
    if single is None:
        raise Rejection(
            DeadCode.OUT_OF_RANGE, f"expected float, found {describe_value(source, value)}, beyond its range"
        )
    if isfinite(value) and single != value:
        raise Rejection(
            DeadCode.LOSSY_CAST, f"expected float, found {describe_value(source, value)}, which has more digits"
        )
    return single


def _text_float(expected: str, read: Callable[[Any], float], text: str) -> object:
    word = _NON_FINITE_TEXTS.get(text.lower())
    return float(word) if word else read(_text_number(expected, text))


def _from_digits(expected: str, single: bool, value: int | Decimal) -> object:  # noqa: FBT001 - bound by partial
    exact = Decimal(value)
    double = float(value)
    rounded = to_single(double) if single else double
    if rounded is None:
        raise Rejection(DeadCode.OUT_OF_RANGE, f"expected {expected}, found number {value}, beyond its range")
    whole = exact == exact.to_integral_value()
    if exact != (Decimal(rounded) if whole else Decimal(shortest_text(rounded, single=single))):
        raise Rejection(
            DeadCode.LOSSY_CAST, f"expected {expected}, found {describe(Number(str(value)))}, which has more digits"
        )
    return rounded


def _text(pair: Pair) -> ValueCast | None:
    if pair.kind is Kind.TEXT:
        return _as_is
    if pair.kind is Kind.UUID or pair.source == pa.binary(convert.UUID_BYTES):
        return uuid_text
    if pair.kind is Kind.TIME:
        return partial(_chain, json_form(pair.source), str)
    if pair.rules.number_texts and pair.kind is Kind.BOOL:
        return _bool_text
    casts = pair.rules.text_casts or pair.rules.json_texts or (pair.rules.number_texts and pair.kind in _NUMERIC_KINDS)
    return partial(_chain, json_form(pair.source), str) if casts and pair.kind is not Kind.OTHER else None


_NUMERIC_KINDS: Final = frozenset({Kind.INT, Kind.FLOAT, Kind.DECIMAL})


def _bool_text(value: object) -> object:
    return "true" if value else "false"


def _bytes(pair: Pair) -> ValueCast | None:
    width = pair.target.byte_width if pa.types.is_fixed_size_binary(pair.target) else None
    if pair.kind is Kind.TEXT:
        return _text_bytes(width, pair.rules)
    if pair.kind not in {Kind.BYTES, Kind.UUID}:
        return None
    return _as_is if width is None else partial(_check_width, width)


def _text_bytes(width: int | None, rules: FitRules) -> ValueCast | None:
    if width == convert.UUID_BYTES:
        return convert.to_uuid_or_fixed if rules.text_casts else convert.to_uuid
    if not rules.text_casts:
        return None
    return convert.to_bytes if width is None else partial(convert.to_fixed, width)


def _check_width(width: int, value: bytes) -> object:
    if len(value) != width:
        raise Rejection(DeadCode.OUT_OF_RANGE, f"expected {width} bytes, found {len(value)} bytes")
    return value


def _uuid(pair: Pair) -> ValueCast | None:
    if pair.kind is Kind.TEXT:
        return convert.to_uuid
    return partial(_check_width, convert.UUID_BYTES) if pair.kind in {Kind.BYTES, Kind.UUID} else None


def _date(pair: Pair) -> ValueCast | None:
    if pair.kind is Kind.TEXT:
        return partial(_chain, times.days, partial(_rescale, pa.date32(), pair.target))
    return partial(_rescale, pair.source, pair.target) if pair.kind is Kind.DATE else None


def _time(pair: Pair) -> ValueCast | None:
    if pair.kind is Kind.TEXT:
        return _text_time(pair, times.time_micros, times.clock_micros)
    if pair.kind is Kind.INT:
        return _counted(pair, times.clock_micros)
    return partial(_rescale, pair.source, pair.target) if pair.kind is Kind.TIME else None


def _stamp(pair: Pair) -> ValueCast | None:
    if pair.kind is Kind.TEXT:
        local = times.wall_micros if pair.rules.local_time == "keep" else times.local_micros
        read = times.utc_micros if pair.target.tz else local
        return _text_time(pair, read, times.epoch_micros)
    if pair.kind is Kind.INT:
        return _counted(pair, times.epoch_micros)
    if pair.kind is Kind.STAMP and pair.source.tz and not pair.target.tz and pair.rules.local_time == "dead_letter":
        return None
    return partial(_rescale, pair.source, pair.target) if pair.kind in {Kind.STAMP, Kind.DATE} else None


def _text_time(pair: Pair, read: Callable[[str], int], count: Callable[..., int]) -> ValueCast:
    read = partial(times.read_truncated, read) if pair.rules.truncates else read
    cast_text = partial(_chain, read, partial(_rescale, _MICROS, pair.target))
    cast_count = _counted(pair, count) if pair.rules.text_counts else None
    return cast_text if cast_count is None else partial(_cast_text_or_count, cast_text, cast_count)


def _cast_text_or_count(cast_text: ValueCast, cast_count: ValueCast, text: str) -> object:
    number = _parse_number(text)
    return cast_text(text) if number is None else cast_count(number)


def _counted(pair: Pair, count: Callable[..., int]) -> ValueCast | None:
    """Return the cast of numbers in the declared unit, which `count` converts; None without a unit."""
    if pair.rules.unit is None:
        return None
    count_units = partial(count, times.SHIFTS[pair.rules.unit], truncates=pair.rules.truncates)
    return partial(_chain, partial(_chain, _digits, count_units), partial(_rescale, _MICROS, pair.target))


def _rescale(source: pa.DataType, target: pa.DataType, value: int) -> object:
    """Return a date, time or timestamp in the unit of another type."""
    rescaled, rest = divmod(value * unit_nanos(source), unit_nanos(target))
    if rest:
        raise Rejection(
            DeadCode.LOSSY_CAST, f"expected {type_name(target)}, found {describe_value(source, value)}, which is finer"
        )
    limit = 1 << (target.bit_width - 1)
    if not -limit <= rescaled < limit:
        raise Rejection(
            DeadCode.OUT_OF_RANGE,
            f"expected {type_name(target)}, found {describe_value(source, value)}, beyond its range",
        )
    return rescaled


_TARGETS: Final[dict[Kind, Callable[[Pair], ValueCast | None]]] = {
    Kind.BOOL: _bool,
    Kind.INT: _number,
    Kind.DECIMAL: _number,
    Kind.FLOAT: _float,
    Kind.TEXT: _text,
    Kind.BYTES: _bytes,
    Kind.UUID: _uuid,
    Kind.DATE: _date,
    Kind.TIME: _time,
    Kind.STAMP: _stamp,
}
