"""One call of the REST API: its body, its user and their rights, what Airflow does for it, and the change of a pipeline file
that it makes: checked as `frazil validate --diff` does, written, and noted in Airflow's audit log.
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
from frazil_airflow.page.project_source import ProjectSource
from frazil_airflow.page.request import AccessDep, SourceDep, runs_of
from frazil_airflow.project.pipelines import INGEST
from frazil_airflow.rest.configuration import Draft, StoredConnector, checked_name, draft, refused, stored_connector

if TYPE_CHECKING:
    from airflow.api_fastapi.auth.managers.base_auth_manager import ResourceMethod
    from starlette.types import Receive, Scope, Send


MAX_BODY: Final = 2**20
"""Bytes of a body, at most: a pipeline file has the same bound. A longer body is refused as soon as that many bytes are read."""

PREFIX: Final = "/frazil/connect"
"""Where Airflow mounts the API."""

_AIRFLOW: Final = "frazil.airflow"
_TOKEN: Final = "eyJ"  # noqa: S105 - each JSON Web Token begins so
_JSON: Final = "application/json"
_READING: Final = ("GET", "HEAD", "OPTIONS")

_LOG: Final = logging.getLogger(__name__)


class ConnectApp(FastAPI):
    """The application. It lets clients log in as Kafka Connect's clients do, by HTTP's Basic scheme.

    It exchanges user and password for a token at Airflow's own `/auth/token`. A client may send a token in place of the password.
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
        """The headers with one Authorization header at most: Airflow checks a password for each."""
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
    """Airflow's token for a user and a password; None if Airflow refuses them."""
    answer = await _call_airflow(
        Request(scope), "POST", "/auth/token", {"username": user, "password": password}, login={}
    )
    body = answer.json() if answer.status_code == HTTPStatus.CREATED else {}
    token = body.get("access_token")
    return token if isinstance(token, str) else None


async def _call_airflow(
    request: Request, method: str, path: str, body: Mapping[str, Any], login: Mapping[str, str] | None = None
) -> httpx.Response:
    """Call the public API of the Airflow that runs in this process, as the user of a request."""
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

    A browser sends neither JSON nor an Authorization header to another site without asking that site first.

    Raises:
        HTTPException: 403, the request changes something, and only a cookie proves who sent it.
    """
    if request.method in _READING or "authorization" in request.headers or _media_type(request) == _JSON:
        return
    message = (
        f"A change that logs in by a cookie must have the header Content-Type: {_JSON}, or an Authorization header"
    )
    raise HTTPException(HTTPStatus.FORBIDDEN, message)


async def json_object(request: Request) -> dict[str, Any]:
    """The body of a request, which must be a JSON object.

    Raises:
        HTTPException: 413, the body is too large; 415, its media type is not JSON; 400, it is no JSON object.
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
        json.dumps(
            document, ensure_ascii=False
        ).encode()  # half of a surrogate pair is valid JSON, but no answer could repeat it
    except (ValueError, RecursionError) as error:
        where = f": line {error.lineno}, {error.msg}" if isinstance(error, json.JSONDecodeError) else ""
        raise HTTPException(HTTPStatus.BAD_REQUEST, f"The body is not JSON{where}") from None
    if not isinstance(document, dict):
        raise HTTPException(HTTPStatus.BAD_REQUEST, "The body is JSON, but no object")
    return document


def _media_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


@dataclass(frozen=True)
class ApiCall:
    """One call of the API: its request, its user and their rights, the project, and a session of Airflow's database."""

    request: Request
    source: ProjectSource
    access: AirflowAccess
    session: SessionDep
    user: str

    @property
    def project(self) -> Project:
        """The project, as its files are now."""
        return self.source.project()

    def names(self) -> list[str]:
        """Pipelines that the user may see, including those whose file is broken."""
        readable = self.access.readable()
        names = {*self.source.pipelines(), *(name for name in self.source.broken() if pipeline_name(name) == name)}
        return sorted(name for name in names if f"{INGEST}{name}" in readable or self._may("GET", name))

    def connector(self, name: str, method: ResourceMethod = "GET") -> StoredConnector:
        """The connector with a name, which the user must be allowed to use by `method`.

        Raises:
            HTTPException: 404, it does not exist, or the user may not see it; 403, the user may see it, but not do this.
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

    def target(self, name: str) -> StoredConnector:
        """The connector that a call creates or changes; without content if it does not exist yet.

        Raises:
            HTTPException: 400, the name is not valid; 403, the user may not change it; 409, another connector already has the
                pipeline that this one would become.
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
        """The runs of the DAGs of pipelines, by pipeline; None where Airflow has not read the DAG yet."""
        names = list(pipelines)
        by_dag = runs_of(self.session, [f"{INGEST}{name}" for name in names])
        return {name: by_dag.get(f"{INGEST}{name}") for name in names}

    def ask_airflow(self, method: str, pipeline: str, path: str, body: Mapping[str, Any]) -> None:
        """Change the DAG of a pipeline through Airflow's API, as this user.

        Airflow answers in a thread of the same pool as this call. A slot limits how many calls wait for such an answer: else all
        threads of the pool could wait for a further one, and Airflow would hang.

        Raises:
            HTTPException: 409, Airflow has not read the DAG yet; or what Airflow says.
            Retryable: Too many requests wait already.
        """
        dag_id = f"{INGEST}{pipeline}"
        with self.source.slot():
            answer = anyio.from_thread.run(_call_airflow, self.request, method, f"/api/v2/dags/{dag_id}{path}", body)
        if answer.status_code == HTTPStatus.NOT_FOUND:
            message = f"Airflow has not read the DAG {dag_id} yet: ask again in some seconds"
            raise HTTPException(HTTPStatus.CONFLICT, message)
        if answer.is_error:
            raise HTTPException(answer.status_code, f"Airflow refuses: {_detail(answer)}")

    def note_change(self, event: str, pipeline: str, **facts: Any) -> None:
        """Write to Airflow's audit log who changed what, without values of the configuration."""
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


