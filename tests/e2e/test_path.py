"""The way of a person through Airflow's UI, in a real browser: trigger, backfill, a dead letter found, mended and landed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pytest

from frazil.error_codes import INTERNAL
from frazil.kafka.admin.topics import create_topic
from frazil.kafka.client.cluster import OutgoingRecord
from frazil.project import Project
from frazil.report.history import history
from frazil.verify.check import verify
from tests.e2e.browser import inside, open_read, opened_browser, picture, window_of
from tests.e2e.embedded import RUN_SECONDS, Embedded
from tests.produce import produce

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

DAG, FORM, PAGE = "ingest__parcels", "replay_dead_letters__parcels", "/plugin/frazil/frazil/pipelines/parcels"
MONTHS = range(1, 4)
A_MONTH = 5
"""Parcels per month; one of February has a field that no column takes."""


@pytest.fixture
def page(embedded: Embedded) -> Iterator[Page]:
    """A window of somebody who logged in."""
    with opened_browser() as browser, window_of(browser, embedded.project.home) as window:
        yield window


def parcel(number: int, month: int, **more: Any) -> OutgoingRecord:
    """One of a month of 2025; month 0 is December before."""
    instant = datetime(2025, month, 10, tzinfo=UTC) if month else datetime(2024, 12, 10, tzinfo=UTC)
    value = json.dumps({"id": number, **more}).encode()
    return OutgoingRecord(None, value, timestamp_ms=int(instant.timestamp()) * 1_000)


def test_person_goes_the_whole_way_in_the_browser(page: Page, embedded: Embedded):
    """From the login to a dead letter that landed, each step with what a person sees and clicks."""
    create_topic(embedded.cluster, "parcels", 1)
    embedded.unpause(DAG)
    embedded.api.unpause(FORM)
    records = [
        parcel(month * A_MONTH + n, month, **({"fragile": True} if (month, n) == (2, 2) else {}))
        for month in (0, *MONTHS)
        for n in range(A_MONTH)
    ]
    assert produce(embedded.cluster, "parcels", records).count == len(records)

    trigger(page, embedded)
    backfill(page, embedded)
    find_the_letter(page)
    replay_dead_letter(page, embedded)
    see_it_landed(page, embedded, len(records))


def trigger(page: Page, embedded: Embedded) -> None:
    """Airflow's form, filled in: what is older than the year."""
    page.goto("/")
    page.get_by_role("link", name="Frazil").first.wait_for()
    picture(page, "path-1-logged-in")
    page.goto(f"/dags/{DAG}")
    page.get_by_role("button", name="Trigger").first.click()
    form = page.get_by_role("dialog").last
    field(form, "To").fill("2025-01-01T00:00:00+00:00")
    field(form, "Reason").fill("the year before comes first")
    field(form, "Reason").scroll_into_view_if_needed()
    picture(page, "path-2-form")
    form.get_by_role("button", name="Trigger").click()

    page.wait_for_url(f"**/dags/{DAG}/runs/manual__*", timeout=RUN_SECONDS * 1_000)
    run_id = unquote(page.url.partition("/runs/")[2].partition("/")[0].partition("?")[0])
    embedded.finished(DAG, run_id)
    page.reload()
    page.get_by_text("Success").nth(3).wait_for()  # of the run, and of its three tasks
    picture(page, "path-3-triggered")
    assert embedded.ids("parcels") == list(range(A_MONTH))
    assert history(embedded.project, embedded.project.pipeline("parcels"))[-1].reason == "the year before comes first"


def field(form: Locator, title: str) -> Locator:
    """The box of a text field of Airflow's form."""
    return form.get_by_role("group").filter(has_text=re.compile(f"^{title}")).get_by_role("textbox").last


def backfill(page: Page, embedded: Embedded) -> None:
    """Airflow's dialog, for some months; each of the runs lands its own."""
    runs = embedded.backfilled(DAG, lambda: ask_for_backfill(page))

    page.goto(f"/dags/{DAG}/runs")
    page.get_by_role("link", name=re.compile("backfill__")).nth(len(MONTHS) - 1).wait_for()
    page.get_by_text("Success").nth(len(MONTHS)).wait_for()
    picture(page, "path-5-backfilled")
    assert [run.run_type for run in runs] == ["backfill"] * len(MONTHS)
    landed = history(embedded.project, embedded.project.pipeline("parcels"))[-len(MONTHS) :]
    assert [(batch.started_by, batch.read) for batch in landed] == [("airflow:backfill:admin", A_MONTH)] * len(MONTHS)


