"""A small client of Airflow's REST API: it starts runs, follows them, and reads why they failed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Self
from urllib.parse import quote

import httpx
import msgspec
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_random_exponential

from frazil.error_codes import AIRFLOW_FAILED, RUN_FAILED
from frazil.errors import Retryable, Terminal
from frazil.runtime.process import until

FINISHED_STATES = frozenset({"success", "failed"})
"""States that a run does not leave by itself."""


@dataclass(frozen=True, slots=True)
class DagRun:
    """One run of a DAG. Times are UTC; `logical_date` is None for most manual runs; `conf` has its parameters."""

    dag_id: str
    run_id: str
    state: str
    run_type: str
    logical_date: datetime | None
    start_date: datetime | None
    end_date: datetime | None
    note: str | None
    conf: Mapping[str, Any] = field(default_factory=dict)

    @property
    def has_finished(self) -> bool:
        """Whether the run ended, well or badly."""
        return self.state in FINISHED_STATES


@dataclass(frozen=True, slots=True)
class TaskInstance:
    """One task of a run. `state` is None until the task is scheduled; `map_index` is -1 unless the task is mapped."""

    task_id: str
    map_index: int
    try_number: int
    state: str | None
    start_date: datetime | None
    end_date: datetime | None


@dataclass(frozen=True, slots=True)
class DagImportError:
    """A DAG file that could not be imported, with its stack trace."""

    filename: str
    stack_trace: str


@dataclass(frozen=True, slots=True)
class Health:
    """Whether a component works, and its last heartbeat (UTC), whose process may have ended since."""

    is_healthy: bool
    heartbeat: datetime | None


def _health(row: Mapping[str, Any], name: str) -> Health | None:
    """Read one component of a health answer; None if it never ran."""
    status, heartbeat = row.get("status"), row.get(f"latest_{name}_heartbeat")
    return (
        None
        if status is None
        else Health(status == "healthy", datetime.fromisoformat(heartbeat) if heartbeat else None)
    )


def _dag_run(row: Mapping[str, Any]) -> DagRun:
    return msgspec.convert({**row, "run_id": row["dag_run_id"], "conf": row.get("conf") or {}}, DagRun)


COMPONENTS = ("scheduler", "triggerer", "dag_processor")
"""Processes whose heartbeats the health endpoint reports."""

_TIMEOUT = httpx.Timeout(45.0, connect=10.0)
"""Bounds one request, in seconds. Answers are slow while Airflow parses DAGs or waits for a busy SQLite file. The connection has a
shorter limit: behind a firewall that drops packets, every run would wait this long to set its note.
"""

_BUSY_SECONDS = 30.0
"""How long a request is repeated while Airflow answers that its database refused it, as SQLite does under load."""

_POLL_SECONDS = 0.5
_PAGE = 1000
_COOKIE = "_token"
_NOTE_LIMIT = 1000
"""Airflow refuses longer run notes."""


class AirflowApi:
    """A client of one Airflow. Use it as a context manager, or close it.

    `make_token` returns a bearer token, and replaces the login by user and password. It is called again when Airflow no longer
    accepts the last token.

    Every method raises:
        Retryable: Airflow does not answer, or answers that it can't now (429, 5xx).
        Terminal: Airflow refused the request: the login, an unknown DAG or run, invalid parameters,
            a conflict. Or another server answered, such as the page of a single sign-on.
    """

    def __init__(self, url: str, user: str, password: str, make_token: Callable[[], str] | None = None) -> None:
        self._url, self._user, self._password = url.rstrip("/"), user, password
        self._make_token = make_token or self._token_of_login
        if "@" in url:  # httpx would send that login in place of the token, and messages would show it
            raise AIRFLOW_FAILED.terminal(
                "the address of Airflow holds a user or a password", next_step="name the address without them"
            )
        try:
            self._client = httpx.Client(base_url=self._url, timeout=_TIMEOUT, trust_env=False)
        except httpx.InvalidURL as error:
            raise AIRFLOW_FAILED.terminal(f"{self._url!r} is not an address of Airflow: {error}") from error
        self._token: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def health(self) -> Mapping[str, Health]:
        """Return the state of every component of `COMPONENTS` that ever ran."""
        answer = self._send("GET", "/api/v2/monitor/health", {})
        if not isinstance(answer, dict):
            raise self._not_airflow("health")
        states = {name: _health(answer.get(name) or {}, name) for name in COMPONENTS}
        return {name: state for name, state in states.items() if state is not None}

    def answers(self) -> bool:
        """Return whether the API server answers and reaches its database."""
        try:
            self.health()
        except Retryable:
            return False
        return True

    def dag_ids(self) -> list[str]:
        """Return the ids of the DAGs that Airflow knows and that still have a file, sorted."""
        return sorted(dag["dag_id"] for dag in self._pages("/dags", "dags"))

    def paused(self, prefix: str) -> Mapping[str, bool]:
        """Return DAG id -> whether its schedule is paused, for DAGs with this prefix that still have a file."""
        rows = self._pages("/dags", "dags", dag_id_prefix_pattern=prefix)
        return {row["dag_id"]: bool(row["is_paused"]) for row in rows}

    def unpause(self, dag_id: str) -> None:
        """Let the DAG's schedule run."""
        self._request("PATCH", f"/dags/{_part(dag_id)}", json={"is_paused": False})

    def pause(self, dag_id: str) -> None:
        """Stop the DAG's schedule; runs that exist continue."""
        self._request("PATCH", f"/dags/{_part(dag_id)}", json={"is_paused": True})

    def trigger(
        self,
        dag_id: str,
        *,
        run_id: str | None = None,
        conf: Mapping[str, Any] | None = None,
        note: str | None = None,
    ) -> DagRun:
        """Create a run; a paused DAG queues it. With a `run_id` this can be repeated safely: a second run of that id is refused."""
        body: dict[str, Any] = {"logical_date": None, "conf": dict(conf or {}), "note": note}
        if run_id is not None:
            body["dag_run_id"] = run_id
        return _dag_run(self._request("POST", f"/dags/{_part(dag_id)}/dagRuns", json=body))

    def run(self, dag_id: str, run_id: str) -> DagRun:
        """Return one run."""
        return _dag_run(self._request("GET", _run_path(dag_id, run_id)))

    def runs(self, dag_id: str, states: Sequence[str] = ()) -> list[DagRun]:
        """Return the runs of a DAG in one of these states (without states all), oldest first."""
        path = f"/dags/{_part(dag_id)}/dagRuns"
        return [_dag_run(row) for row in self._pages(path, "dag_runs", order_by="run_after", state=list(states))]

    def fail(self, dag_id: str, run_id: str) -> None:
        """Mark a run and its tasks failed: Airflow ends their processes, and does not retry them."""
        self._request("PATCH", _run_path(dag_id, run_id), json={"state": "failed"})

    def newest_runs(self, dag_ids: Iterable[str], count: int, start: int = 0) -> list[DagRun]:
        """Return the newest runs of these DAGs, newest first, without the first `start`; none of DAGs that Airflow doesn't know."""
        body = {"dag_ids": sorted(dag_ids), "order_by": "-run_after", "page_limit": count, "page_offset": start}
        answer = self._request("POST", "/dags/~/dagRuns/list", json=body)
        return [_dag_run(row) for row in self._field(answer, "dag_runs")]

    def wait(self, dag_id: str, run_id: str, timeout_seconds: float) -> DagRun:
        """Wait until a run has finished, and return it.

        Raises:
            Retryable: It did not finish in time.
        """
        states = [self.run(dag_id, run_id)]

        def finished() -> bool:
            states.append(self.run(dag_id, run_id))
            return states[-1].has_finished

        if not until(finished, timeout_seconds, _POLL_SECONDS):
            raise RUN_FAILED.retryable(
                f"run {run_id} of {dag_id} is still {states[-1].state} after {timeout_seconds:.0f} s"
            )
        return states[-1]

    def task_instances(self, dag_id: str, run_id: str) -> list[TaskInstance]:
        """Return the tasks of a run."""
        rows = self._pages(f"{_run_path(dag_id, run_id)}/taskInstances", "task_instances")
        return [msgspec.convert(row, TaskInstance) for row in rows]

    def log(self, dag_id: str, run_id: str, task_id: str, *, try_number: int = 1) -> str:
        """Return a task's log as text, one event per line."""
        path = f"{_run_path(dag_id, run_id)}/taskInstances/{_part(task_id)}/logs/{try_number}"
        answer = self._request("GET", path, params={"map_index": -1, "full_content": True})
        return "\n".join(str(line.get("event", "")) for line in answer["content"])

    def page(self, path: str) -> str:
        """Return a page as a logged-in browser gets it, by the cookie that Airflow's login sets."""
        self._token = self._token or self._make_token()
        answer = self._try("GET", path, {"headers": {"Cookie": f"{_COOKIE}={self._token}"}})
        if not answer.is_success:
            self._checked(answer)
        return answer.text

    def note(self, dag_id: str, run_id: str, text: str) -> None:
        """Replace the note of a run; at most 1,000 characters are kept."""
        self._request("PATCH", _run_path(dag_id, run_id), json={"note": text[:_NOTE_LIMIT]})

    def import_errors(self) -> list[DagImportError]:
        """Return the DAG files that could not be imported."""
        rows = self._pages("/importErrors", "import_errors")
        return [DagImportError(row["filename"], row["stack_trace"]) for row in rows]

    def pools(self) -> Mapping[str, int]:
        """Return the slots of every pool by its name."""
        return {row["name"]: row["slots"] for row in self._pages("/pools", "pools")}

    def ensure_pool(self, name: str, slots: int) -> None:
        """Create a pool or resize it: a task whose pool does not exist waits forever."""
        existing = self.pools()
        if name not in existing:
            self._request("POST", "/pools", json={"name": name, "slots": slots, "description": ""})
        elif existing[name] != slots:
            body = {"pool": name, "slots": slots, "description": "", "include_deferred": False}
            self._request("PATCH", f"/pools/{_part(name)}", json=body)

    def connection_ids(self) -> frozenset[str]:
        """Return the names of the connections in Airflow's database. Others may be in variables or a secrets backend."""
        return frozenset(row["connection_id"] for row in self._pages("/connections", "connections"))

    def _pages(self, path: str, key: str, **params: str | list[str]) -> list[Mapping[str, Any]]:
        rows: list[Mapping[str, Any]] = []
        while True:
            page = self._request("GET", path, params={**params, "limit": _PAGE, "offset": len(rows)})
            page_rows, total = self._field(page, key), self._field(page, "total_entries")
            rows += page_rows
            if not page_rows or len(rows) >= total:
                return rows

    def _field(self, answer: Any, key: str) -> Any:
        try:
            return answer[key]
        except (KeyError, TypeError) as error:
            raise self._not_airflow(key) from error

    def _not_airflow(self, what: str) -> Terminal:
        return AIRFLOW_FAILED.terminal(
            f"{self._url} answered with JSON that has no {what}: it is not Airflow, or something before it",
            next_step="name the address at which Airflow's API answers",
        )

    def _request(self, method: str, path: str, **content: Any) -> Any:
        """Send a request with the token; if the token has expired, once more with a new one."""
        self._token = self._token or self._make_token()
        answer = self._try(method, f"/api/v2{path}", content)
        if answer.status_code == httpx.codes.UNAUTHORIZED:
            self._token = None
            self._token = self._make_token()
            answer = self._try(method, f"/api/v2{path}", content)
        return self._checked(answer)

    def _token_of_login(self) -> str:
        body = {"username": self._user, "password": self._password}
        answer = self._send("POST", "/auth/token", {"json": body})
        try:
            return str(answer["access_token"])
        except (KeyError, TypeError) as error:
            raise AIRFLOW_FAILED.terminal(f"Airflow at {self._url} answered the login without a token") from error

    def _send(self, method: str, path: str, content: Mapping[str, Any]) -> Any:
        return self._checked(self._try(method, path, content))

    def _try(self, method: str, path: str, content: Mapping[str, Any]) -> httpx.Response:
        """Send a request, and repeat it while Airflow's busy database rolls it back."""
        retrying = Retrying(
            retry=retry_if_result(_was_rolled_back),
            wait=wait_random_exponential(multiplier=0.2, max=3),
            stop=stop_after_delay(_BUSY_SECONDS),
            retry_error_callback=lambda last: last.outcome.result() if last.outcome else None,
        )
        answer: httpx.Response = retrying(self._once, method, path, content)
        return answer

    def _once(self, method: str, path: str, content: Mapping[str, Any]) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        try:
            return self._client.request(method, path, **{"headers": headers, **content})
        except (httpx.LocalProtocolError, UnicodeEncodeError):  # these errors quote the header with the token
            raise AIRFLOW_FAILED.terminal(
                f"{method} {path} can't be sent to Airflow at {self._url}: the bearer token has characters that an HTTP header can't"
                " hold",
                next_step="give the token alone, without quotes and line ends",
            ) from None
        except (httpx.RequestError, UnicodeError) as error:  # the second: a host name that DNS can't have
            raise AIRFLOW_FAILED.retryable(
                f"Airflow at {self._url} does not answer {method} {path}: {type(error).__name__} {error}",
                next_step="start it: `frazil up` starts the embedded one; `frazil status` shows whether that runs",
            ) from error

    def _checked(self, answer: httpx.Response) -> Any:
        request = f"{answer.request.method} {answer.request.url.path}"
        if answer.is_success:
            try:
                return answer.json() if answer.content else None
            except ValueError as error:
                raise AIRFLOW_FAILED.terminal(
                    f"{self._url} answered {request} with no JSON: it is not Airflow, or a login page before it",
                    next_step="name the address at which Airflow's API answers without a page; or give a bearer token",
                ) from error
        message = f"Airflow at {self._url} answered {answer.status_code} to {request}: {_detail(answer)}"
        if answer.is_server_error or answer.status_code == httpx.codes.TOO_MANY_REQUESTS:
            raise AIRFLOW_FAILED.retryable(message)
        raise AIRFLOW_FAILED.terminal(message)


def _was_rolled_back(answer: httpx.Response) -> bool:
    """Whether Airflow rolled the request back: it answers every database error with the words "Database error"."""
    return answer.is_server_error and "Database error" in _detail(answer)


def _detail(answer: httpx.Response) -> str:
    try:
        content = answer.json()
    except ValueError:
        return answer.text[:500]
    detail = content.get("detail", content) if isinstance(content, dict) else content
    if isinstance(detail, list):  # for a refused body; it quotes what was sent, such as a password or a run's conf
        detail = [
            {key: text for key, text in line.items() if key not in ("input", "ctx")} if isinstance(line, dict) else line
            for line in detail
        ]
    return str(detail)[:500]


def _part(text: str) -> str:
    """Quote one path segment: run ids contain `+` and `:`."""
    return quote(text, safe="")


def _run_path(dag_id: str, run_id: str) -> str:
    return f"/dags/{_part(dag_id)}/dagRuns/{_part(run_id)}"
