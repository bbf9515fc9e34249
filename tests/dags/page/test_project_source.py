"""What the page reads of a project whose files are being edited, and whose tables can't be reached."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event, Semaphore

import pytest

from frazil.batch.changes import LetterChoice
from frazil.errors import Retryable
from frazil.iceberg.catalog.catalog import Lake
from frazil.monitor import watch
from frazil.pipeline.files.load import ConfigError
from frazil_airflow.page import project_source
from frazil_airflow.page.project_source import SLOTS, ProjectSource

SETTINGS = Path(__file__).parents[3] / "include" / "settings.yaml"

GUARDED = """
clusters: {local: {bootstrap_servers: "127.0.0.1:1", properties: {sasl.password: "${airflow:shop:password}"}}}
catalogs: {lake: {uri: "sqlite:///c.db", warehouse: "file:///w"}}
"""

AVRO = "value: {format: avro, schema_file: orders.avsc}"

PATIENCE = 20.0
"""Bounds a wait for another thread."""


@pytest.fixture(autouse=True)
def _look_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "CHECK_SECONDS", 0.0)


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A settings file to be edited, in force for the test."""
    copy = tmp_path / "settings.yaml"
    copy.write_text(SETTINGS.read_text())
    monkeypatch.setenv("FRAZIL_SETTINGS", str(copy))
    return copy


def test_half_written_settings_keep_last_good_ones_in_force(
    write_pipeline: Callable[..., Path], settings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last good ones stay in force, what is wrong is in the log and not on the page, and the mended ones are taken up."""
    write_pipeline("orders")
    source = ProjectSource(dict(os.environ))
    assert set(source.pipelines()) == {"orders"}
    good = settings.read_text()
    warned: list[str] = []
    monkeypatch.setattr(watch._LOG, "warning", lambda text, *arguments: warned.append(text % arguments))

    settings.write_text("clusters: [secret")
    for _ in range(3):
        assert set(source.pipelines()) == {"orders"}
    assert [text.partition(": ")[0] for text in warned] == [
        "the files are broken; the project as loaded before stays in force"
    ]
    write_pipeline("payments")
    settings.write_text(good)

    assert set(source.pipelines()) == {"orders", "payments"}


def test_pipeline_with_broken_file_is_reported_with_reason(write_pipeline: Callable[..., Path], settings: Path) -> None:
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


def test_page_resolves_airflow_connections(
    write_pipeline: Callable[..., Path], settings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its settings refer to connections as those of tasks do; what the watch asks for again, requests have from then on."""
    write_pipeline("orders")
    settings.write_text(GUARDED)
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", '{"conn_type": "generic", "password": "hunter1"}')
    project_source._make_source.cache_clear()
    monkeypatch.setattr(project_source.Watch, "start", lambda source: source)

    source = project_source.shared_source()
    project_source._make_source.cache_clear()
    first = source._files.project()
    assert first.cluster("local").properties["sasl.password"] == "hunter1"
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", '{"conn_type": "generic", "password": "hunter2"}')
    assert source._with_fresh_connections() is first  # not asked at each look
    monkeypatch.setattr(project_source, "CONNECTIONS_SECONDS", 0.0)

    assert source._with_fresh_connections().cluster("local").properties["sasl.password"] == "hunter2"
    settings.write_text("clusters: [")
    assert source._with_fresh_connections() is source._files.project()  # as it was before


def test_settings_that_were_never_valid_are_reported(write_pipeline: Callable[..., Path], settings: Path) -> None:
    """There is nothing to go on with: the page says what is wrong."""
    write_pipeline("orders")
    settings.write_text("clusters: [")

    with pytest.raises(ConfigError):
        ProjectSource(dict(os.environ)).pipelines()


def test_hanging_catalog_does_not_take_all_airflow_threads(
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
    monkeypatch.setattr(project_source, "SLOT_SECONDS", 0.05)
    with ThreadPoolExecutor(SLOTS) as pool:
        stuck = [pool.submit(source.batches, "orders", 0, 8) for _ in range(SLOTS)]
        assert all(waiting.acquire(timeout=PATIENCE) for _ in stuck)
        with pytest.raises(Retryable, match="busy"):
            source.letters("orders", LetterChoice(), "open", None, 50)
        answers.set()

        assert [future.result(PATIENCE).total for future in stuck] == [0] * SLOTS
    assert source.batches("orders", 0, 8).total == 0
