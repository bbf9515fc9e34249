"""Dead letters under a real Airflow: reported, notified, and replayed by a form, as a person would."""

from __future__ import annotations

import json
from urllib.parse import quote

import httpx
import pytest

from frazil.errors import Terminal
from frazil.kafka.admin.topics import create_topic
from frazil.kafka.client.cluster import OutgoingRecord
from frazil.project import Project
from frazil.report.letter_reports import KeptReport, list_reports, open_report
from frazil.runtime.airflow_api import DagRun
from frazil.runtime.process import until
from frazil.verify.check import verify
from tests.e2e.embedded import RUN_SECONDS, Embedded
from tests.produce import produce
from tests.receivers import Mails, Posts

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

REPORTS, FORM = "dead_letters__refunds", "replay_dead_letters__refunds"
ASKED = {"codes": ["UNKNOWN_FIELD"], "since": "1d", "reason": "a new field may come"}


@pytest.fixture(scope="module")
def project(embedded: Embedded) -> Project:
    """The stack's project, with a pipeline five records of which became rows and three dead letters."""
    create_topic(embedded.cluster, "refunds", 1)
    values = [{"id": n} if n < 5 else {"id": n, "why": "broken"} for n in range(8)]
    records = [OutgoingRecord(key=None, value=json.dumps(value).encode()) for value in values]
    assert produce(embedded.cluster, "refunds", records).count == 8
    embedded.unpause("ingest__refunds")
    return Project.load(embedded.project.environment())


@pytest.fixture(scope="module")
def reported(embedded: Embedded, project: Project) -> DagRun:
    """The run that the schedule of the report makes."""
    return embedded.unpause(REPORTS)


def reports(project: Project) -> list[KeptReport]:
    return list_reports(project, project.pipeline("refunds"))


def test_dead_letters_are_reported_once(
    embedded: Embedded, project: Project, reported: DagRun, mailbox: Mails, hook: Posts
):
    """Files, note and one notice say the same; another run finds nothing new, sends nothing, and says so."""
    again = embedded.run(REPORTS, "e2e-nothing-new")

    (report,) = reports(project)
    assert (report.count, report.open, report.run, report.told_channels) == (3, 3, reported.run_id, ("mail", "web"))
    note = str(embedded.api.run(REPORTS, reported.run_id).note)
    assert "Frazil: 3 dead letters new (UNKNOWN_FIELD 3), 3 open" in note
    links = embedded.api._request("GET", f"/dags/{REPORTS}/dagRuns/{quote(reported.run_id)}/taskInstances/report/links")
    address = links["extra_links"]["Report"]
    assert httpx.get(f"{embedded.project.home.airflow_url}{address}").status_code == httpx.codes.UNAUTHORIZED
    answer = embedded.api._once("GET", address, {})
    page = open_report(project, project.pipeline("refunds"), report.name)
    assert (answer.status_code, answer.text) == (httpx.codes.OK, page)
    assert all(text in page for text in ("UNKNOWN_FIELD", "returns team", "refunds/0/5", "3 new dead letters"))
    (told,) = (body for body in hook.bodies if body["key"].startswith("dead_letters/refunds/"))
    assert told["title"].endswith("refunds: 3 dead letters new in batch 1")
    assert told["link"] == f"{embedded.project.home.airflow_url}{address}"
    assert len([subject for subject in mailbox.subjects if "refunds: 3 dead letters new" in subject]) == 1
    assert embedded.states(REPORTS, again.run_id) == {"report": "skipped"}
    assert "no new dead letters" in embedded.api.log(REPORTS, again.run_id, "report")


def test_form_lands_dead_letters_once(embedded: Embedded, project: Project, reported: DagRun):
    """A form without a reason is refused; a look lands nothing; then the mended file lands all, and verify is clean. A form
    that failed is noted for its pipeline, until one lands what it asks for.
    """
    embedded.api.unpause(FORM)
    with pytest.raises(Terminal, match="reason"):
        embedded.api.trigger(FORM, run_id="e2e-wrong", conf=ASKED | {"reason": " "})
    embedded.api.trigger(FORM, run_id="e2e-lost", conf=ASKED | {"topics": ["nowhere"]})
    assert embedded.api.wait(FORM, "e2e-lost", 120).state == "failed"
    assert "never read topic 'nowhere'" in embedded.failure_note(FORM)["cause"]
    file = project.pipelines_folder / "refunds.yaml"
    file.write_text(file.read_text().replace("unknown_fields: fail", "unknown_fields: ignore"))

    look = embedded.run(FORM, "e2e-look", **ASKED, dry_run=True)
    before = len(embedded.rows("own.refunds"))
    done = embedded.run(FORM, "e2e-home", **ASKED)

    assert "of 3 dead letters 3 would become rows" in str(embedded.api.run(FORM, look.run_id).note)
    note = str(embedded.api.run(FORM, done.run_id).note)
    assert "refunds: of 3 dead letters 3 are rows now, batch 2; reason: a new field may come" in note
    assert before == 5
    assert until(lambda: not embedded.failure_note(FORM), RUN_SECONDS, 0.5)
    event = embedded.event(done.run_id)
    facts = event["extra"]
    assert (event["name"], facts["mode"], facts["table_rows"]) == ("lake.own.refunds", "dead_letters", 3)
    assert facts["reason"] == "a new field may come"
    with pytest.raises(ValueError, match="not enough values"):
        embedded.event(look.run_id)
    assert sorted(row["id"] for row in embedded.rows("own.refunds")) == list(range(8))
    mended = Project.load(embedded.project.environment())
    assert [str(difference) for difference in verify(mended, mended.pipeline("refunds")).differences] == []
