"""What the last runs of a DAG amount to."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from frazil.local.airflow_rows import DagRun
from frazil.local.home import Home
from frazil.monitor.airflow_runs import runs_of, summed
from frazil.monitor.condition import Runs

BEGIN = datetime(2026, 5, 1, tzinfo=UTC)


def run(n: int, state: str) -> DagRun:
    at = BEGIN + timedelta(hours=n)
    ended = at + timedelta(minutes=1) if state in ("success", "failed") else None
    return DagRun("ingest__orders", f"run-{n}", state, "scheduled", at, at, ended, None)


def test_failure_before_a_success_counts() -> None:
    """Failures are those in a row since the last success; a run at work and one that waits say nothing of that."""
    states = ("queued", "running", "failed", "failed", "success", "failed")
    found = summed([run(9 - n, state) for n, state in enumerate(states)], is_paused=False)

    ended = BEGIN + timedelta(hours=7, minutes=1)
    working = BEGIN + timedelta(hours=8)
    assert found == Runs(
        is_paused=False, running_since=working, last_state="failed", last_ended_at=ended, last_run="run-7", failures=2
    )


def test_success_after_failures_is_a_failure() -> None:
    """The last finished run decides."""
    found = summed([run(2, "success"), run(1, "failed")])

    assert (found.last_state, found.failures) == ("success", 0)
    assert summed([]) == Runs(failures=0)


def test_airflow_that_never_was_is_trouble(tmp_path: Path) -> None:
    """Without an embedded Airflow nothing is said of runs."""
    assert runs_of("orders", Home.resolve({"FRAZIL_HOME": str(tmp_path)})) == Runs()
