"""When runs of a pipeline are due, and how long its records may wait: by its file's freshness objective, else by its interval."""

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
    """The time between two runs that an instant is in.

    Attributes:
        begin: When it began.
        before: When the one before it began.
        length: From its begin to its end.
    """

    begin: datetime
    before: datetime
    length: timedelta


def last_ticks(interval: Interval, instant: datetime, count: int) -> list[datetime]:
    """The last instants up to `instant` at which a run was due, the newest first; none if there are none."""
    if interval.every is not None:
        newest = _floor(instant, interval.every)
        return [newest - number * interval.every for number in range(count)]
    try:
        ticks = croniter(interval.cron, instant.replace(microsecond=0) + _SECOND)  # which counts what is due now
        return [ticks.get_prev(datetime) for _ in range(count)]
    except CroniterError:  # such as every 31st of February, which no file may say
        return []


def span_at(interval: Interval, instant: datetime, least: timedelta) -> Span:
    """The span that an instant is in: between two runs, of the clock where runs are nearer than `least`, or are never due."""
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
"""One to wait for the next run, one for the run itself, and one may fail and be made up for."""

LEAST: Final = timedelta(minutes=10)


def freshness_objective(pipeline: Flow, instant: datetime) -> float | None:
    """Seconds that a record may wait by its file (`alerts.fresh_within`). Without, three intervals, at least ten minutes; of a cron
    expression, what came before the third last time at which a run was due is in, so a night without runs is no delay, and its
    length none by day. None: a run is never due.
    """
    alerts = pipeline.alerts
    if alerts is not False and alerts.fresh_within is not None:
        return parse_age(alerts.fresh_within).total_seconds()
    interval = pipeline.every
    if interval.every is not None:
        return max(LEAST, INTERVALS * interval.every).total_seconds()
    ticks = last_ticks(interval, instant, INTERVALS)
    return max(LEAST, instant - ticks[-1]).total_seconds() if ticks else None
