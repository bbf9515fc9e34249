"""Maintenance under a real Airflow: the schedule's own run does what is due, and leaves word of it."""

from __future__ import annotations

import pytest

from frazil.cli.demo.run import read_page
from frazil.maintain.run import last_maintenance
from frazil.runtime.airflow_api import DagRun
from frazil.verify.check import verify
from tests.e2e.embedded import Embedded

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

MAINTAIN = "maintain__pizzas"


def test_tables_are_maintained_on_schedule_and_on_demand(embedded: Embedded, landed: DagRun):
    """Switched on, the DAG looks by itself; asked over REST, a job of Spark does what is not due."""
    first = embedded.unpause(MAINTAIN)
    assert embedded.states(MAINTAIN, first.run_id)["look"] == "success"

    run = embedded.run(MAINTAIN, "e2e-maintain", table="rpc.pizzas", steps=["manifests"], force=True)

    assert set(embedded.states(MAINTAIN, run.run_id).values()) == {"success"}
    pizzas = embedded.project.pipeline("pizzas")
    noted = last_maintenance(embedded.project, pizzas)["rpc.pizzas"].outcome
    assert [(step.step, step.status) for step in noted.steps] == [("manifests", "done")]
    assert verify(embedded.project, pizzas).is_clean
    # What the demo ends with, told by the page itself.
    page_text = read_page(embedded.api, "pizzas", "rpc.pizzas")
    assert (page_text.state, page_text.rows, page_text.dead) == ("Idle", "2,982", "18")
    assert page_text.health["rpc.pizzas"] > 0
