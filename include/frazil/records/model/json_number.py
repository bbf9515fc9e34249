"""JSON numbers with every digit: a number stays the text that was sent until its column is known. And JSON values as text, and
described in messages.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from json.encoder import encode_basestring
from math import isfinite
from typing import TYPE_CHECKING, Final

from frazil.records import np, pa

if TYPE_CHECKING:
    import numpy.typing as npt


class Number(str):
    """The text of a JSON number; a JSON string is a plain `str`.

    Keeping the text costs nothing and loses nothing: there is no float in between and no limit on digits, and `-0` stays `-0`.
    """

    __slots__ = ()


_PLAIN: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


def number_in(text: str) -> Number | None:
    """Return a text as a number; None if it is not one in JSON's grammar."""
    return Number(text) if _PLAIN.fullmatch(text) else None


_GRAMMAR: Final = re.compile(r"(-?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?")

SURE_DIGITS: Final = 15
"""A double keeps any number of so many digits, or fewer."""

_DOUBLE_DIGITS: Final = 17
"""So many digits distinguish any two doubles: programs write doubles with no more."""

_MOST_DOUBLE_DIGITS: Final = 800
"""More digits than the exact value of any double has."""

_LEAST_NORMAL: Final = 2.2250738585072014e-308


def double_holds(number: Number, double: float) -> bool:
    """Return whether `double`, the finite double nearest to a number, keeps all its digits.

    A whole number is kept exactly or not at all. A fraction of up to 17 digits counts as kept by its nearest double.
    """
    if not isfinite(double):
        return False
    if len(number) <= SURE_DIGITS and (abs(double) >= _LEAST_NORMAL or not number.strip("-.0")):
        return True
    exact = exact_value(number)
    if not exact.digits:
        return True
    digits = len(exact.digits)
    if exact.exponent >= 0:  # zeros at the end of a whole number count as digits
        digits = len(number.lower().partition("e")[0].lstrip("-").replace(".", "").lstrip("0"))
    elif digits <= _DOUBLE_DIGITS and abs(double) >= _LEAST_NORMAL:
        return True
    return exact_value(Number(f"{double:.{min(digits, _MOST_DOUBLE_DIGITS) - 1}e}")) == exact


def _sure_double() -> str:
    """Return an expression for numbers that a double surely holds: up to 17 digits, and up to 15 of them before the point."""
    rest = r"(?:\.[0-9]{1,2})?"
    for digits in range(14, 0, -1):
        rest = rf"(?:\.[0-9]{{1,{17 - digits}}}|[0-9]{rest})?"
    scientific = r"[0-9](?:\.[0-9]{1,14})?[eE][-+]?[0-9]{1,2}|[0-9](?:\.[0-9]{1,16})?[eE]-[0-9]{1,2}"
    return rf"-?(?:0(?:\.0{{0,20}}[0-9]{{1,17}})?|[1-9]{rest}|{scientific})"


SURE_DOUBLE: Final = _sure_double()
"""A regular expression that matches only numbers that a double holds, but not all of them."""

_MINUS: Final = ord("-")
_ZERO: Final = ord("0")
_EXPONENT: Final = ord("e")
_LOWER_CASE: Final = 0x20
"""The bit that makes a capital letter a small one."""

_STRIDE: Final = 8
_OFFSETS_BETWEEN: Final = (4, 2, 6, 1, 3, 5, 7)
"""Offsets between two places with a distance of `_STRIDE`, in an order that soon finds texts without long numbers."""

_PLACES_AT_ONCE: Final = 4_096
_TINY: Final = re.compile(rb"[:,\[ \t\r\n]-?[0-9.]+[eE]-[0-9]{3}")
"""Finds a number with an exponent below -99. In a string it is rare: an id such as `12e-4567` follows a quote or a letter."""

EXPONENT_LIMIT: Final = 10**18
"""Larger exponents count as this one: it is far beyond every type's range, and sums of exponents stay small integers."""

_EXPONENT_DIGITS: Final = 18


@dataclass(frozen=True, slots=True)
class ExactNumber:
    """A number's exact value: `digits` x 10^`exponent`.

    `digits` has no leading or trailing zeros, and is empty for zero. So 1.0, 10e-1 and 1 are equal, and a value is an integer if
    and only if its exponent is not negative.
    """

    negative: bool
    digits: str
    exponent: int

    @property
    def magnitude(self) -> int:
        """The number of digits before the decimal point; zero or less for numbers below 1."""
        return len(self.digits) + self.exponent

    def integer(self) -> int:
        """Return the value as an integer. The caller checked that it is one, and its magnitude."""
        value = int((self.digits or "0") + "0" * self.exponent)
        return -value if self.negative else value

    def decimal(self) -> Decimal:
        """Return the value as a decimal. The caller checked its magnitude."""
        return Decimal(f"{'-' if self.negative else ''}{self.digits or '0'}E{self.exponent}")


def exact_value(number: Number) -> ExactNumber:
    """Return a number's exact value, in time linear in its text, whatever its exponent."""
    match = _GRAMMAR.fullmatch(number)
    if match is None:
        raise ValueError(f"not a JSON number: {number[:40]!r}")
    sign, whole, fraction, exponent = match.groups(default="")
    digits = (whole + fraction).lstrip("0")
    significant = digits.rstrip("0")
    if not significant:
        return ExactNumber(negative=bool(sign), digits="", exponent=0)
    shift = len(digits) - len(significant) - len(fraction)
    return ExactNumber(negative=bool(sign), digits=significant, exponent=_exponent(exponent) + shift)


