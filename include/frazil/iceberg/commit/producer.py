"""Snapshot producers that check a table again before every retry and never delete what they wrote.

Rests on private names of PyIceberg 0.12 (its snapshot producers and their hooks); a contract test pins them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.expressions import BooleanExpression
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    SetPropertiesUpdate,
    TableUpdate,
    UpdatesAndRequirements,
    update_table_metadata,
)
from pyiceberg.table.update.snapshot import _MergeAppendFiles, _OverwriteFiles, _SnapshotProducer

from frazil.iceberg.commit.refs import whole_metadata
from frazil.iceberg.patches.clocks import next_timestamp
from frazil.iceberg.patches.history_cache import without_snapshots

Producer = _SnapshotProducer[Any]


class CachedTransaction(Transaction):
    """A transaction that computes the pending table metadata once per change, and caches it.

    PyIceberg's own copies all metadata, every snapshot included, each of the fifteen times that a commit reads it.
    """

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self._view: tuple[TableMetadata, tuple[TableUpdate, ...], TableMetadata] | None = None

    @property
    def table_metadata(self) -> TableMetadata:
        """The table with the pending changes."""
        base, updates = self._table.metadata, self._updates
        # By identity: metadata that were read again and updates that were rebuilt are other objects, and ours are kept alive here.
        if self._view is None or self._view[0] is not base or self._view[1] is not updates:
            expired = [update for update in updates if isinstance(update, RemoveSnapshotsUpdate)]
            other_updates = tuple(update for update in updates if not isinstance(update, RemoveSnapshotsUpdate))
            self._view = base, updates, without_snapshots(update_table_metadata(base, other_updates), expired)
        return self._view[2]

    def _rebuild_snapshot_updates(self) -> None:
        # PyIceberg drops only updates that add snapshots and refs. Those that expire must go, too: they are computed anew.
        removals = (RemoveSnapshotsUpdate, RemoveSnapshotRefUpdate)
        self._updates = tuple(update for update in self._updates if not isinstance(update, removals))
        super()._rebuild_snapshot_updates()


class HeadMoved(CommitFailedException):
    """Another snapshot became the head, so results computed from the old head must be recomputed."""


@dataclass(frozen=True)
class SnapshotRequest:
    """The request for a snapshot: everything except its files.

    Attributes:
        validate: Called with the refreshed metadata before every retry; raises if the snapshot must not come.
        properties: Table properties that move in the same commit, given the snapshot's id.
        branch: Where the snapshot becomes the head; None: nowhere yet.
        expires: Updates that remove old snapshots in the same commit, given the whole table.
    """

    summary: Mapping[str, str]
    validate: Callable[[TableMetadata], None]
    properties: Callable[[int], Mapping[str, str]] = lambda _: {}
    branch: str | None = MAIN_BRANCH
    expires: Callable[[TableMetadata], tuple[TableUpdate, ...]] = lambda _: ()


class _Checked(Producer):
    """The hooks that both kinds of snapshots share."""

    def __init__(self, operation: Operation, transaction: Transaction, request: SnapshotRequest) -> None:
        super().__init__(
            operation=operation,
            transaction=transaction,
            io=transaction._table.io,
            snapshot_properties=dict(request.summary),
            branch=request.branch,
        )
        self._request = request

    def _validate_concurrency(self) -> None:
        # The transaction's own view already contains this commit's pending properties; the table's does not.
        self._request.validate(self._transaction._table.metadata)

    def _commit(self) -> UpdatesAndRequirements:
        # Returned here, so that a rebuild after a conflict keeps properties and snapshot in one commit.
        updates, requirements = super()._commit()
        updates = tuple(self._dated(update) for update in updates)
        if properties := self._request.properties(self.snapshot_id):
            updates = (*updates, SetPropertiesUpdate(updates=dict(properties)))
        return (*updates, *self._request.expires(whole_metadata(self._transaction._table))), requirements

    def _dated(self, update: TableUpdate) -> TableUpdate:
        if not isinstance(update, AddSnapshotUpdate):
            return update
        instant = next_timestamp(self._transaction.table_metadata)
        return update.model_copy(update={"snapshot": update.snapshot.model_copy(update={"timestamp_ms": instant})})

    def _cleanup_uncommitted(self) -> None:
        """Delete nothing: a late answer to an earlier attempt must not find its manifests gone."""

    def _clean_all_uncommitted(self) -> None:
        """Delete nothing: after an error the commit may still have landed. Orphan removal deletes leftovers."""


class _CheckedAppend(_Checked, _MergeAppendFiles):
    """An append.

    It merges manifests where the table asks for it (`commit.manifest-merge.enabled`), as Frazil's own tables do: else
    the list of manifests, and with it the cost of every commit and scan, would grow with each batch.
    """


class _CheckedOverwrite(_Checked, _OverwriteFiles):
    """A snapshot that also removes data files. The predicate, not a file's partition, chooses manifests to rewrite."""

    def _build_delete_files_partition_predicate(self) -> None:
        """Nothing to add: the files to drop were found by the very predicate this producer was given."""


def append_of(transaction: Transaction, request: SnapshotRequest, added: Iterable[DataFile]) -> Producer:
    """A snapshot that adds files; without any it only carries its summary."""
    producer = _CheckedAppend(Operation.APPEND, transaction, request)
    for file in added:
        producer.append_data_file(file)
    return producer


def overwrite_of(
    transaction: Transaction,
    request: SnapshotRequest,
    added: Iterable[DataFile],
    dropped: Iterable[DataFile],
    found_by: BooleanExpression,
) -> Producer:
    """A snapshot that adds and drops files.

    `found_by` is the row filter whose scan found the dropped files: manifests that it rules out are kept unread.
    """
    producer = _CheckedOverwrite(Operation.OVERWRITE, transaction, request)
    producer.delete_by_predicate(found_by)
    for file in added:
        producer.append_data_file(file)
    for file in dropped:
        producer.delete_data_file(file)
    return producer
