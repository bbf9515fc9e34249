"""Deeds at the named points of a run, in this process."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from frazil import crash_points
from frazil.crash_points import VARIABLE
from tests.operations import Killed

At = Callable[..., Any]


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> At:
    """Do something, once, when a run gets to a point; without a deed it is killed there: `at("follow.committing")`."""

    def arrange(point: str, deed: Callable[[], object] | None = None, nth: int = 1) -> None:
        def hit(*_: int) -> None:
            monkeypatch.delenv(VARIABLE)
            if deed is None:
                raise Killed
            deed()

        monkeypatch.setenv(VARIABLE, f"{point}:{nth}=kill")
        monkeypatch.setattr(crash_points, "_reached", Counter())
        monkeypatch.setattr(crash_points, "os", SimpleNamespace(environ=os.environ, getpid=os.getpid, kill=hit))

    return arrange