def _exponent(text: str) -> int:
    digits = text.lstrip("+-").lstrip("0")
    size = int(digits or "0") if len(digits) <= _EXPONENT_DIGITS else EXPONENT_LIMIT
    return -size if text.startswith("-") else size


@cache
def _digits() -> npt.NDArray[np.bool_]:
    """Return, per byte, whether it is a digit or the decimal point."""
    return np.isin(np.arange(256), list(b"0123456789."))


def may_exceed_double(texts: pa.StringArray) -> bool:
    """Return whether JSON texts may have a number that changes if it is read as a double.

    Such a number has 16 or more bytes of digits, or an exponent below -99, or it is -0, which loses its sign as a whole number.
    """
    _, offsets, data = texts.buffers()
    first, last = np.frombuffer(offsets, np.int32)[[texts.offset, texts.offset + len(texts)]]
    buffer = np.frombuffer(data, np.uint8)[first:last] if last > first else np.zeros(0, np.uint8)
    # Any 16 bytes contain 9 that begin and end at a multiple of 8. So only where these 9 are digits, the bytes around are read.
    digits = _digits()
    sparse = digits.take(buffer[::_STRIDE])
    places = np.flatnonzero(sparse[:-1] & sparse[1:]) * _STRIDE
    for offset in _OFFSETS_BETWEEN:
        places = places[digits[buffer[places + offset]]]
    for low in range(0, len(places), _PLACES_AT_ONCE):
        chunk = places[low : low + _PLACES_AT_ONCE]
        if (_STRIDE + 1 + _digit_runs(buffer, chunk, -1) + _digit_runs(buffer, chunk + _STRIDE, 1) > SURE_DIGITS).any():
            return True
    minus = np.flatnonzero(buffer[:-2] == _MINUS)
    zeros = minus[buffer[minus + 1] == _ZERO]
    if not (digits[buffer[zeros + 2]] | (buffer[zeros + 2] | _LOWER_CASE == _EXPONENT)).all():
        return True
    signs = minus[(minus > 0) & (minus < len(buffer) - 3)]
    signs = signs[buffer[signs - 1] | _LOWER_CASE == _EXPONENT]
    for place in (1, 2, 3):
        signs = signs[digits[buffer[signs + place]]]
    return any(_TINY.search(buffer[max(0, sign - 2 * _STRIDE - 4) : sign + 4].tobytes()) for sign in signs.tolist())


def _digit_runs(buffer: npt.NDArray[np.uint8], places: npt.NDArray[np.int64], direction: int) -> npt.NDArray[np.int64]:
    """Return, for each place, how many digits follow on its left (-1) or right (1) without a gap; at most 7."""
    sizes = np.zeros(len(places), np.int64)
    continues, digits = np.ones(len(places), np.bool_), _digits()
    for distance in range(1, _STRIDE):
        continues &= digits[buffer[np.clip(places + direction * distance, 0, len(buffer) - 1)]]
        if not continues.any():
            break
        sizes += continues
    return sizes


JsonValue = bool | Number | str | list["JsonValue"] | dict[str, "JsonValue"] | None
JsonObject = dict[str, JsonValue]

_HALVES: Final = re.compile(r"[\ud800-\udfff]")

SHOWN_CHARACTERS: Final = 80
"""Most characters of a value that a message shows: enough to recognise it, too few to copy a payload into a log."""


def compact(value: JsonValue) -> str:
    """Return a value as JSON without whitespace. Numbers keep their text."""
    parts: list[str] = []
    _write(value, parts)
    return "".join(parts)


def document(value: JsonValue) -> str:
    r"""Return a value as `compact` does, but with halves of surrogate pairs escaped, so that UTF-8 can encode it."""
    text = compact(value)
    return text if text.isascii() else _HALVES.sub(lambda half: f"\\u{ord(half[0]):04x}", text)


def _write(value: JsonValue, parts: list[str]) -> None:
    # One Python frame per level, no comprehension: MAX_DEPTH levels must fit into the recursion limit.
    if isinstance(value, dict):
        mark = "{"
        for name, item in value.items():
            parts.append(f"{mark}{encode_basestring(name)}:")
            _write(item, parts)
            mark = ","
        parts.append("}" if value else "{}")
    elif isinstance(value, list):
        mark = "["
        for item in value:
            parts.append(mark)
            _write(item, parts)
            mark = ","
        parts.append("]" if value else "[]")
    else:
        parts.append(_scalar(value))


def _scalar(value: JsonValue) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, Number) else encode_basestring(str(value))


def kind(value: JsonValue) -> str:
    """Return the kind of a JSON value: object, list, number, text, true, false or null."""
    if value is None or isinstance(value, bool):
        return _scalar(value)
    if isinstance(value, dict):
        return "object"
    if isinstance(value, list):
        return "list"
    return "number" if isinstance(value, Number) else "text"


def describe(value: JsonValue) -> str:
    """Return kind and text of a value, cut to `SHOWN_CHARACTERS`, such as `text "abc"`."""
    if value is None or isinstance(value, bool):
        return _scalar(value)
    # A long text is cut before it is quoted, so that ten megabytes cost no more than eighty characters.
    shown = value[: SHOWN_CHARACTERS + 1] if type(value) is str else value
    text = compact(shown)
    cut = text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"
    return f"{kind(value)} {cut}"
