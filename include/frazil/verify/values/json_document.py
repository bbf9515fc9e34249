"""Parses the bytes of a value as one JSON document with numbers exactly as written, and writes parts of it as JSON text."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from datetime import UTC, datetime
from decimal import MAX_EMAX, MIN_EMIN, ROUND_FLOOR, Context, Decimal, InvalidOperation, Overflow, Underflow
from functools import lru_cache
from itertools import accumulate
from math import isinf
from struct import Struct
from typing import Any, NoReturn

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Unfit(ValueError):
    """A value can't become its column's type, so its record is a dead letter."""


class Misfit(Unfit):
    """A value of another kind, range or precision: an undeclared column is null then, and the record still a row."""


class NumberText(str):
    """The text of a JSON number: which digits count is known only with the column."""

    __slots__ = ()


def number_text(value: Any) -> NumberText:
    """The value, which must be a number."""
    if type(value) is not NumberText:
        raise Misfit("not a number")
    return value


_SHORT = 18
"""Number of characters, sign included, that surely fit a 64-bit integer: the fast path."""


def integer(value: Any, bits: int) -> int:
    """A whole number of so many bits; 1.0 and 1e2 are whole."""
    text = number_text(value)
    number = int(text) if len(text) <= _SHORT and text.removeprefix("-").isdecimal() else scaled_integer(text, 20, 0)
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise Misfit("out of range")
    return number


def scaled_integer(text: str, precision: int, scale: int) -> int:
    """The exact value times 10^scale, of at most `precision` digits. A negative scale takes digits off."""
    before, _, fraction = text.partition(".")
    fraction = fraction.rstrip("0")
    if len(text) <= _SHORT and len(fraction) <= scale and f"{before.removeprefix('-')}{fraction}".isdecimal():
        number = int(before + fraction.ljust(scale, "0"))
        if abs(number) < 10**precision:
            return number
    return _scaled_exactly(text, precision, scale)


def _scaled_exactly(text: str, precision: int, scale: int) -> int:
    """The same for any text: exponents, more digits than the column has, zeros at the end."""
    traps = [InvalidOperation, Overflow, Underflow]
    exact = Context(prec=max(len(text), precision) + 1, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=traps)
    try:
        number = exact.create_decimal(text)
    except (InvalidOperation, Overflow, Underflow) as error:  # an exponent that no Decimal has
        if Decimal(text.lower().partition("e")[0]).is_zero():
            return 0
        raise Misfit("out of range") from error
    if number.is_zero():
        return 0
    if number.adjusted() >= precision - scale:
        raise Misfit("out of range")
    sign, digits, exponent = number.normalize(exact).as_tuple()
    if not isinstance(exponent, int) or exponent < -scale:
        raise Misfit("more digits than the column holds")
    units = int("".join(map(str, digits)) + "0" * (exponent + scale))
    return -units if sign else units


def double(value: Any) -> float:
    """The nearest double, if it gives back all digits that were written; of fractions it need not give back more than 17."""
    number = _nearest(value)
    if len(value) > _SURE or abs(number) < _LEAST_NORMAL:
        _check_digits(value, number)
    return number


def _nearest(value: Any) -> float:
    number = float(number_text(value))
    if isinf(number):
        raise Misfit("out of range")
    return number


_SURE = 15
_DOUBLE = 17
_LONGEST = 800
_LEAST_NORMAL = 2.0**-1022


def _check_digits(text: str, number: float) -> None:
    written = text.lower().partition("e")[0].replace(".", "").removeprefix("-").lstrip("0")
    if not written:
        return
    if not number:
        raise Misfit("below the least double")
    exact = Decimal(text)
    if exact != exact.to_integral_value():
        written = written.rstrip("0")
        if len(written) <= _DOUBLE and abs(number) >= _LEAST_NORMAL:
            return
    if Decimal(f"{number:.{min(len(written), _LONGEST) - 1}e}") != exact:
        raise Misfit("more digits than a double holds")


_FLOAT = Struct("<f")


def single(value: Any) -> float:
    """The float nearest to the nearest double."""
    try:
        packed = _FLOAT.pack(_nearest(value))
    except OverflowError as error:
        raise Misfit("out of range") from error
    number: float = _FLOAT.unpack(packed)[0]
    return number


_POWERS = {"s": 6, "ms": 3, "us": 0, "ns": -3}
"""Unit -> how many powers of ten it is above a microsecond."""

_DIGITS = 18
"""Of the microseconds until the year 10000."""


def micros_of_units(text: str, unit: str, first: int, last: int, *, truncates: bool = False) -> int:
    """Microseconds that a number of units stands for, from `first` to `last`; with `truncates` the last whole one."""
    if truncates and Decimal(text).adjusted() < _DIGITS:
        text, unit = f"{Decimal(text).scaleb(_POWERS[unit]).to_integral_value(ROUND_FLOOR):f}", "us"
    micros = scaled_integer(text, _DIGITS, _POWERS[unit])
    if not first <= micros <= last:
        raise Misfit("out of range")
    return micros


MAX_DEPTH = 50
"""Values nested deeper are dead letters (TOO_DEEP)."""

_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)
_STEP = {"{": 1, "[": 1, "}": -1, "]": -1}
_HALF = re.compile("[\ud800-\udfff]")


def _refuse_constant(name: str) -> NoReturn:
    raise Unfit(f"{name} is not JSON")


def _require_unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise Unfit("a field is named twice")
    return fields


def _keep_latest(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The fields with the last value of each name, in the order of these last occurrences."""
    from_behind: dict[str, Any] = {}
    for name, item in reversed(pairs):
        from_behind.setdefault(name, item)
    return dict(reversed(from_behind.items()))


