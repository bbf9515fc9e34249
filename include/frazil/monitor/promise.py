"""How long records of a pipeline may wait: as its file promises, else by the times at which its runs are due."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from frazil.monitor.state import Promise
from frazil.monitor.ticks import last_ticks
from frazil.pipeline.maintenance import parse_age
from frazil.pipeline.model import Pipeline

INTERVALS: Final = 3
"""One to wait for the next run, one for the run itself, and one may fail and be made up for."""

LEAST: Final = timedelta(minutes=10)


def promise_of(pipeline: Pipeline, at: datetime) -> Promise:
    """What its file promises (`alerts.fresh_within`). Without, three intervals, at least ten minutes; of a cron expression, what
    came before the third last time at which a run was due is in, so a night without runs is no delay, and its length none by day.

    Args:
        pipeline: As its file says.
        at: The time.
    """
    alerts = pipeline.alerts
    if alerts is not False and alerts.fresh_within is not None:
        return Promise(parse_age(alerts.fresh_within).total_seconds())
    interval = pipeline.every
    if interval.every is not None:
        return Promise(max(LEAST, INTERVALS * interval.every).total_seconds())
    ticks = last_ticks(interval, at, INTERVALS)
    return Promise(max(LEAST, at - ticks[-1]).total_seconds()) if ticks else Promise()
