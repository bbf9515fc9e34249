"""When runs of a pipeline or capture are due, and how long its records may wait."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from croniter import croniter
from croniter.croniter import CroniterError

from frazil.pipeline.models.maintenance import parse_age
from frazil.pipeline.settings.capture import Flow
from frazil.pipeline.syntax.interval import Interval

_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Span:
    """The time between two runs that contains an instant.

    Attributes:
        begin: Begin of the span.
        before: Begin of the previous span.
        length: Length of the span.
    """

    begin: datetime
    before: datetime
    length: timedelta


def last_ticks(interval: Interval, instant: datetime, count: int) -> list[datetime]:
    """The last instants up to `instant` at which a run was due, the newest first; empty if no run is ever due."""
    if interval.every is not None:
        newest = _floor(instant, interval.every)
        return [newest - number * interval.every for number in range(count)]
    try:
        # A second later, since get_prev returns earlier instants only.
        ticks = croniter(interval.cron, instant.replace(microsecond=0) + _SECOND)
        return [ticks.get_prev(datetime) for _ in range(count)]
    except CroniterError:  # such as every 31st of February
        return []


def span_at(interval: Interval, instant: datetime, least: timedelta) -> Span:
    """The span that contains an instant. If runs are closer together than `least`, or never due, spans of `least` by the clock."""
    if interval.every is None and (ticks := last_ticks(interval, instant, 2)):
        begin, before = ticks
        length = croniter(interval.cron, begin).get_next(datetime) - begin
        if length >= least:
            return Span(begin, before, length)
    length = max(least, interval.every or least)
    begin = _floor(instant, length)
    return Span(begin, begin - length, length)


def _floor(instant: datetime, step: timedelta) -> datetime:
    since = instant - datetime(1970, 1, 1, tzinfo=UTC)
    return instant - since % step


INTERVALS: Final = 3
"""Intervals that a record may wait: one until the next run, one for that run, and one more if that run fails."""

LEAST: Final = timedelta(minutes=10)
"""The shortest objective without `fresh_within`."""


def freshness_objective(pipeline: Flow, instant: datetime) -> float | None:
    """Seconds that a record may wait: `alerts.fresh_within` of the file, or else three intervals, at least ten minutes.

    With a cron expression: the time since the third last run was due, so a night without runs is no delay. None: no run is
    ever due.
    """
    alerts = pipeline.alerts
    if alerts is not False and alerts.fresh_within is not None:
        return parse_age(alerts.fresh_within).total_seconds()
    interval = pipeline.every
    if interval.every is not None:
        return max(LEAST, INTERVALS * interval.every).total_seconds()
    ticks = last_ticks(interval, instant, INTERVALS)
    return max(LEAST, instant - ticks[-1]).total_seconds() if ticks else None
