"""Routes of connectors: list, configuration, status, create, change, pause, resume, restart, delete."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, HTTPException, Query, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from frazil import __version__
from frazil.monitor.condition import Runs
from frazil.pipeline.files.folder import files_of_same_name
from frazil_airflow.rest.configuration import StoredConnector, stored_connector
from frazil_airflow.rest.request import ApiCall, BodyDep, CallDep, delete, put

router = APIRouter()

WORKER = "airflow"
"""Stands in place of a worker's id: no worker belongs to a pipeline."""

ConnectorState = Literal["RUNNING", "PAUSED", "FAILED", "UNASSIGNED"]


class TaskId(BaseModel):
    """A task of a connector. A pipeline has exactly one, which stands for its runs."""

    connector: str
    task: int


class ConnectorInfo(BaseModel):
    """A connector, as `GET /connectors/{name}` returns it."""

    name: str
    config: dict[str, str]
    tasks: list[TaskId]
    type: Literal["sink"] = "sink"


class State(BaseModel):
    """State of a connector: that of its DAG."""

    state: ConnectorState
    worker_id: str = WORKER
    trace: str | None = None


class TaskState(State):
    """State of a task: that of the last runs."""

    id: int = 0


class ConnectorStatus(BaseModel):
    """A connector's state and that of its task."""

    name: str
    connector: State
    tasks: list[TaskState]
    type: Literal["sink"] = "sink"


CONFIG = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"type": "object", "additionalProperties": True}}},
    }
}
"""For the OpenAPI document: FastAPI does not know the bodies, as `json_object` reads them, to limit their size."""

Expand = Annotated[list[Literal["status", "info"]], Query()]


@router.get("/")
def server() -> dict[str, str | None]:
    """Version of Frazil. Commit and Kafka cluster have no counterpart: a project may have several clusters."""
    return {"version": __version__, "commit": None, "kafka_cluster_id": None}


@router.get("/connectors", response_model=None)
def connectors(call: CallDep, expand: Expand = []) -> list[str] | dict[str, Any]:  # noqa: B006 - FastAPI's own way
    """Names of all pipelines that the user may see; with `expand` also their state or configuration."""
    folder = call.project.pipelines_folder
    stored = [stored_connector(folder, pipeline) for pipeline in call.names()]
    if not expand:
        return [connector.name for connector in stored]
    runs = call.runs([connector.pipeline for connector in stored]) if "status" in expand else {}
    expanded: dict[str, dict[str, Any]] = {connector.name: {} for connector in stored}
    for connector in stored:
        if "status" in expand:
            status = _status(call, connector, runs[connector.pipeline])
            expanded[connector.name]["status"] = status.model_dump(exclude_none=True)
        if "info" in expand:
            expanded[connector.name]["info"] = _info(connector).model_dump()
    return expanded


@router.post("/connectors", status_code=HTTPStatus.CREATED, response_model=ConnectorInfo, openapi_extra=CONFIG)
def create(call: CallDep, body: BodyDep, response: Response) -> ConnectorInfo:
    """Create a pipeline from `{"name": …, "config": {…}}`. Airflow's settings decide whether its DAG begins paused."""
    name, config = body.get("name"), body.get("config")
    if not isinstance(name, str) or not isinstance(config, dict):
        raise HTTPException(HTTPStatus.BAD_REQUEST, 'Expected {"name": a text, "config": an object}')
    before = call.target(name)
    if before.content is not None:
        raise HTTPException(HTTPStatus.CONFLICT, f"Connector {name} already exists")
    put(call, name, config, before)
    response.headers["Location"] = f"{call.request.scope.get('root_path', '')}/connectors/{quote(name, safe='')}"
    return _info(call.connector(name))


@router.get("/connectors/{name}")
def connector(call: CallDep, name: str) -> ConnectorInfo:
    """A connector with its configuration."""
    return _info(call.connector(name))


@router.get("/connectors/{name}/config")
def config(call: CallDep, name: str) -> dict[str, str]:
    """The configuration: the one that was sent, or, once its file was edited, the pipeline's own keys."""
    return dict(call.connector(name).config)


@router.put("/connectors/{name}/config", response_model=ConnectorInfo, openapi_extra=CONFIG)
def put_config(call: CallDep, name: str, body: BodyDep, response: Response) -> ConnectorInfo:
    """Create a pipeline, or change it to exactly this configuration."""
    before = call.target(name)
    put(call, name, body, before)
    response.status_code = HTTPStatus.CREATED if before.content is None else HTTPStatus.OK
    return _info(call.connector(name))


@router.patch("/connectors/{name}/config", openapi_extra=CONFIG)
def patch_config(call: CallDep, name: str, body: BodyDep) -> ConnectorInfo:
    """Change some keys of a configuration; `null` removes one."""
    before = call.connector(name, "PUT")
    merged = {key: value for key, value in {**before.config, **body}.items() if value is not None}
    put(call, before.name, merged, before)
    return _info(call.connector(before.name))


@router.delete("/connectors/{name}", status_code=HTTPStatus.NO_CONTENT)
def delete_connector(call: CallDep, name: str) -> Response:
    """Remove the pipeline's file. Tables, position and Airflow's past runs stay."""
    stored = call.connector(name, "DELETE")
    if further_files := files_of_same_name(stored.file):
        files = ", ".join(path.name for path in (stored.file, *further_files))
        message = f"Files {files} state the name {stored.pipeline}: without one the other would begin to run"
        raise HTTPException(HTTPStatus.CONFLICT, message)
    delete(call, stored)
    return Response(status_code=HTTPStatus.NO_CONTENT)


