"""The stack with Airflow's metadata in PostgreSQL: what its DAGs do there, each once, and where the password is not."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from frazil.devstack import stack
from frazil.errors import Terminal
from frazil.kafka.admin.topics import create_topic
from frazil.report.history import history
from frazil.runtime.airflow_api import DagRun
from frazil.runtime.airflow_login import PASSWORD_VARIABLE, URL_VARIABLE
from tests.e2e.embedded import Embedded
from tests.postgres_server import PASSWORD
from tests.receivers import Posts

# `make test` has the start, a run, the stop and the secrets on PostgreSQL: tests/integration/devstack/test_airflow.py.
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900), pytest.mark.full]

VISITS, MAINTAIN, MONITOR = "ingest__visits", "maintain__visits", "monitor"
MONTHS = [datetime(2024, month, 1, tzinfo=UTC) for month in range(1, 7)]
FIRST = range(30)


@pytest.fixture(scope="module")
def scheduled(on_postgres: Embedded) -> DagRun:
    """The first run of the schedule, which landed 30 visits of long ago."""
    create_topic(on_postgres.cluster, "visits", 1, {"retention.ms": "-1"})
    on_postgres.send("visits", FIRST, datetime(2023, 6, 1, tzinfo=UTC))
    return on_postgres.unpause(VISITS)


def frazil(on_postgres: Embedded, *arguments: str) -> str:
    """What the command says to somebody elsewhere, who reaches Airflow by its address."""
    named = {URL_VARIABLE: on_postgres.project.home.airflow_url, PASSWORD_VARIABLE: on_postgres.api._password}
    command = [sys.executable, "-m", "frazil.cli", *arguments]
    env = os.environ | on_postgres.project.environment() | named
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_scheduled_run_lands_waiting_records(on_postgres: Embedded, scheduled: DagRun) -> None:
    """The schedule's own run lands what waited."""
    assert scheduled.run_type == "scheduled"
    assert set(FIRST) <= set(on_postgres.ids("visits"))


def test_run_started_by_form_doubles_no_rows(on_postgres: Embedded, scheduled: DagRun) -> None:
    """A replay that was asked for over REST replaces rows, and the ledger has its reason."""
    before = on_postgres.ids("visits")

    on_postgres.run(VISITS, "by-form", mode="replay", reason="looked odd", **{"from": "earliest"})

    assert on_postgres.ids("visits") == before
    last = history(on_postgres.project, on_postgres.project.pipeline("visits"))[-1]
    assert (last.kind, last.reason) == ("replay", "looked odd")


def test_parallel_backfill_runs_do_not_lock_database(on_postgres: Embedded, scheduled: DagRun) -> None:
    """Six intervals, three at once, over REST: created by one request, and each record lands once."""
    for month in MONTHS:
        on_postgres.send("visits", ids_of(month), month + timedelta(days=10))
    body = {
        "dag_id": VISITS,
        "from_date": MONTHS[0].isoformat(),
        "to_date": MONTHS[-1].isoformat(),
        "max_active_runs": 3,
        "reprocess_behavior": "completed",
    }

    on_postgres.api._request("POST", "/backfills", json=body)

    runs = [run for run in on_postgres.api.runs(VISITS) if run.run_type == "backfill"]
    assert len(runs) == len(MONTHS)
    for run in runs:
        on_postgres.finished(VISITS, run.run_id)
    assert on_postgres.ids("visits") == [*FIRST, *(month_id for month in MONTHS for month_id in ids_of(month))]
    assert refused(on_postgres.project.home.logs / "airflow-api-server.log") == []


def ids_of(month: datetime) -> range:
    return range(month.month * 100, month.month * 100 + 10)


def refused(log: Path) -> list[str]:
    """Requests that the API server answered with a failure of its own."""
    return re.findall(r".*status_code=5\d\d", log.read_text())


def test_failed_run_is_notified(on_postgres: Embedded, scheduled: DagRun, hook: Posts) -> None:
    """The monitor tells a web server."""
    on_postgres.api.trigger(VISITS, run_id="fails", conf={"mode": "replay"})  # from where, nobody says
    assert on_postgres.api.wait(VISITS, "fails", 120).state == "failed"

    on_postgres.run(MONITOR, "look")

    # By its key: the monitor may also have found the table late, on a machine that is busy.
    assert [body["status"] for body in hook.bodies if body["key"] == "failed_run/visits"] == ["firing"]


def test_maintenance_inspects_tables_on_schedule(on_postgres: Embedded, scheduled: DagRun) -> None:
    """Its schedule's own run reads the tables and leaves word of them."""
    run = on_postgres.unpause(MAINTAIN)

    assert on_postgres.states(MAINTAIN, run.run_id)["look"] == "success"
    assert "0 steps due, nothing done; health: own.visits" in str(run.note)


def test_page_reads_runs_from_airflow_database(on_postgres: Embedded, scheduled: DagRun) -> None:
    """Who logged in sees the pipeline; its batch leads to the run, which Airflow's database knows."""
    with httpx.Client(base_url=f"{on_postgres.project.home.airflow_url}/frazil") as client:
        client.cookies.set("_token", str(on_postgres.api._token))
        overview, pipeline = client.get("/"), client.get("/pipelines/visits")

    assert (overview.status_code, pipeline.status_code) == (200, 200)
    assert "visits" in overview.text
    assert quote(scheduled.run_id) in pipeline.text


def test_pause_stop_and_resume_reach_airflow_that_variables_name(on_postgres: Embedded, scheduled: DagRun) -> None:
    """They do what they say in the Airflow that the variables name; `stop` says that it sees no process there."""
    frazil(on_postgres, "pause", "visits")
    assert on_postgres.is_paused(VISITS)

    on_postgres.api.trigger(VISITS, run_id="waits")
    assert frazil(on_postgres, "stop", "visits").splitlines() == [
        "visits: Airflow's run waits is marked failed",
        "visits: no process of waits is seen from here; those of Airflow's machines end within 30 s",
    ]
    assert on_postgres.api.run(VISITS, "waits").state == "failed"

    frazil(on_postgres, "resume", "visits")
    assert not on_postgres.is_paused(VISITS)


def test_up_without_variable_does_not_mix_two_databases(on_postgres: Embedded) -> None:
    """A shell that does not have it can't start a part on SQLite beside the others."""
    unset = replace(on_postgres.project.home, airflow_database=None)

    with pytest.raises(Terminal, match=r"metadata in PostgreSQL 127\.0\.0\.1:\d+/airflow, but FRAZIL_AIRFLOW_DATABASE"):
        stack.up(unset, {"airflow"})

    assert not (unset.airflow / "airflow.db").exists()


def test_password_of_database_is_shown_nowhere(on_postgres: Embedded, scheduled: DagRun) -> None:
    """Neither in logs, nor in arguments of processes, nor by `frazil status`."""
    home = on_postgres.project.home
    forms = (PASSWORD, quote(PASSWORD), quote(PASSWORD, safe=" +"))
    texts = {str(path): path.read_text(errors="replace") for path in home.root.rglob("*.log")}
    texts["status"] = frazil(on_postgres, "status", "--json")
    texts |= {entry.name: arguments_of(entry) for entry in Path("/proc").iterdir() if entry.name.isdecimal()}

    assert any("airflow" in text for text in texts.values())
    assert [name for name, text in texts.items() if any(form in text for form in forms)] == []


def arguments_of(process: Path) -> str:
    try:
        return (process / "cmdline").read_bytes().decode(errors="replace")
    except OSError:  # it ended meanwhile
        return ""
