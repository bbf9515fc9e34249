"""The page in Airflow's own frame and navigation, in a real browser, with what a run landed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import httpx
import pytest

from frazil.runtime.airflow_api import DagRun
from tests.e2e.browser import inside, open_read, opened_browser, picture, window_of
from tests.e2e.embedded import Embedded

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for all tests of this file."""
    with opened_browser() as opened:
        yield opened


@pytest.fixture
def page(browser: Browser, embedded: Embedded) -> Iterator[Page]:
    """A window of somebody who logged in."""
    with window_of(browser, embedded.project.home) as window:
        yield window


@pytest.mark.parametrize("path", ["/", "/pipelines/pizzas", "/static/page.css", "/docs", "/openapi.json", "/nothing"])
def test_nobody_sees_anything_without_a_login(embedded: Embedded, path: str):
    """Not the page, not its style sheet, not that a path is unknown."""
    answer = httpx.get(f"{embedded.project.home.airflow_url}/frazil{path}")

    assert answer.status_code == 401
    assert "pizzas" not in answer.text.replace(path, "")


def test_the_overview_is_in_the_navigation_and_shows_what_landed(page: Page, landed: DagRun):
    """One click from Airflow's start page; the pipeline has its word and its last commit."""
    page.goto("/")
    page.get_by_role("link", name="Frazil").first.click()
    inside(page).get_by_role("link", name="pizzas", exact=True).wait_for()

    frame = open_read(page, "/plugin/frazil")
    row = frame.get_by_role("row").filter(has=page.get_by_role("link", name="pizzas", exact=True))
    row.get_by_text("ago").first.wait_for()
    picture(page, "page-overview")


def test_a_pipeline_shows_its_batches_and_leads_to_their_runs(page: Page, landed: DagRun):
    """From the row to the pipeline, from its batch to the run in Airflow: out of the frame, which its sandbox forbids."""
    frame = open_read(page, "/plugin/frazil/frazil/pipelines/pizzas")
    frame.locator(".chart canvas").first.wait_for()
    frame.get_by_text("2,982").first.wait_for()
    picture(page, "page-pipeline")
    frame.get_by_role("link", name=landed.run_id).first.click()

    page.wait_for_url(f"**/dags/ingest__pizzas/runs/{landed.run_id}")
    page.get_by_text("Success").first.wait_for()


def test_the_tab_of_a_dag_is_its_pipeline(page: Page, landed: DagRun):
    """Who looks at the DAG finds the pipeline beside its runs."""
    page.goto("/dags/ingest__pizzas/plugin/frazil-pipeline")

    inside(page).get_by_role("heading", name="pizzas").wait_for()
    inside(page).get_by_role("link", name="Dead letters", exact=True).wait_for()
    picture(page, "page-dag-tab")


def test_a_dead_letter_is_found_and_its_payload_read(page: Page, landed: DagRun):
    """By the list's filter and one click; text and bytes are one key press apart."""
    page.goto("/plugin/frazil/frazil/pipelines/pizzas/dead-letters")
    frame = inside(page)
    frame.get_by_label("Code").select_option(index=1)
    code = frame.get_by_label("Code").input_value()
    frame.get_by_role("button", name="Filter").click()
    frame.get_by_text("Clear").wait_for()
    assert f"code={code}" in page.frames[-1].url
    frame.get_by_role("link", name="Clear").click()
    frame.get_by_role("link", name="Clear").wait_for(state="hidden")
    picture(page, "page-letters")
    frame.get_by_role("rowheader").get_by_role("link").first.click()
    frame.get_by_role("heading", name="Value").wait_for()
    picture(page, "page-letter")
    hexadecimal = frame.locator("[data-view=hex]").first
    hexadecimal.locator("summary").focus()
    if hexadecimal.get_attribute("open") is None:
        page.keyboard.press("Enter")

    frame.get_by_text("000000  ").first.wait_for()


def test_the_page_is_dark_when_airflow_is(page: Page, landed: DagRun):
    """Airflow's choice holds in the frame, at once when it changes, whatever the system prefers."""
    page.emulate_media(color_scheme="light")
    frame = open_read(page, "/plugin/frazil")
    frame.locator("html[data-theme=light]").wait_for()
    page.evaluate("localStorage.setItem('theme', 'dark')")
    page.reload()

    frame.locator("html[data-theme=dark]").wait_for()
    picture(page, "page-overview-dark")


def test_a_run_is_started_from_the_form(page: Page, landed: DagRun, embedded: Embedded):
    """The button of the pipeline opens the form with the values in it; the run that starts is shown by Airflow."""
    page.goto("/plugin/frazil/frazil/pipelines/pizzas")
    frame = inside(page)
    frame.get_by_role("link", name="Replay", exact=True).click()
    frame.get_by_label("Mode").wait_for()
    assert frame.get_by_label("Mode").input_value() == '"replay"'
    picture(page, "page-start")
    frame.get_by_label("Mode").select_option('"dry_run"')
    frame.get_by_label("Reason").fill("a look from the page")
    frame.get_by_role("button", name="Start the run").click()

    page.wait_for_url("**/dags/ingest__pizzas/runs/manual__*")
    run_id = page.url.rpartition("/")[2]
    from urllib.parse import unquote

    assert embedded.finished("ingest__pizzas", unquote(run_id)).state == "success"
