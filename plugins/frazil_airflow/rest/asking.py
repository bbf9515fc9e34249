"""One request of a client: its body, its user and his rights, what Airflow does for it, the changes of pipelines that
it makes, checked as `frazil validate --diff` does, and the record of what it changed.
"""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any, Final

import anyio.from_thread
import httpx
import yaml
from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import GetUserDep
from airflow.models.log import Log
from fastapi import Depends, FastAPI, HTTPException, Request

from frazil.connect.importing import pipeline_name
from frazil.monitor.condition import Runs
from frazil.pipeline.files.change import ChangeRefused, Commit, change_file, checked_pipeline
from frazil.pipeline.files.files import parse_yaml
from frazil.pipeline.files.folder import Impact, PipelineChange, difference
from frazil.pipeline.files.load import ConfigError
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.pipeline.settings.settings import unfit_catalogs, unknown_names
from frazil.project import Project
from frazil.run.batches.apply import change_impact
from frazil.run.staging.record_problems import record_problems
from frazil_airflow.page.access import AirflowAccess
from frazil_airflow.page.asking import AccessDep, SourceDep, runs_of
from frazil_airflow.page.project_source import ProjectSource
from frazil_airflow.project.pipelines import INGEST
from frazil_airflow.rest.configuration import Draft, StoredConnector, checked_name, draft, refused, stored_connector

if TYPE_CHECKING:
    from airflow.api_fastapi.auth.managers.base_auth_manager import ResourceMethod
    from starlette.types import Receive, Scope, Send


MAX_BODY: Final = 2**20
"""Bounds a body, as a pipeline file is bounded. It is refused before more of it is read."""

PREFIX: Final = "/frazil/connect"
"""Where Airflow mounts the API."""

_AIRFLOW: Final = "frazil.airflow"
_TOKEN: Final = "eyJ"  # noqa: S105 - how each JSON Web Token begins
_JSON: Final = "application/json"
_READING: Final = ("GET", "HEAD", "OPTIONS")

_LOG: Final = logging.getLogger(__name__)


class ConnectApp(FastAPI):
    """The application, which knows the Airflow that mounts it and lets clients log in as Kafka Connect's do: by HTTP's Basic scheme.

    User and password are exchanged for a token by Airflow's own `/auth/token`; a token may stand in place of the password.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, with a bearer token in place of user and password."""
        if scope["type"] == "http":
            scope[_AIRFLOW] = scope.get("app")
            if scope.get("raw_path", b"").endswith(b"/") and scope["path"] != f"{scope.get('root_path', '')}/":
                scope["path"] = scope["path"].removesuffix("/")  # means the same to Kafka Connect
            scope["headers"] = await self._with_bearer(scope)
        await super().__call__(scope, receive, send)

    async def _with_bearer(self, scope: Scope) -> list[tuple[bytes, bytes]]:
        """The headers with one login at most: each costs Airflow a look at a password."""
        logins = [header for header in scope["headers"] if header[0] == b"authorization"][:1]
        other_headers = [header for header in scope["headers"] if header[0] != b"authorization"]
        return [*other_headers, *[await self._bearer(scope, *login) for login in logins]]

    @staticmethod
    async def _bearer(scope: Scope, name: bytes, value: bytes) -> tuple[bytes, bytes]:
        scheme, _, encoded = value.partition(b" ")
        if name != b"authorization" or scheme.lower() != b"basic":
            return name, value
        try:
            user, _, password = base64.b64decode(encoded, validate=True).decode().partition(":")
        except ValueError:
            return name, b"Bearer none"
        token = password if password.startswith(_TOKEN) else await _token(scope, user, password)
        return name, b"Bearer " + (token or "none").encode()


async def _token(scope: Scope, user: str, password: str) -> str | None:
    """A token of Airflow's for a user and a password; None if it gives none."""
    answer = await _call_airflow(
        Request(scope), "POST", "/auth/token", {"username": user, "password": password}, login={}
    )
    body = answer.json() if answer.status_code == HTTPStatus.CREATED else {}
    token = body.get("access_token")
    return token if isinstance(token, str) else None


