"""What a real Airflow tells other systems about its runs: metrics by StatsD, lineage by OpenLineage."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

import pytest

from frazil.local.airflow_rows import DagRun
from frazil.local.waiting import until
from tests.e2e.embedded import PAYMENTS, PIZZAS, TOPICS, Embedded

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

SENT_SECONDS = 30
"""Bounds the wait for what a task sends while it ends."""


def counted(embedded: Embedded, metric: str, **tags: str) -> int:
    """Sum of a counter with these tags, so far."""
    told = "".join(f",{name}={value}" for name, value in tags.items())
    values = (re.fullmatch(rf"airflow\.frazil\.{metric}{re.escape(told)}:(\d+)\|c", line) for line in embedded.statsd)
    return sum(int(value[1]) for value in values if value)


def events(embedded: Embedded, dag_id: str, run_id: str) -> dict[str, dict[str, Any]]:
    """Events of the ingest task of a run: START and COMPLETE."""
    found: dict[str, dict[str, Any]] = {}
    lines = embedded.lineage.read_text(encoding="utf-8").splitlines() if embedded.lineage.exists() else []
    for event in map(json.loads, lines):
        facets = event["run"]["facets"]
        if event["job"]["name"] == f"{dag_id}.ingest" and facets["airflow"]["dagRun"]["run_id"] == run_id:
            found[event["eventType"]] = event
    return found


@pytest.mark.parametrize("engine", ["spark", "inline"])
def test_lineage_of_a_run_names_no_topic_and_no_table(request: pytest.FixtureRequest, embedded: Embedded, engine: str):
    """START names the topic, COMPLETE also the tables, by the names other tools have for them, with the rows of this run."""
    dag_id, run, catalogued, rows = {
        "spark": lambda: (PIZZAS, request.getfixturevalue("landed"), "rpc.pizzas", embedded.rows("rpc.pizzas")),
        "inline": lambda: (PAYMENTS, request.getfixturevalue("paid")[1], "orders.payments", None),
    }[engine]()
    assert until(lambda: "COMPLETE" in events(embedded, dag_id, run.run_id), SENT_SECONDS, 0.5)
    told = events(embedded, dag_id, run.run_id)
    table = embedded.project.lake("lake").load_table(catalogued)

    topic = {
        "namespace": f"kafka://{embedded.project.settings.clusters['local'].bootstrap_servers}",
        "name": TOPICS[dag_id],
    }
    for event in told.values():
        assert [{key: of[key] for key in ("namespace", "name")} for of in event["inputs"]] == [topic]
    written = {of["facets"]["symlinks"]["identifiers"][0]["name"]: of for of in told["COMPLETE"]["outputs"]}
    assert {catalogued} <= set(written) <= {catalogued, f"{catalogued}__dead_letters"}
    output = written[catalogued]
    assert (output["namespace"], output["name"]) == ("file", table.location().removeprefix("file://"))
    assert [of["name"] for of in output["facets"]["schema"]["fields"]] == [of.name for of in table.schema().fields]
    event = embedded.event(run.run_id)["extra"]
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == event["rows"]
    assert output["facets"]["version"]["datasetVersion"] in event["snapshot_ids"]
    assert told["COMPLETE"]["inputs"][0]["inputFacets"]["inputStatistics"]["rowCount"] == event["read"]
    assert rows is None or written[f"{catalogued}__dead_letters"]["outputFacets"]["outputStatistics"]["rowCount"] > 0


def test_metrics_of_runs_never_reach_the_receiver(embedded: Embedded, landed: DagRun, paid: tuple[DagRun, DagRun]):
    """Counters of all runs add up to the rows of the tables, dead letters to theirs, and each phase was timed."""
    runs = {"pizzas": [landed.run_id], "payments": [run.run_id for run in paid]}
    totals = Counter[str]()
    for pipeline, ids in runs.items():
        for run_id in ids:
            totals[pipeline] += embedded.event(run_id)["extra"]["rows"]

    def all_there() -> bool:
        return all(counted(embedded, "run.records", pipeline=of, outcome="written") >= totals[of] for of in totals)

    assert until(all_there, SENT_SECONDS, 0.5)
    assert counted(embedded, "run.rows", pipeline="pizzas", table="rpc.pizzas") >= totals["pizzas"]
    assert counted(embedded, "run.dead_letters", pipeline="pizzas", code="INVALID_JSON") > 0
    timed = {line.partition(":")[0] for line in embedded.statsd if line.startswith("airflow.frazil.batch.phase,")}
    assert {f"airflow.frazil.batch.phase,pipeline=pizzas,phase={of}" for of in ("stage", "decide", "forward")} <= timed
