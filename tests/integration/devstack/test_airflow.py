"""The embedded Airflow, started for real, with one DAG whose task never ends."""

from __future__ import annotations

import os
import signal
import socket
import traceback
from collections.abc import Callable
from dataclasses import replace
from urllib.parse import quote

import pytest
from sqlalchemy import make_url

from frazil.devstack import stack
from frazil.devstack.postgres import programs
from frazil.errors import Retryable, Terminal
from frazil.runtime import airflow_login
from frazil.runtime.airflow_api import AirflowApi
from frazil.runtime.airflow_login import ensure_secrets
from frazil.runtime.home import Home, is_free
from frazil.runtime.process import Processes, until
from tests.postgres_server import PASSWORD, PostgresServer
from tests.servers import with_ports

Survivors = Callable[[], list[str]]

ENDLESS = '''
"""An airflow dag whose task starts a process in a group of its own and waits for it."""
import subprocess
from airflow.sdk import dag, task

@dag(schedule=None, params={"seconds": 600})
def endless():
    @task
    def wait(params=None):
        subprocess.run(["sleep", str(params["seconds"])], check=True, process_group=0)
    wait()
endless()
'''
BROKEN = '"""An airflow dag that can not be read."""\nimport no_such_module\n'


@pytest.fixture
def home_on_postgres(home: Home, request: pytest.FixtureRequest) -> Home:
    """The home with Airflow's metadata in PostgreSQL, where the machine has it: the stacks of tests/e2e are on SQLite."""
    if programs() is None:
        return home
    return replace(home, airflow_database=request.getfixturevalue("postgres").make("airflow"))


def sleepers(survivors: Survivors) -> list[str]:
    return [line for line in survivors() if line.startswith("sleep ")]


def check_api(api: AirflowApi) -> None:
    """Look at everything the client reads that needs no finished run."""
    assert api.pools()["frazil_spark"] == 1
    api.ensure_pool("frazil_spark", 3)
    api.ensure_pool("other", 2)
    assert (api.pools()["frazil_spark"], api.pools()["other"]) == (3, 2)
    assert until(lambda: api.dag_ids() == ["endless"], 240, 0.5)
    assert until(lambda: len(api.import_errors()) == 1, 240, 0.5)
    assert "no_such_module" in api.import_errors()[0].stack_trace
    with pytest.raises(Terminal, match=r"404 .*nothing"):
        api.trigger("nothing")


def follow_a_run(api: AirflowApi) -> None:
    """Trigger a short run and read what became of it."""
    assert api.paused("end") == {"endless": True}
    api.unpause("endless")
    assert api.paused("end") == {"endless": False}
    assert api.paused("other") == {}
    started = api.trigger("endless", run_id="a+b:c", conf={"seconds": 0}, note="first")
    assert (started.run_id, started.note, started.has_finished) == ("a+b:c", "first", False)

    ended = api.wait("endless", "a+b:c", 90)

    assert (ended.state, ended.run_type) == ("success", "manual")
    assert [run.run_id for run in api.newest_runs(["endless", "unknown"], 1)] == ["a+b:c"]
    assert [(t.task_id, t.state) for t in api.task_instances("endless", "a+b:c")] == [("wait", "success")]
    assert api.log("endless", "a+b:c", "wait") != ""
    api.note("endless", "a+b:c", "x" * 2000)
    assert api.run("endless", "a+b:c").note == "x" * 1000
    with pytest.raises(Terminal, match="409"):
        api.trigger("endless", run_id="a+b:c")


def check_second_up(home: Home) -> None:
    """Everything runs: `up` leaves every process as it is."""
    before = [(component.name, component.pid) for component in stack.status(home).components]

    stack.up(home, {"airflow"})

    assert [(component.name, component.pid) for component in stack.status(home).components] == before


def restart_a_killed_component(home: Home, processes: Processes) -> None:
    """`up` starts what is missing, and waits for the new process' heartbeat, not the old one's."""
    killed = processes.running("airflow-triggerer")
    assert killed is not None
    os.kill(killed.pid, signal.SIGKILL)
    assert until(lambda: processes.running("airflow-triggerer") is None, 60)

    stack.up(home, {"airflow"})

    record = processes.running("airflow-triggerer")
    with airflow_login.api(home) as api:
        beat = api.health()["triggerer"].heartbeat
    assert record is not None
    assert beat is not None
    assert beat >= record.since


def check_up_without_database(home: Home) -> None:
    """A shell that lacks the variable of the database can't start a part on SQLite beside the others."""
    if home.airflow_database is None:
        return
    with pytest.raises(Terminal, match=r"metadata in PostgreSQL 127\.0\.0\.1:\d+/airflow, but FRAZIL_AIRFLOW_DATABASE"):
        stack.up(replace(home, airflow_database=None), {"airflow"})
    assert not (home.airflow / "airflow.db").exists()


@pytest.mark.timeout(1200)
def test_airflow_starts_works_and_leaves_nothing(
    home_on_postgres: Home, processes: Processes, survivors: Survivors
) -> None:
    """One start (30 s) carries the checks; the stop comes while a task and its child run."""
    home = home_on_postgres
    (home.project / "dags" / "endless.py").write_text(ENDLESS)
    (home.project / "dags" / "broken.py").write_text(BROKEN)
    stack.up(home, {"airflow"})
    with airflow_login.api(home) as api:
        check_api(api)
        follow_a_run(api)
        check_second_up(home)
        check_up_without_database(home)
        restart_a_killed_component(home, processes)
        api.trigger("endless")
        assert until(lambda: sleepers(survivors) != [], 240)

    stack.down(home)

    assert survivors() == []
    assert sleepers(survivors) == []
    assert is_free(home.ports.airflow)
    logs = "".join(path.read_text(errors="replace") for path in home.logs.iterdir())
    assert not any(secret in logs for secret in (*ensure_secrets(home).values(), PASSWORD, quote(PASSWORD, safe="")))


def test_a_busy_port_is_named_before_anything_starts(home: Home, survivors: Survivors) -> None:
    """The user must learn which port, and what to type, before the database takes its 6 s."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        busy = int(server.getsockname()[1])

        with pytest.raises(Terminal, match=rf"port {busy} (.|\n)*FRAZIL_AIRFLOW_PORT="):
            stack.up(with_ports(home, airflow=busy), {"airflow"})

    assert survivors() == []
    assert not (home.airflow / "airflow.db").exists()


@pytest.mark.parametrize("wrong", ["port", "password", "database"])
def test_unusable_database_is_reported_without_stack_trace(
    home: Home, survivors: Survivors, postgres: PostgresServer, wrong: str
) -> None:
    """PostgreSQL's own words, before anything starts, without the password."""
    address = make_url(postgres.url("nowhere" if wrong == "database" else "postgres"))
    if wrong == "port":
        address = address.set(port=home.ports.kafka)
    if wrong == "password":
        address = address.set(password="gue$$ed")
    messages = {
        "port": "Connection refused",
        "password": "password authentication failed",
        "database": "does not exist",
    }

    with pytest.raises(Retryable, match=f"Airflow's database, PostgreSQL .*{messages[wrong]}") as refusal:
        stack.up(replace(home, airflow_database=address.render_as_string(hide_password=False)), {"airflow"})

    assert "gue" not in "".join(traceback.format_exception(refusal.value))
    assert survivors() == []


def test_absent_airflow_is_retryable(home: Home) -> None:
    """An Airflow that is still starting or just restarting is not a configuration error."""
    ensure_secrets(home)

    with airflow_login.api(home) as api, pytest.raises(Retryable, match="frazil up"):
        api.health()
