"""When the next run starts at once, and when it does not: the decision, with what waits and Airflow's answers given."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowSkipException, DagRunTriggerException

from frazil_airflow.tasks.catch_up import CatchUpOperator

pytestmark = pytest.mark.dags

DEFAULTS = {"mode": "ingest", "from": None, "to": None, "reason": None, "max_records": None}


def ends(
    monkeypatch: pytest.MonkeyPatch, waits: int = 500, runs: int = 1, kind: str = "scheduled", **filled: Any
) -> None:
    """The task of a run of this kind, with so many records waiting and so many runs queued or running."""
    monkeypatch.setattr(CatchUpOperator, "_unread_records", lambda _: waits)
    task = CatchUpOperator(task_id="catch_up", pipeline="orders", dag_id="ingest__orders", records=100)
    run = SimpleNamespace(run_type=kind, run_after=datetime(2026, 5, 1, 10, tzinfo=UTC))
    ti = SimpleNamespace(get_dr_count=lambda *_, **__: runs, xcom_push=lambda **_: None)
    task.execute({"dag_run": run, "params": DEFAULTS | filled, "ti": ti})  # type: ignore[typeddict-item]


@pytest.mark.parametrize("kind", ["scheduled", "manual", "operator_triggered", "asset_triggered"])
def test_pipeline_that_is_behind_runs_before_its_interval(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """The next run is asked for, without an interval, with the reason; another try asks for the very same run."""
    for _ in range(2):
        with pytest.raises(DagRunTriggerException) as error:
            ends(monkeypatch, waits=100, kind=kind)

        assert error.value.trigger_dag_id == "ingest__orders"
        assert error.value.dag_run_id == "catch_up__2026-05-01T10:00:00+00:00"
        assert error.value.conf == {"reason": "catch up: 100 records waited"}
        assert error.value.logical_date is None
        assert error.value.skip_when_already_exists


def test_few_remaining_records_start_no_catch_up_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Below the threshold the pipeline counts as caught up."""
    with pytest.raises(AirflowSkipException, match="caught up: 99 records wait, fewer than 100"):
        ends(monkeypatch, waits=99)


def test_no_second_run_is_queued_for_same_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where one is queued already, it takes what waits."""
    with pytest.raises(AirflowSkipException, match="a run that will read them is queued"):
        ends(monkeypatch, runs=2)


@pytest.mark.parametrize(
    ("kind", "filled"),
    [
        ("backfill", {}),
        ("manual", {"max_records": 10}),
        ("manual", {"to": "2026-05-01"}),
        ("manual", {"mode": "replay", "from": "earliest"}),
        ("manual", {"mode": "dry_run"}),
    ],
)
def test_limited_run_starts_no_catch_up_run(monkeypatch: pytest.MonkeyPatch, kind: str, filled: dict[str, Any]) -> None:
    """A run that was to land only a part triggers no further one."""
    with pytest.raises(AirflowSkipException, match="only a part of the new records"):
        ends(monkeypatch, kind=kind, **filled)
