"""How long records may wait, by the times at which runs are due."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile

import pytest
from croniter import croniter
from hypothesis import given, settings
from hypothesis import strategies as st

from frazil.monitor.freshness import LEAST, freshness_objective, last_ticks, span_at
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.pipeline.syntax.interval import Interval, parse_interval

BEGIN = datetime(2026, 1, 5, tzinfo=UTC)

CRONS = [
    "* * * * *", "*/10 * * * *", "7,37 * * * *", "*/5 8-18 * * *", "*/10 9-17 * * mon-fri", "0 */6 * * *", "30 */5 * * *",
    "0 6 * * *", "0 6 * * mon-fri", "0 6 * * fri#1", "0 6 31 * *", "0 6 l * *", "0 6 1 jan *", "@daily", "@monthly",
]  # fmt: skip


def pipeline(interval: str) -> Pipeline:
    destination = {"table": "shop.orders", "columns": {"id": "long"}}
    body = {"name": "orders", "interval": interval, "source": {"topics": ["t"]}, "destinations": [destination]}
    return Pipeline.model_validate(body)


def promised(interval: str, instant: datetime) -> timedelta:
    return timedelta(seconds=freshness_objective(pipeline(interval), instant) or 0.0)


def due(cron: str, until: datetime) -> list[datetime]:
    """The last four times up to an instant at which runs are due, counted forwards."""
    back, ticks = timedelta(minutes=10), []
    while len(ticks) < 5:  # one more: the first may be older than what counts
        back *= 4
        ticks = list(takewhile(lambda tick: tick <= until, croniter(cron, until - back).all_next(datetime)))
    return ticks[-4:]


few = settings(max_examples=20)
instants = st.datetimes(datetime(2026, 1, 5), datetime(2027, 1, 5)).map(lambda instant: instant.replace(tzinfo=UTC))


@pytest.mark.parametrize("cron", CRONS)
@few
@given(instant=instants)
def test_pipeline_that_recovers_from_one_failure_is_on_time(cron: str, instant: datetime) -> None:
    """While the run of the last time is at work, and the one before it failed, nothing is late."""
    _, third, _, _ = due(cron, instant)

    assert instant - third <= promised(cron, instant)


@pytest.mark.parametrize("cron", CRONS)
@few
@given(instant=instants)
def test_pipeline_that_missed_two_runs_is_late_at_the_third(cron: str, instant: datetime) -> None:
    """When the third is due, it is late at once: however long the night before, or after, is."""
    fourth, _, _, newest = due(cron, instant)

    assert newest - fourth > promised(cron, newest) or newest - fourth <= LEAST


def test_night_without_runs_is_allowed_at_night_only() -> None:
    """Every five minutes from eight to seven: a quarter of an hour by day, the night in the first minutes only."""
    cron, hours = "*/5 8-18 * * *", timedelta(hours=1)

    assert promised(cron, BEGIN + 12 * hours) == timedelta(minutes=10)
    assert promised(cron, BEGIN + 23 * hours) == timedelta(hours=4, minutes=15)
    assert promised(cron, BEGIN + 8 * hours) == timedelta(hours=13, minutes=10)
    assert promised(cron, BEGIN + 8 * hours + timedelta(minutes=10)) == timedelta(minutes=10)


@pytest.mark.parametrize(("interval", "seconds"), [("1m", 600), ("5m", 900), ("1h", 10_800), ("1d", 259_200)])
def test_slo_follows_the_interval(interval: str, seconds: float) -> None:
    """Three intervals, ten minutes at least."""
    assert freshness_objective(pipeline(interval), BEGIN) == seconds


@pytest.mark.parametrize("cron", ["0 6 31 2 *", "0 6 * * 1-5#2"])
def test_schedule_that_never_fires_has_no_ticks(cron: str) -> None:
    """No file may say it; if one gets through all the same, no run ends a span of time."""
    never = Interval(cron=cron)

    assert last_ticks(never, BEGIN, 3) == []
    assert span_at(never, BEGIN, timedelta(minutes=4)).length == timedelta(minutes=4)


@pytest.mark.parametrize("interval", [*CRONS, "1m", "7m", "1h"])
@few
@given(instant=instants, minutes=st.integers(1, 30))
def test_instants_fall_into_adjacent_spans(interval: str, instant: datetime, minutes: int) -> None:
    """An instant is in its span, none is shorter than two looks, and the last instant before it is in the one before."""
    every, least = parse_interval(interval), timedelta(minutes=minutes)
    span = span_at(every, instant, least)

    assert span.begin <= instant < span.begin + span.length
    assert span.length >= least
    before = span_at(every, span.begin - timedelta(seconds=1), least)
    assert before.begin <= span.begin - timedelta(seconds=1)
    if before.length == span.length:
        assert before.begin == span.before


@pytest.mark.parametrize("text", ["5m", "*/5 * * * *"])
def test_run_due_this_second_is_due(text: str) -> None:
    """To the second."""
    ticks = [BEGIN - number * timedelta(minutes=5) for number in range(3)]

    assert last_ticks(parse_interval(text), BEGIN, 3) == ticks
    assert last_ticks(parse_interval(text), BEGIN - timedelta(microseconds=1), 2) == ticks[1:]
    assert list(islice(ticks, 1)) == last_ticks(parse_interval(text), BEGIN + timedelta(seconds=299.9), 1)
