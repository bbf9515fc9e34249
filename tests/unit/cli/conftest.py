"""A project of its own for commands, and the command run inside this process."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from frazil.cli.app import invoke
from frazil.runtime.home import project_root


@dataclass(frozen=True)
class Ended:
    """What a command left: its exit code and what it wrote."""

    code: int
    out: str
    err: str


Frazil = Callable[..., Ended]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Settings and pipelines of the project in a folder that a test may spoil: settings.yaml, pipelines/."""
    include = project_root() / "include"
    shutil.copy(include / "settings.yaml", tmp_path)
    shutil.copytree(include / "pipelines", tmp_path / "pipelines")
    monkeypatch.setenv("FRAZIL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("FRAZIL_SETTINGS", str(tmp_path / "settings.yaml"))
    monkeypatch.setenv("FRAZIL_PIPELINES", str(tmp_path / "pipelines"))
    return tmp_path


@pytest.fixture
def frazil(place: Path, capsys: pytest.CaptureFixture[str]) -> Frazil:
    """Run a command: `frazil("run", "pizzas")`."""

    def run(*arguments: str) -> Ended:
        code = invoke(arguments)
        written = capsys.readouterr()
        return Ended(code, written.out, written.err)

    return run
