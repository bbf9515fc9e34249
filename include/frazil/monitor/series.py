"""What a pipeline landed over the last day, in slices of half an hour."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from frazil.monitor.batches import Ledger

SLICE: Final = timedelta(minutes=30)
SLICES: Final = 48


@dataclass(frozen=True, slots=True)
class Series:
    """What a pipeline landed over time, in slices of one length.

    Attributes:
        starts: Begin of each slice, UTC, ascending.
        rows, dead: Records of the batches that were decided in it.
    """

    starts: tuple[datetime, ...] = ()
    rows: tuple[int, ...] = ()
    dead: tuple[int, ...] = ()


def last_day(ledger: Ledger, now: datetime) -> Series:
    """Rows and dead letters of the last day, the slice of now included.

    Raises:
        Retryable: The storage can't be read now.
    """
    seconds = int(SLICE.total_seconds())
    end = datetime.fromtimestamp((int(now.timestamp()) // seconds + 1) * seconds, UTC)
    starts = tuple(end - number * SLICE for number in range(SLICES, 0, -1))
    points = {point.begin: point for point in ledger.series(starts[0], end, SLICE)}
    rows = tuple(points[at].rows if at in points else 0 for at in starts)
    return Series(starts, rows, tuple(points[at].dead if at in points else 0 for at in starts))
