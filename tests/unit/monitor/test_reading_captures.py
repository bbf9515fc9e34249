"""The condition of a capture: since when something may wait, and the words and alerts that follow."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from frazil.alerts.rules import Case, judge
from frazil.monitor.condition import Condition, Runs, state_of
from frazil.monitor.reading import with_runs
from frazil.pipeline.models.alerts import Alerts

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
PROMISE = 900.0
FILES = Condition(
    "capture.logs", "web", NOW, n=3, last_commit=NOW - timedelta(days=2), unit="files", lag=2, lag_bytes=40, lag_seconds=5.0
)  # fmt: skip
ROWS = Condition("capture.rows", "web", NOW, n=3, last_commit=NOW - timedelta(days=2), unit="rows")


def done(minutes: int, state: str = "success") -> Runs:
    """The last run ended so long ago."""
    return Runs(last_state=state, last_ended_at=NOW - timedelta(minutes=minutes), last_run="r", failures=0)


@pytest.mark.parametrize(
    ("condition", "runs", "seconds"),
    [
        (FILES, done(10), 600.0),
        (replace(FILES, last_commit=NOW - timedelta(minutes=1)), done(10), 60.0),
        (FILES, Runs(), 5.0),
        (FILES, done(10, "failed"), 5.0),
        (replace(FILES, lag=0, lag_seconds=0.0), done(10), 0.0),
        (replace(FILES, lag=None, lag_seconds=None), done(10), None),
        (ROWS, done(10), 600.0),
        (ROWS, Runs(), None),
    ],
)
def test_nothing_waits_for_longer_than_since_the_last_successful_run(
    condition: Condition, runs: Runs, seconds: float | None
) -> None:
    """Or since the last commit; without such a run a file waits since it was written, and of rows nothing is known."""
    assert with_runs(condition, runs).lag_seconds == seconds


@pytest.mark.parametrize(
    ("condition", "word", "why"),
    [
        (
            with_runs(FILES, done(20)),
            "Behind",
            "2 files with 40 bytes wait, the oldest for 20 min; the freshness objective is 15 min",
        ),
        (with_runs(FILES, done(5)), "Idle", "2 files with 40 bytes wait for the next run"),
        (with_runs(replace(FILES, lag=1), done(5)), "Idle", "1 file with 40 bytes waits for the next run"),
        (replace(FILES, lag=0, lag_bytes=0, lag_seconds=0.0), "Idle", "everything is in"),
        (replace(FILES, lag=None, lag_bytes=None, lag_seconds=None), "Idle", "its files are not on this machine"),
        (
            with_runs(ROWS, done(20)),
            "Behind",
            "rows may wait, the oldest for 20 min; the freshness objective is 15 min",
        ),
        (with_runs(ROWS, done(5)), "Idle", "its last run took what was there"),
        (with_runs(ROWS, done(5, "failed")), "Failed", "the last run failed: r"),
        (replace(FILES, n=None, lag_seconds=9e9), "Idle", "it never ran"),
        (replace(FILES, refusal="lines may be missing\n  next: look"), "Refused", "lines may be missing"),
    ],
)
def test_capture_has_the_word_of_its_condition(condition: Condition, word: str, why: str) -> None:
    assert state_of(condition, PROMISE) == (word, why)


def case(condition: Condition, **alerts: object) -> Case:
    return Case(condition, Alerts(**alerts), timedelta(seconds=PROMISE), timedelta(minutes=5))


@pytest.mark.parametrize("condition", [FILES, ROWS])
def test_late_capture_raises_an_alert_that_names_its_command(condition: Condition) -> None:
    late = judge(case(with_runs(condition, done(40))))
    assert late["stale"] is not None
    assert late["stale"].title == f"capture {condition.pipeline[8:]}: stale for 25 min"
    assert late["stale"].next_step == f"frazil capture {condition.pipeline[8:]} --dry-run"
    assert "The topic has everything only through 2026-05-01 11:20:00 UTC" in late["stale"].cause
    assert judge(case(with_runs(condition, done(5))))["stale"] is None


def test_lag_of_files_is_judged_by_its_own_limit() -> None:
    lag = judge(case(with_runs(FILES, done(5)), lag=1))["lag"]
    assert lag is not None
    assert (lag.key, lag.title) == ("lag/capture.logs", "capture logs: 2 files with 40 bytes wait")
    assert lag.cause.startswith("2 files with 40 bytes wait; the limit is 1.")


def test_rows_that_nobody_counted_raise_and_end_no_alert_of_lag() -> None:
    assert "lag" not in judge(case(with_runs(ROWS, done(5)), lag=1))
