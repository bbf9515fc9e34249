"""The notebook's questions, asked of what its pipelines landed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from frazil.runtime.home import project_root

NOTEBOOK = project_root() / "docker" / "notebooks" / "what_landed.ipynb"


@pytest.mark.full
def test_notebook_runs_on_example_tables(
    tmp_path: Path, broker: str, monkeypatch: pytest.MonkeyPatch, place: Any
) -> None:
    """Every cell runs against tables of the example pipelines, and finds something."""
    own = {"FRAZIL_PIPELINES": str(project_root() / "include" / "pipelines")}
    for topic, kind, broken in (("completed-pizzas", "pizzas", "0"), ("payments", "payments", "50")):
        options = ("--generate", kind, "--count", "200", "--seed", "1", "--broken-per-thousand", broken)
        place.succeed("produce", topic, *options, **own)
        place.succeed("run", kind, "--engine", "inline", **own)
    for key, value in (place.environment | own).items():
        monkeypatch.setenv(key, value)

    names: dict[str, Any] = {}
    for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            *before, last = "".join(cell["source"]).rpartition("\nask(")
            exec(before[0], names)  # noqa: S102 - a cell of this repository
            answer = eval(f"ask({last}" if before[1] else last, names)  # noqa: S307
            assert len(answer) > 0, last
