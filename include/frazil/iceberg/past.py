"""The past of a table in its metadata: snapshots and log entries, which never change once they are there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRef
from pyiceberg.table.update import RemoveSnapshotsUpdate


class Past(list[Any]):
    """What happened to a table. Copies share it.

    PyIceberg copies the metadata of a table deeply with each look of a commit: with a thousand snapshots that took a second of
    the two that a small batch takes, and ten thousand are there after a week of batches a minute apart.
    """

    def __add__(self, more: Iterable[Any]) -> Past:
        return Past([*self, *more])

    def __deepcopy__(self, _: dict[int, object]) -> Past:
        return Past(self)


class SharedRef(SnapshotRef):
    """A branch or a tag that copies of metadata share: there is a tag per hour, and none changes."""

    def __deepcopy__(self, _: dict[int, object] | None = None) -> SharedRef:
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SnapshotRef) and dict(self) == dict(other)

    __hash__ = SnapshotRef.__hash__


def with_past(metadata: TableMetadata) -> TableMetadata:
    """Return metadata whose copies share their past."""
    log: dict[str, Any] = {
        name: Past(getattr(metadata, name)) for name in ("snapshots", "snapshot_log", "metadata_log")
    }
    log["refs"] = {
        name: ref if isinstance(ref, SharedRef) else SharedRef.model_construct(**dict(ref))
        for name, ref in metadata.refs.items()
    }
    return metadata.model_copy(update=log)


def without_snapshots(metadata: TableMetadata, updates: Sequence[RemoveSnapshotsUpdate]) -> TableMetadata:
    """Metadata without the snapshots of these updates, as Iceberg's Java library leaves them.

    PyIceberg copies all other snapshots, takes their parents' ids out, which tell an expiry from a table that was made anew,
    and leaves gaps in the log of heads: a reader AS OF a time would be given what was the head before.
    """
    gone = {number for update in updates for number in update.snapshot_ids}
    if not gone:
        return metadata
    log = metadata.snapshot_log
    last_gap = max((place for place, entry in enumerate(log) if entry.snapshot_id in gone), default=-1)
    left = {
        name: type(old)(one for one in old if one.snapshot_id not in gone)
        for name in ("snapshots", "statistics", "partition_statistics")
        if (old := getattr(metadata, name))
    }
    return metadata.model_copy(update={**left, "snapshot_log": type(log)(log[last_gap + 1 :])})
