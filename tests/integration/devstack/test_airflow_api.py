"""How the client takes what a server may answer, from a small real server."""

from __future__ import annotations

import json
import threading
import traceback
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest

from frazil.doctor import airflow as doctor
from frazil.errors import FrazilError, Retryable, Terminal
from frazil.pipeline.settings.settings import EngineSettings
from frazil.project import Project
from frazil.runtime.airflow_api import AirflowApi
from frazil.runtime.airflow_login import token_maker
from frazil_airflow.outputs.run_summary import write_note

Answer = tuple[int, object]

RUN = dict.fromkeys(("logical_date", "start_date", "end_date", "note")) | {
    "dag_id": "ingest__orders", "dag_run_id": "r", "state": "running", "run_type": "manual",
}  # fmt: skip
"""A run as Airflow tells it."""


class Script(ThreadingHTTPServer):
    """A server that gives prepared answers, one per request, and remembers what it was asked."""

    daemon_threads = True
    answers: list[Answer]
    asked: list[str]


class Handler(BaseHTTPRequestHandler):
    """Answer from the script."""

    server: Script

    def do_GET(self) -> None:
        """Give the next answer; its status decides nothing but itself."""
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked.append(f"{self.path} {self.headers.get('Authorization')}")
        status, content = self.server.answers.pop(0)
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_PATCH = do_GET  # noqa: N815, the server looks for these names

    def log_message(self, *_: object) -> None:
        """Keep the test output clean."""


@pytest.fixture
def script() -> Iterator[Script]:
    with Script(("127.0.0.1", 0), Handler) as server:
        server.answers, server.asked = [], []
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def api(script: Script) -> Iterator[AirflowApi]:
    with AirflowApi(f"http://127.0.0.1:{script.server_port}", "ops", "s3cret") as client:
        yield client


def test_an_expired_token_is_replaced_once(script: Script, api: AirflowApi) -> None:
    """Tokens last a day, demos and test sessions may last longer."""
    pools = {"pools": [{"name": "a", "slots": 1}], "total_entries": 1}
    script.answers = [
        (201, {"access_token": "old"}),
        (401, {"detail": "expired"}),
        (201, {"access_token": "new"}),
        (200, pools),
    ]

    assert api.pools() == {"a": 1}
    assert script.asked[-1].endswith("Bearer new")


def test_a_wrong_password_needs_a_person(script: Script, api: AirflowApi) -> None:
    """Trying the same password again can't help, and the message must not show it."""
    script.answers = [(401, {"detail": "Invalid credentials"})]

    with pytest.raises(Terminal, match="401 to POST /auth/token: Invalid credentials") as raised:
        api.pools()

    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (403, Terminal),
        (404, Terminal),
        (409, Terminal),
        (422, Terminal),
        (429, Retryable),
        (500, Retryable),
        (503, Retryable),
    ],
)
def test_the_status_says_whether_another_try_can_help(
    script: Script, api: AirflowApi, status: int, kind: type[FrazilError]
) -> None:
    """A caller retries by class; the server's own words are kept."""
    script.answers = [(201, {"access_token": "t"}), (status, {"detail": "because"})]

    with pytest.raises(kind, match=f"answered {status} to GET /api/v2/pools: because"):
        api.pools()


def test_request_is_repeated_when_database_is_locked(script: Script, api: AirflowApi) -> None:
    """Airflow undid the request and says so: it is sent again, whatever it was."""
    undone = (500, {"detail": {"reason": "Database error", "message": "Serious error when handling your request"}})
    script.answers = [(201, {"access_token": "t"}), undone, undone, (200, {})]

    api.unpause("ingest__orders")

    assert len(script.asked) == 4


def test_every_page_is_read(script: Script, api: AirflowApi) -> None:
    """A list cut at the server's page size would hide a pool or an import error."""
    script.answers = [
        (201, {"access_token": "t"}),
        (200, {"pools": [{"name": "a", "slots": 1}], "total_entries": 2}),
        (200, {"pools": [{"name": "b", "slots": 2}], "total_entries": 2}),
    ]

    assert api.pools() == {"a": 1, "b": 2}
    assert "offset=1" in script.asked[-1]


def test_token_of_a_function_is_asked_for_again_when_it_has_expired(script: Script) -> None:
    """No user, no password, no login: the second token is the answer to a refusal."""
    script.answers = [(401, {}), (200, {"pools": [], "total_entries": 0})]
    tokens = iter(["old", "new"])

    with AirflowApi(f"http://127.0.0.1:{script.server_port}", "", "", lambda: next(tokens)) as api:
        assert api.pools() == {}

    assert [line.split()[-1] for line in script.asked] == ["old", "new"]


