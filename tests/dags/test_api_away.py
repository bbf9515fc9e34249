"""Airflow's REST API that can't be asked: what needs it says so once, and alerts go out all the same."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest

from frazil.monitor.condition import Condition
from frazil.project import Project
from frazil_airflow.dags import monitor
from frazil_airflow.outputs.run_summary import write_note
from tests.dags.desk import VariableStore
from tests.receivers import Posts

pytestmark = pytest.mark.dags

RUN = SimpleNamespace(dag_id="ingest__orders", run_id="manual__1")
ROW = {"dag_id": RUN.dag_id, "dag_run_id": RUN.run_id, "state": "running", "run_type": "manual", "logical_date": None}
REFUSED = Condition("orders", "testers", datetime.now(UTC), n=3, lag=0, refusal="lost\n  next: frazil reset orders")


@dataclass
class Api:
    """A server in Airflow's place, which answers every request with this status and body, and what it was asked."""

    monkeypatch: pytest.MonkeyPatch
    status: int = 200
    body: bytes = b""
    port: int = 1
    asked: list[tuple[str, str | None, bytes]] = field(default_factory=list)

    def connect(self, host: str = "http://127.0.0.1:PORT", **login: str) -> None:
        """Make the Airflow connection to it, or to another address."""
        connection = {"conn_type": "http", "host": host.replace("PORT", str(self.port)), **login}
        self.monkeypatch.setenv("AIRFLOW_CONN_FRAZIL_API", json.dumps(connection))


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    served = Api(monkeypatch)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            served.asked.append((self.command, self.headers.get("Authorization"), content))
            self.send_response(served.status)
            self.send_header("Content-Length", str(len(served.body)))
            self.end_headers()
            self.wfile.write(served.body)

        do_POST = do_PATCH = do_GET  # noqa: N815, the server looks for these names

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        served.port = server.server_address[1]
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield served
        server.shutdown()
        thread.join()


@pytest.fixture
def refused(project: Callable[..., Project], monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project with a pipeline that would refuse to run, and a webhook for its alerts."""
    monkeypatch.setattr("frazil.monitor.reading.read", lambda *_, **__: REFUSED)
    return project()


AWAY = [
    (None, 0, b"", "there is no Airflow connection frazil_api"),
    ("http://127.0.0.1:1", 0, b"", "does not answer POST /auth/token: ConnectError"),
    ("https://airflow:port", 0, b"", "is not an address of Airflow: Invalid port"),
    ("http://127.0.0.1:PORT", 401, b"no", "answered 401 to POST /auth/token: no"),
    ("http://127.0.0.1:PORT", 403, b"no", "answered 403 to POST /auth/token: no"),
    ("http://127.0.0.1:PORT", 200, b"<html>Sign in", "answered POST /auth/token with no JSON"),
    ("http://127.0.0.1:PORT", 200, b"{}", "answered the login without a token"),
]


@pytest.mark.parametrize("away", AWAY, ids=["none", "closed port", "no port", "401", "403", "login page", "no token"])
def test_alerts_are_sent_and_one_log_says_what_lacks(
    away: tuple[str | None, int, bytes, str],
    refused: Project,
    variables: VariableStore,
    hook: Posts,
    api: Api,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Every run asks, and each look of the monitor: their logs would all say the same. The next day one says it again."""
    host, api.status, api.body, problem = away
    if host is not None:
        api.connect(host, login="ops", password="s3cret")

    def complaints() -> list[str]:
        return [record.getMessage() for record in caplog.records if "runs get no notes" in record.getMessage()]

    with caplog.at_level(logging.INFO):
        for _ in range(2):
            write_note(RUN, "9 rows")
            monitor.look()
        (complaint,) = complaints()
        variables.texts["frazil_api_complaint"] = "2026-05-01"
        monitor.look()

    assert [(post["key"], post["status"]) for post in hook.bodies] == [("refused/orders", "firing")]
    assert problem in complaint
    assert "\n  next: " in complaint
    assert len(complaints()) == 2
    assert "s3cret" not in caplog.text


@pytest.mark.parametrize("body", [b"{}", b"[]", b"null", b"[" * 100_000], ids=["object", "list", "null", "deep"])
def test_odd_answer_stops_neither_alerts_nor_the_task_that_landed(
    body: bytes, refused: Project, variables: VariableStore, hook: Posts, api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    """With a token nothing is asked before the runs themselves."""
    api.connect(password="t0ken")
    api.body = body

    write_note(RUN, "9 rows")
    monitor.look()

    assert [(post["key"], post["status"]) for post in hook.bodies] == [("refused/orders", "firing")]
    assert "runs get no notes" in caplog.text


def test_other_reason_is_said_on_the_same_day(
    variables: VariableStore, api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    """Who made the connection and mistyped its password must not wait for tomorrow's line."""
    with caplog.at_level(logging.INFO):
        write_note(RUN, "9 rows")
        api.connect(login="ops", password="s3cret")
        api.status, api.body = 503, b"later"
        write_note(RUN, "9 rows")
        api.status, api.body = 401, b"no"
        for _ in range(2):
            write_note(RUN, "9 rows")

    log_lines = [record.getMessage() for record in caplog.records]
    assert [line.partition(". So runs")[0].partition(" to POST")[0][-8:] for line in log_lines] == [
        "azil_api",
        "ered 503",
        "ered 401",
    ]
    assert f"{datetime.now(UTC):%Y-%m-%d} missing away refused" in variables.texts.values()


def test_variables_that_fail_stop_no_task(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Its records have landed."""

    def fail(*_: object) -> None:
        raise RuntimeError("no answer")

    monkeypatch.setattr("frazil_airflow.project.secrets.Variable.get", fail)
    monkeypatch.setattr("frazil_airflow.project.secrets.Variable.set", fail)

    with caplog.at_level(logging.INFO):
        write_note(RUN, "9 rows")

    assert "there is no Airflow connection frazil_api" in caplog.text


def test_connection_without_login_holds_a_token(
    variables: VariableStore, api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    """Behind a single sign-on there is no login by password."""
    api.connect(password="t0ken")
    api.body = json.dumps(ROW | {"start_date": None, "end_date": None, "note": "asked for by Ana"}).encode()

    write_note(RUN, "9 rows")

    assert [(method, login) for method, login, _ in api.asked] == [("GET", "Bearer t0ken"), ("PATCH", "Bearer t0ken")]
    assert json.loads(api.asked[1][2]) == {"note": "asked for by Ana\n\nFrazil: 9 rows"}
    assert variables.texts == {}
    assert caplog.text == ""
