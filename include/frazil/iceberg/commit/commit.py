"""The positioned commit: one change that lands only if the table still is in the state on which the batch was planned.
It checks again before every retry, and never deletes what it wrote.

PyIceberg's transaction asserts the branch head it was built on; on a conflict it refreshes, asks every producer to
validate itself and rebuilds. That is used as a compare-and-set on what the table holds. The check runs on the loaded
metadata before the first attempt and on the refreshed metadata before every retry. A change that removes rows is never
rebuilt on another head: it is computed anew, so that it covers rows that others added or moved meanwhile. No exception
proves that a commit did not land, so after each one the table is read again to find out.
"""

from __future__ import annotations

import json
import logging
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal

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

from frazil import failpoints
from frazil.batch.changes import Removal
from frazil.batch.facts import StagedFile
from frazil.batch.manifest import Fit
from frazil.error_codes import COMMIT_UNKNOWN, RUN_OVERTAKEN
from frazil.errors import ErrorCode, FrazilError, OutcomeUnknown, safe_cause, without_values
from frazil.failpoints import Failpoint
from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.catalog.table import head_of, missing_files, renewed_properties, whole_metadata
from frazil.iceberg.commit.expiry import Retention, expiry_updates
from frazil.iceberg.commit.removal import Rewrite, Rewriter
from frazil.iceberg.commit.summary_state import decode_property, mirror, mirrored_property
from frazil.iceberg.errors import as_frazil, error_line, foreign_errors
from frazil.iceberg.files.data_files import data_file, field_types
from frazil.iceberg.patches.metadata import next_timestamp, without_snapshots

# Rests on private names of PyIceberg 0.12 (its snapshot producers and their hooks); a contract test pins them.

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
        # Compared by identity: new metadata and new updates are other objects, since this view keeps the old ones alive.
        if self._view is None or self._view[0] is not base or self._view[1] is not updates:
            expired = [update for update in updates if isinstance(update, RemoveSnapshotsUpdate)]
            other_updates = tuple(update for update in updates if not isinstance(update, RemoveSnapshotsUpdate))
            self._view = base, updates, without_snapshots(update_table_metadata(base, other_updates), expired)
        return self._view[2]

    def _rebuild_snapshot_updates(self) -> None:
        # PyIceberg drops only updates that add snapshots and refs, before it makes them anew. Expiry is computed anew, too.
        removals = (RemoveSnapshotsUpdate, RemoveSnapshotRefUpdate)
        self._updates = tuple(update for update in self._updates if not isinstance(update, removals))
        super()._rebuild_snapshot_updates()


class HeadMoved(CommitFailedException):
    """Another snapshot became the head, so results computed from the old head must be recomputed."""


@dataclass(frozen=True)
class SnapshotRequest:
    """The request for a snapshot: everything except its files.

    Attributes:
        validate: Called with the refreshed metadata before every retry; raises if the snapshot must not be committed.
        properties: Snapshot id -> table properties that are set in the same commit.
        branch: Branch whose head the snapshot becomes; None for no branch.
        expires: Metadata with all branches -> updates that remove old snapshots in the same commit.
    """

    summary: Mapping[str, str]
    validate: Callable[[TableMetadata], None]
    properties: Callable[[int], Mapping[str, str]] = lambda _: {}
    branch: str | None = MAIN_BRANCH
    expires: Callable[[TableMetadata], tuple[TableUpdate, ...]] = lambda _: ()


class _CheckedProducer(Producer):
    """A snapshot producer that checks before retries, expires old snapshots, and deletes nothing."""

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
        # The transaction's metadata contains this commit's pending properties already; the table's does not.
        self._request.validate(self._transaction._table.metadata)

    def _commit(self) -> UpdatesAndRequirements:
        # Properties are set here, so that a rebuild after a conflict keeps them in the commit of the snapshot.
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
        """Delete nothing: an earlier attempt may still land, and needs its manifests."""

    def _clean_all_uncommitted(self) -> None:
        """Delete nothing: after an error the commit may still have landed. Orphan removal deletes leftovers."""