def api_call(request: Request, source: SourceDep, access: AccessDep, session: SessionDep, user: GetUserDep) -> ApiCall:
    """Collect what a route needs of its call."""
    return ApiCall(request, source, access, session, user.get_name() or "unknown")


CallDep = Annotated[ApiCall, Depends(api_call)]
BodyDep = Annotated[dict[str, Any], Depends(json_object)]


def put(call: ApiCall, name: str, config: Mapping[str, Any], before: StoredConnector) -> None:
    """Create or change a pipeline.

    Args:
        call: The call of a user who may change the pipeline.
        name: Name of the connector.
        config: Its configuration.
        before: The stored connector when the call began.

    Raises:
        HTTPException: 400, the configuration has errors, or the next run would refuse it; 409, the settings forbid changes of
            files, or somebody else changed the file first.
    """
    with call.source.slot() as project:
        drafted = draft(name, config, project)
        if drafted.problems:
            raise refused(list(drafted.problems))
        pipeline, problems = check(drafted, project)
        if pipeline is None or problems:
            raise refused(problems)
        changes, impacts = _impacts(pipeline, project)
    if refusals := [f"name: {impact.text}" for impact in impacts if impact.weight == "refused"]:
        raise refused(refusals)
    text = drafted.text.encode()
    if before.content is None or _is_other(before.content, text):
        lines = [f"{impact.weight}: {project.pipelines.hidden(impact.text)}" for impact in impacts]
        _write(call, before, text, lines, [key.path for change in changes for key in change.keys])


def delete(call: ApiCall, stored: StoredConnector) -> None:
    """Remove a pipeline's file. Its tables stay, and its position with them.

    Raises:
        HTTPException: 409, as `put`.
    """
    _write(call, stored, None, [], [])


def check(drafted: Draft, project: Project) -> tuple[Pipeline | None, list[str]]:
    """The pipeline that a draft describes, and its errors, each beginning with its key; no pipeline if the draft can't be read."""
    references = project.pipelines.references
    try:
        pipeline = checked_pipeline(drafted.text, project.pipelines_folder, references)
    except ConfigError as error:
        return None, [references.hidden(problem) for problem in error.problems]
    settings = project.settings
    problems = [*unknown_names(pipeline, settings), *unfit_catalogs(pipeline, settings), *record_problems(pipeline)]
    return pipeline, [references.hidden(problem) for problem in problems]


def _impacts(pipeline: Pipeline, project: Project) -> tuple[tuple[PipelineChange, ...], list[Impact]]:
    """Changes of the pipeline file, and the impact of each, also on existing tables."""
    present = project.pipelines.usable.get(pipeline.name)
    changes = difference({} if present is None else {pipeline.name: present}, {pipeline.name: pipeline})
    return changes, [impact for change in changes for impact in change_impact(change, project)]


def _is_other(before: bytes, after: bytes) -> bool:
    """Whether a file has other values than before. A file with the same values is not written, so that its comments stay."""
    if b"# connect: " in before + after:
        return before != after
    try:
        return parse_yaml(before.decode()) != parse_yaml(after.decode())
    except (yaml.YAMLError, ValueError):
        return True


def _write(call: ApiCall, before: StoredConnector, text: bytes | None, impacts: list[str], keys: list[str]) -> None:
    event = "delete" if text is None else "create" if before.content is None else "change"
    project = call.project
    changes = project.settings.rest_api.changes
    if changes == "refused":
        raise HTTPException(
            HTTPStatus.CONFLICT,
            "The settings forbid changes of pipeline files over HTTP: change them where they come from, or set rest_api:"
            " {changes: file} or {changes: commit}",
        )
    subject = f"{before.pipeline}: {event}d over HTTP"
    body = "\n".join([f"{call.request.method} {call.request.url.path}, by {call.user}", "", *impacts])
    commit = Commit(call.user, f"{subject}\n\n{body}") if changes == "commit" else None
    try:
        with call.source.slot():  # Git, its hooks and other changes may take their time
            change_file(before.file, before.content, text, commit)
    except ChangeRefused as error:
        raise HTTPException(HTTPStatus.CONFLICT, f"{error.message}\n  next: {error.next_step}") from error
    call.source.look_again()
    call.note_change(f"{event}_pipeline", before.pipeline, file=before.file.name, keys=keys)
