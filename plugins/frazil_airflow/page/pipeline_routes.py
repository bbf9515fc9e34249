"""One pipeline: how it does, its batches, snapshots and schema changes."""

# No `from __future__ import annotations`: FastAPI reads the signatures.

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from frazil.errors import FrazilError
from frazil.monitor.batches import BatchPage
from frazil.pipeline.model import Pipeline
from frazil_airflow.page.asking import Asking, AskingDep
from frazil_airflow.page.naming import ingest_of, maintain_of, pipeline_of, replay_letters_of
from frazil_airflow.page.rendering import render

RECENT = 8
"""Batches on the first view."""

PAGE_SIZE = 50

router = APIRouter()

Start = Annotated[int, Query(ge=0, le=10_000_000)]
Table = Annotated[str | None, Query(max_length=500)]


@router.get("/dag")
def of_dag(request: Request, asking: AskingDep, dag_id: Annotated[str, Query(max_length=250)]) -> HTMLResponse:
    """The pipeline that a DAG belongs to: the tab on Airflow's page of a DAG, which every DAG has.

    One that the person may not see is answered as one that is not there.
    """
    name = pipeline_of(dag_id)
    if name is None or not asking.sees(name):
        return render(request, "no_pipeline.html.j2", dag_id=dag_id)
    return _pipeline(request, asking, name)


@router.get("/pipelines/{name}")
def pipeline(request: Request, asking: AskingDep, name: str) -> HTMLResponse:
    """How it does, in figures and charts, its last batches, and what can be started."""
    return _pipeline(request, asking, name)


@router.get("/pipelines/{name}/batches")
def batches(request: Request, asking: AskingDep, name: str, start: Start = 0) -> HTMLResponse:
    """Its batches, the newest first."""
    found = asking.pipeline(name)
    page = asking.source.batches(name, start, PAGE_SIZE)
    return render(
        request, "batches.html.j2", page=page, start=start, step=PAGE_SIZE, **shared(asking, found, "batches")
    )


@router.get("/pipelines/{name}/snapshots")
def snapshots(request: Request, asking: AskingDep, name: str, table: Table = None, start: Start = 0) -> HTMLResponse:
    """Snapshots of one of its tables, the newest first."""
    found = asking.pipeline(name)
    tables = (*asking.source.tables(name), found.dead_letters_table, found.ledger_table)
    chosen = table if table in tables else tables[0]
    page = asking.source.snapshots(name, chosen, start, PAGE_SIZE)
    values = {"page": page, "start": start, "tables": tables, "table": chosen}
    return render(request, "snapshots.html.j2", **values, **shared(asking, found, "snapshots"))


@router.get("/pipelines/{name}/schema")
def schema(request: Request, asking: AskingDep, name: str, table: Table = None) -> HTMLResponse:
    """How the schema of one of its destinations changed."""
    found = asking.pipeline(name)
    tables = asking.source.tables(name)
    chosen = table if table in tables else tables[0] if tables else None
    changes = asking.source.schema_changes(name, chosen) if chosen else None
    values = {"changes": changes, "tables": tables, "table": chosen}
    return render(request, "schema.html.j2", **values, **shared(asking, found, "schema"))


def shared(asking: Asking, pipeline: Pipeline, tab: str) -> dict[str, Any]:
    """What every view of a pipeline shows: its head and tabs."""
    standing = asking.standing(pipeline.name)
    return {
        "of": standing,
        "pipeline": pipeline,
        "tab": tab,
        "now": datetime.now(UTC),
        "starts": _starts(asking, pipeline),
    }


def _starts(asking: Asking, pipeline: Pipeline) -> list[dict[str, str]]:
    """What this person may start."""
    name = pipeline.name
    offers = (
        (ingest_of(name), "Ingest", "{}"),
        (ingest_of(name), "Replay", '{"mode": "replay"}'),
        (maintain_of(name), "Maintain", "{}"),
        (replay_letters_of(name), "Replay dead letters", "{}"),
    )
    known = asking.access.readable()
    allowed = asking.access.startable({dag_id for dag_id, _, _ in offers if dag_id in known})
    return [{"dag_id": dag_id, "label": label, "conf": conf} for dag_id, label, conf in offers if dag_id in allowed]


def _pipeline(request: Request, asking: Asking, name: str) -> HTMLResponse:
    found = asking.pipeline(name)
    page, problem = _recent(asking, name)
    values = shared(asking, found, "pipeline")
    series = values["of"].series
    chart = {
        "times": [at.timestamp() for at in series.starts],
        "rows": list(series.rows),
        "dead": list(series.dead),
    }
    values |= {"page": page, "problem": problem, "chart": chart, "tables": asking.source.tables(name)}
    return render(request, "pipeline.html.j2", **values)


def _recent(asking: Asking, name: str) -> tuple[BatchPage | None, str]:
    """The last batches, or why they can't be read: the rest of the view is there all the same."""
    try:
        return asking.source.batches(name, 0, RECENT), ""
    except FrazilError as problem:
        return None, str(problem)
