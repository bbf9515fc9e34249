"""What starts runs besides the schedule, under a real Airflow: waiting records, and a run that ended behind."""

from __future__ import annotations

import json
import subprocess
from datetime import UTC, datetime, timedelta

import pytest

from frazil.devstack import broker, stack
from frazil.devstack.airflow import airflow_database, environment
from frazil.error_codes import INTERNAL
from frazil.kafka.admin.topics import create_topic
from frazil.kafka.client.cluster import OutgoingRecord
from frazil.project import Project
from frazil.report.history import history
from frazil.runtime import airflow_login
from frazil.runtime.airflow_api import DagRun
from frazil.runtime.home import interpreter_bin
from frazil.runtime.java import ensure_java
from frazil.runtime.process import until
from frazil.verify.check import verify
from tests.e2e.embedded import RUN_SECONDS, Embedded
from tests.produce import produce

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

CLICKS, DELIVERIES, RIDES = "ingest__clicks", "ingest__deliveries", "ingest__rides"
MINUTES = 6


def of_type(embedded: Embedded, dag_id: str, kind: str) -> list[DagRun]:
    return [run for run in embedded.api.runs(dag_id) if run.run_type == kind]


def started(embedded: Embedded, dag_id: str, kind: str, count: int) -> list[DagRun]:
    """The runs of a type, finished, as soon as there are so many."""
    assert until(lambda: len(of_type(embedded, dag_id, kind)) >= count, RUN_SECONDS, 0.5), embedded.api.runs(dag_id)
    return [embedded.finished(dag_id, run.run_id) for run in of_type(embedded, dag_id, kind)]


def test_enough_waiting_records_start_exactly_one_run(embedded: Embedded) -> None:
    """50 records call one run, long before its year is over, and again after the broker was away; fewer call none."""
    create_topic(embedded.cluster, "clicks", 3)
    embedded.unpause(CLICKS)

    embedded.send("clicks", range(20))
    embedded.send("clicks", range(20, 60))
    (first,) = started(embedded, CLICKS, "asset_triggered", 1)
    landed = embedded.ids("clicks")
    embedded.send("clicks", range(60, 100))
    broker.stop(stack.processes_of(embedded.project.home))
    embedded.start()
    embedded.send("clicks", range(100, 120))
    runs = started(embedded, CLICKS, "asset_triggered", 2)

    assert landed[:20] == list(range(20))
    assert embedded.states(CLICKS, first.run_id) == {"plan": "success", "ingest": "success", "record": "success"}
    assert embedded.ids("clicks") == list(range(120))
    assert len(runs) == 2
    assert {batch.started_by for batch in history(embedded.project, embedded.project.pipeline("clicks"))[1:]} == {
        "airflow:asset_triggered"
    }


def test_run_that_ends_behind_starts_next_run_at_once(embedded: Embedded) -> None:
    """Records that came while it ran are landed by a run of its own, once; that one finds nothing more and starts none."""
    create_topic(embedded.cluster, "deliveries", 2)
    embedded.unpause(DELIVERIES)
    events = embedded.events("deliveries/complete")
    embedded.send("deliveries", range(30))

    embedded.api.trigger(DELIVERIES, run_id="e2e-behind")
    assert until(lambda: embedded.states(DELIVERIES, "e2e-behind").get("plan") == "success", RUN_SECONDS, 0.1)
    embedded.send("deliveries", range(30, 50))
    behind = embedded.finished(DELIVERIES, "e2e-behind")
    (next_one,) = started(embedded, DELIVERIES, "operator_triggered", 1)

    assert embedded.ids("deliveries") == list(range(50))
    assert embedded.states(DELIVERIES, behind.run_id)["catch_up"] == "success"
    assert embedded.states(DELIVERIES, next_one.run_id)["catch_up"] == "skipped"
    assert "caught up: 0 records wait" in embedded.api.log(DELIVERIES, next_one.run_id, "catch_up")
    last = history(embedded.project, embedded.project.pipeline("deliveries"))[-1]
    assert last.reason == "catch up: 20 records waited"
    # The idle run of the schedule told an instant without a commit, and each of the others a later one.
    instants = [event["complete_through"] for event in embedded.events("deliveries/complete")]
    assert [event["complete_through"] for event in events] == instants[:1]
    assert instants == sorted(instants)
    assert len(instants) == 3


def airflow(embedded: Embedded, *arguments: str) -> str:
    """Airflow's own command beside the stack; what it printed."""
    home = embedded.project.home
    secrets, database = airflow_login.ensure_secrets(home), airflow_database(home)
    env = environment(home, ensure_java(print), secrets, database, dags_paused=True)
    command = [str(interpreter_bin() / "airflow"), *arguments]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=RUN_SECONDS)
    if done.returncode:
        raise INTERNAL.retryable(done.stdout + done.stderr)
    return done.stdout


def sound(embedded: Embedded) -> bool:
    """Whether each ride is there once and as Kafka has it."""
    project = Project.load(embedded.project.environment())
    return verify(project, project.pipeline("rides")).is_clean


@pytest.mark.full  # twelve runs; by REST two and in the browser three are made in any case
def test_backfills_beside_schedule_land_records_once(embedded: Embedded) -> None:
    """Six minutes of yesterday by Airflow's command, again by REST as a replay, both beside runs of each minute."""
    create_topic(embedded.cluster, "rides", 2)
    embedded.unpause(RIDES)
    try:
        _fill_in_rides(embedded)
    finally:
        embedded.api.pause(RIDES)


def _fill_in_rides(embedded: Embedded) -> None:
    begin = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(hours=12)
    first, last = begin.isoformat(), (begin + timedelta(minutes=MINUTES - 1)).isoformat()
    rides = [
        OutgoingRecord(
            key=None,
            value=json.dumps({"id": n}).encode(),
            timestamp_ms=int((begin + n * timedelta(seconds=6)).timestamp() * 1_000),
        )
        for n in range(MINUTES * 10)
    ]
    embedded.api.pause(RIDES)  # or the schedule takes all of them before the backfill is made
    assert produce(embedded.cluster, "rides", rides).count == len(rides)

    dates = ("--from-date", first, "--to-date", last)
    create = ("backfill", "create", "--dag-id", RIDES, *dates, "--reprocess-behavior", "completed")
    by_command = embedded.backfilled(RIDES, lambda: airflow(embedded, *create))
    landed = embedded.ids("rides")
    embedded.send("rides", range(60, 80))
    by_rest = embedded.backfill(RIDES, first, last, mode="replay", reason="wrong fares")

    assert landed == list(range(60))
    assert [run.run_type for run in (*by_command, *by_rest)] == ["backfill"] * 2 * MINUTES
    assert until(lambda: embedded.ids("rides") == list(range(80)), RUN_SECONDS, 1), embedded.ids("rides")
    batches = history(embedded.project, embedded.project.pipeline("rides"))
    replays = [batch for batch in batches if batch.kind == "replay"]
    assert [(batch.reason, batch.read) for batch in replays] == [("wrong fares", 10)] * MINUTES
    assert {batch.started_by for batch in batches} >= {"airflow:scheduled", "airflow:backfill:admin"}
    assert sound(embedded)