async def _call_airflow(
    request: Request, method: str, path: str, body: Mapping[str, Any], login: Mapping[str, str] | None = None
) -> httpx.Response:
    """Ask the Airflow of this very process, over its public API, as the user of a request."""
    airflow = request.scope[_AIRFLOW]
    if airflow is None:
        raise HTTPException(HTTPStatus.NOT_IMPLEMENTED, "No Airflow has mounted this application")
    root = request.scope.get("root_path", "").removesuffix("/").removesuffix(PREFIX)
    if login is None:
        login = {name: request.headers[name] for name in ("authorization", "cookie") if name in request.headers}
    transport = httpx.ASGITransport(app=airflow, raise_app_exceptions=False)
    origin = f"{request.url.scheme}://{request.url.netloc}"
    async with httpx.AsyncClient(transport=transport, base_url=origin) as client:
        return await client.request(method, f"{root}{path}", json=dict(body), headers=login)


def refuse_forged(request: Request) -> None:
    """Refuse changes that a page of another site could request with the user's cookie (CSRF).

    A browser sends neither JSON nor an Authorization header to another site without asking there first.

    Raises:
        HTTPException: 403, it changes something, and logs in by a cookie alone.
    """
    if request.method in _READING or "authorization" in request.headers or _media_type(request) == _JSON:
        return
    message = f"A change with a login by cookie has the header Content-Type: {_JSON}; or send an Authorization header"
    raise HTTPException(HTTPStatus.FORBIDDEN, message)


async def json_object(request: Request) -> dict[str, Any]:
    """The body of a request.

    Raises:
        HTTPException: 413, it is too large; 415, it is not said to be JSON; 400, it is no JSON object.
    """
    if _media_type(request) != _JSON:
        raise HTTPException(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"HTTP 415 Unsupported Media Type: expected {_JSON}")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY:
            raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"expected a body of at most {MAX_BODY:,} bytes")
    try:
        document = json.loads(body)
        json.dumps(document, ensure_ascii=False).encode()  # half of a character is JSON, and fits into no answer
    except (ValueError, RecursionError) as error:
        where = f": line {error.lineno}, {error.msg}" if isinstance(error, json.JSONDecodeError) else ""
        raise HTTPException(HTTPStatus.BAD_REQUEST, f"The body is not JSON{where}") from None
    if not isinstance(document, dict):
        raise HTTPException(HTTPStatus.BAD_REQUEST, "The body is JSON, but no object")
    return document


def _media_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


