"""The commit interval of a pipeline: a duration such as ``5m`` or a cron expression such as ``*/10 * * * *``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta

from croniter import croniter

SHORTEST = timedelta(minutes=1)
"""Airflow schedules on whole minutes; a shorter interval would only be queued."""

SHORTEST_IN_SESSION = timedelta(seconds=1)
"""Between two batches of a run that stays: a batch takes about as long."""

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_DURATION = re.compile(r"(\d+)\s*([smhd])")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_CRON_FIELDS = ((0, 59, ()), (0, 23, ()), (1, 31, ("l",)), (1, 12, _MONTHS), (0, 7, _WEEKDAYS))
"""Lowest number, highest number and names of minute, hour, day of the month, month and day of the week."""
_CRON_PART = re.compile(r"(?:\*|(?P<first>\w+)(?:-(?P<last>\w+))?)(?:/[1-9]\d*|#[1-5])?")
_CRON_MACROS = ("@hourly", "@daily", "@weekly", "@monthly", "@yearly")


@dataclass(frozen=True, slots=True)
class Interval:
    """Either `every` (a duration) or `cron` is set."""

    every: timedelta | None = None
    cron: str | None = None


def parse_interval(text: str, shortest: timedelta = SHORTEST) -> Interval:
    """Parse ``90s``, ``5m``, ``1h``, ``1d`` or a cron expression of five fields.

    Raises:
        ValueError: Neither of both, shorter than the shortest one, or never due.
    """
    text = text.strip()
    if _DURATION.fullmatch(text):
        every = parse_duration(text)
        if every < shortest:
            least = "a minute" if shortest == SHORTEST else "a second"
            raise ValueError(f"{text!r} is shorter than {least}, the shortest interval")
        return Interval(every=every)
    fields = text.split()
    if text in _CRON_MACROS or (len(fields) == len(_CRON_FIELDS) and all(map(_is_cron, fields, _CRON_FIELDS))):
        # Airflow would find it only when it schedules the DAG: `1-5#2` is no weekday, the 31st of February never comes.
        if not croniter.is_valid(text, strict=True):
            raise ValueError(f"{text!r} is not a cron expression that can be scheduled")
        return Interval(cron=text)
    raise ValueError(f"{text!r} is neither a duration such as '5m' nor a cron expression such as '*/5 * * * *'")


def parse_duration(text: str) -> timedelta:
    """Parse ``10s``, ``5m``, ``1h`` or ``1d``.

    Raises:
        ValueError: It is no duration, or one beyond all calendars.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no duration such as '10s' or '5m'")
    try:
        return timedelta(**{_UNITS[match[2]]: int(match[1])})
    except OverflowError as error:
        raise ValueError(f"{text!r} is too long an interval") from error


def _is_cron(field: str, known: tuple[int, int, tuple[str, ...]]) -> bool:
    lowest, highest, names = known
    parts = [_CRON_PART.fullmatch(part) for part in field.lower().split(",")]
    words = [word for part in parts if part for word in part.group("first", "last") if word]
    return all(parts) and all(word in names or (word.isdecimal() and lowest <= int(word) <= highest) for word in words)
