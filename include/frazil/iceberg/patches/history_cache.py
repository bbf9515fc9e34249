"""Caches the history in table metadata: snapshots and log entries, which never change once written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from threading import Lock
from typing import Any, Final

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRef
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import RemoveSnapshotsUpdate

MOST_SNAPSHOTS: Final = 50_000
"""Of all metadata that a process keeps, or knows the past of: they bound its memory. The last one stays whatever it holds."""


class SharedHistory(list[Any]):
    """Snapshots or log entries of a table, shared between copies of its metadata.

    PyIceberg copies the metadata of a table deeply with each look of a commit: with a thousand snapshots that took a second of
    the two that a small batch takes, and ten thousand are there after a week of batches a minute apart.
    """

    def __add__(self, more: Iterable[Any]) -> SharedHistory:
        return SharedHistory([*self, *more])

    def __deepcopy__(self, _: dict[int, object]) -> SharedHistory:
        return SharedHistory(self)


class SharedRef(SnapshotRef):
    """A branch or a tag that copies of metadata share: there is a tag per hour, and none changes."""

    def __deepcopy__(self, _: dict[int, object] | None = None) -> SharedRef:
        return self

    def __eq__(self, value: object) -> bool:
        return isinstance(value, SnapshotRef) and dict(self) == dict(value)

    __hash__ = SnapshotRef.__hash__


def with_shared_history(metadata: TableMetadata) -> TableMetadata:
    """Return metadata whose copies share their past."""
    log: dict[str, Any] = {
        name: SharedHistory(getattr(metadata, name)) for name in ("snapshots", "snapshot_log", "metadata_log")
    }
    log["refs"] = {
        name: ref if isinstance(ref, SharedRef) else SharedRef.model_construct(**dict(ref))
        for name, ref in metadata.refs.items()
    }
    return metadata.model_copy(update=log)


class HistoryCache:
    """Caches the parsed snapshots, branches and tags of each table: a server sends all of them with each answer.

    PyIceberg takes three quarters of its time with an answer to make objects of them, and almost all were there before.
    """

    def __init__(self, most: int = MOST_SNAPSHOTS) -> None:
        self._most: Final = most
        self._tables: Final[dict[str, dict[int | str, tuple[Any, Any]]]] = {}
        self._lock: Final = Lock()

    def fill_in(self, metadata: dict[str, Any]) -> None:
        """Replace bodies in a server's metadata by the objects that were parsed from equal bodies before.

        Raises:
            ValueError, TypeError, KeyError, AttributeError: It can't be read, or names no snapshots.
        """
        table = str(metadata["table-uuid"])
        cached, read = self._tables.get(table, {}), dict[int | str, tuple[Any, Any]]()

        def one(key: int | str, body: Any, kind: type[Snapshot | SharedRef]) -> Any:
            before = cached.get(key)
            read[key] = before if before is not None and before[0] == body else (body, kind.model_validate(body))
            return read[key][1]

        metadata["snapshots"] = [one(body["snapshot-id"], body, Snapshot) for body in metadata["snapshots"]]
        metadata["refs"] = {name: one(name, body, SharedRef) for name, body in metadata["refs"].items()}
        with self._lock:
            self._tables.pop(table, None)
            self._tables[table] = read  # the last one that is read goes last
            for oldest in list(self._tables)[:-1]:
                if sum(map(len, self._tables.values())) <= self._most:
                    break
                del self._tables[oldest]


def without_snapshots(metadata: TableMetadata, updates: Sequence[RemoveSnapshotsUpdate]) -> TableMetadata:
    """Metadata without the snapshots of these updates, as Iceberg's Java library leaves them.

    PyIceberg copies all other snapshots, takes their parents' ids out, which tell an expiry from a table that was recreated,
    and leaves gaps in the log of heads: a reader AS OF a time would be given what was the head before.
    """
    removed_ids = {number for update in updates for number in update.snapshot_ids}
    if not removed_ids:
        return metadata
    log = metadata.snapshot_log
    last_gap = max((place for place, entry in enumerate(log) if entry.snapshot_id in removed_ids), default=-1)
    remaining = {
        name: type(old)(one for one in old if one.snapshot_id not in removed_ids)
        for name in ("snapshots", "statistics", "partition_statistics")
        if (old := getattr(metadata, name))
    }
    return metadata.model_copy(update={**remaining, "snapshot_log": type(log)(log[last_gap + 1 :])})
