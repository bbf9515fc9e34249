"""Parses the bytes of a value as one JSON document with numbers exactly as written, and writes parts of it as JSON text."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from datetime import UTC, datetime
from decimal import MAX_EMAX, MIN_EMIN, ROUND_FLOOR, Context, Decimal, InvalidOperation, Overflow, Underflow
from functools import lru_cache, partial
from itertools import accumulate
from math import isinf
from struct import Struct
from typing import Any, NoReturn

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Unfit(ValueError):
    """A value can't become its column's type, so its record is a dead letter."""


class Misfit(Unfit):
    """A value of another kind, range or precision: in an undeclared column it becomes null, and the record still a row."""


class NumberText(str):
    """The text of a JSON number: which digits count is known only with the column."""

    __slots__ = ()


def number_text(value: Any) -> NumberText:
    """The value, which must be a number."""
    if type(value) is not NumberText:
        raise Misfit("not a number")
    return value


_SHORT = 18
"""Most characters, sign included, of a number that surely fits 64 bits, for a fast path."""


def integer(value: Any, bits: int) -> int:
    """A whole number of so many bits; 1.0 and 1e2 are whole."""
    text = number_text(value)
    number = int(text) if len(text) <= _SHORT and text.removeprefix("-").isdecimal() else scaled_integer(text, 20, 0)
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise Misfit("out of range")
    return number


def scaled_integer(text: str, precision: int, scale: int) -> int:
    """The exact value times 10^scale, which must be whole and of at most `precision` digits. A negative scale divides."""
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
    """The nearest double, if it keeps all digits that were written. A fraction of up to 17 digits may lose some."""
    number = _nearest(value)
    if len(value) > _SURE_DIGITS or abs(number) < _LEAST_NORMAL:
        _check_digits(value, number)
    return number


def _nearest(value: Any) -> float:
    number = float(number_text(value))
    if isinf(number):
        raise Misfit("out of range")
    return number


_SURE_DIGITS = 15
"""Decimal digits that every double keeps."""

_DOUBLE_DIGITS = 17
"""Decimal digits that tell each double from its neighbours."""

_EXACT_DIGITS = 800
"""More significant digits than the exact value of any double has."""

_LEAST_NORMAL = 2.0**-1022
"""Smallest double with full precision."""


def _check_digits(text: str, number: float) -> None:
    written = text.lower().partition("e")[0].replace(".", "").removeprefix("-").lstrip("0")
    if not written:
        return
    if not number:
        raise Misfit("below the least double")
    exact = Decimal(text)
    if exact != exact.to_integral_value():
        written = written.rstrip("0")
        if len(written) <= _DOUBLE_DIGITS and abs(number) >= _LEAST_NORMAL:
            return
    if Decimal(f"{number:.{min(len(written), _EXACT_DIGITS) - 1}e}") != exact:
        raise Misfit("more digits than a double holds")


_FLOAT = Struct("<f")


def single(value: Any) -> float:
    """The float nearest to the nearest double of a number."""
    try:
        packed = _FLOAT.pack(_nearest(value))
    except OverflowError as error:
        raise Misfit("out of range") from error
    number: float = _FLOAT.unpack(packed)[0]
    return number


_POWERS = {"s": 6, "ms": 3, "us": 0, "ns": -3}
"""Unit -> its size in microseconds, as a power of ten."""

_DIGITS = 18
"""Digits of the number of microseconds until the year 10000."""


def micros_of_units(text: str, unit: str, first: int, last: int, *, truncates: bool = False) -> int:
    """A number of units in microseconds, which must lie between `first` and `last`; with `truncates` rounded down."""
    if truncates and Decimal(text).adjusted() < _DIGITS:
        text, unit = f"{Decimal(text).scaleb(_POWERS[unit]).to_integral_value(ROUND_FLOOR):f}", "us"
    micros = scaled_integer(text, _DIGITS, _POWERS[unit])
    if not first <= micros <= last:
        raise Misfit("out of range")
    return micros


MAX_DEPTH = 50
"""Deepest nesting of a value; a deeper one is a dead letter TOO_DEEP."""

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
    latest_first: dict[str, Any] = {}
    for name, item in reversed(pairs):
        latest_first.setdefault(name, item)
    return dict(reversed(latest_first.items()))


_json_decoder = partial(json.JSONDecoder, parse_int=NumberText, parse_float=NumberText, parse_constant=_refuse_constant)

LAST_COUNTS = _json_decoder()
"""Of fields with the same name the last one counts."""

EACH_ONCE = _json_decoder(object_pairs_hook=_require_unique_names)
"""An object that has a field twice is unfit, at any level."""

LATEST_LAST = _json_decoder(object_pairs_hook=_keep_latest)
"""Of fields with the same name the last one counts, at its own place: a field whose name differs in case may follow the first."""


def decoder_of(*, once: bool, any_case: bool) -> json.JSONDecoder:
    """The decoder for values whose field names must be unique (`once`), or match in any case."""
    if once:
        return EACH_ONCE
    return LATEST_LAST if any_case else LAST_COUNTS


def object_of(raw: bytes, decoder: json.JSONDecoder = LAST_COUNTS) -> dict[str, Any]:
    """Parse a value as one JSON object.

    Raises:
        Unfit: The value is none.
    """
    document = document_of(raw, decoder)
    if not isinstance(document, dict):
        raise Unfit("not a JSON object")
    return document


@lru_cache(maxsize=2)
def document_of(raw: bytes, decoder: json.JSONDecoder = LAST_COUNTS) -> Any:
    """Parse a value as one JSON document of any kind. Don't change the result: it is cached.

    The cache helps because routing and every destination parse the same record one after the other.

    Raises:
        Unfit: The value is no JSON document.
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
    """The fields whose case-folded names are among `names`, by these names. Of fields that differ in case only, the last one
    counts; with `once` they make the value unfit.
    """
    matches: dict[str, Any] = {}
    for name, item in fields.items():
        if (folded := name.casefold()) in names:
            if once and folded in matches:
                raise Unfit("a field is named twice, but for its case")
            matches[folded] = item
    return matches


def compact(value: Any) -> str:
    """The value as JSON text without blanks, with numbers as they were sent."""
    parts: list[str] = []
    _write(value, parts)
    return "".join(parts)


def storable(value: Any) -> str:
    """Like `compact`, with lone surrogates as escapes, so that a table can store the text."""
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
