"""The commit interval of a pipeline: a duration such as ``5m`` or a cron expression such as ``*/10 * * * *``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta

SHORTEST = timedelta(minutes=1)
"""Airflow schedules on whole minutes; a shorter interval would only be queued."""

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_DURATION = re.compile(r"(\d+)\s*([smhd])")
_CRON_FIELD = re.compile(r"[\d*/,\-A-Za-z#L?]+")
_CRON_FIELDS = 5
_CRON_MACROS = ("@hourly", "@daily", "@weekly", "@monthly", "@yearly")


@dataclass(frozen=True, slots=True)
class Interval:
    """Either `every` (a duration) or `cron` is set."""

    every: timedelta | None = None
    cron: str | None = None


def parse_interval(text: str) -> Interval:
    """Parse ``90s``, ``5m``, ``1h``, ``1d`` or a cron expression of five fields.

    Raises:
        ValueError: Neither of both, or shorter than a minute.
    """
    text = text.strip()
    if match := _DURATION.fullmatch(text):
        every = timedelta(**{_UNITS[match[2]]: int(match[1])})
        if every < SHORTEST:
            raise ValueError(f"{text!r} is shorter than a minute, the shortest interval")
        return Interval(every=every)
    fields = text.split()
    if text in _CRON_MACROS or (len(fields) == _CRON_FIELDS and all(map(_CRON_FIELD.fullmatch, fields))):
        return Interval(cron=text)
    raise ValueError(f"{text!r} is neither a duration such as '5m' nor a cron expression such as '*/5 * * * *'")
