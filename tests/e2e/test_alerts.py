"""A failure under a real Airflow reaches people: once, with its cause, and again when it is over."""

from __future__ import annotations

from typing import Any

import pytest

from frazil.local.airflow_rows import DagRun
from tests.e2e.embedded import PAYMENTS, WEB_TOKEN, Embedded
from tests.receivers import Mails, Posts

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

MONITOR = "monitor"
KEY = "failed_run/payments"


def told(hook: Posts) -> list[tuple[str, str]]:
    """What the webhook was told of failed runs of payments: (key, status)."""
    return [(body["key"], body["status"]) for body in hook.bodies if body["key"] == KEY]


def test_a_failed_run_is_told_twice_or_without_its_cause(
    embedded: Embedded, inline: str, paid: tuple[DagRun, DagRun], mailbox: Mails, hook: Posts
):
    """One mail and one post with the error's own words; none for the next look; both again when a run succeeds."""
    embedded.unpause(MONITOR)
    try:
        _drill(embedded, mailbox, hook)
    finally:
        embedded.api.pause(MONITOR)


def _drill(embedded: Embedded, mailbox: Mails, hook: Posts) -> None:
    assert told(hook) == []
    failing: dict[str, Any] = {"mode": "replay"}  # from where, nobody says
    embedded.api.trigger(PAYMENTS, run_id="e2e-told", conf=failing)
    assert embedded.api.wait(PAYMENTS, "e2e-told", 120).state == "failed"

    embedded.run(MONITOR, "look-1")
    assert told(hook) == [(KEY, "firing")]
    (body,) = (body for body in hook.bodies if body["key"] == KEY)
    assert "Run e2e-told\na replay needs to know where to begin" in body["cause"]
    assert body["next_step"].startswith("fill in 'from'")
    assert (body["severity"], body["link"]) == (
        "critical",
        f"{embedded.project.home.airflow_url}/dags/ingest__payments/runs/e2e-told",
    )

    embedded.run(MONITOR, "look-2")
    assert told(hook) == [(KEY, "firing")]

    embedded.run(PAYMENTS, "e2e-works-again")
    embedded.run(MONITOR, "look-3")
    assert told(hook) == [(KEY, "firing"), (KEY, "recovered")]
    assert [subject for subject in mailbox.subjects if "payments: a run failed" in subject] == [
        "[Frazil] critical: payments: a run failed",
        "[Frazil] recovered: payments: a run failed",
    ]
    logs = "".join(path.read_text() for path in embedded.project.home.logs.rglob("*.log"))
    assert "told web: payments: a run failed" in logs
    assert WEB_TOKEN not in logs
