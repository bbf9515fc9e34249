"""Keeps timestamps in a table's history ascending, although clocks of the committing hosts differ.

Java's TableMetadata refuses metadata whose log, or whose last change, goes back by more than a minute. PyIceberg dates each
commit by the host's clock alone, so a host whose clock is fast would leave a table that Java can't read.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import Final, TypeVar

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import MetadataLogEntry, SnapshotLogEntry

from frazil.error_codes import BAD_SETTING, CLOCK_WRONG

E = TypeVar("E", SnapshotLogEntry, MetadataLogEntry)

MAX_SKEW: Final = "frazil.max-clock-skew-ms"
"""Catalog property: how far the last change of a table may be ahead of this host's clock, in milliseconds."""

_MAX_SKEW_MS: Final = 60_000
"""Java's own tolerance (TableMetadata.ONE_MINUTE): beyond it no other engine writes to the table either."""


def next_timestamp(metadata: TableMetadata) -> int:
    """Timestamp of a table's next snapshot, in milliseconds since 1970: later than all earlier ones."""
    return max(_now_ms(), _newest(metadata) + 1)


def with_ascending_times(metadata: TableMetadata, base: TableMetadata) -> TableMetadata:
    """The metadata that a commit made from `base`, with ascending timestamps in its logs."""
    snapshots, past = _ascending(metadata.snapshot_log), _ascending(metadata.metadata_log)
    newest = max(
        metadata.last_updated_ms,
        base.last_updated_ms,
        *(entry.timestamp_ms for entry in snapshots[-1:]),
        *(entry.timestamp_ms for entry in past[-1:]),
    )
    return metadata.model_copy(
        update={"snapshot_log": snapshots, "metadata_log": past, "last_updated_ms": newest},
    )


def refuse_skew(table: Table) -> None:
    """Refuse to commit to a table whose last change is far ahead of this host's clock.

    Raises:
        Retryable: The difference exceeds the bound.
        Terminal: The catalog's property for the bound is no number of milliseconds.
    """
    catalog, now_ms, newest = table.catalog, _now_ms(), _newest(table.metadata)
    bound = _bound(str(catalog.properties.get(MAX_SKEW, _MAX_SKEW_MS)))
    if newest - now_ms <= bound:
        return
    ahead = timedelta(milliseconds=newest - now_ms)
    raise CLOCK_WRONG.retryable(
        f"table {'.'.join(table.name())} was changed last at {_instant(newest)}, and the clock of this host"
        f" ({socket.gethostname()}) says {_instant(now_ms)}: {ahead} behind; expected at most {timedelta(milliseconds=bound)}",
        next_step="set the clock that is wrong, of this host or of the one that changed the table, and synchronise both (NTP)."
        f" If the table's time is wrong, runs continue by themselves from {_instant(newest - bound)}; to continue at once, set"
        f' {MAX_SKEW}: "{newest - now_ms + _MAX_SKEW_MS}" among the properties of catalog {catalog.name} in the settings'
        " (Spark and other Java writers still wait)",
    )


def _bound(text: str) -> int:
    if not text.isdecimal():
        raise BAD_SETTING.terminal(
            f"catalog property {MAX_SKEW}: expected milliseconds, found {text!r}",
            next_step="correct it among the properties of the catalog in the settings",
        )
    return int(text)


def _now_ms() -> int:
    return int(time.time() * 1000)


def _newest(metadata: TableMetadata) -> int:
    return max([metadata.last_updated_ms, *(entry.timestamp_ms for entry in metadata.snapshot_log[-1:])])


def _ascending(log: Sequence[E]) -> list[E]:
    times = accumulate((entry.timestamp_ms for entry in log), max)
    return [
        entry if entry.timestamp_ms == time_ms else entry.model_copy(update={"timestamp_ms": time_ms})
        for entry, time_ms in zip(log, times, strict=True)
    ]


def _instant(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
