"""Spark's pages and its event log, as an engine's keys ask for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from frazil.errors import Terminal
from frazil.pipeline.settings.settings import EngineSettings
from frazil.spark.submit.configuration import REDACTION, ui_settings


def test_pages_and_event_log_are_off_by_default() -> None:
    """Nobody listens who was not asked for, and nothing grows."""
    assert ui_settings(EngineSettings()) == {**REDACTION, "spark.ui.enabled": "false"}


def test_pages_end_no_job() -> None:
    """Nobody logs in to them, so there is no button that ends a batch."""
    conf = ui_settings(EngineSettings(ui=True))

    assert (conf["spark.ui.enabled"], conf["spark.ui.killEnabled"]) == ("true", "false")


def test_folder_of_event_logs_is_made_for_its_owner(tmp_path: Path) -> None:
    """Spark makes none, and would not start; one in a store is Spark's own affair."""
    folder = tmp_path / "spark" / "events"

    conf = ui_settings(EngineSettings(event_log=str(folder)))

    assert conf["spark.eventLog.dir"] == str(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert ui_settings(EngineSettings(event_log="hdfs:///events"))["spark.eventLog.dir"] == "hdfs:///events"


def test_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """A person must act, and knows where."""
    (tmp_path / "file").write_text("")

    with pytest.raises(Terminal, match=r"event_log of the engine: the folder .*/file/events can't be created"):
        ui_settings(EngineSettings(event_log=str(tmp_path / "file" / "events")))
