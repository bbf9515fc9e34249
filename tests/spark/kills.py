"""What happens to a process at a named place, in tests that share one Spark session and so can't end theirs."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest

from frazil import crash_points
from frazil.crash_points import CrashPoint


class Killed(BaseException):
    """The end of the process, as far as a test can have it."""


def at(
    monkeypatch: pytest.MonkeyPatch,
    place: CrashPoint,
    deed: Callable[[], object],
    room: ModuleType = crash_points,
) -> None:
    """Do something the first time the process gets to a place; `room` is the module that goes there by a name of its own."""
    done: list[CrashPoint] = []

    def reached(point: CrashPoint) -> None:
        if point is place and not done:
            done.append(point)
            deed()

    monkeypatch.setattr(room, "reached", reached)


def kill() -> None:
    """End the process."""
    raise Killed
