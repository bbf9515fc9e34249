"""How long records may wait, by the interval."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from croniter import croniter

from frazil.monitor.promise import longest_gap, promise_of
from frazil.pipeline.interval import parse_interval
from frazil.pipeline.model import Pipeline

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)

CRONS = [
    "* * * * *", "*/10 * * * *", "7,37 * * * *", "*/10 9-17 * * *", "0 */6 * * *", "30 */5 * * *", "0 6 * * *",
    "0 6 * * mon-fri", "0 6 * * 1", "0 6 * * fri#1", "0 6 31 * *", "0 6 1,15 * *", "0 6 1 jan *", "@daily", "@monthly",
]  # fmt: skip


@pytest.mark.parametrize("cron", CRONS)
def test_runs_are_farther_apart_than_said(cron: str) -> None:
    """An alarm before the next run is due teaches people to ignore it: no gap of three years is longer."""
    runs = croniter(cron, BEGIN)
    before, longest = runs.get_next(datetime), timedelta()
    while before < BEGIN + timedelta(days=3 * 366 if longest_gap(parse_interval(cron)) > timedelta(days=1) else 3):
        after = runs.get_next(datetime)
        longest, before = max(longest, after - before), after

    assert longest <= longest_gap(parse_interval(cron)) < 4 * longest


@pytest.mark.parametrize(("interval", "seconds"), [("1m", 600), ("5m", 900), ("1h", 10_800), ("0 6 * * *", 259_200)])
def test_promise_ignores_the_interval(interval: str, seconds: float) -> None:
    """Three intervals, ten minutes at least."""
    destination = {"table": "shop.orders", "columns": {"id": "long"}}
    body = {"name": "orders", "interval": interval, "source": {"topics": ["t"]}, "destinations": [destination]}

    assert promise_of(Pipeline.model_validate(body)).seconds == seconds
