"""When runs of a pipeline are due, by its interval, in UTC."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from croniter import croniter
from croniter.croniter import CroniterError

from frazil.pipeline.interval import Interval

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


def last_ticks(interval: Interval, at: datetime, count: int) -> list[datetime]:
    """The last instants up to `at` at which a run was due, the newest first; none if there are none."""
    if interval.every is not None:
        newest = _floor(at, interval.every)
        return [newest - of * interval.every for of in range(count)]
    try:
        ticks = croniter(interval.cron, at.replace(microsecond=0) + _SECOND)  # which counts what is due now
        return [ticks.get_prev(datetime) for _ in range(count)]
    except CroniterError:  # such as every 31st of February, which no file may say
        return []


def span_at(interval: Interval, at: datetime, least: timedelta) -> Span:
    """The span that an instant is in: between two runs, of the clock where runs are nearer than `least`, or are never due."""
    if interval.every is None and (found := last_ticks(interval, at, 2)):
        begin, before = found
        length = croniter(interval.cron, begin).get_next(datetime) - begin
        if length >= least:
            return Span(begin, before, length)
    length = max(least, interval.every or least)
    begin = _floor(at, length)
    return Span(begin, begin - length, length)


def _floor(at: datetime, step: timedelta) -> datetime:
    since = at - datetime(1970, 1, 1, tzinfo=UTC)
    return at - since % step
