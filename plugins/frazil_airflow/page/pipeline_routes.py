"""All pipelines and captures that a person may see; one pipeline with its batches, snapshots and schema changes; and the form that starts a run, filled in."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query, Request
from fastapi.responses import HTMLResponse

from frazil.errors import FrazilError
from frazil.monitor.batches import BatchPage
from frazil.monitor.condition import STATES
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.pipeline.settings.capture import Flow, dag_of
from frazil_airflow.page.access import pipeline_of
from frazil_airflow.page.asking import AskingDep, PageRequest, PipelineView
from frazil_airflow.page.rendering import render
from frazil_airflow.project.pipelines import INGEST, MAINTAIN, REPLAY

PAGE_SIZE = 50

router = APIRouter()

_EARLIEST = datetime.min.replace(tzinfo=UTC)

_KEYS: dict[str, Callable[[PipelineView], Any]] = {
    "name": lambda standing: standing.pipeline.name,
    "state": lambda standing: (
        standing.state == "Paused",
        STATES.index(standing.state),
    ),  # a person chose to pause: that can wait
    "lag": lambda standing: -(standing.condition.lag or 0),
    "freshness": lambda standing: -(standing.condition.freshness.p95 or 0.0),
    "commit": lambda standing: standing.condition.last_commit or _EARLIEST,
    "rows": lambda standing: -standing.condition.rows,
    "dead": lambda standing: -standing.condition.dead,
    "health": lambda standing: min(standing.condition.health.values(), default=101),
}
"""What columns are sorted by: what needs a person first."""


@router.get("/")
def overview(  # noqa: PLR0913, PLR0917 - filters of a list
    request: Request,
    asking: AskingDep,
    q: Annotated[str, Query(max_length=200)] = "",
    state: Annotated[str, Query(max_length=20)] = "",
    sort: Annotated[str, Query(max_length=20)] = "state",
    order: Annotated[str, Query(pattern="^(up|down)$")] = "up",
    page: Annotated[int, Query(ge=1, le=10_000)] = 1,
) -> HTMLResponse:
    """One line per pipeline, those that need a person first."""
    standings = asking.standings()
    chosen_standings = sorted_by(
        matching_pipelines(standings, q, state), sort if sort in _KEYS else "state", is_down=order == "down"
    )
    pages = max(1, -(-len(chosen_standings) // PAGE_SIZE))
    page = min(page, pages)
    return render(
        request,
        "overview.html.j2",
        broken=asking.broken(),
        captures=sorted_by(matching_pipelines(asking.captures(), q, state), "state", is_down=False),
        standings=chosen_standings[(page - 1) * PAGE_SIZE : page * PAGE_SIZE],
        counts=Counter(standing.state for standing in standings),
        total=len(standings),
        found=len(chosen_standings),
        view={"q": q, "state": state, "sort": sort if sort in _KEYS else "state", "order": order},
        page=page,
        pages=pages,
        now=datetime.now(UTC),
    )


def matching_pipelines(standings: Sequence[PipelineView], text: str, state: str) -> list[PipelineView]:
    """Pipelines in a state whose name, owner or tables contain a text."""
    text = text.strip().lower()
    return [
        standing
        for standing in standings
        if (not state or standing.state == state)
        and (
            not text
            or any(
                text in part.lower()
                for part in (standing.pipeline.name, standing.pipeline.owner, *_places(standing.pipeline))
            )
        )
    ]


def _places(flow: Flow) -> tuple[str, ...]:
    """Tables of a pipeline, the topic of a capture."""
    return tuple(flow.tables) if isinstance(flow, Pipeline) else (flow.topic,)


def sorted_by(standings: Sequence[PipelineView], column: str, *, is_down: bool) -> list[PipelineView]:
    """In the order of a column; equal ones by name."""
    by_name = sorted(standings, key=lambda standing: standing.pipeline.name)
    return sorted(by_name, key=_KEYS[column], reverse=is_down)


RECENT = 8
"""Batches on the first view."""

Start = Annotated[int, Query(ge=0, le=10_000_000)]
Table = Annotated[str | None, Query(max_length=500)]


@router.get("/dag")
def of_dag(request: Request, asking: AskingDep, dag_id: Annotated[str, Query(max_length=250)]) -> HTMLResponse:
    """The pipeline or capture that a DAG belongs to: the tab on Airflow's page of a DAG, which every DAG has.

    For a pipeline that the user may not see, the answer is the same as for a missing one.
    """
    name = pipeline_of(dag_id)
    if name is None or not asking.sees(name):
        return render(request, "no_pipeline.html.j2", dag_id=dag_id)
    return _pipeline(request, asking, name)


@router.get("/pipelines/{name}")
def pipeline(request: Request, asking: AskingDep, name: str) -> HTMLResponse:
    """A pipeline, or a capture by its unique name: state, figures, charts, last batches and actions."""
    return _pipeline(request, asking, name)


@router.get("/pipelines/{name}/batches")
def batches(request: Request, asking: AskingDep, name: str, start: Start = 0) -> HTMLResponse:
    """Its batches, the newest first."""
    pipeline = asking.pipeline(name)
    page = asking.source.batches(name, start, PAGE_SIZE)
    return render(
        request,
        "batches.html.j2",
        page=page,
        start=start,
        step=PAGE_SIZE,
        **common_context(asking, pipeline, "batches"),
    )


@router.get("/pipelines/{name}/snapshots")
def snapshots(request: Request, asking: AskingDep, name: str, table: Table = None, start: Start = 0) -> HTMLResponse:
    """Snapshots of one of its tables, the newest first."""
    pipeline = asking.pipeline(name)
    tables = (*asking.source.tables(name), pipeline.dead_letters_table, pipeline.ledger_table)
    chosen = table if table in tables else tables[0]
    page = asking.source.snapshots(name, chosen, start, PAGE_SIZE)
    values = {"page": page, "start": start, "tables": tables, "table": chosen}
    return render(request, "snapshots.html.j2", **values, **common_context(asking, pipeline, "snapshots"))


@router.get("/pipelines/{name}/schema")
def schema(request: Request, asking: AskingDep, name: str, table: Table = None) -> HTMLResponse:
    """How the schema of one of its destinations changed."""
    pipeline = asking.pipeline(name)
    tables = asking.source.tables(name)
    chosen = table if table in tables else tables[0] if tables else None
    changes = asking.source.schema_changes(name, chosen) if chosen else None
    values = {"changes": changes, "tables": tables, "table": chosen}
    return render(request, "schema.html.j2", **values, **common_context(asking, pipeline, "schema"))


def common_context(asking: PageRequest, pipeline: Pipeline, tab: str) -> dict[str, Any]:
    """Template values that every view of a pipeline needs: its head and tabs."""
    standing = asking.standing(pipeline.name)
    return {
        "of": standing,
        "pipeline": pipeline,
        "tab": tab,
        "now": datetime.now(UTC),
        "starts": _starts(asking, pipeline),
    }


def _starts(asking: PageRequest, pipeline: Pipeline) -> list[dict[str, str]]:
    """The runs that this user may trigger."""
    name = pipeline.name
    offers = (
        (f"{INGEST}{name}", "Ingest", "{}"),
        (f"{INGEST}{name}", "Replay", '{"mode": "replay"}'),
        (f"{MAINTAIN}{name}", "Maintain", "{}"),
        (f"{REPLAY}{name}", "Replay dead letters", "{}"),
    )
    return _startable(asking, offers)


def _startable(asking: PageRequest, offers: Sequence[tuple[str, str, str]]) -> list[dict[str, str]]:
    readable = asking.access.readable()
    allowed = asking.access.startable({dag_id for dag_id, _, _ in offers if dag_id in readable})
    return [{"dag_id": dag_id, "label": label, "conf": conf} for dag_id, label, conf in offers if dag_id in allowed]


def _pipeline(request: Request, asking: PageRequest, name: str) -> HTMLResponse:
    if (capture := asking.capture(name)) is not None:
        offers = ((dag_of(name), "Capture", "{}"),)
        standing, starts = asking.standing(name), _startable(asking, offers)
        return render(request, "capture.html.j2", of=standing, capture=capture, now=datetime.now(UTC), starts=starts)
    pipeline = asking.pipeline(name)
    page, problem = _recent(asking, name)
    values = common_context(asking, pipeline, "pipeline")
    series = values["of"].series
    chart = {
        "times": [start.timestamp() for start in series.starts],
        "rows": list(series.rows),
        "dead": list(series.dead),
    }
    values |= {"page": page, "problem": problem, "chart": chart, "tables": asking.source.tables(name)}
    return render(request, "pipeline.html.j2", **values)


def _recent(asking: PageRequest, name: str) -> tuple[BatchPage | None, str]:
    """The last batches, or why they can't be read; the rest of the view is shown anyway."""
    try:
        return asking.source.batches(name, 0, RECENT), ""
    except FrazilError as problem:
        return None, str(problem)


@router.get("/start/{dag_id}")
def start(
    request: Request,
    asking: AskingDep,
    dag_id: str,
    conf: Annotated[str, Query(max_length=20_000)] = "{}",
) -> HTMLResponse:
    """The fields of a DAG's run form, with these values in them. Nothing starts before the button is pressed."""
    name = pipeline_of(dag_id)
    is_known = name in asking.source.pipelines() or name in asking.source.captures()
    if name is None or not is_known or dag_id not in asking.access.readable():
        raise HTTPException(404, f"There is no DAG {dag_id} of a pipeline, or you may not see it")
    if dag_id not in asking.access.startable({dag_id}):
        raise HTTPException(403, f"You may not start runs of {dag_id}")
    values = _values(conf)
    back = name if asking.sees(name) else None
    return render(request, "start.html.j2", dag_id=dag_id, conf=values, back=back)


def _values(conf: str) -> dict[str, object]:
    try:
        values = json.loads(conf)
    except (ValueError, RecursionError) as error:
        raise HTTPException(422, f"conf is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise HTTPException(422, "conf is not a JSON object")
    return values
