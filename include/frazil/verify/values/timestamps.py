"""Texts of dates and times as the integers that tables store.

The forms are those the pipeline reference promises: `YYYY-MM-DD`, `HH:MM[:SS[.fraction]]`, both joined by `T` or a
blank, and a zone `Z`, `+HH`, `+HHMM` or `+HH:MM`; alone, a date or a time may be in UTC only. Tables hold microseconds, so a finer fraction must end in zeros.
"""

from __future__ import annotations

import re
from datetime import date, datetime, time, timedelta

_CLOCK = r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2})(?:\.(?P<fraction>[0-9]+))?)?"
_ZONE = r"(?:(?P<utc>[Zz])|(?P<sign>[+-])(?P<zone_hour>[0-9]{2})(?::?(?P<zone_minute>[0-9]{2}))?)?"
_DAY_FORM = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_CLOCK_FORM = re.compile(_CLOCK + _ZONE)
_MOMENT_FORM = re.compile(rf"(?P<day>{_DAY_FORM.pattern})[Tt ]{_CLOCK}{_ZONE}")

_MICROSECOND = timedelta(microseconds=1)
_SECOND = 1_000_000
_LAST_HOUR, _LAST_MINUTE = 23, 59

BOUNDS = (
    (datetime.min - datetime(1970, 1, 1)) // _MICROSECOND,  # noqa: DTZ001, DTZ901 - wall clocks have no zone
    (datetime.max - datetime(1970, 1, 1)) // _MICROSECOND,  # noqa: DTZ001, DTZ901
)
"""The first and the last microsecond of years 1 to 9999."""

ORC_BOUNDS = (-(2**63 // 1000 - 1), 2**63 // 1000 - 1)
"""The first and the last microsecond that nanoseconds count, as ORC files are read."""

DAY_BOUNDS = (0, timedelta(days=1) // _MICROSECOND - 1)
"""The first and the last microsecond of a day."""


def is_lost_in_orc(micros: int) -> bool:
    """Whether ORC files would give back another instant: they have no sign for the second before 1970."""
    first, last = ORC_BOUNDS
    return -_SECOND < micros < 0 or not first <= micros <= last


def day_number(text: str) -> int:
    """Days since 1970-01-01.

    Raises:
        ValueError: The text is no date of that form.
    """
    day = text[:-1] if text.endswith(("Z", "z")) else text
    if not _DAY_FORM.fullmatch(day):
        raise ValueError("not a date")
    return (date.fromisoformat(day) - date(1970, 1, 1)).days


def clock_micros(text: str) -> int:
    """Microseconds since midnight.

    Raises:
        ValueError: The text is no time of that form, or finer than microseconds.
    """
    match = _CLOCK_FORM.fullmatch(text)
    if match is None or _ahead(match):
        raise ValueError("not a time")
    moment = datetime.combine(date.min, _clock(match))
    return (moment - datetime.min) // _MICROSECOND  # noqa: DTZ901 - wall clocks have no zone


def wall_micros(text: str) -> int:
    """Microseconds from 1970-01-01T00:00 to the local time in a text, ignoring its zone.

    Raises:
        ValueError: The text is no timestamp of that form, or finer than microseconds.
    """
    wall, _ = _moment(text)
    return (wall - datetime(1970, 1, 1)) // _MICROSECOND  # noqa: DTZ001 - wall clocks have no zone


def unzoned_micros(text: str) -> int:
    """The same for a text that must have no zone.

    Raises:
        ValueError: The text is no timestamp of that form, has a zone, or is finer than microseconds.
    """
    match = _MOMENT_FORM.fullmatch(text)
    if match is not None and (match["utc"] or match["sign"]):
        raise ValueError("a timestamp with a zone")
    return wall_micros(text)


def instant_micros(text: str) -> int:
    """Microseconds from 1970-01-01T00:00Z to an instant; without a zone it is in UTC.

    Raises:
        ValueError: The text is no timestamp of that form, finer than microseconds, or not in years 1 to 9999.
    """
    wall, ahead = _moment(text)
    try:
        utc = wall - ahead
    except OverflowError as error:
        raise ValueError("not in years 1 to 9999") from error
    return (utc - datetime(1970, 1, 1)) // _MICROSECOND  # noqa: DTZ001 - the zone was taken off


def _moment(text: str) -> tuple[datetime, timedelta]:
    match = _MOMENT_FORM.fullmatch(text)
    if match is None:
        raise ValueError("not a timestamp")
    return datetime.combine(date.fromisoformat(match["day"]), _clock(match)), _ahead(match)


def _clock(match: re.Match[str]) -> time:
    fraction = (match["fraction"] or "").ljust(6, "0")
    if fraction[6:].strip("0"):
        raise ValueError("finer than microseconds")
    return time(int(match["hour"]), int(match["minute"]), int(match["second"] or 0), int(fraction[:6]))


def _ahead(match: re.Match[str]) -> timedelta:
    """How far the zone is ahead of UTC."""
    if match["sign"] is None:
        return timedelta()
    hours, minutes = int(match["zone_hour"]), int(match["zone_minute"] or 0)
    if hours > _LAST_HOUR or minutes > _LAST_MINUTE:
        raise ValueError("not a zone")
    ahead = timedelta(hours=hours, minutes=minutes)
    return -ahead if match["sign"] == "-" else ahead