@pytest.fixture
def tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Name of an installed module with two entry points: one makes a token, the other fails. No two tests share a name, so
    that none meets a module of another in the interpreter.
    """
    module = f"tokens_{uuid.uuid4().hex}"
    (tmp_path / f"{module}.py").write_text(
        "def good():\n    return 'fresh'\n\ndef bad():\n    raise OSError('hunter2')\n"
    )
    info = tmp_path / "acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[frazil.airflow_tokens]\ngood = {module}:good\nbad = {module}:bad\n")
    monkeypatch.syspath_prepend(tmp_path)
    return module


@pytest.mark.usefixtures("tokens")
@pytest.mark.parametrize(("password", "answer"), [("good", "fresh"), ("eyJhbGciOiJIUzI1NiJ9", "eyJhbGciOiJIUzI1NiJ9")])
def test_connection_without_a_login_holds_a_token(
    script: Script, monkeypatch: pytest.MonkeyPatch, password: str, answer: str
) -> None:
    """Managed Airflows have no login by password: the token is the password, or what the entry point of its name makes."""
    host = f"http://127.0.0.1:{script.server_port}"
    monkeypatch.setenv("AIRFLOW_CONN_FRAZIL_API", json.dumps({"conn_type": "http", "host": host, "password": password}))
    script.answers = [(200, RUN), (200, {})]

    write_note(SimpleNamespace(dag_id="ingest__orders", run_id="r"), "12 read")

    assert [line.split()[-1] for line in script.asked] == [answer, answer]


def test_failed_token_is_a_warning_without_its_text(
    tokens: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The records have landed by then, and the text of somebody else's error may hold a secret."""
    connection = {"conn_type": "http", "host": "http://127.0.0.1:1", "password": "bad"}
    monkeypatch.setenv("AIRFLOW_CONN_FRAZIL_API", json.dumps(connection))

    write_note(SimpleNamespace(dag_id="ingest__orders", run_id="r"), "12 read")

    assert f"{tokens}:bad, which made no token: OSError" in caplog.text
    assert "hunter2" not in caplog.text


def test_token_that_no_header_holds_is_not_shown(script: Script) -> None:
    """The libraries below quote the whole header. A line end behind the token, as files have it, is no fault."""
    url = f"http://127.0.0.1:{script.server_port}"
    script.answers = [(200, {"pools": [], "total_entries": 0})]

    for token in ("s3cret\nand more", "s3cret\u00e9"):
        with (
            AirflowApi(url, "", "", token_maker(token, "X")) as api,
            pytest.raises(Terminal, match="token has") as raised,
        ):
            api.pools()
        assert "s3cret" not in "".join(traceback.format_exception(raised.value))
    with AirflowApi(url, "", "", token_maker("s3cret\n", "X")) as api:
        assert api.pools() == {}

    assert [line.split()[-1] for line in script.asked] == ["s3cret"]


def test_login_in_the_address_is_refused_and_not_shown() -> None:
    """It would be sent in place of the token, and each message names the address."""
    for url in ("http://ops:s3cret@airflow", "http://ops:s3cret@airflow\n", "ops:s3cret@airflow"):
        with pytest.raises(Terminal, match="without them") as raised:
            AirflowApi(url, "", "", lambda: "t")
        assert "s3cret" not in "".join(traceback.format_exception(raised.value))


def test_refused_body_is_not_shown_again(script: Script, api: AirflowApi) -> None:
    """FastAPI's answer to a body that it can't read has it whole, and that of a login has the password."""
    body = {"username": "ops", "password": "s3cret"}
    script.answers = [(422, {"detail": [{"msg": "Unable to extract tag", "loc": ["body"], "input": body}]})]

    with pytest.raises(Terminal, match="Unable to extract tag") as raised:
        api.pools()

    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize("answer", [{}, [], None, {"pools": []}])
def test_json_of_something_else_needs_a_person(script: Script, api: AirflowApi, answer: object) -> None:
    """A proxy's own answer is no fault of this program."""
    script.answers = [(201, {"access_token": "t"}), (200, answer)]

    with pytest.raises(Terminal, match="it is not Airflow"):
        api.pools()


