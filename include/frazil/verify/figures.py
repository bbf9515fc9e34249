"""JSON numbers as what a column stores: exact, however they are written."""

from __future__ import annotations

from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, InvalidOperation, Overflow, Underflow
from math import isinf
from struct import Struct
from typing import Any


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
