"""The commit interval of a pipeline as an Airflow timetable: contiguous data intervals, in UTC."""

from __future__ import annotations

from datetime import timedelta

from frazil.pipeline.syntax.interval import Interval
from frazil_airflow.compat import CronDataIntervalTimetable, DeltaDataIntervalTimetable

_HOUR_MINUTES = 60
_DAY_HOURS = 24


def timetable(interval: Interval) -> CronDataIntervalTimetable | DeltaDataIntervalTimetable:
    """Return the timetable of an interval.

    A duration that divides the hour or the day ticks on the clock (5m: :00, :05 …), also after the interval was
    changed. Any other duration, such as 7m, counts on from 1970-01-01 00:00 UTC, and after a change from the last run.
    """
    if interval.every is None:
        return CronDataIntervalTimetable(str(interval.cron), timezone="UTC")
    expression = cron_of(interval.every)
    if expression is not None:
        return CronDataIntervalTimetable(expression, timezone="UTC")
    return DeltaDataIntervalTimetable(interval.every)


def cron_of(interval: timedelta) -> str | None:
    """Return the cron expression that ticks at the same distances; None if none does."""
    minutes, remainder = divmod(interval, timedelta(minutes=1))
    if remainder:
        return None
    if minutes < _HOUR_MINUTES:
        return f"{_step(minutes)} * * * *" if _HOUR_MINUTES % minutes == 0 else None
    hours, rest_minutes = divmod(minutes, _HOUR_MINUTES)
    if rest_minutes or hours > _DAY_HOURS or _DAY_HOURS % hours:
        return None
    return "0 0 * * *" if hours == _DAY_HOURS else f"0 {_step(hours)} * * *"


def _step(count: int) -> str:
    return "*" if count == 1 else f"*/{count}"
