"""Maintenance DAGs: which there are, and that ingestion never waits for them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk.exceptions import AirflowFailException

from frazil.maintain.need import STEPS as ALL_STEPS
from frazil.maintain.run import Figures, MaintenanceResult, StepOutcome, TableOutcome
from frazil.pipeline.syntax.interval import parse_interval
from frazil_airflow.dags import maintenance
from frazil_airflow.dags.dag_defaults import timetable
from frazil_airflow.dags.maintenance import STEPS

pytestmark = pytest.mark.dags

Write = Callable[..., Path]
Parse = Callable[[], DagBag]


def with_maintenance(path: Path, text: str) -> None:
    """Add a section to a pipeline file."""
    path.write_text(f"{path.read_text()}maintenance: {text}\n")


def test_maintenance_has_its_own_pool_and_schedule(parse: Parse, write_pipeline: Write):
    """Its job has a pool of its own, one job at a time per pipeline, and a schedule of its own."""
    write_pipeline("orders", interval="5m")
    dags = parse().dags
    ingest, maintain = dags["ingest__orders"].get_task("ingest"), dags["maintain__orders"].get_task("maintain")
    assert (ingest.pool, maintain.pool) == ("frazil_spark", "frazil_maintenance")
    assert (dags["maintain__orders"].max_active_runs, maintain.max_active_tis_per_dag) == (1, 1)
    assert not dags["maintain__orders"].catchup
    assert dags["maintain__orders"].timetable == timetable(parse_interval("6h"))


@pytest.mark.parametrize("section", ["{schedule: false}", "{engine: spark, schedule: false}"])
def test_pipeline_without_maintenance_schedule_has_no_maintenance_dag(
    parse: Parse, write_pipeline: Write, section: str
):
    """`schedule: false` leaves it to the command."""
    with_maintenance(write_pipeline("orders"), section)
    assert "maintain__orders" not in parse().dags


def test_cron_that_never_ticks_is_import_error(parse: Parse, write_pipeline: Write):
    """A bad schedule of maintenance is an import error that names its key."""
    with_maintenance(write_pipeline("orders"), "{schedule: '0 0 31 2 *'}")
    bag = parse()
    (error,) = bag.import_errors.values()
    assert "maintenance.schedule: '0 0 31 2 *'" in error


def test_form_offers_every_step(parse: Parse, write_pipeline: Write):
    """The form offers the steps and tables that there are; the list beside it is the room's."""
    write_pipeline("orders")
    params = parse().dags["maintain__orders"].params
    assert STEPS == ALL_STEPS
    assert params.dump() == {"table": None, "steps": [], "force": False, "dry_run": False}
    assert params.get_param("table").schema["enum"] == [
        None,
        "shop.orders",
        "shop.orders__dead_letters",
        "shop.orders__ledger",
    ]


class Run:
    """What is read of Airflow's run."""

    dag_id, run_id = "maintain__orders", "manual__1"


def result(status: Any) -> str:
    """What a job handed back."""
    figures = Figures(90, 10, 1_000, 9, 0, 3, 20)
    step = StepOutcome("compaction", status, "9 small files", 1.5, {"rewritten_data_files_count": 9})
    return MaintenanceResult("orders", (TableOutcome("shop.orders", "90", figures, figures, (step,)),), 2.0).to_json()


def test_failed_step_fails_run(monkeypatch: pytest.MonkeyPatch):
    """A step that failed fails the run, with its reason; one that gave way to other writers does not."""
    notes: list[str] = []
    monkeypatch.setattr("frazil_airflow.outputs.run_summary.write_note", lambda *arguments: notes.append(arguments[-1]))
    with pytest.raises(AirflowFailException, match="compaction failed in 1"):
        maintenance.report_outcome("orders", result("failed"), dag_run=Run)
    assert maintenance.report_outcome("orders", result("gave_way"), dag_run=Run) == json.loads(result("gave_way"))
    assert "1 failed" in notes[0]
    assert "1 gave way to other writers" in notes[1]


def test_maintenance_form_is_understood(pipelines: Path, write_pipeline: Write, monkeypatch: pytest.MonkeyPatch):
    """A pipeline that never ran has nothing due; a table that it does not have ends without another try."""
    monkeypatch.setattr("frazil_airflow.outputs.run_summary.write_note", lambda *_: None)
    write_pipeline("orders")
    params = {"table": None, "steps": ["compaction"], "force": True, "dry_run": False}
    assert maintenance.look_at_tables("orders", dag_run=Run, params=params) is None
    with pytest.raises(AirflowFailException, match=r"shop\.other: it has no such table"):
        maintenance.look_at_tables("orders", dag_run=Run, params=params | {"table": "shop.other"})
