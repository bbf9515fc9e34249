"""What failed tasks and runs leave for the monitor."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from frazil.alerts.failure import Failure
from frazil_airflow.alerts import callbacks
from tests.dags.desk import VariableStore

pytestmark = pytest.mark.dags


def context(error: BaseException | None = None, **more: Any) -> dict[str, Any]:
    """What Airflow hands to a callback."""
    notes = {
        "dag": SimpleNamespace(dag_id="ingest__orders"),
        "ti": SimpleNamespace(task_id="ingest"),
        "run_id": "r1",
    }
    return notes | ({} if error is None else {"exception": error}) | more


def failure_left(variables: VariableStore) -> Failure:
    return Failure.from_json(variables.texts["frazil_failure__ingest__orders"])


def test_run_keeps_error_of_its_task(variables: VariableStore):
    """The task's own words stay; of a run without any, Airflow's reason is noted."""
    callbacks.note_failed_task(context(AirflowFailException("topic is gone\n  next: make it")))
    callbacks.note_failed_run(context(reason="task_failure"))
    assert (failure_left(variables).cause, failure_left(variables).severity) == ("topic is gone", "critical")

    callbacks.note_failed_run(context(run_id="r2", reason="timed_out"))
    assert (failure_left(variables).run, failure_left(variables).severity) == ("r2", "warning")
    assert "dagrun_timeout" in failure_left(variables).cause


def test_killed_task_is_notified_as_lost_process(variables: VariableStore):
    """Nobody has its error: the notice says that its process was lost."""
    callbacks.note_failed_task(context())

    assert failure_left(variables).cause.startswith("task ingest: its process ended without an error")


def test_command_line_of_a_job_is_not_in_the_cause(variables: VariableStore):
    """What the Spark provider says begins with the command and its settings, and ends with the log."""
    log_line = (
        "Cannot execute: spark-submit --conf spark.password=hunter2. Error code is: 75.\nfrazil: 900 records staged"
    )

    callbacks.note_failed_task(context(AirflowException(log_line)))

    assert failure_left(variables).cause == "task ingest: the Spark job ended with exit code 75; its log says why"


@pytest.mark.parametrize(
    ("dag", "conf", "kind"),
    [
        ("maintain__orders", None, "failed_maintenance"),
        ("dead_letters__orders", None, "failed_report"),
        ("replay_dead_letters__orders", {"reason": "mended"}, "failed_replay"),
    ],
)
def test_failures_beside_ingestion_are_noted_until_success(
    variables: VariableStore, dag: str, conf: dict[str, Any] | None, kind: str
):
    """It is noted under its pipeline, and forgotten when a later run succeeds."""
    run = {"dag": SimpleNamespace(dag_id=dag), "dag_run": SimpleNamespace(conf=conf)}

    callbacks.note_failed_task(context(AirflowFailException("no space"), **run))
    callbacks.note_failed_run(context(reason="task_failure", **run))

    (place,) = variables.texts
    assert place == f"frazil_failure__{dag}"
    failure = Failure.from_json(variables.texts[place])
    assert (failure.kind, failure.severity, failure.cause) == (kind, "warning", "no space")
    callbacks.forget_failure(context(**run))
    assert variables.texts == {}


def test_failed_dead_letter_dry_run_notifies_nobody(variables: VariableStore):
    """Whoever asked for a dry run sees how it ended."""
    conf = {"dry_run": True}
    run = {"dag": SimpleNamespace(dag_id="replay_dead_letters__orders"), "dag_run": SimpleNamespace(conf=conf)}

    callbacks.note_failed_task(context(AirflowFailException("no space"), **run))

    assert variables.texts == {}


@pytest.mark.parametrize(
    ("options", "forgotten"),
    [
        (None, True),
        ({"table": None, "steps": [], "dry_run": False}, True),
        ({"dry_run": True}, False),
        ({"table": "shop.orders"}, False),
        ({"steps": ["expiry"]}, False),
    ],
)
def test_partial_maintenance_does_not_clear_earlier_failure(
    variables: VariableStore, options: dict[str, Any] | None, forgotten: bool
):
    """A run that looked only, or did a part, says nothing of what failed."""
    callbacks.note_failed_run(context(reason="task_failure"))

    callbacks.forget_failure(context(dag_run=SimpleNamespace(conf=options)))

    assert (variables.texts == {}) is forgotten