def ask_for_backfill(page: Page) -> None:
    """Fill in the dialog and press its button."""
    page.goto(f"/dags/{DAG}")
    page.get_by_role("button", name="Trigger").first.click()
    form = page.get_by_role("dialog").last
    form.get_by_text("Backfill", exact=True).first.click()
    for label, day in (("From", "2025/01/01"), ("To", f"2025/{MONTHS[-1]:02}/01")):
        unset = form.get_by_role("group").filter(has_text=label).filter(has_text="Select date and time")
        unset.last.click()
        calendar = page.get_by_role("dialog").last
        calendar.get_by_placeholder("YYYY/MM/DD").fill(day)
        calendar.get_by_placeholder("HH:mm").fill("00:00")
        calendar.get_by_placeholder("HH:mm").press("Enter")
        page.keyboard.press("Escape")
    form = page.get_by_role("dialog").filter(has_text="Run Backfill").first
    form.get_by_text("All Runs", exact=True).click()
    # Else the schedule begins a run while the others are made, which SQLite locks: see `Embedded.backfilled`.
    form.get_by_text("Unpause ingest__parcels on trigger").click()
    wait_for_count(page, form, f"{len(MONTHS)} runs will be triggered")
    picture(page, "path-4-backfill")
    with page.expect_response(lambda response: response.url.endswith("/backfills")) as answer:
        form.get_by_role("button", name="Run Backfill").click()
    if not answer.value.ok:
        raise INTERNAL.retryable(answer.value.text())


def wait_for_count(page: Page, form: Locator, count: str) -> None:
    """The dialog asks once how many runs it would make; where SQLite was locked then, it never says it: open it anew."""
    from playwright.sync_api import TimeoutError as NoCount

    try:
        form.get_by_text(count).wait_for(timeout=20_000)
    except NoCount as problem:
        picture(page, "path-4-no-count")
        raise INTERNAL.retryable(f"the dialog does not say {count!r}, but: {form.inner_text()}") from problem


def find_the_letter(page: Page) -> None:
    """From Airflow's navigation to the pipeline, its dead letters, and the record."""
    page.goto("/")
    page.get_by_role("link", name="Frazil").first.click()
    frame = inside(page)
    frame.get_by_role("link", name="parcels", exact=True).click()
    frame.get_by_role("link", name="Dead letters", exact=True).click()
    frame.get_by_label("Code").select_option("UNKNOWN_FIELD")
    frame.get_by_role("button", name="Filter").click()
    frame.get_by_text("Clear").wait_for()
    picture(page, "path-6-letters")
    frame.get_by_role("rowheader").get_by_role("link").click()
    frame.get_by_text('"fragile": true').wait_for()
    picture(page, "path-7-letter")


def replay_dead_letter(page: Page, embedded: Embedded) -> None:
    """The file is mended, and the page's form replays what it called bad."""
    file = embedded.project.pipelines_folder / "parcels.yaml"
    file.write_text(file.read_text().replace("unknown_fields: fail", "unknown_fields: ignore"))
    open_read(page, PAGE)
    frame = inside(page)
    frame.get_by_role("link", name="Replay dead letters").click()
    frame.get_by_label("Reason").fill("whether it is fragile is not asked any more")
    frame.get_by_label("Codes").fill('["UNKNOWN_FIELD"]')
    picture(page, "path-8-replay")
    frame.get_by_role("button", name="Start the run").click()

    page.wait_for_url(f"**/dags/{FORM}/runs/manual__*")
    done = embedded.finished(FORM, unquote(page.url.rpartition("/")[2]))
    page.reload()
    page.get_by_text("Success").nth(1).wait_for()
    picture(page, "path-9-replayed")
    assert embedded.event(done.run_id)["extra"]["mode"] == "dead_letters"


def see_it_landed(page: Page, embedded: Embedded, count: int) -> None:
    """On the page, in the table, and by the independent check."""
    page.goto(f"{PAGE}/dead-letters?state=landed")
    frame = inside(page)
    frame.get_by_text(f"landed, batch {len(MONTHS) + 2}").wait_for()
    picture(page, "path-10-landed")
    open_read(page, PAGE)
    picture(page, "path-11-pipeline")
    assert embedded.ids("parcels") == list(range(count))
    mended = Project.load(embedded.project.environment())
    assert [str(difference) for difference in verify(mended, mended.pipeline("parcels")).differences] == []
