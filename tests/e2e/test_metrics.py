"""What a real Airflow sends of its runs to a StatsD receiver."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from frazil.runtime.airflow_api import DagRun
from frazil.runtime.process import until
from tests.e2e.embedded import Embedded

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

SENT_SECONDS = 30
"""Bounds the wait for what a task sends while it ends."""


def counted(embedded: Embedded, metric: str, **tags: str) -> int:
    """Sum of a counter with these tags, so far."""
    suffix = "".join(f",{name}={value}" for name, value in tags.items())
    values = (re.fullmatch(rf"airflow\.frazil\.{metric}{re.escape(suffix)}:(\d+)\|c", line) for line in embedded.statsd)
    return sum(int(value[1]) for value in values if value)


def test_metrics_of_runs_reach_receiver(embedded: Embedded, landed: DagRun, paid: tuple[DagRun, DagRun]):
    """Of both engines: counters of all runs add up to the rows of the tables, and each phase was timed."""
    runs = {"pizzas": [landed.run_id], "payments": [run.run_id for run in paid]}
    totals = Counter[str]()
    for pipeline, ids in runs.items():
        for run_id in ids:
            totals[pipeline] += embedded.event(run_id)["extra"]["rows"]

    def all_there() -> bool:
        return all(
            counted(embedded, "run.records", pipeline=pipeline, outcome="written") >= totals[pipeline]
            for pipeline in totals
        )

    assert until(all_there, SENT_SECONDS, 0.5)
    assert counted(embedded, "run.rows", pipeline="pizzas", table="rpc.pizzas") >= totals["pizzas"]
    assert counted(embedded, "run.dead_letters", pipeline="pizzas", code="INVALID_JSON") > 0
    timed = {line.partition(":")[0] for line in embedded.statsd if line.startswith("airflow.frazil.batch.phase,")}
    assert {
        f"airflow.frazil.batch.phase,pipeline=pizzas,phase={phase}" for phase in ("stage", "decide", "forward")
    } <= timed
