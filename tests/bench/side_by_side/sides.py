"""Who lands a topic, and what one landing of it came to."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

from pyiceberg.table import Table

from frazil.runtime.process import until
from tests.bench.side_by_side.bench import Bench
from tests.bench.side_by_side.contents import Contents, VisibleRows, contents, visible_at, visible_rows
from tests.bench.side_by_side.meter import Reading


@dataclass(frozen=True)
class Drained:
    """One drain of one side.

    Attributes:
        seconds: From the start of the command to the commit that made the last record visible.
        seconds_99: The same of 99 % of the records.
        ended_seconds: Until the command had ended, or the last commit was noticed.
        cpu_seconds: Of the machine, in that time.
        broker_cpu_seconds: What of that was the broker's.
        peak_bytes: Memory of the side's processes.
        commits: Those that made records visible: seconds from the start, and rows of the table then.
        held: What the table holds.
    """

    seconds: float
    seconds_99: float
    ended_seconds: float
    cpu_seconds: float
    broker_cpu_seconds: float
    peak_bytes: int
    commits: list[tuple[float, int]]
    held: Contents


class Side(Protocol):
    """Who lands a topic."""

    @property
    def name(self) -> str:
        """In words, for reports."""
        ...

    def drain(self, bench: Bench, count: int, number: int) -> Drained:
        """Land the topic from its beginning into a new table.

        Args:
            bench: The ground.
            count: Records in the topic.
            number: Of the drain, so that folders and tables differ.
        """
        ...


def drained(reading: Reading, table: Table, columns: list[str], count: int) -> Drained:
    """Put together what was measured and what the table says."""
    past = visible_rows(table.refresh())
    landed = contents(table, columns)
    # Where rows are missing the figures are worth nothing, and the comparison says so.
    reached = min(count, past[-1].rows)
    commits = [after for before, after in pairwise([VisibleRows(0.0, 0), *past]) if after.rows > before.rows]
    return Drained(
        seconds=visible_at(past, reached) - reading.began,
        seconds_99=visible_at(past, reached * 0.99) - reading.began,
        ended_seconds=reading.seconds,
        cpu_seconds=reading.cpu_seconds,
        broker_cpu_seconds=reading.broker_cpu_seconds,
        peak_bytes=reading.peak_bytes,
        commits=[(commit.at - reading.began, commit.rows) for commit in commits],
        held=landed,
    )


def wait(happened: Callable[[], bool], failure: Callable[[], str | None], seconds: float) -> None:
    """Wait until something happened; a failure ends the measurement, and so does the time."""
    deadline = time.monotonic() + seconds
    while not until(happened, 5.0, 0.5):
        reason = failure()
        assert reason is None, reason
        assert time.monotonic() < deadline, f"not landed within {seconds:.0f} s"
