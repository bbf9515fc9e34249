"""The past of a table in its metadata: snapshots and log entries, which never change once they are there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pyiceberg.table.metadata import TableMetadata


class Past(list[Any]):
    """What happened to a table. Copies share it.

    PyIceberg copies the metadata of a table deeply with each look of a commit: with a thousand snapshots that took a second of
    the two that a small batch takes, and ten thousand are there after a week of batches a minute apart.
    """

    def __add__(self, more: Iterable[Any]) -> Past:
        return Past([*self, *more])

    def __deepcopy__(self, _: dict[int, object]) -> Past:
        return Past(self)


def with_past(metadata: TableMetadata) -> TableMetadata:
    """Return metadata whose copies share their past."""
    log = {name: Past(getattr(metadata, name)) for name in ("snapshots", "snapshot_log", "metadata_log")}
    return metadata.model_copy(update=log)