class _CheckedAppend(_CheckedProducer, _MergeAppendFiles):
    """An append. It merges manifests if the table is set so (`commit.manifest-merge.enabled`), as Frazil's tables are: else the
    number of manifests, and with it the cost of every commit and scan, would grow with each batch.
    """


class _CheckedOverwrite(_CheckedProducer, _OverwriteFiles):
    """A snapshot that also removes data files. The row filter, not a file's partition, selects the manifests to rewrite."""

    def _build_delete_files_partition_predicate(self) -> None:
        """Add nothing: `delete_by_predicate` has set the filter by which the dropped files were found."""


def append_producer(transaction: Transaction, request: SnapshotRequest, added: Iterable[DataFile]) -> Producer:
    """The producer of a snapshot that adds files; without files it only carries its summary."""
    producer = _CheckedAppend(Operation.APPEND, transaction, request)
    for file in added:
        producer.append_data_file(file)
    return producer


def overwrite_producer(
    transaction: Transaction,
    request: SnapshotRequest,
    added: Iterable[DataFile],
    dropped: Iterable[DataFile],
    row_filter: BooleanExpression,
) -> Producer:
    """The producer of a snapshot that adds and drops files.

    `row_filter` is the one whose scan found the dropped files: manifests that it rules out are not read.
    """
    producer = _CheckedOverwrite(Operation.OVERWRITE, transaction, request)
    producer.delete_by_predicate(row_filter)
    for file in added:
        producer.append_data_file(file)
    for file in dropped:
        producer.delete_data_file(file)
    return producer


ATTEMPTS = 5
"""Transactions before giving up; each has PyIceberg's own four retries inside. A commit that moves the position is refused at once, so
only errors of the catalog and repeated foreign appends use up all attempts."""

FIRST_PAUSE_SECONDS = 0.2
"""Pause before the second attempt. It doubles with each further one, so that all pauses take three seconds at most."""

REMOVED_KEY = "frazil.rows.removed"
"""Summary key of a snapshot with a removal: how many rows it removed."""

Step = Literal["claim", "decide", "follow", "record"]
"""The commit of a batch: claiming topics in a table, deciding, a follower's part, the ledger's rows."""

_log = logging.getLogger(__name__)


class Refused(FrazilError):
    """The table is not in the state on which the batch was planned. Nothing was committed; plan again.

    Not an error of the program: the loops that run batches catch it.
    """

    label = "refused"

    def __init__(self, message: str, *, code: ErrorCode = RUN_OVERTAKEN, next_step: str | None = None) -> None:
        super().__init__(message, code=code, next_step=next_step)


def fit_of(metadata: TableMetadata) -> Fit:
    """UUID, partition spec and field types that files must fit if they are staged for this metadata."""
    return Fit(str(metadata.table_uuid), metadata.default_spec_id, field_types(metadata))


@dataclass(frozen=True)
class Change:
    """One commit on one table.

    Attributes:
        files: Data files that become visible; may be none.
        mirrored: Keys of `summary` that also become table properties.
        attached: Further properties that name the snapshot like mirrored ones, with values too long for every summary.
        topics: Property key -> topics to add to the list, as JSON, that the property holds.
        landed: Returns the snapshot in which this change has landed already, or None.
        check: Raises Refused if the table does not hold what the change was planned on.
        properties: Further table properties that are set in the same commit.
        removal: Rows that are removed in the same commit; not from the new files.
        retention: Which snapshots stay; None: no snapshot is expired.
    """

    table: str
    files: tuple[StagedFile, ...]
    summary: Mapping[str, str]
    mirrored: tuple[str, ...]
    fit: Fit
    landed: Callable[[TableMetadata], int | None]
    check: Callable[[TableMetadata], None]
    step: Step
    properties: Mapping[str, str] = field(default_factory=dict)
    removal: Removal | None = None
    attached: Mapping[str, str] = field(default_factory=dict)
    topics: Mapping[str, frozenset[str]] = field(default_factory=dict)
    retention: Retention | None = None


