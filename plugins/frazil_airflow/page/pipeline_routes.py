"""All pipelines and captures that a user may see; one pipeline with its batches, snapshots and schema changes; and a form that
starts a run.
"""

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
from frazil_airflow.page.rendering import render
from frazil_airflow.page.request import PageRequest, PageRequestDep, PipelineView
from frazil_airflow.project.pipelines import INGEST, MAINTAIN, REPLAY

PAGE_SIZE = 50

router = APIRouter()

_EARLIEST = datetime.min.replace(tzinfo=UTC)

_SORT_KEYS: dict[str, Callable[[PipelineView], Any]] = {
    "name": lambda view: view.pipeline.name,
    # A person chose to pause, so that is not urgent.
    "state": lambda view: (view.state == "Paused", STATES.index(view.state)),
    "lag": lambda view: -(view.condition.lag or 0),
    "freshness": lambda view: -(view.condition.freshness.p95 or 0.0),
    "commit": lambda view: view.condition.last_commit or _EARLIEST,
    "rows": lambda view: -view.condition.rows,
    "dead": lambda view: -view.condition.dead,
    "health": lambda view: min(view.condition.health.values(), default=101),
}
"""Column -> sort key. Ascending, pipelines that need a person come first."""


@router.get("/")
def overview(  # noqa: PLR0913, PLR0917 - filters of a list
    request: Request,
    page_request: PageRequestDep,
    q: Annotated[str, Query(max_length=200)] = "",
    state: Annotated[str, Query(max_length=20)] = "",
    sort: Annotated[str, Query(max_length=20)] = "state",
    order: Annotated[str, Query(pattern="^(up|down)$")] = "up",
    page: Annotated[int, Query(ge=1, le=10_000)] = 1,
) -> HTMLResponse:
    """One line per pipeline, those that need a person first."""
    views = page_request.views()
    sort = sort if sort in _SORT_KEYS else "state"
    matching = sorted_by(matching_pipelines(views, q, state), sort, is_down=order == "down")
    pages = max(1, -(-len(matching) // PAGE_SIZE))
    page = min(page, pages)
    return render(
        request,
        "overview.html.j2",
        broken=page_request.broken(),
        captures=sorted_by(matching_pipelines(page_request.captures(), q, state), "state", is_down=False),
        views=matching[(page - 1) * PAGE_SIZE : page * PAGE_SIZE],
        counts=Counter(view.state for view in views),
        total=len(views),
        filters={"q": q, "state": state, "sort": sort, "order": order},
        page=page,
        pages=pages,
        now=datetime.now(UTC),
    )


def matching_pipelines(views: Sequence[PipelineView], text: str, state: str) -> list[PipelineView]:
    """Pipelines and captures in a state whose name, owner, tables or topic contain a text. Empty: any."""
    text = text.strip().lower()
    return [
        view
        for view in views
        if (not state or view.state == state)
        and (
            not text
            or any(text in part.lower() for part in (view.pipeline.name, view.pipeline.owner, *_outputs(view.pipeline)))
        )
    ]


def _outputs(flow: Flow) -> tuple[str, ...]:
    """Tables of a pipeline; the topic of a capture."""
    return tuple(flow.tables) if isinstance(flow, Pipeline) else (flow.topic,)


def sorted_by(views: Sequence[PipelineView], column: str, *, is_down: bool) -> list[PipelineView]:
    """Pipelines in the order of a column; equal ones by name."""
    by_name = sorted(views, key=lambda view: view.pipeline.name)
    return sorted(by_name, key=_SORT_KEYS[column], reverse=is_down)


RECENT = 8
"""Batches on the overview of a pipeline."""

Start = Annotated[int, Query(ge=0, le=10_000_000)]
Table = Annotated[str | None, Query(max_length=500)]


@router.get("/dag")
def dag_tab(
    request: Request, page_request: PageRequestDep, dag_id: Annotated[str, Query(max_length=250)]
) -> HTMLResponse:
    """The tab on Airflow's page of any DAG: the pipeline or capture that the DAG belongs to.

    The page does not reveal whether a pipeline that the user may not see exists.
    """
    name = pipeline_of(dag_id)
    if name is None or not page_request.sees(name):
        return render(request, "no_pipeline.html.j2", dag_id=dag_id)
    return _pipeline(request, page_request, name)


@router.get("/pipelines/{name}")
def pipeline(request: Request, page_request: PageRequestDep, name: str) -> HTMLResponse:
    """A pipeline, or a capture by its unique name: state, figures, charts, last batches and actions."""
    return _pipeline(request, page_request, name)


@router.get("/pipelines/{name}/batches")
def batches(request: Request, page_request: PageRequestDep, name: str, start: Start = 0) -> HTMLResponse:
    """Batches of a pipeline, the newest first."""
    pipeline = page_request.pipeline(name)
    page = page_request.source.batches(name, start, PAGE_SIZE)
    return render(
        request,
        "batches.html.j2",
        page=page,
        start=start,
        step=PAGE_SIZE,
        **common_context(page_request, pipeline, "batches"),
    )


@router.get("/pipelines/{name}/snapshots")
def snapshots(
    request: Request, page_request: PageRequestDep, name: str, table: Table = None, start: Start = 0
) -> HTMLResponse:
    """Snapshots of one of the pipeline's tables, the newest first."""
    pipeline = page_request.pipeline(name)
    tables = (*page_request.source.tables(name), pipeline.dead_letters_table, pipeline.ledger_table)
    chosen = table if table in tables else tables[0]
    page = page_request.source.snapshots(name, chosen, start, PAGE_SIZE)
    values = {"page": page, "start": start, "tables": tables, "table": chosen}
    return render(request, "snapshots.html.j2", **values, **common_context(page_request, pipeline, "snapshots"))


@router.get("/pipelines/{name}/schema")
def schema(request: Request, page_request: PageRequestDep, name: str, table: Table = None) -> HTMLResponse:
    """Schema changes of one of the pipeline's destinations."""
    pipeline = page_request.pipeline(name)
    tables = page_request.source.tables(name)
    chosen = table if table in tables else tables[0] if tables else None
    changes = page_request.source.schema_changes(name, chosen) if chosen else None
    values = {"changes": changes, "tables": tables, "table": chosen}
    return render(request, "schema.html.j2", **values, **common_context(page_request, pipeline, "schema"))


def common_context(page_request: PageRequest, pipeline: Pipeline, tab: str) -> dict[str, Any]:
    """Values for the head and the tabs that all views of a pipeline have."""
    return {
        "view": page_request.view(pipeline.name),
        "pipeline": pipeline,
        "tab": tab,
        "now": datetime.now(UTC),
        "starts": _starts(page_request, pipeline),
    }


def _starts(page_request: PageRequest, pipeline: Pipeline) -> list[dict[str, str]]:
    """The runs that this user may trigger."""
    name = pipeline.name
    offers = (
        (f"{INGEST}{name}", "Ingest", "{}"),
        (f"{INGEST}{name}", "Replay", '{"mode": "replay"}'),
        (f"{MAINTAIN}{name}", "Maintain", "{}"),
        (f"{REPLAY}{name}", "Replay dead letters", "{}"),
    )
    return _startable(page_request, offers)


def _startable(page_request: PageRequest, offers: Sequence[tuple[str, str, str]]) -> list[dict[str, str]]:
    readable = page_request.access.readable()
    allowed = page_request.access.startable({dag_id for dag_id, _, _ in offers if dag_id in readable})
    return [{"dag_id": dag_id, "label": label, "conf": conf} for dag_id, label, conf in offers if dag_id in allowed]


def _pipeline(request: Request, page_request: PageRequest, name: str) -> HTMLResponse:
    if (capture := page_request.capture(name)) is not None:
        offers = ((dag_of(name), "Capture", "{}"),)
        view, starts = page_request.view(name), _startable(page_request, offers)
        return render(request, "capture.html.j2", view=view, capture=capture, now=datetime.now(UTC), starts=starts)
    pipeline = page_request.pipeline(name)
    page, problem = _recent(page_request, name)
    values = common_context(page_request, pipeline, "pipeline")
    series = values["view"].series
    chart = {
        "times": [start.timestamp() for start in series.starts],
        "rows": list(series.rows),
        "dead": list(series.dead),
    }
    tables = [(table, "destination") for table in page_request.source.tables(name)]
    tables += [(pipeline.dead_letters_table, "dead letters"), (pipeline.ledger_table, "ledger")]
    values |= {"page": page, "problem": problem, "chart": chart, "tables": tables}
    return render(request, "pipeline.html.j2", **values)


def _recent(page_request: PageRequest, name: str) -> tuple[BatchPage | None, str]:
    """The last batches, or why they can't be read: the rest of the page is shown all the same."""
    try:
        return page_request.source.batches(name, 0, RECENT), ""
    except FrazilError as problem:
        return None, str(problem)


@router.get("/start/{dag_id}")
def start(
    request: Request,
    page_request: PageRequestDep,
    dag_id: str,
    conf: Annotated[str, Query(max_length=20_000)] = "{}",
) -> HTMLResponse:
    """The form that starts a run of a DAG, with these values in its fields."""
    name = pipeline_of(dag_id)
    is_known = name in page_request.source.pipelines() or name in page_request.source.captures()
    if name is None or not is_known or dag_id not in page_request.access.readable():
        raise HTTPException(404, f"There is no DAG {dag_id} of a pipeline, or you may not see it")
    if dag_id not in page_request.access.startable({dag_id}):
        raise HTTPException(403, f"You may not start runs of {dag_id}")
    values = _values(conf)
    back = name if page_request.sees(name) else None
    return render(request, "start.html.j2", dag_id=dag_id, conf=values, back=back)


def _values(conf: str) -> dict[str, object]:
    try:
        values = json.loads(conf)
    except (ValueError, RecursionError) as error:
        raise HTTPException(422, f"conf is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise HTTPException(422, "conf is not a JSON object")
    return values
