"""Converts dates and times, sent as texts or numbers, to the integers that Arrow stores, exactly.

Texts are `YYYY-MM-DD`, `HH:MM[:SS[.fraction]]`, or both joined by `T` or a blank, with zone `Z`, `+HH`, `+HHMM`, `+HH:MM` (or minus)
or none: RFC 3339 plus what java.time and SQL databases print. A date or a time of day alone may say that it is in UTC, which is
how both are stored: a date by `Z` (Java's ISO_OFFSET_DATE), a time by `Z` or an offset of zero (RFC 3339's full-time). Years are
0001 to 9999. Digits beyond microseconds must be zero, unless they are truncated (`sub_micros: truncate`). A leap second (`:60`) is
refused: no table can hold it.

Numbers are taken where a column declares their unit. They count in the proleptic Gregorian calendar with days of 86,400 seconds,
as Unix time does.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from typing import Final

from frazil.records.model.dead_letter import DeadCode, Rejection
from frazil.records.model.json_number import Number, describe, exact_value

SECOND: Final = 1_000_000
DAY: Final = 86_400 * SECOND
_EPOCH: Final = date(1970, 1, 1).toordinal()
FIRST: Final = (date.min.toordinal() - _EPOCH) * DAY
END: Final = (date.max.toordinal() - _EPOCH + 1) * DAY
"""The first timestamp of a table, and the first one that is too late for it: years 1 to 9999."""

_DATE: Final = r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
_TIME: Final = r"([01][0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9])(?:\.([0-9]+))?)?"
_ZONE: Final = r"([Zz]|[+-](?:[01][0-9]|2[0-3])(?::?[0-5][0-9])?)?"
_DATES: Final = re.compile(f"{_DATE}[Zz]?")
_TIMES: Final = re.compile(f"{_TIME}(?:[Zz]|[+-]00(?::?00)?)?")
_TIMESTAMPS: Final = re.compile(f"{_DATE}[Tt ]{_TIME}{_ZONE}")
_ZONED: Final = re.compile(r"(?:[Zz]|[+-][0-9:]+)$")

SUB_MICROS: Final = r"(\.[0-9]{6})[0-9]+"
"""A fraction of more than six digits; its first group ends at the microseconds."""

_SUB_MICROS: Final = re.compile(SUB_MICROS)

SHIFTS: Final = {"s": 6, "ms": 3, "us": 0, "ns": -3}
"""Unit -> its microseconds, as the exponent of a power of ten."""


def read_truncated(read: Callable[[str], int], text: str) -> int:
    """Return what `read` makes of a time that is truncated to microseconds."""
    return read(_SUB_MICROS.sub(r"\1", text, count=1))


def days(text: str) -> int:
    """Return the days since 1970-01-01 of a text `YYYY-MM-DD[Z]`.

    Raises:
        Rejection: INVALID_TIME.
    """
    match = _DATES.fullmatch(text)
    if match is None:
        raise _invalid("a date as YYYY-MM-DD", text)
    return _days(*match.groups(), text=text)


def time_micros(text: str) -> int:
    """Return the microseconds since midnight of a text `HH:MM[:SS[.fraction]]`, which may say that it is in UTC.

    Raises:
        Rejection: INVALID_TIME, or LOSSY_CAST for non-zero nanoseconds.
    """
    match = _TIMES.fullmatch(text)
    if match is None:
        raise _invalid("a time as HH:MM:SS[.ffffff], without zone or in UTC", text)
    return _micros(*match.groups(default="0"), text=text)


def wall_micros(text: str) -> int:
    """Return the microseconds since 1970-01-01T00:00 of the wall clock that `text` shows.

    A zone is dropped, as Kafka Connect's Iceberg sink does for columns without zone.

    Raises:
        Rejection: INVALID_TIME, or LOSSY_CAST for non-zero nanoseconds.
    """
    return _timestamp(text)[0]


def local_micros(text: str) -> int:
    """Return the microseconds since 1970-01-01T00:00 of the wall clock that `text` shows, which must have no zone.

    Raises:
        Rejection: INVALID_TIME, or LOSSY_CAST for non-zero nanoseconds.
    """
    micros, _ = _timestamp(text)
    if _ZONED.search(text):
        raise _invalid("a timestamp without zone", text)
    return micros


def epoch_micros(shift: int, number: Number, *, truncates: bool = False) -> int:
    """Return the microseconds since 1970-01-01T00:00 of a number that counts units of 10^`shift` microseconds.

    With `truncates` the result is the last whole microsecond.

    Raises:
        Rejection: OUT_OF_RANGE outside years 1 to 9999, LOSSY_CAST for parts of a microsecond.
    """
    return _count_micros(shift, number, (FIRST, END, "years 0001 to 9999"), truncates)


def clock_micros(shift: int, number: Number, *, truncates: bool = False) -> int:
    """Return the microseconds since midnight of a number that counts units of 10^`shift` microseconds.

    Raises:
        Rejection: OUT_OF_RANGE outside the day, LOSSY_CAST for parts of a microsecond.
    """
    return _count_micros(shift, number, (0, DAY, "a time of day"), truncates)


def _count_micros(shift: int, number: Number, bounds: tuple[int, int, str], truncates: bool) -> int:  # noqa: FBT001 - from above
    first, end, expected = bounds
    exact = exact_value(number)
    exponent = exact.exponent + shift
    if exact.digits and len(exact.digits) + exponent > len(str(END)):
        raise Rejection(DeadCode.OUT_OF_RANGE, f"expected {expected}, found {describe(number)}")
    if exact.digits and exponent < 0:
        if not truncates:
            raise Rejection(DeadCode.LOSSY_CAST, f"expected at most microseconds, found {describe(number)}")
        whole = int(exact.digits[:exponent] or "0")
        micros = -whole - 1 if exact.negative else whole
    else:
        micros = replace(exact, exponent=exponent if exact.digits else 0).integer()
    if not first <= micros < end:
        raise Rejection(DeadCode.OUT_OF_RANGE, f"expected {expected}, found {describe(number)}")
    return micros


def utc_micros(text: str) -> int:
    """Return the microseconds since 1970-01-01T00:00Z of the instant that `text` names; without zone it is in UTC.

    Raises:
        Rejection: INVALID_TIME, LOSSY_CAST for non-zero nanoseconds, OUT_OF_RANGE outside years 1 to 9999 in UTC.
    """
    wall, offset = _timestamp(text)
    instant = wall - offset
    if not FIRST <= instant < END:
        raise Rejection(DeadCode.OUT_OF_RANGE, f"expected years 0001 to 9999 in UTC, found {describe(text)}")
    return instant


def _timestamp(text: str) -> tuple[int, int]:
    match = _TIMESTAMPS.fullmatch(text)
    if match is None:
        raise _invalid("a timestamp as YYYY-MM-DD HH:MM:SS[.ffffff][zone]", text)
    year, month, day, hour, minute, second, fraction, zone = match.groups(default="0")
    wall = _days(year, month, day, text=text) * DAY + _micros(hour, minute, second, fraction, text=text)
    return wall, _offset(zone)


def _days(year: str, month: str, day: str, *, text: str) -> int:
    try:
        return date(int(year), int(month), int(day)).toordinal() - _EPOCH
    except ValueError as e:
        raise _invalid(f"a day of the calendar ({e})", text) from e


def _micros(hour: str, minute: str, second: str, fraction: str, *, text: str) -> int:
    if fraction[6:].strip("0"):
        raise Rejection(DeadCode.LOSSY_CAST, f"expected at most microseconds, found {describe(text)}")
    seconds = int(hour) * 3600 + int(minute) * 60 + int(second)
    return seconds * SECOND + int(fraction[:6].ljust(6, "0"))


def _offset(zone: str) -> int:
    if zone in "Zz0":
        return 0
    digits = zone[1:].replace(":", "").ljust(4, "0")
    micros = (int(digits[:2]) * 60 + int(digits[2:])) * 60 * SECOND
    return -micros if zone[0] == "-" else micros


def _invalid(expected: str, text: str) -> Rejection:
    return Rejection(DeadCode.INVALID_TIME, f"expected {expected}, found {describe(text)}")