@dataclass(frozen=True)
class ConnectRequest:
    """One request: its user with his rights, the project, and Airflow's database."""

    request: Request
    source: ProjectSource
    access: AirflowAccess
    session: SessionDep
    user: str

    @property
    def project(self) -> Project:
        """The project, as its files say now."""
        return self.source.project()

    def names(self) -> list[str]:
        """Pipelines that the user may see, those with a broken file among them."""
        readable = self.access.readable()
        names = {*self.source.pipelines(), *(name for name in self.source.broken() if pipeline_name(name) == name)}
        return sorted(name for name in names if f"{INGEST}{name}" in readable or self._may("GET", name))

    def connector(self, name: str, method: ResourceMethod = "GET") -> StoredConnector:
        """The connector of that name.

        Raises:
            HTTPException: 404, it does not exist, or the user may not see it; 403, he may see it, but not do this.
        """
        try:
            pipeline = checked_name(name)
        except HTTPException:
            pipeline = ""
        stored = stored_connector(self.project.pipelines_folder, pipeline) if self._may("GET", pipeline) else None
        if stored is None or stored.content is None or not stored.answers_to(name):
            raise HTTPException(HTTPStatus.NOT_FOUND, f"Connector {name[:100]} not found")
        self.require(method, stored.pipeline)
        return stored

    def place(self, name: str) -> StoredConnector:
        """The stored connector that a request creates or changes; without content if it does not exist yet.

        Raises:
            HTTPException: 400, it is no valid name of a pipeline; 403, the user may not change it; 409, the pipeline that it would become
                is another connector.
        """
        pipeline = checked_name(name)
        self.require("PUT", pipeline)
        stored = stored_connector(self.project.pipelines_folder, pipeline)
        if stored.content is not None and not stored.answers_to(name):
            message = f"Pipeline {pipeline}, which {name} would become, is the connector {stored.name} already"
            raise HTTPException(HTTPStatus.CONFLICT, message)
        if stored.content is None and pipeline in self.source.pipelines():
            message = (
                f"A file whose name is a reference is pipeline {pipeline} already: with a second file neither would run"
            )
            raise HTTPException(HTTPStatus.CONFLICT, message)
        return stored

    def require(self, method: ResourceMethod, pipeline: str) -> None:
        """Require a permission of the user on the ingest DAG of a pipeline; the DAG may not exist yet.

        Raises:
            HTTPException: 403.
        """
        if not self._may(method, pipeline):
            raise HTTPException(HTTPStatus.FORBIDDEN, f"You may not {_VERBS[method]} the DAG {INGEST}{pipeline}")

    def _may(self, method: ResourceMethod, pipeline: str) -> bool:
        return self.access.may(method, f"{INGEST}{pipeline}")

    def runs(self, pipelines: Iterable[str]) -> dict[str, Runs | None]:
        """What Airflow knows of the DAGs of pipelines; None where it has not read one yet."""
        names = list(pipelines)
        by_dag = runs_of(self.session, [f"{INGEST}{name}" for name in names])
        return {name: by_dag.get(f"{INGEST}{name}") for name in names}

    def ask_airflow(self, method: str, pipeline: str, path: str, body: Mapping[str, Any]) -> None:
        """Have Airflow change the DAG of a pipeline, as this user. Airflow answers by a thread of its own, out of those that
        requests like this one hold: seats bound how many do, or all would wait for a thread, and Airflow with them.

        Raises:
            HTTPException: 409, Airflow has not read the DAG yet; or what Airflow says.
            Retryable: Too many requests wait already.
        """
        dag_id = f"{INGEST}{pipeline}"
        with self.source.seat():
            answer = anyio.from_thread.run(_call_airflow, self.request, method, f"/api/v2/dags/{dag_id}{path}", body)
        if answer.status_code == HTTPStatus.NOT_FOUND:
            message = f"Airflow has not read the DAG {dag_id} yet: ask again in some seconds"
            raise HTTPException(HTTPStatus.CONFLICT, message)
        if answer.is_error:
            raise HTTPException(answer.status_code, f"Airflow refuses: {_detail(answer)}")

    def note_change(self, event: str, pipeline: str, **facts: Any) -> None:
        """Write into Airflow's audit log who changed what. No value of a configuration is in it."""
        extra = json.dumps({"pipeline": pipeline, **facts})
        _LOG.info("%s by %s: %s", event, self.user, extra)
        self.session.add(
            Log(
                event=f"frazil_{event}",
                owner=self.user,
                owner_display_name=self.user,
                extra=extra,
                dag_id=f"{INGEST}{pipeline}",
            )
        )


_VERBS: Final[Mapping[str, str]] = {"GET": "see", "POST": "run", "PUT": "change", "DELETE": "delete"}


def _detail(answer: httpx.Response) -> str:
    try:
        return str(answer.json().get("detail"))[:500]
    except (ValueError, AttributeError):
        return f"HTTP {answer.status_code}"


def connect_request(
    request: Request, source: SourceDep, access: AccessDep, session: SessionDep, user: GetUserDep
) -> ConnectRequest:
    """The input of a route."""
    return ConnectRequest(request, source, access, session, user.get_name() or "unknown")


RequestDep = Annotated[ConnectRequest, Depends(connect_request)]
BodyDep = Annotated[dict[str, Any], Depends(json_object)]


