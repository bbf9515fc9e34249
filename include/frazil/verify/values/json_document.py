"""The bytes of a value as one JSON document, its names, its numbers exactly as written, and JSON text of a part of it."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, InvalidOperation, Overflow, Underflow
from functools import lru_cache
from itertools import accumulate
from math import isinf
from struct import Struct
from typing import Any, NoReturn


class Unfit(ValueError):
    """A value can't become its column's type, so its record is a dead letter."""


class Misfit(Unfit):
    """One of another kind, range or precision: a column that nobody declared is null then, and its record a row."""


class Figure(str):
    """The text of a JSON number: which digits count is known only with the column."""

    __slots__ = ()


def figure(value: Any) -> Figure:
    """The value, which must be a number."""
    if type(value) is not Figure:
        raise Misfit("not a number")
    return value


_SHORT = 18
"""Digits, sign included, that surely are a whole number of 64 bits."""


def whole(value: Any, bits: int) -> int:
    """A whole number of so many bits; 1.0 and 1e2 are whole."""
    text = figure(value)
    number = int(text) if len(text) <= _SHORT and text.removeprefix("-").isdecimal() else scaled(text, 20, 0)
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise Misfit("out of range")
    return number


def scaled(text: str, precision: int, scale: int) -> int:
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
    number = float(figure(value))
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
    found: float = _FLOAT.unpack(packed)[0]
    return found


_POWERS = {"s": 6, "ms": 3, "us": 0, "ns": -3}
"""Unit -> how many powers of ten it is above a microsecond."""

_DIGITS = 18
"""Of the microseconds until the year 10000."""


def counted(text: str, unit: str, first: int, last: int) -> int:
    """Microseconds that a number of units stands for, from `first` to `last`."""
    micros = scaled(text, _DIGITS, _POWERS[unit])
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


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise Unfit("a field is named twice")
    return found


def _latest(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The fields from the last to the first, each as it was sent last; then in the order of sending again."""
    from_behind: dict[str, Any] = {}
    for name, item in reversed(pairs):
        from_behind.setdefault(name, item)
    return dict(reversed(from_behind.items()))


LAST_COUNTS = json.JSONDecoder(parse_int=Figure, parse_float=Figure, parse_constant=_refuse_constant)
"""Of fields with the same name the last one counts."""

EACH_ONCE = json.JSONDecoder(
    parse_int=Figure, parse_float=Figure, parse_constant=_refuse_constant, object_pairs_hook=_once
)
"""An object that names a field twice is unfit, at any level."""

LATEST_LAST = json.JSONDecoder(
    parse_int=Figure, parse_float=Figure, parse_constant=_refuse_constant, object_pairs_hook=_latest
)
"""Of fields with the same name the last one counts, and stands where it was sent: names that differ in case only may
come in between."""


def decoder_of(*, once: bool, any_case: bool) -> json.JSONDecoder:
    """What reads values whose fields may be named once only, or in any case."""
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
    """The one JSON value that a value is, of whatever kind. Not to be changed: the last ones are remembered.

    A record is asked for its route and for its row, of every destination, one after the other.

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


def without_case(fields: dict[str, Any], wanted: Collection[str], *, once: bool) -> dict[str, Any]:
    """The wanted fields, whatever their case. Of those that differ in case only the last one counts.

    Args:
        fields: An object.
        wanted: Names of fields, case-folded.
        once: Whether two of the same name, but for its case, are unfit.
    """
    found: dict[str, Any] = {}
    for name, item in fields.items():
        if (folded := name.casefold()) in wanted:
            if once and folded in found:
                raise Unfit("a field is named twice, but for its case")
            found[folded] = item
    return found


def compact(value: Any) -> str:
    """JSON without blanks, numbers as they were sent."""
    parts: list[str] = []
    _write(value, parts)
    return "".join(parts)


def storable(value: Any) -> str:
    """The same, with halves of surrogate pairs as escapes, which a table can store."""
    text = compact(value)
    return text if text.isascii() else _HALF.sub(lambda half: json.dumps(half[0])[1:-1], text)


def _write(value: Any, parts: list[str]) -> None:
    if isinstance(value, dict):
        for at, (key, item) in enumerate(value.items()):
            parts += ["," if at else "{", json.dumps(key, ensure_ascii=False), ":"]
            _write(item, parts)
        parts.append("}" if value else "{}")
    elif isinstance(value, list):
        for at, item in enumerate(value):
            parts.append("," if at else "[")
            _write(item, parts)
        parts.append("]" if value else "[]")
    else:
        parts.append(value if isinstance(value, Figure) else json.dumps(value, ensure_ascii=False))
