"""Conditions of pipelines on terminals of any size."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from frazil.cli.operate.status import facts, lines
from frazil.monitor.condition import Condition, Freshness
from frazil.runtime.home import Home

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
FINE = Condition(
    "orders", "shop", NOW, n=7, last_commit=NOW - timedelta(minutes=4), lag=0, lag_seconds=0.0, held_back=0,
    freshness=Freshness(20, 95, 120), rows=1_234_567, dead=12,
)  # fmt: skip
LATE = replace(FINE, pipeline="late", lag=91_000, lag_seconds=7_260.0)
WAITING = Condition("capture.logs", "web", NOW, n=4, unit="files", lag=2, lag_bytes=40, lag_seconds=5.0)
REFUSED = replace(FINE, pipeline="refused", refusal="topic orders was recreated: " + "the position says otherwise " * 9)
PROMISES = dict.fromkeys(("orders", "late", "refused"), 900.0)


def drawn(conditions: dict[str, Condition | None], width: int, height: int | None = None) -> list[str]:
    text = StringIO()
    Console(file=text, width=width).print(lines(conditions, PROMISES, width, height))
    return text.getvalue().splitlines()


@pytest.mark.parametrize("width", [60, 80, 120, 200])
@pytest.mark.parametrize("height", [None, 12])
def test_lines_fit_the_width(width: int, height: int | None) -> None:
    """Whatever the width, no line is longer, a screen has one line per pipeline, and words and lags are whole."""
    screen = drawn({"orders": FINE, "late": LATE, "refused": REFUSED, "new": None}, width, height)

    assert max(map(len, screen)) <= width
    assert [line.split()[:2] for line in screen[1:5]] == [
        ["refused", "Refused"],
        ["late", "Behind"],
        ["new", "reading"],
        ["orders", "Idle"],
    ]
    assert "91,000" in screen[2]
    assert "2 h" in screen[2]
    assert height is None or len(screen) == 6
    assert screen[-1].startswith("4 pipelines: 1 Refused, 1 Behind, 1 Idle, 1 reading")


def test_reason_is_shown_whole() -> None:
    """Where there is no room beside, reasons stand below, whole."""
    text = "".join(drawn({"refused": REFUSED}, 80))

    assert text.count("the position says") == 9


def test_urgent_pipelines_come_first_among_two_hundred() -> None:
    """What does not fit on a screen is counted by word, the least urgent."""
    conditions = {f"p{n:03}": replace(FINE, pipeline=f"p{n:03}") for n in range(200)} | {"refused": REFUSED}
    screen = drawn(conditions, 100, 24)

    assert len(screen) <= 24
    assert screen[1].startswith("refused")
    assert "181 Idle" in screen[-2]
    assert screen[-1] == "201 pipelines: 1 Refused, 200 Idle"


def test_capture_has_a_line_beside_pipelines_and_a_place_in_json(tmp_path: Path) -> None:
    """A pipeline may have the same name: the capture says that it is one, and its lag is one of files."""
    conditions: dict[str, Condition | None] = {"logs": replace(FINE, pipeline="logs"), "capture.logs": WAITING}
    screen = drawn(conditions, 160)

    assert [line.split()[:3] for line in screen[1:3]] == [["capture", "logs", "Idle"], ["logs", "Idle", "0"]]
    assert "2 files" in screen[1]
    assert "2 files with 40 bytes wait for the next run" in screen[1]
    assert screen[-1] == "1 pipelines, 1 captures: 2 Idle"
    bodies = facts(conditions, PROMISES, Home.resolve({"FRAZIL_HOME": str(tmp_path)}))
    assert (bodies["pipelines"]["logs"]["lag"], bodies["captures"]["logs"]["lag_bytes"]) == (0, 40)


def test_project_without_pipelines_says_so() -> None:
    """It says that there are none."""
    assert drawn({}, 80)[-1] == "there are no pipelines"


def test_json_contains_the_stack_and_every_pipeline(tmp_path: Path) -> None:
    """Programs find the stack where it was, and each pipeline with its word, and all that is known."""
    home = Home.resolve({"FRAZIL_HOME": str(tmp_path)})
    status_facts = facts({"late": LATE, "new": None}, PROMISES, home)

    assert {"home", "bootstrap_servers", "catalog", "airflow", "components"} < status_facts.keys()
    assert status_facts["pipelines"]["late"]["state"] == "Behind"
    assert status_facts["pipelines"]["late"]["freshness"]["p95"] == 95
    assert status_facts["pipelines"]["new"] == {"state": "reading", "why": ""}
