"""What the page reads of a project whose files are being edited, and whose tables can't be reached."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Semaphore

import pytest

from frazil.batch.letters import LetterChoice
from frazil.errors import Retryable
from frazil.iceberg.catalog import Lake
from frazil.monitor.batches import Ledger
from frazil.monitor.condition import Condition
from frazil.monitor.points import Point
from frazil.pipeline.load import ConfigError
from frazil.project import Project
from frazil_airflow.page import project_source
from frazil_airflow.page.project_source import SEATS, ProjectSource

SETTINGS = Path(__file__).parents[2] / "include" / "settings.yaml"

AVRO = "value: {format: avro, schema_file: orders.avsc}"

PATIENCE = 20.0
"""Bounds a wait for another thread."""


@pytest.fixture(autouse=True)
def _look_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(project_source, "LOOK_SECONDS", 0.0)


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A settings file to be edited, in force for the test."""
    copy = tmp_path / "settings.yaml"
    copy.write_text(SETTINGS.read_text())
    monkeypatch.setenv("FRAZIL_SETTINGS", str(copy))
    return copy


def test_half_written_settings_take_the_page_from_everybody(
    write_pipeline: Callable[..., Path], settings: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The last good ones stay in force, what is wrong is in the log and not on the page, and the mended ones are taken up."""
    write_pipeline("orders")
    source = ProjectSource(dict(os.environ))
    assert set(source.pipelines()) == {"orders"}
    good = settings.read_text()

    settings.write_text("clusters: [secret")
    for _ in range(3):
        assert set(source.pipelines()) == {"orders"}
    assert caplog.text.count("settings that it read before") == 1
    write_pipeline("payments")
    settings.write_text(good)

    assert set(source.pipelines()) == {"orders", "payments"}


def test_a_pipeline_whose_file_is_broken_vanishes_in_silence(
    write_pipeline: Callable[..., Path], settings: Path
) -> None:
    """Its file is told, and why; a schema file that comes mends it without a touch of the pipeline file."""
    file = write_pipeline("orders")
    file.write_text(f"{file.read_text()}{AVRO}\n")
    source = ProjectSource(dict(os.environ))
    assert set(source.pipelines()) == set()
    assert "orders.avsc" in source.broken()["orders"]

    schemas = file.parent.parent / "schemas"
    schemas.mkdir()
    (schemas / "orders.avsc").write_text('{"type": "record", "name": "o", "fields": [{"name": "id", "type": "long"}]}')

    assert set(source.pipelines()) == {"orders"}
    assert source.broken() == {}


def test_settings_that_were_never_good_are_taken_for_an_empty_project(
    write_pipeline: Callable[..., Path], settings: Path
) -> None:
    """There is nothing to go on with: the page says what is wrong."""
    write_pipeline("orders")
    settings.write_text("clusters: [")

    with pytest.raises(ConfigError):
        ProjectSource(dict(os.environ)).pipelines()


def test_a_catalog_that_hangs_takes_all_threads_of_airflow(
    write_pipeline: Callable[..., Path], settings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few requests wait for it, the next is answered; and when it answers again, so does the page."""
    write_pipeline("orders")
    source = ProjectSource(dict(os.environ))
    answers, waiting = Event(), Semaphore(0)

    def find_table(*_: object) -> None:
        waiting.release()
        assert answers.wait(PATIENCE)

    monkeypatch.setattr(Lake, "find_table", find_table)
    monkeypatch.setattr(project_source, "SEAT_SECONDS", 0.05)
    with ThreadPoolExecutor(SEATS) as pool:
        stuck = [pool.submit(source.batches, "orders", 0, 8) for _ in range(SEATS)]
        assert all(waiting.acquire(timeout=PATIENCE) for _ in stuck)
        with pytest.raises(Retryable, match="busy"):
            source.letters("orders", LetterChoice(), "open", None, 50)
        answers.set()

        assert [of.result(PATIENCE).total for of in stuck] == [0] * SEATS
    assert source.batches("orders", 0, 8).total == 0


def test_kafka_that_is_away_looks_as_if_nothing_landed(
    write_pipeline: Callable[..., Path], settings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What landed is in the ledger; if that is away, too, it is as read last. Health that can't be read is not asked for at once."""
    write_pipeline("orders")
    source = ProjectSource(dict(os.environ))
    away = Retryable("it does not answer")
    landed, asked = [Point(datetime.now(UTC), rows=7)], []
    seen = Condition("orders", "testers", datetime.now(UTC), n=1, unreadable=str(away))

    def health(*_: object) -> dict[str, int]:
        asked.append(1)
        if len(asked) > 1:
            raise away
        return {"shop.orders": 80}

    def series(_: object, since: datetime, *__: object) -> list[Point]:
        if not landed:
            raise away
        return [replace(of, begin=since) for of in landed]

    monkeypatch.setattr(project_source, "read", lambda *_, **__: seen)
    monkeypatch.setattr(project_source, "table_health", health)
    monkeypatch.setattr(Ledger, "series", series)
    monkeypatch.setattr(project_source, "HEALTH_SECONDS", 0.0)

    first = source._read("orders")
    landed.clear()
    last = [source._read("orders") for _ in range(3)]

    assert sum(first.series.rows) == 7
    assert {(of.series, of.condition.health["shop.orders"]) for of in last} == {(first.series, 80)}
    assert len(asked) == 2


def test_tables_that_records_named_are_missing(
    write_pipeline: Callable[..., Path], settings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file does not list them; while the catalog is away those that were known stay."""
    write_pipeline("orders")
    source = ProjectSource(dict(os.environ))
    made: list[tuple[str, ...]] = [("shop.orders_eu", "shop.orders")]

    def made_tables(*_: object) -> tuple[str, ...]:
        if not made:
            raise Retryable("it does not answer")
        return made.pop()

    monkeypatch.setattr(Project, "made_tables", made_tables)
    monkeypatch.setattr(project_source, "read", lambda *_, **__: Condition("orders", "testers", datetime.now(UTC)))

    assert source.tables("orders") == ("shop.orders",)
    for _ in range(2):
        source._read("orders")
        assert source.tables("orders") == ("shop.orders", "shop.orders_eu")
