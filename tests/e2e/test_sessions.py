"""A session under a real Airflow: records land while its run is at work, and the run tells of all of them at its end."""

from __future__ import annotations

from datetime import datetime

import pytest

from frazil.kafka.admin.topics import create_topic
from frazil.pipeline.models.pipeline_file import AutoEngine
from frazil.project import Project
from frazil.report.history import BatchHistory, history
from frazil.runtime.process import until
from frazil.verify.check import verify
from tests.e2e.embedded import RUN_SECONDS, UNPAUSED_SECONDS, Embedded

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

BUSES = "ingest__buses"


def test_records_land_before_their_session_ends(embedded: Embedded) -> None:
    """Two lots land in one run while it is at work, by the engine that is chosen for few; its event and note tell of both."""
    create_topic(embedded.cluster, "buses", 2)
    assert until(lambda: BUSES in embedded.api.dag_ids(), UNPAUSED_SECONDS, 0.5), embedded.api.import_errors()
    embedded.send("buses", range(10))
    embedded.api.unpause(BUSES)
    project = Project.load(embedded.project.environment())

    def ingests() -> list[BatchHistory]:
        return [batch for batch in history(project, project.pipeline("buses")) if batch.kind == "ingest"]

    try:
        assert until(lambda: embedded.landed("buses", 10), RUN_SECONDS, 0.2)
        # By the ledger: who landed them at the last tick of its session is not at work any more.
        assert until(lambda: bool(ingests()), RUN_SECONDS, 0.2)
        run_id = ingests()[0].run
        embedded.send("buses", range(10, 30))
        assert until(lambda: embedded.landed("buses", 30), RUN_SECONDS, 0.2)
        state = embedded.states(BUSES, run_id)["ingest"]
        run = embedded.finished(BUSES, run_id)  # before: of a paused DAG no task begins, in runs at work neither
    finally:
        embedded.api.pause(BUSES)

    assert state in {"running", "success"}  # the run may be over by now on a machine under load
    assert embedded.states(BUSES, run.run_id) == {"plan": "success", "ingest": "success", "record": "success"}
    landed = ingests()
    event = embedded.event(run.run_id)["extra"]
    assert event["batches"] == sum(batch.run == run.run_id for batch in landed)
    assert event["rows"] == sum(batch.written for batch in landed if batch.run == run.run_id)
    assert f"fewer than {AutoEngine().inline_below:,}" in embedded.api.log(BUSES, run.run_id, "ingest")
    through = datetime.fromisoformat(embedded.events("buses/complete")[-1]["complete_through"])
    assert through >= datetime.fromisoformat(event["complete_through"])
    assert verify(project, project.pipeline("buses")).is_clean