def commit(lake: Lake, change: Change) -> int:
    """Land a change, once, and return the id of its snapshot.

    Raises:
        Refused: The table does not hold what was planned on, or the files no longer fit it.
        OutcomeUnknown: The table can't be read to find out whether the commit landed.
        Retryable: Other writers were first every time.
        Terminal: Rows can't be removed from this table.
    """
    rewriter = Rewriter(change.table, change.removal) if change.removal is not None else None
    failure: BaseException | None = None
    for number in range(ATTEMPTS):
        pause(number, failure)
        table = reload_table(lake, change, failure)
        landed = change.landed(table.metadata)
        if landed is not None:
            return landed
        validate(change, table.metadata)
        refuse_lost_files(change.table, change.files, table)
        try:
            return _attempt(lake, table, change, rewriter, failure)
        except Refused:
            # Another run may have landed this change meanwhile: any run may roll a batch forward.
            landed = change.landed(lake.load_table(change.table).metadata)
            if landed is None:
                raise
            return landed
        except foreign_errors() as error:
            _log.info("commit on %s was not confirmed, reading the table again: %s", change.table, error_line(error))
            failure, change = error, without_expiry(change, table, error)
    return landed_or_raise(lake, change, failure or RuntimeError("no attempt"))


def without_expiry(change: Change, table: Table, failure: BaseException) -> Change:
    """The change for a further attempt: without snapshot expiry, which some services refuse, if the failure was no conflict."""
    if isinstance(failure, CommitFailedException) or not expiry_part(change, whole_metadata(table)):
        return change
    _log.warning(
        "table %s: a commit that expires old snapshots failed, and is tried again without that: %s. If the catalog refuses them, or"
        " expires snapshots by itself: maintenance: {expiry: false} in the pipeline file",
        change.table,
        error_line(failure),
    )
    return replace(change, retention=None)


def pause(number: int, failure: BaseException | None) -> None:
    """Wait before attempt `number` after a failure of the catalog; do not wait after a concurrent commit."""
    if failure is not None and not isinstance(failure, CommitFailedException):
        time.sleep(random.uniform(0.5, 1) * FIRST_PAUSE_SECONDS * 2 ** (number - 1))  # noqa: S311  # no secret


def reload_table(lake: Lake, change: Change, failure: BaseException | None) -> Table:
    """Load the table before an attempt.

    Raises:
        OutcomeUnknown: An attempt failed, and the table can't be read.
    """
    try:
        return lake.load_table(change.table)
    except FrazilError as error:
        if failure is None:
            raise
        raise OutcomeUnknown(
            f"a commit to table {change.table} was sent and the table can't be read again: {error.message}",
            code=COMMIT_UNKNOWN,
            next_step="run again: the next plan reads the table and carries on from what it holds",
        ) from failure


def landed_or_raise(lake: Lake, change: Change, failure: BaseException) -> int:
    """Return the snapshot if the last attempt landed all the same, else raise its failure."""
    landed = change.landed(reload_table(lake, change, failure).metadata)
    if landed is not None:
        return landed
    raise as_frazil(failure, f"committing to table {change.table}") from safe_cause(failure)


def validate(change: Change, metadata: TableMetadata) -> None:
    """Check that a change fits the present table.

    Raises:
        Refused: Its files don't fit the table, or the table does not hold what the change was planned on.
    """
    actual = fit_of(metadata)
    if not change.files and change.removal is None:  # a commit without rows fits any columns and partitions
        actual = replace(change.fit, uuid=actual.uuid)
    mismatch = change.fit.mismatch(actual)
    if mismatch is not None:
        raise Refused(f"table {change.table}: {mismatch}")
    change.check(metadata)