LAST_COUNTS = json.JSONDecoder(parse_int=NumberText, parse_float=NumberText, parse_constant=_refuse_constant)
"""Of fields with the same name the last one counts."""

EACH_ONCE = json.JSONDecoder(
    parse_int=NumberText,
    parse_float=NumberText,
    parse_constant=_refuse_constant,
    object_pairs_hook=_require_unique_names,
)
"""An object that names a field twice is unfit, at any level."""

LATEST_LAST = json.JSONDecoder(
    parse_int=NumberText, parse_float=NumberText, parse_constant=_refuse_constant, object_pairs_hook=_keep_latest
)
"""Of fields with the same name the last one counts, and stands where it was sent: names that differ in case only may
come in between."""


def decoder_of(*, once: bool, any_case: bool) -> json.JSONDecoder:
    """The decoder for values whose field names must be unique (`once`), or match in any case."""
    if once:
        return EACH_ONCE
    return LATEST_LAST if any_case else LAST_COUNTS


def object_of(raw: bytes, decoder: json.JSONDecoder = LAST_COUNTS) -> dict[str, Any]:
    """The one JSON object that a value is.

    Raises:
        Unfit: It is none.
    """
    document = document_of(raw, decoder)
    if not isinstance(document, dict):
        raise Unfit("not a JSON object")
    return document


@lru_cache(maxsize=2)
def document_of(raw: bytes, decoder: json.JSONDecoder = LAST_COUNTS) -> Any:
    """The one JSON value that a value is, of whatever kind. Don't change it: the last ones are cached.

    The cache helps because routing and every destination parse the same record one after the other.

    Raises:
        Unfit: It is none.
    """
    try:
        text = raw.decode("utf-8-sig")
        if text.count("[") + text.count("{") > MAX_DEPTH and _depth(text) > MAX_DEPTH:
            raise Unfit(f"nested deeper than {MAX_DEPTH} levels")
        return decoder.decode(text)
    except UnicodeDecodeError as error:
        raise Unfit("not UTF-8") from error
    except json.JSONDecodeError as error:
        raise Unfit("not one JSON document") from error


def _depth(text: str) -> int:
    return max(accumulate(_STEP.get(part, 0) for part in _BRACKETS.findall(text)), default=0)


def folded_fields(fields: dict[str, Any], names: Collection[str], *, once: bool) -> dict[str, Any]:
    """The named fields, whatever their case. Of fields that differ in case only, the last one counts. Names must be
    case-folded. With `once`, two fields that differ in case only make the value unfit.
    """
    matches: dict[str, Any] = {}
    for name, item in fields.items():
        if (folded := name.casefold()) in names:
            if once and folded in matches:
                raise Unfit("a field is named twice, but for its case")
            matches[folded] = item
    return matches


def compact(value: Any) -> str:
    """JSON without blanks, numbers as they were sent."""
    parts: list[str] = []
    _write(value, parts)
    return "".join(parts)


def storable(value: Any) -> str:
    """The same, with lone surrogates as escapes, so that a table can store it."""
    text = compact(value)
    return text if text.isascii() else _HALF.sub(lambda half: json.dumps(half[0])[1:-1], text)


def _write(value: Any, parts: list[str]) -> None:
    if isinstance(value, dict):
        for index, (key, item) in enumerate(value.items()):
            parts += ["," if index else "{", json.dumps(key, ensure_ascii=False), ":"]
            _write(item, parts)
        parts.append("}" if value else "{}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            parts.append("," if index else "[")
            _write(item, parts)
        parts.append("]" if value else "[]")
    else:
        parts.append(value if isinstance(value, NumberText) else json.dumps(value, ensure_ascii=False))
