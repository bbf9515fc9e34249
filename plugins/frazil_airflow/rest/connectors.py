"""Routes of connectors: what there is, how it does, create, change, pause, resume, restart, delete."""

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
from frazil_airflow.rest.asking import BodyDep, ConnectRequest, RequestDep, delete, put
from frazil_airflow.rest.configuration import StoredConnector, stored_connector

router = APIRouter()

WORKER = "airflow"
"""In place of a worker's id: between two batches nothing runs."""

ConnectorState = Literal["RUNNING", "PAUSED", "FAILED", "UNASSIGNED"]


class TaskId(BaseModel):
    """A task of a connector. A pipeline has one, which stands for its runs."""

    connector: str
    task: int


class ConnectorInfo(BaseModel):
    """A connector, as `GET /connectors/{name}` returns it."""

    name: str
    config: dict[str, str]
    tasks: list[TaskId]
    type: Literal["sink"] = "sink"


class State(BaseModel):
    """State of a connector: of its DAG."""

    state: ConnectorState
    worker_id: str = WORKER
    trace: str | None = None


class TaskState(State):
    """State of a task: of the last runs."""

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
"""For the OpenAPI document: bodies are read by hand, so that they are bounded before they are parsed."""

Expand = Annotated[list[Literal["status", "info"]], Query()]


@router.get("/")
def server() -> dict[str, str | None]:
    """Version of Frazil. Commit and Kafka cluster have no counterpart: a project may have several clusters."""
    return {"version": __version__, "commit": None, "kafka_cluster_id": None}


@router.get("/connectors", response_model=None)
def connectors(asking: RequestDep, expand: Expand = []) -> list[str] | dict[str, Any]:  # noqa: B006 - FastAPI's own way
    """Names of all pipelines that the user may see; with `expand` also their state or configuration."""
    folder = asking.project.pipelines_folder
    stored = [stored_connector(folder, pipeline) for pipeline in asking.names()]
    if not expand:
        return [connector.name for connector in stored]
    runs = asking.runs([connector.pipeline for connector in stored]) if "status" in expand else {}
    expanded: dict[str, dict[str, Any]] = {connector.name: {} for connector in stored}
    for connector in stored:
        if "status" in expand:
            status = _status(asking, connector, runs[connector.pipeline])
            expanded[connector.name]["status"] = status.model_dump(exclude_none=True)
        if "info" in expand:
            expanded[connector.name]["info"] = _info(connector).model_dump()
    return expanded


@router.post("/connectors", status_code=HTTPStatus.CREATED, response_model=ConnectorInfo, openapi_extra=CONFIG)
def create(asking: RequestDep, body: BodyDep, response: Response) -> ConnectorInfo:
    """Create a pipeline from `{"name": …, "config": {…}}`. Whether its DAG begins paused, Airflow's settings say."""
    name, config = body.get("name"), body.get("config")
    if not isinstance(name, str) or not isinstance(config, dict):
        raise HTTPException(HTTPStatus.BAD_REQUEST, 'Expected {"name": a text, "config": an object}')
    before = asking.place(name)
    if before.content is not None:
        raise HTTPException(HTTPStatus.CONFLICT, f"Connector {name} already exists")
    put(asking, name, config, before)
    response.headers["Location"] = f"{asking.request.scope.get('root_path', '')}/connectors/{quote(name, safe='')}"
    return _info(asking.connector(name))


@router.get("/connectors/{name}")
def connector(asking: RequestDep, name: str) -> ConnectorInfo:
    """A connector with its configuration."""
    return _info(asking.connector(name))


@router.get("/connectors/{name}/config")
def config(asking: RequestDep, name: str) -> dict[str, str]:
    """The configuration: the one that was sent, or, once its file was edited, the pipeline's own keys."""
    return dict(asking.connector(name).config)


@router.put("/connectors/{name}/config", response_model=ConnectorInfo, openapi_extra=CONFIG)
def put_config(asking: RequestDep, name: str, body: BodyDep, response: Response) -> ConnectorInfo:
    """Create a pipeline, or change it to exactly this configuration."""
    before = asking.place(name)
    put(asking, name, body, before)
    response.status_code = HTTPStatus.CREATED if before.content is None else HTTPStatus.OK
    return _info(asking.connector(name))


@router.patch("/connectors/{name}/config", openapi_extra=CONFIG)
def patch_config(asking: RequestDep, name: str, body: BodyDep) -> ConnectorInfo:
    """Change some keys of a configuration; `null` removes one."""
    before = asking.connector(name, "PUT")
    merged = {key: value for key, value in {**before.config, **body}.items() if value is not None}
    put(asking, before.name, merged, before)
    return _info(asking.connector(before.name))


@router.delete("/connectors/{name}", status_code=HTTPStatus.NO_CONTENT)
def delete_connector(asking: RequestDep, name: str) -> Response:
    """Remove the pipeline's file. Tables, position and Airflow's past runs stay."""
    stored = asking.connector(name, "DELETE")
    if further_files := files_of_same_name(stored.file):
        files = ", ".join(path.name for path in (stored.file, *further_files))
        message = f"Files {files} state the name {stored.pipeline}: without one the other would begin to run"
        raise HTTPException(HTTPStatus.CONFLICT, message)
    delete(asking, stored)
    return Response(status_code=HTTPStatus.NO_CONTENT)


@router.get("/connectors/{name}/status", response_model_exclude_none=True)
def status(asking: RequestDep, name: str) -> ConnectorStatus:
    """State of the DAG, and of the last runs as that of one task."""
    return _read_status(asking, asking.connector(name))


