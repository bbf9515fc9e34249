"""What happens to a process at a named place, in tests that share one Spark session and so can't end theirs."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest
from pyspark.sql.readwriter import DataFrameWriterV2

from frazil import failpoints
from frazil.failpoints import Failpoint


class Killed(BaseException):
    """The end of the process, as far as a test can have it."""


def at_failpoint(
    monkeypatch: pytest.MonkeyPatch,
    place: Failpoint,
    deed: Callable[[], object],
    room: ModuleType = failpoints,
) -> None:
    """Do something the first time the process gets to a place; `room` is the module that goes there by a name of its own."""
    done: list[Failpoint] = []

    def reached(point: Failpoint) -> None:
        if point is place and not done:
            done.append(point)
            deed()

    monkeypatch.setattr(room, "hit", reached)


def kill() -> None:
    """End the process."""
    raise Killed


def repeat_append(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the next statement that adds rows twice, as a client does that lost the answer to the first one."""
    append = DataFrameWriterV2.append

    def appended(writer: DataFrameWriterV2) -> None:
        monkeypatch.setattr(DataFrameWriterV2, "append", append)
        append(writer)
        append(writer)

    monkeypatch.setattr(DataFrameWriterV2, "append", appended)
