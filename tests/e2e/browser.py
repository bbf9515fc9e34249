"""A real browser, and a window of somebody who is logged in to Airflow."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from frazil.runtime import airflow_login
from frazil.runtime.home import Home

if TYPE_CHECKING:
    from playwright.sync_api import Browser, FrameLocator, Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PICTURES = Path(__file__).resolve().parents[2] / ".frazil" / "test-output" / "e2e"
PAGE_MS = 60_000
"""Bounds one page; the single-page application takes 3-5 s on a busy machine, and ten times that on an overloaded one."""


@contextmanager
def opened_browser() -> Iterator[Browser]:
    """The machine's Chromium. A test that wants it is skipped where there is none."""
    if CHROMIUM is None:
        pytest.skip("no browser: neither chromium nor chromium-browser is on PATH (apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    PICTURES.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()


@contextmanager
def window_of(browser: Browser, home: Home) -> Iterator[Page]:
    """A window of somebody who logged in. A script that fails, or that a page must not run, fails the test."""
    window = browser.new_page(base_url=home.airflow_url, viewport={"width": 1440, "height": 900})
    window.set_default_timeout(PAGE_MS)
    messages: list[str] = []
    window.on("pageerror", lambda error: messages.append(str(error)))
    window.on("console", lambda line: messages.append(line.text) if "Content Security Policy" in line.text else None)
    log_in(window, home.airflow_user, airflow_login.credentials(home).password)
    yield window
    window.close()
    assert messages == []


def log_in(page: Page, user: str, password: str) -> None:
    """As a person does, with Airflow's form."""
    page.goto("/auth/login")
    page.fill("input[name=username]", user)
    page.fill("input[name=password]", password)
    page.press("input[name=password]", "Enter")
    page.wait_for_url(lambda url: "/auth/" not in url)
    page.get_by_role("link", name="Assets").first.wait_for()


def inside(page: Page) -> FrameLocator:
    """What is in the frame of Airflow's page."""
    return page.frame_locator("iframe")


def open_read(page: Page, address: str) -> FrameLocator:
    """The page of the pipeline, once its condition was read: until then it has dashes where figures come."""
    frame = inside(page)
    page.goto(address)
    frame.locator("#content").wait_for()
    deadline = PAGE_MS // 1_000
    while deadline and frame.get_by_text("not read yet").count():
        with page.expect_response(lambda response: "/frazil/" in response.url):
            page.reload()
        frame.locator("#content").wait_for()
        deadline -= 1
    return frame


def picture(page: Page, name: str) -> None:
    """Keep what is seen as output of the tests."""
    page.screenshot(path=PICTURES / f"{name}.png", animations="disabled")