@router.get("/connectors/{name}/status", response_model_exclude_none=True)
def status(call: CallDep, name: str) -> ConnectorStatus:
    """State of the DAG, and of the last runs as that of one task."""
    return _read_status(call, call.connector(name))


@router.put("/connectors/{name}/pause", status_code=HTTPStatus.ACCEPTED)
def pause(call: CallDep, name: str) -> Response:
    """Pause the DAG: no further run begins, a running one continues."""
    return _set_paused(call, name, HTTPStatus.ACCEPTED, is_paused=True)


@router.put("/connectors/{name}/stop", status_code=HTTPStatus.NO_CONTENT)
def stop(call: CallDep, name: str) -> Response:
    """Pause the DAG, too: between two batches a pipeline keeps nothing running that could be shut down."""
    return _set_paused(call, name, HTTPStatus.NO_CONTENT, is_paused=True)


@router.put("/connectors/{name}/resume", status_code=HTTPStatus.ACCEPTED)
def resume(call: CallDep, name: str) -> Response:
    """Unpause the DAG: it goes on at its position."""
    return _set_paused(call, name, HTTPStatus.ACCEPTED, is_paused=False)


@router.post("/connectors/{name}/restart", response_model=ConnectorStatus)
def restart(
    call: CallDep,
    name: str,
    *,
    include_tasks: Annotated[bool, Query(alias="includeTasks")] = False,
    only_failed: Annotated[bool, Query(alias="onlyFailed")] = False,
) -> Response:
    """Start a run now. With `onlyFailed` only if the last one failed."""
    stored = call.connector(name)
    before = _read_status(call, stored)
    if not only_failed or before.tasks[0].state == "FAILED":
        _start_run(call, stored)
    if not (include_tasks or only_failed):
        return Response(status_code=HTTPStatus.NO_CONTENT)
    return JSONResponse(before.model_dump(exclude_none=True), status_code=HTTPStatus.ACCEPTED)


@router.get("/connectors/{name}/tasks")
def tasks(call: CallDep, name: str) -> list[dict[str, Any]]:
    """The one task, with the connector's configuration."""
    stored = call.connector(name)
    return [{"id": {"connector": stored.name, "task": 0}, "config": dict(stored.config)}]


@router.get("/connectors/{name}/tasks/{task}/status", response_model_exclude_none=True)
def task_status(call: CallDep, name: str, task: int) -> TaskState:
    """State of the last runs."""
    return _read_status(call, _with_task(call, name, task)).tasks[0]


@router.post("/connectors/{name}/tasks/{task}/restart", status_code=HTTPStatus.NO_CONTENT)
def restart_task(call: CallDep, name: str, task: int) -> Response:
    """Start a run now."""
    _start_run(call, _with_task(call, name, task))
    return Response(status_code=HTTPStatus.NO_CONTENT)


@router.put("/connectors/{name}/topics/reset")
def reset_topics(call: CallDep, name: str) -> None:
    """Refuse, as Kafka Connect does without topic tracking: the topics of a pipeline are those of its position."""
    call.connector(name, "PUT")
    raise HTTPException(HTTPStatus.FORBIDDEN, "Topic tracking reset is disabled: the topics are those of the position")


def _info(stored: StoredConnector) -> ConnectorInfo:
    return ConnectorInfo(name=stored.name, config=dict(stored.config), tasks=[TaskId(connector=stored.name, task=0)])


def _read_status(call: ApiCall, stored: StoredConnector) -> ConnectorStatus:
    return _status(call, stored, call.runs([stored.pipeline])[stored.pipeline])


def _status(call: ApiCall, stored: StoredConnector, runs: Runs | None) -> ConnectorStatus:
    errors = call.project.pipelines.broken
    # Not by name: a file with another ending may have the same stem.
    broken = next((str(error) for error in errors if error.file == stored.file), None)
    state: ConnectorState = "RUNNING"
    trace = None
    if broken is not None:
        state, trace = "FAILED", broken
    elif runs is None:
        state = "UNASSIGNED"
    elif runs.is_paused:
        state = "PAUSED"
    task_trace = trace if trace is not None or runs is None or state == "PAUSED" else _why_failed(call, stored, runs)
    task_state: ConnectorState = "FAILED" if task_trace is not None else state
    return ConnectorStatus(
        name=stored.name,
        connector=State(state=state, trace=trace),
        tasks=[TaskState(state=task_state, trace=task_trace)],
    )


def _why_failed(call: ApiCall, stored: StoredConnector, runs: Runs) -> str | None:
    if runs.last_state != "failed":
        return None
    condition = call.source.condition(stored.pipeline)
    refusal = condition.refusal if condition is not None else None
    return refusal.splitlines()[0] if refusal else f"the last {runs.failures} runs failed, at last {runs.last_run}"


def _set_paused(call: ApiCall, name: str, status_code: HTTPStatus, *, is_paused: bool) -> Response:
    stored = call.connector(name, "PUT")
    call.ask_airflow("PATCH", stored.pipeline, "", {"is_paused": is_paused})
    return Response(status_code=status_code)


def _start_run(call: ApiCall, stored: StoredConnector) -> None:
    body: Mapping[str, Any] = {"logical_date": None, "conf": {}, "note": f"restarted over HTTP by {call.user}"}
    call.ask_airflow("POST", stored.pipeline, "/dagRuns", body)


def _with_task(call: ApiCall, name: str, task: int) -> StoredConnector:
    stored = call.connector(name)
    if task != 0:
        raise HTTPException(
            HTTPStatus.NOT_FOUND, f"Task {task} of connector {stored.name} not found: a pipeline has one"
        )
    return stored
