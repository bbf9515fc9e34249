"""Captures on the page: below the pipelines, and each by itself, for whoever may read its DAG."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from frazil.monitor.condition import Condition
from frazil.pipeline.settings.capture import FileCapture, JdbcCapture
from tests.dags.page.conftest import Open
from tests.dags.page.source import HOSTILE, NOW, MadeUp

FILES = FileCapture(
    capture="file", name="orders", owner="web", topic="access-log", paths=(f"/var/log/{HOSTILE}", "/var/log/b.log")
)
ROWS = JdbcCapture(capture="jdbc", name="rows", topic="rows", database="shop", table="public.orders", mode="bulk")
WAITING = Condition(
    FILES.unique_name, "web", NOW, n=12, last_commit=NOW - timedelta(minutes=3), unit="files", lag=2, lag_bytes=5_000,
    lag_seconds=65.0,
)  # fmt: skip
DAGS = {"ingest__orders", "capture__orders", "capture__rows"}


@pytest.fixture(autouse=True)
def _captures(source: MadeUp) -> None:
    source.captured = {capture.unique_name: capture for capture in (FILES, ROWS)}
    source.conditions = {**source.conditions, FILES.unique_name: WAITING}


def test_captures_are_below_the_pipelines(open_page: Open) -> None:
    """With what waits; a pipeline of the same name is another one; a search finds them by name and topic."""
    text = open_page(DAGS).get("/").text
    assert 'href="/pipelines/orders"' in text
    assert 'href="/pipelines/capture.orders"' in text
    assert "2 files with 5,000 bytes wait for the next run" in text
    assert "not read yet" in text
    assert "capture.rows" not in open_page(DAGS).get("/?q=access").text
    assert "capture.rows" not in open_page(DAGS).get("/?state=Refused").text


@pytest.mark.parametrize("path", ["/pipelines/capture.orders", "/dag?dag_id=capture__orders"])
def test_capture_has_a_page_of_its_own(open_page: Open, path: str) -> None:
    """Source, topic, what waits and its runs; names of files are text, whatever they are."""
    text = open_page(DAGS, {"capture__orders"}).get(path).text
    for shown in ("access-log", "4.9 KiB", "/var/log/b.log", "capture__orders", "/start/capture__orders?conf="):
        assert shown in text
    assert "<script>alert" not in text


def test_capture_that_would_be_refused_says_why(open_page: Open, source: MadeUp) -> None:
    source.conditions = {FILES.unique_name: replace(WAITING, refusal="lines may be missing\n  next: look")}
    text = open_page(DAGS).get("/pipelines/capture.orders").text
    assert "next: look" in text
    assert "Refused" in text


def test_database_capture_shows_its_table_and_no_count(open_page: Open, source: MadeUp) -> None:
    source.conditions = {ROWS.unique_name: Condition(ROWS.unique_name, "frazil", NOW, n=3, unit="rows")}
    text = open_page(DAGS).get("/pipelines/capture.rows").text
    assert "public.orders, bulk" in text
    assert "its last run took what was there" in text


def test_capture_is_shown_only_to_who_may_read_its_dag(open_page: Open) -> None:
    """To others it looks as if it were not there."""
    page = open_page({"ingest__orders"})
    assert "capture.orders" not in page.get("/").text
    answers = [page.get(f"/pipelines/capture.{name}") for name in ("orders", "no_such")]
    assert [answer.status_code for answer in answers] == [404, 404]
    assert page.get("/start/capture__orders").status_code == 404


def test_run_of_a_capture_may_be_started_by_who_may_start_its_dag(open_page: Open) -> None:
    assert open_page(DAGS, {"capture__orders"}).get("/start/capture__orders").status_code == 200
    assert open_page(DAGS).get("/start/capture__orders").status_code == 403
