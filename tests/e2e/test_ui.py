"""What a person sees: Airflow's pages in a real browser, after a run that landed records."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from frazil.runtime.airflow_api import DagRun
from tests.e2e.browser import opened_browser, picture, window_of
from tests.e2e.embedded import Embedded

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def window(embedded: Embedded) -> Iterator[Page]:
    """One window for all tests of this file, of somebody who logged in."""
    with opened_browser() as browser, window_of(browser, embedded.project.home) as opened:
        yield opened


@pytest.fixture
def page(window: Page, request: pytest.FixtureRequest) -> Iterator[Page]:
    """The window. What it shows at the end of the test is kept as a picture."""
    yield window
    picture(window, request.node.name)


def test_the_list_shows_the_pipeline_and_no_import_error(page: Page, embedded: Embedded, landed: DagRun):
    """Its DAG, with its tags, and nothing that Airflow could not read."""
    page.goto("/dags")

    page.get_by_role("link", name="ingest__pizzas").first.wait_for()
    page.get_by_text("ingest", exact=True).first.wait_for()
    assert embedded.api.import_errors() == []


def test_the_run_and_its_tasks_are_green(page: Page, landed: DagRun):
    """A person who opens the run sees success and its tasks."""
    page.goto(f"/dags/ingest__pizzas/runs/{landed.run_id}")

    page.get_by_text("Success").first.wait_for()
    for task in ("plan", "ingest", "record"):
        page.get_by_role("link", name=task, exact=True).first.wait_for()


def test_the_note_of_the_run_says_what_landed(page: Page, landed: DagRun):
    """Ours stands below what the person wrote who started it."""
    page.goto(f"/dags/ingest__pizzas/runs/{landed.run_id}")

    page.get_by_role("button", name=re.compile("note", re.IGNORECASE)).first.click()
    page.get_by_text("2,982 rows").first.wait_for()


def test_the_page_of_the_dag_has_the_pipeline_as_documentation(page: Page, landed: DagRun):
    """Topics, table, columns and how to look at dead letters, one click away."""
    page.goto("/dags/ingest__pizzas")

    page.get_by_role("button", name="Dag Docs").first.click()
    page.get_by_text("rpc.pizzas__dead_letters").first.wait_for()
    page.get_by_text("128-bit order number as decimal text").first.wait_for()


def test_the_ingest_task_links_to_the_events_of_its_table(page: Page, landed: DagRun):
    """The link, on the tab of details, leads to the assets page, filtered to the table."""
    page.goto(f"/dags/ingest__pizzas/runs/{landed.run_id}/tasks/ingest/details")

    page.get_by_role("link", name="Table", exact=True).first.wait_for()
    address = page.get_by_role("link", name="Table", exact=True).first.get_attribute("href")
    assert address == "/assets?name_pattern=lake.rpc.pizzas"
    page.goto(address)
    page.get_by_role("link", name="lake.rpc.pizzas").first.wait_for()


def test_the_trigger_form_says_what_can_be_asked_for(page: Page, landed: DagRun):
    """Modes in words, fields in the order in which they are thought of, each with what it does."""
    page.goto("/dags/ingest__pizzas")

    page.get_by_role("button", name="Trigger").first.click()
    page.get_by_text("Ingest: land what is new").first.wait_for()
    dialog = page.get_by_role("dialog").last.inner_text()
    titles = ("Mode", "From", "To", "Reason", "Records at most")
    assert [dialog.count(f"\n{title}\n") for title in titles] == [1] * 5
    assert sorted(titles, key=lambda title: dialog.index(f"\n{title}\n")) == list(titles)