def refuse_lost_files(name: str, files: Sequence[StagedFile], table: Table) -> None:
    """Refuse to commit files that no longer exist: every scan of the table would fail.

    Raises:
        Refused: Some are gone: an orphan removal may delete files that no snapshot names yet.
    """
    lost = missing_files(table, [file.path for file in files])
    if lost:
        raise Refused(
            f"table {name}: {len(lost)} of {len(files)} files that were staged are gone, for example"
            f" {without_values(lost[0])}: an orphan removal took them"
        )


def moved_properties(change: Change, metadata: TableMetadata, snapshot_id: int) -> dict[str, str]:
    """Table properties that are set in the commit of the change's snapshot."""
    values = {key: change.summary[key] for key in change.mirrored} | dict(change.attached)
    for key, topics in change.topics.items():
        text = mirrored_property(metadata, key, change.table)[0] if key in metadata.properties else "[]"
        values[key] = json.dumps(sorted(topics.union(decode_property(text, key, change.table, list[str]))))
    moved = {key: mirror(value, snapshot_id) for key, value in values.items()}
    return moved | dict(change.properties) | renewed_properties(metadata.properties)


def expiry_part(change: Change, metadata: TableMetadata) -> tuple[TableUpdate, ...]:
    """Updates that expire old snapshots in the commit of a change.

    Their age is counted to the table's last change, not to now: else a host whose clock is days ahead would expire all of them.
    """
    retention = change.retention
    return () if retention is None else expiry_updates(metadata, change.table, retention, metadata.last_updated_ms)


def _attempt(lake: Lake, table: Table, change: Change, rewriter: Rewriter | None, failure: BaseException | None) -> int:
    head, rewrite = head_of(table.metadata), Rewrite()
    if rewriter is not None:
        rewrite = rewriter.rewrite(table, head)
        # The rewrite may have taken hours. Files may be gone, or columns changed, without a new head: all is checked again.
        table = reload_table(lake, change, failure)
        _refuse_moved_head(table.metadata, head)
        validate(change, table.metadata)
        refuse_lost_files(change.table, (*change.files, *rewrite.added), table)

    def validate_again(metadata: TableMetadata) -> None:
        failpoints.hit(Failpoint(f"{change.step}.retrying"))
        validate(change, metadata)
        if rewriter is not None:
            _refuse_moved_head(metadata, head)

    request = SnapshotRequest(
        change.summary,
        validate_again,
        lambda snapshot: moved_properties(change, table.metadata, snapshot),
        expires=lambda metadata: expiry_part(change, metadata),
    )
    if rewriter is not None:
        request = replace(request, summary={**request.summary, REMOVED_KEY: str(rewrite.rows)})
    added = [data_file(staged, table.metadata) for staged in (*change.files, *rewrite.added)]
    transaction = CachedTransaction(table)
    if rewriter is not None and rewrite.dropped:
        producer = overwrite_producer(transaction, request, added, rewrite.dropped, rewriter.row_filter)
    else:
        producer = append_producer(transaction, request, added)
    producer.commit()
    failpoints.hit(Failpoint(f"{change.step}.committing"))
    transaction.commit_transaction()
    failpoints.hit(Failpoint(f"{change.step}.committed"))
    return producer.snapshot_id


def _refuse_moved_head(metadata: TableMetadata, head: int | None) -> None:
    if head_of(metadata) != head:
        raise HeadMoved(f"rows were removed from snapshot {head}, the head is {head_of(metadata)} now")


def snapshot_time(table: Table, snapshot_id: int | None) -> datetime | None:
    """When a snapshot was committed; None if it is expired."""
    snapshot = table.metadata.snapshot_by_id(snapshot_id) if snapshot_id is not None else None
    return datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC) if snapshot is not None else None