def test_token_function_that_can_not_be_imported_is_a_refusal_without_its_text(tokens: str, tmp_path: Path) -> None:
    """A module may fail by anything while it is read."""
    (tmp_path / f"{tokens}.py").write_text("raise RuntimeError('hunter2')\n")

    with pytest.raises(Terminal, match="can't be loaded: RuntimeError") as raised:
        token_maker("good", "X")

    assert "hunter2" not in "".join(traceback.format_exception(raised.value))


ENGINES = [EngineSettings(), EngineSettings(pool="shared pool", connection="yard", master="spark://yard:7077")]


SETTINGS = """
clusters: {local: {bootstrap_servers: localhost:1}}
catalogs: {lake: {type: jdbc, uri: "sqlite:///c.db", warehouse: "file:///tmp/lake"}}
engines:
  spark: {}
  kube: {type: operator, pool: kube}
"""

PIPELINE = """
name: orders
engine: ENGINE
maintenance: {engine: spark, schedule: SCHEDULE}
source: {topics: [orders]}
destinations: [{table: shop.orders}]
"""


@pytest.mark.parametrize(
    ("engine", "schedule", "needed"),
    [
        ("inline", "1h", {"frazil_maintenance"}),
        ("inline", "false", set()),
        ("kube", "false", {"kube"}),
        ("spark", "1h", {"frazil_spark", "frazil_maintenance"}),
    ],
)
def test_doctor_asks_for_no_pool_that_no_task_uses(
    tmp_path: Path, engine: str, schedule: str, needed: set[str]
) -> None:
    """Its absence would be a failure, and no run waits for it."""
    (tmp_path / "include" / "pipelines").mkdir(parents=True)
    (tmp_path / "include" / "settings.yaml").write_text(SETTINGS)
    text = PIPELINE.replace("ENGINE", engine).replace("SCHEDULE", schedule)
    (tmp_path / "include" / "pipelines" / "orders.yaml").write_text(text)

    project = Project.load({"FRAZIL_PROJECT": str(tmp_path)})

    assert doctor.Tasks.from_project(project, [project.pipeline("orders")]).pools == needed


def test_doctor_names_steps_that_work_with_the_embedded_airflow(script: Script, api: AirflowApi) -> None:
    """`airflow pools set` in a terminal would ask another Airflow."""
    script.answers = [(201, {"access_token": "t"}), (200, {"pools": [], "total_entries": 0})]

    findings = [*doctor.pools(api, frozenset({"wide", "frazil_spark"}), is_embedded=True)]

    assert [finding.next_step for finding in findings] == ["frazil up", "add pool wide in Airflow's UI: Admin, Pools"]


def test_doctor_names_missing_pools_and_connections_with_the_commands_that_make_them(
    script: Script, api: AirflowApi
) -> None:
    """A task waits forever for a pool that is missing; a connection may be where nobody can ask for it."""
    script.answers = [
        (201, {"access_token": "t"}),
        (200, {"pools": [{"name": "frazil_spark", "slots": 2}], "total_entries": 1}),
        (200, {"connections": [{"connection_id": "frazil_spark"}], "total_entries": 1}),
    ]

    findings = [
        *doctor.pools(api, doctor.Tasks(ENGINES, ENGINES).pools, is_embedded=False),
        *doctor.connections(api, ENGINES),
    ]

    assert [(finding.state, finding.next_step) for finding in findings] == [
        ("failed", 'airflow pools set frazil_maintenance 1 "Spark jobs that may run at once"'),
        ("failed", "airflow pools set 'shared pool' 1 \"Spark jobs that may run at once\""),
        (
            "warning",
            "airflow connections add frazil_api --conn-type http --conn-host URL --conn-login USER --conn-password PASSWORD",
        ),
        ("warning", "airflow connections add yard --conn-type spark --conn-host spark://yard:7077"),
    ]


def test_doctor_goes_on_where_a_login_may_not_see_pools_and_connections(script: Script, api: AirflowApi) -> None:
    """Which is no fault of the pipelines."""
    script.answers = [(201, {"access_token": "t"}), (403, {"detail": "Forbidden"}), (403, {"detail": "Forbidden"})]

    findings = [
        *doctor.pools(api, doctor.Tasks(ENGINES, ENGINES).pools, is_embedded=False),
        *doctor.connections(api, ENGINES),
    ]

    assert [finding.state for finding in findings] == ["warning", "ok"]
    assert "answered 403 to GET /api/v2/pools" in findings[0].observed
    assert "needed: frazil_api, frazil_spark, yard" in findings[1].observed
