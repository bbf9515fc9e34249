"""A failure under a real Airflow reaches people: once, with its cause, and again when it is over."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from frazil.kafka.admin.topics import create_topic
from frazil.runtime.airflow_api import DagRun
from frazil.runtime.process import until
from tests.e2e.embedded import PAYMENTS, WEB_TOKEN, Embedded
from tests.receivers import Mails, Posts

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

MONITOR = "monitor"
KEY = "failed_run/payments"


def notifications(hook: Posts) -> list[tuple[str, str]]:
    """What the webhook was told of failed runs of payments: (key, status)."""
    return [(body["key"], body["status"]) for body in hook.bodies if body["key"] == KEY]


def test_failed_run_is_notified_once_with_its_cause(
    embedded: Embedded, inline: str, paid: tuple[DagRun, DagRun], mailbox: Mails, hook: Posts
):
    """One mail and one post with the error's own words; none for the next look; both again when a run succeeds."""
    embedded.unpause(MONITOR)
    try:
        _drill(embedded, mailbox, hook)
    finally:
        embedded.api.pause(MONITOR)


LATE = """
name: late
interval: '@yearly'
engine: inline
source: {topics: [late]}
destinations: [{table: own.late, columns: {id: long}}]
alerts: {fresh_within: 1m}
"""


@pytest.mark.full
def test_killed_late_run_is_notified_and_resolved(embedded: Embedded, hook: Posts):
    """SIGKILL leaves no time to say why: Airflow's DAG processor notes the run, the next look tells it. Meanwhile its triggerer
    tells that the deadline was missed, and that look ends it, under the same key.
    """
    embedded.unpause(MONITOR)
    embedded.api.pause(MONITOR)  # before it knows of the pipeline: where it looked lately, no deadline speaks
    create_topic(embedded.cluster, "late", 1)
    file = embedded.project.pipelines_folder / "late.yaml"
    file.write_text(LATE)
    dag, killed = "ingest__late", set[str]()

    def late_notifications() -> list[tuple[str, str]]:
        return [(body["key"], body["status"]) for body in hook.bodies if body["pipeline"] == "late"]

    def is_over() -> bool:
        _kill(embedded, dag, "e2e-killed", killed)
        return embedded.api.run(dag, "e2e-killed").has_finished

    try:
        embedded.unpause(dag)
        embedded.api.trigger(dag, run_id="e2e-killed")
        assert until(is_over, 300, 0.1)
        assert len(killed) == 3  # each try
        assert until(lambda: embedded.failure_note(dag).get("run") == "e2e-killed", 60, 0.5)
        assert embedded.failure_note(dag)["cause"] == "a task failed; its log says why"
        assert until(lambda: late_notifications() == [("stale/late", "firing")], 60, 0.5)
        embedded.api.unpause(MONITOR)
        embedded.run(MONITOR, "look-killed")
        assert set(late_notifications()[1:]) == {("failed_run/late", "firing"), ("stale/late", "recovered")}
        embedded.run(dag, "e2e-lives")
        embedded.run(MONITOR, "look-lives")
        assert late_notifications()[3:] == [("failed_run/late", "recovered")]
    finally:
        embedded.api.pause(MONITOR)
        file.unlink()


def _kill(embedded: Embedded, dag: str, run: str, killed: set[str]) -> None:
    """Kill the processes of a run's tasks that are at work: each try has a name of its own."""
    tasks = embedded.api._request("GET", f"/dags/{dag}/dagRuns/{quote(run)}/taskInstances")["task_instances"]
    titles = {f"airflow worker -- {task['id']}" for task in tasks} - killed
    for entry in Path("/proc").iterdir():
        try:
            title = (entry / "cmdline").read_bytes().rstrip(b"\0").decode(errors="replace")
        except OSError:  # no process, or one that ended meanwhile
            continue
        if title in titles:
            os.kill(int(entry.name), signal.SIGKILL)
            killed.add(title)


def _drill(embedded: Embedded, mailbox: Mails, hook: Posts) -> None:
    assert notifications(hook) == []
    failing: dict[str, Any] = {"mode": "replay"}  # from where, nobody says
    embedded.api.trigger(PAYMENTS, run_id="e2e-told", conf=failing)
    assert embedded.api.wait(PAYMENTS, "e2e-told", 120).state == "failed"

    embedded.run(MONITOR, "look-1")
    assert notifications(hook) == [(KEY, "firing")]
    (body,) = (body for body in hook.bodies if body["key"] == KEY)
    assert "Run e2e-told\na replay needs to know where to begin" in body["cause"]
    assert body["next_step"].startswith("fill in 'from'")
    assert (body["severity"], body["link"]) == (
        "critical",
        f"{embedded.project.home.airflow_url}/dags/ingest__payments/runs/e2e-told",
    )

    embedded.run(MONITOR, "look-2")
    assert notifications(hook) == [(KEY, "firing")]

    embedded.run(PAYMENTS, "e2e-works-again")
    embedded.run(MONITOR, "look-3")
    assert notifications(hook) == [(KEY, "firing"), (KEY, "recovered")]
    assert [subject for subject in mailbox.subjects if "payments: a run failed" in subject] == [
        "[Frazil] critical: payments: a run failed",
        "[Frazil] recovered: payments: a run failed",
    ]
    logs = "".join(path.read_text() for path in embedded.project.home.logs.rglob("*.log"))
    assert "channel web was notified: payments: a run failed" in logs
    assert WEB_TOKEN not in logs
