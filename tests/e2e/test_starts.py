"""What starts runs besides the schedule, under a real Airflow: waiting records, and a run that ended behind."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from frazil.kafka.topics import create_topic
from frazil.local import stack
from frazil.local.airflow_rows import DagRun
from frazil.local.completeness import complete_through
from frazil.local.waiting import until
from frazil.report.history import history
from tests.e2e.embedded import RUN_SECONDS, Embedded

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

CLICKS, DELIVERIES = "ingest__clicks", "ingest__deliveries"


def of_type(embedded: Embedded, dag_id: str, kind: str) -> list[DagRun]:
    return [run for run in embedded.api.runs(dag_id) if run.run_type == kind]


def started(embedded: Embedded, dag_id: str, kind: str, count: int) -> list[DagRun]:
    """The runs of a type, finished, as soon as there are so many."""
    assert until(lambda: len(of_type(embedded, dag_id, kind)) >= count, RUN_SECONDS, 0.5), embedded.api.runs(dag_id)
    return [embedded.finished(dag_id, run.run_id) for run in of_type(embedded, dag_id, kind)]


def events(embedded: Embedded, asset: str) -> list[dict[str, Any]]:
    """Extras of the events of an asset, the oldest first."""
    found = embedded.api._request("GET", "/assets/events", params={"name_pattern": asset, "order_by": "timestamp"})
    return [event["extra"] for event in found["asset_events"]]


def test_enough_waits_and_nobody_comes_or_two_do(embedded: Embedded) -> None:
    """50 records call one run, long before its year is over, and again after the broker was away; fewer call none."""
    create_topic(embedded.cluster, "clicks", 3)
    embedded.unpause(CLICKS)

    embedded.send("clicks", range(20))
    embedded.send("clicks", range(20, 60))
    (first,) = started(embedded, CLICKS, "asset_triggered", 1)
    landed = embedded.ids("clicks")
    embedded.send("clicks", range(60, 100))
    stack.broker.stop(stack.processes_of(embedded.project.home))
    embedded.up()
    embedded.send("clicks", range(100, 120))
    runs = started(embedded, CLICKS, "asset_triggered", 2)

    assert landed[:20] == list(range(20))
    assert embedded.states(CLICKS, first.run_id) == {"plan": "success", "ingest": "success", "record": "success"}
    assert embedded.ids("clicks") == list(range(120))
    assert len(runs) == 2
    assert {of.started_by for of in history(embedded.project, embedded.project.pipeline("clicks"))[1:]} == {
        "airflow:asset_triggered"
    }


def test_a_run_ends_behind_and_the_next_one_waits_a_year(embedded: Embedded) -> None:
    """Records that came while it ran are landed by a run of its own, once; that one finds nothing more and starts none."""
    create_topic(embedded.cluster, "deliveries", 2)
    embedded.unpause(DELIVERIES)
    told = complete_through(embedded.api, "deliveries")
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
    instants = [event["complete_through"] for event in events(embedded, "deliveries/complete")]
    assert told is not None
    assert datetime.fromisoformat(instants[0]) == told
    assert instants == sorted(instants)
    assert len(instants) == 3
