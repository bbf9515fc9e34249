"""How long records of a pipeline may wait: as its file promises, else by its interval."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from frazil.monitor.state import Promise
from frazil.pipeline.interval import Interval
from frazil.pipeline.maintenance import parse_age
from frazil.pipeline.model import Pipeline

INTERVALS: Final = 3
"""One to wait for the next run, one for the run itself, and one may fail and be made up for."""

LEAST: Final = timedelta(minutes=10)

_HOUR, _DAY = timedelta(hours=1), timedelta(days=1)
_MACROS: Final = {
    "@hourly": _HOUR,
    "@daily": _DAY,
    "@weekly": 7 * _DAY,
    "@monthly": 31 * _DAY,
    "@yearly": 366 * _DAY,
}


def promise_of(pipeline: Pipeline) -> Promise:
    """What its file promises (`alerts.fresh_within`); without, three intervals, at least ten minutes. Of a cron expression the
    longest time between two runs counts as interval.
    """
    alerts = pipeline.alerts
    if alerts is not False and alerts.fresh_within is not None:
        return Promise(parse_age(alerts.fresh_within).total_seconds())
    return Promise(max(LEAST, INTERVALS * longest_gap(pipeline.every)).total_seconds())


def longest_gap(interval: Interval) -> timedelta:
    """No two runs are farther apart than this."""
    if interval.every is not None:
        return interval.every
    cron = interval.cron or "@daily"
    if cron in _MACROS:
        return _MACROS[cron]
    minute, hour, day, month, weekday = cron.split()
    if month != "*" or "#" in weekday:
        return 366 * _DAY if month != "*" else 35 * _DAY
    if weekday != "*" or day != "*":
        return 7 * _DAY if weekday != "*" else 62 * _DAY  # a day 31 may be two months away
    return _step(minute, timedelta(minutes=1)) or _HOUR if hour == "*" else _step(hour, _HOUR) or _DAY


def _step(text: str, unit: timedelta) -> timedelta | None:
    """Of `*` and `*/k`: the time between two."""
    if text == "*":
        return unit
    step = text.removeprefix("*/")
    return int(step) * unit if text.startswith("*/") and step.isdecimal() else None
