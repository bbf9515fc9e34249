"""Which task gets a free slot first, as the scheduler reckons it from the serialised DAG."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.models.taskinstance import TaskInstance
from airflow.serialization.serialized_objects import DagSerialization

pytestmark = pytest.mark.dags


@pytest.fixture
def weight(parse: Callable[[], DagBag], write_pipeline: Callable[..., Path]) -> Callable[[str, str], int]:
    """The weight of a task in a run of that id."""
    write_pipeline("orders", more="trigger: {records: 500, every: 5s}\n")
    dag = DagSerialization.from_dict(DagSerialization.to_dict(parse().dags["ingest__orders"]))

    def of(task_id: str, run_id: str) -> int:
        task = dag.get_task(task_id)
        return task.weight_rule.get_weight(TaskInstance(task=task, run_id=run_id, dag_version_id=None))

    return of


def test_idle_pipelines_do_not_keep_busy_one_from_landing(weight: Callable[[str, str], int]) -> None:
    """Later tasks of a run go before the first ones of others: with too few slots, some land instead of all planning."""
    plan, ingest, record = (
        weight(task_id, "scheduled__2026-01-01T00:00:00+00:00") for task_id in ("plan", "ingest", "record")
    )

    assert plan < ingest < record
    assert record < 5  # no more than neighbours that follow Airflow's rule


@pytest.mark.parametrize("run_id", ["asset_triggered__2026-01-01T00:00:00+00:00", "manual__2026", "by-form"])
def test_pipeline_with_lag_goes_before_those_without(weight: Callable[[str, str], int], run_id: str) -> None:
    """A run that the lag or a person called for goes before those that only the clock did; a backfill does not."""
    assert weight("plan", run_id) > weight("plan", "scheduled__2026-01-01T00:00:00+00:00")
    assert weight("plan", "backfill__2026-01-01T00:00:00+00:00") == weight("plan", "scheduled__2026")