@router.put("/connectors/{name}/pause", status_code=HTTPStatus.ACCEPTED)
def pause(asking: RequestDep, name: str) -> Response:
    """Pause the DAG: no further run begins, one at work continues."""
    return _switch(asking, name, HTTPStatus.ACCEPTED, is_paused=True)


@router.put("/connectors/{name}/stop", status_code=HTTPStatus.NO_CONTENT)
def stop(asking: RequestDep, name: str) -> Response:
    """The same as to pause: a pipeline keeps nothing between two batches that could be shut down."""
    return _switch(asking, name, HTTPStatus.NO_CONTENT, is_paused=True)


@router.put("/connectors/{name}/resume", status_code=HTTPStatus.ACCEPTED)
def resume(asking: RequestDep, name: str) -> Response:
    """Let the DAG run again, from where it stands."""
    return _switch(asking, name, HTTPStatus.ACCEPTED, is_paused=False)


@router.post("/connectors/{name}/restart", response_model=ConnectorStatus)
def restart(
    asking: RequestDep,
    name: str,
    *,
    include_tasks: Annotated[bool, Query(alias="includeTasks")] = False,
    only_failed: Annotated[bool, Query(alias="onlyFailed")] = False,
) -> Response:
    """Start a run now. With `onlyFailed` only if the last one failed."""
    stored = asking.connector(name)
    before = _read_status(asking, stored)
    if not only_failed or before.tasks[0].state == "FAILED":
        _start_run(asking, stored)
    if not (include_tasks or only_failed):
        return Response(status_code=HTTPStatus.NO_CONTENT)
    return JSONResponse(before.model_dump(exclude_none=True), status_code=HTTPStatus.ACCEPTED)


@router.get("/connectors/{name}/tasks")
def tasks(asking: RequestDep, name: str) -> list[dict[str, Any]]:
    """The one task, with the connector's configuration."""
    stored = asking.connector(name)
    return [{"id": {"connector": stored.name, "task": 0}, "config": dict(stored.config)}]


@router.get("/connectors/{name}/tasks/{task}/status", response_model_exclude_none=True)
def task_status(asking: RequestDep, name: str, task: int) -> TaskState:
    """State of the last runs."""
    return _read_status(asking, _with_task(asking, name, task)).tasks[0]


@router.post("/connectors/{name}/tasks/{task}/restart", status_code=HTTPStatus.NO_CONTENT)
def restart_task(asking: RequestDep, name: str, task: int) -> Response:
    """Start a run now."""
    _start_run(asking, _with_task(asking, name, task))
    return Response(status_code=HTTPStatus.NO_CONTENT)


@router.put("/connectors/{name}/topics/reset")
def reset_topics(asking: RequestDep, name: str) -> None:
    """Refused, as Kafka Connect does where it keeps no list: the topics of a pipeline are those of its position."""
    asking.connector(name, "PUT")
    raise HTTPException(HTTPStatus.FORBIDDEN, "Topic tracking reset is disabled: the topics are those of the position")


def _info(stored: StoredConnector) -> ConnectorInfo:
    return ConnectorInfo(name=stored.name, config=dict(stored.config), tasks=[TaskId(connector=stored.name, task=0)])


def _read_status(asking: ConnectRequest, stored: StoredConnector) -> ConnectorStatus:
    return _status(asking, stored, asking.runs([stored.pipeline])[stored.pipeline])


def _status(asking: ConnectRequest, stored: StoredConnector, runs: Runs | None) -> ConnectorStatus:
    errors = asking.project.pipelines.broken
    broken = next((str(error) for error in errors if error.file == stored.file), None)  # another one may have its stem
    state: ConnectorState = "RUNNING"
    trace = None
    if broken is not None:
        state, trace = "FAILED", broken
    elif runs is None:
        state = "UNASSIGNED"
    elif runs.is_paused:
        state = "PAUSED"
    task_trace = trace if trace is not None or runs is None or state == "PAUSED" else _why_failed(asking, stored, runs)
    task_state: ConnectorState = "FAILED" if task_trace is not None else state
    return ConnectorStatus(
        name=stored.name,
        connector=State(state=state, trace=trace),
        tasks=[TaskState(state=task_state, trace=task_trace)],
    )


def _why_failed(asking: ConnectRequest, stored: StoredConnector, runs: Runs) -> str | None:
    if runs.last_state != "failed":
        return None
    condition = asking.source.condition(stored.pipeline)
    refusal = condition.refusal if condition is not None else None
    return refusal.splitlines()[0] if refusal else f"the last {runs.failures} runs failed, at last {runs.last_run}"


def _switch(asking: ConnectRequest, name: str, answer: HTTPStatus, *, is_paused: bool) -> Response:
    stored = asking.connector(name, "PUT")
    asking.ask_airflow("PATCH", stored.pipeline, "", {"is_paused": is_paused})
    return Response(status_code=answer)


def _start_run(asking: ConnectRequest, stored: StoredConnector) -> None:
    body: Mapping[str, Any] = {"logical_date": None, "conf": {}, "note": f"restarted over HTTP by {asking.user}"}
    asking.ask_airflow("POST", stored.pipeline, "/dagRuns", body)


def _with_task(asking: ConnectRequest, name: str, task: int) -> StoredConnector:
    stored = asking.connector(name)
    if task != 0:
        raise HTTPException(
            HTTPStatus.NOT_FOUND, f"Task {task} of connector {stored.name} not found: a pipeline has one"
        )
    return stored
