"""`frazil pause`, `resume` and `stop` with a real Airflow: the embedded one, and one that variables name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from frazil.errors import Terminal
from frazil.kafka.admin.topics import create_topic
from frazil.project import Project
from frazil.report.history import history
from frazil.runtime.drivers import drivers
from frazil.runtime.home import project_root
from frazil.runtime.process import until
from frazil.verify.check import verify
from tests.e2e.embedded import RUN_SECONDS, UNPAUSED_SECONDS, Embedded

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

METERS = "ingest__meters"
REPLAYS = [f"replay_dead_letters__{name}" for name in ("drills", "parcels")]
RECORDS = 60_000
STOP_SECONDS = 30.0
"""What the page on `frazil stop` promises."""


def frazil(embedded: Embedded, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the command in the stack's project."""
    return subprocess.run(
        [sys.executable, "-m", "frazil.cli", *arguments],
        env=os.environ | {"PYTHONPATH": str(project_root() / "include")} | embedded.project.environment() | env,
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_SECONDS,
    )


def looked_at(embedded: Embedded) -> None:
    """Wait until the scheduler has gone round twice."""
    for _ in range(2):
        since = embedded.api.health()["scheduler"].heartbeat
        assert until(lambda since=since: embedded.api.health()["scheduler"].heartbeat != since, RUN_SECONDS, 0.5)


def at_work(embedded: Embedded, run_id: str) -> None:
    """Wait until a run has a process on this machine that has landed something more."""
    pipeline, home = embedded.project.pipeline("meters"), embedded.project.home
    assert until(lambda: bool(drivers(home, "meters", run_id)), RUN_SECONDS, 0.1), embedded.states(METERS, run_id)
    assert until(lambda: any(batch.run == run_id for batch in history(embedded.project, pipeline)), RUN_SECONDS, 0.1)


def assert_sound(embedded: Embedded) -> None:
    """What landed is what the topic holds up to the position, once."""
    project = Project.load(embedded.project.environment())
    assert [str(difference) for difference in verify(project, project.pipeline("meters")).differences] == []


def test_stopped_pipeline_ends_and_resumes(embedded: Embedded, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Paused, no run begins; resumed, it does; stopped, its process and its run end in time; the next one lands the rest."""
    create_topic(embedded.cluster, "meters", 1)
    embedded.unpause(METERS)
    embedded.send("meters", range(RECORDS))

    paused = frazil(embedded, "pause", "meters")
    embedded.api.trigger(METERS, run_id="e2e-asked")
    assert paused.stdout == f"meters: DAG {METERS} is paused\n", paused.stderr
    assert embedded.is_paused(METERS)
    looked_at(embedded)
    assert embedded.api.run(METERS, "e2e-asked").state == "queued"
    assert embedded.ids("meters") == []

    assert frazil(embedded, "resume", "meters").returncode == 0
    at_work(embedded, "e2e-asked")
    stopped = frazil(embedded, "stop", "meters", "--json")
    assert stopped.returncode == 0, stopped.stderr
    answer = json.loads(stopped.stdout)
    assert (answer["failed_runs"], answer["stopped"]) == (["e2e-asked"], ["e2e-asked"])
    assert answer["seconds"] < 2 * STOP_SECONDS
    assert embedded.states(METERS, "e2e-asked")["ingest"] == "failed"
    landed = embedded.ids("meters")
    assert landed == list(range(len(landed)))
    assert 0 < len(landed) < RECORDS
    assert_sound(embedded)

    if request.config.getoption("--full"):
        _stop_from_elsewhere(embedded, tmp_path)

    file = embedded.project.pipelines_folder / "meters.yaml"
    file.write_text(file.read_text().replace("max_records: 50", "max_records: 100000"))
    embedded.run(METERS, "e2e-carries-on")
    assert embedded.ids("meters") == list(range(RECORDS))
    assert_sound(embedded)


def _stop_from_elsewhere(embedded: Embedded, tmp_path: Path) -> None:
    """From a machine that has no Airflow and no process of the pipeline, by the variables that name the real one."""
    home = embedded.project.home
    elsewhere = {
        "FRAZIL_HOME": str(tmp_path / "elsewhere"),
        "FRAZIL_AIRFLOW_URL": home.airflow_url,
        "FRAZIL_AIRFLOW_USER": home.airflow_user,
    }
    for command in ("pause", "status"):
        refused = frazil(embedded, command, "meters", **elsewhere)
        assert refused.returncode == Terminal.exit_code
        assert "FRAZIL_AIRFLOW_PASSWORD is not set" in refused.stderr
    elsewhere["FRAZIL_AIRFLOW_PASSWORD"] = embedded.api._password
    assert frazil(embedded, "pause", "meters", **elsewhere).returncode == 0
    assert embedded.is_paused(METERS)
    status = json.loads(frazil(embedded, "status", "meters", "--json", **elsewhere).stdout)
    assert status["pipelines"]["meters"]["state"] == "Paused"
    by_token = elsewhere | {"FRAZIL_AIRFLOW_PASSWORD": "", "FRAZIL_AIRFLOW_TOKEN": str(embedded.api._token)}
    assert frazil(embedded, "resume", "meters", **by_token).returncode == 0
    assert not embedded.is_paused(METERS)

    embedded.api.trigger(METERS, run_id="e2e-elsewhere")
    at_work(embedded, "e2e-elsewhere")
    stopped = frazil(embedded, "stop", "meters", **elsewhere)

    assert stopped.stdout.splitlines() == [
        "meters: Airflow's run e2e-elsewhere is marked failed",
        "meters: no process of e2e-elsewhere is seen from here; those of Airflow's machines end within 30 s",
    ], stopped.stderr
    assert embedded.api._password not in stopped.stdout + stopped.stderr
    assert until(lambda: not drivers(home, "meters"), 4 * STOP_SECONDS, 0.1)
    # Its task failed; the run itself Airflow may call a success, see docs/reliability.md.
    assert embedded.states(METERS, "e2e-elsewhere")["ingest"] == "failed"
    assert_sound(embedded)


def test_stopped_dead_letter_replay_is_not_retried(embedded: Embedded) -> None:
    """Airflow's runs of the form end with the pipeline's own, in whichever state they are; those of other pipelines go on."""
    form = {"reason": "a test"}
    assert until(lambda: {*REPLAYS} <= {*embedded.api.dag_ids()}, UNPAUSED_SECONDS, 0.5), embedded.api.import_errors()
    for dag_id in REPLAYS:
        embedded.api.pause(dag_id)  # they wait, and can't be over before they are stopped
        embedded.api.trigger(dag_id, run_id="e2e-form", conf=form)
    mine, second_replay = REPLAYS
    try:
        stopped = frazil(embedded, "stop", "drills")

        assert stopped.stdout == f"drills: Airflow's run {mine}:e2e-form is marked failed\n", stopped.stderr
        assert embedded.api.run(mine, "e2e-form").state == "failed"
        assert embedded.api.run(second_replay, "e2e-form").state == "queued"
    finally:
        embedded.api.fail(second_replay, "e2e-form")