def put(asking: ConnectRequest, name: str, config: Mapping[str, Any], before: StoredConnector) -> None:
    """Create or change a pipeline.

    Args:
        asking: The request of a user who may change it.
        name: Name of the connector.
        config: Its configuration.
        before: The stored connector when the request began.

    Raises:
        HTTPException: 400, the configuration has errors, or the next run would refuse it; 409, the files are not to be changed, or
            somebody else was faster.
    """
    with asking.source.seat() as project:
        drafted = draft(name, config, project)
        if drafted.problems:
            raise refused(list(drafted.problems))
        pipeline, problems = check(drafted, project)
        if pipeline is None or problems:
            raise refused(problems)
        changes, impacts = _effects(pipeline, project)
    if against := [f"name: {impact.text}" for impact in impacts if impact.weight == "refused"]:
        raise refused(against)
    text = drafted.text.encode()
    if before.content is None or _is_other(before.content, text):
        lines = [f"{impact.weight}: {project.pipelines.hidden(impact.text)}" for impact in impacts]
        _write(asking, before, text, lines, [key.path for change in changes for key in change.keys])


def delete(asking: ConnectRequest, stored: StoredConnector) -> None:
    """Remove a pipeline's file. Its tables stay as they are, and the position with them.

    Raises:
        HTTPException: 409, as `put`.
    """
    _write(asking, stored, None, [], [])


def check(drafted: Draft, project: Project) -> tuple[Pipeline | None, list[str]]:
    """The pipeline that a draft would be, and what is wrong with it, each line beginning with its key."""
    references = project.pipelines.references
    try:
        pipeline = checked_pipeline(drafted.text, project.pipelines_folder, references)
    except ConfigError as error:
        return None, [references.hidden(problem) for problem in error.problems]
    settings = project.settings
    problems = [*unknown_names(pipeline, settings), *unfit_catalogs(pipeline, settings), *record_problems(pipeline)]
    return pipeline, [references.hidden(problem) for problem in problems]


def _effects(pipeline: Pipeline, project: Project) -> tuple[tuple[PipelineChange, ...], list[Impact]]:
    """What changes, and what that does, also to existing tables."""
    present = project.pipelines.usable.get(pipeline.name)
    changes = difference({} if present is None else {pipeline.name: present}, {pipeline.name: pipeline})
    return changes, [impact for change in changes for impact in change_impact(change, project)]


def _is_other(before: bytes, after: bytes) -> bool:
    """Whether a file says something else than before: remarks of a person stay as long as the values do."""
    if b"# connect: " in before + after:
        return before != after
    try:
        return parse_yaml(before.decode()) != parse_yaml(after.decode())
    except (yaml.YAMLError, ValueError):
        return True


def _write(
    asking: ConnectRequest, before: StoredConnector, text: bytes | None, effects: list[str], keys: list[str]
) -> None:
    event = "delete" if text is None else "create" if before.content is None else "change"
    project = asking.project
    changes = project.settings.rest_api.changes
    if changes == "refused":
        raise HTTPException(
            HTTPStatus.CONFLICT,
            "Pipeline files are not changed here: change them where they come from, or say rest_api: {changes: file} or"
            " {changes: commit} in the settings",
        )
    subject = f"{before.pipeline}: {event}d over HTTP"
    about = "\n".join([f"{asking.request.method} {asking.request.url.path}, by {asking.user}", "", *effects])
    commit = Commit(asking.user, f"{subject}\n\n{about}") if changes == "commit" else None
    try:
        with asking.source.seat():  # Git, its hooks and other changes may be waited for
            change_file(before.file, before.content, text, commit)
    except ChangeRefused as error:
        raise HTTPException(HTTPStatus.CONFLICT, f"{error.message}\n  next: {error.next_step}") from error
    asking.source.look_again()
    asking.note_change(f"{event}_pipeline", before.pipeline, file=before.file.name, keys=keys)
