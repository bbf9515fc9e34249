"""The positioned commit: one append that lands only if the table still holds what the batch was planned on.

PyIceberg's transaction asserts the branch head it was built on; on a conflict it refreshes, asks every producer to
validate itself and rebuilds. `_CheckedAppend` uses that as a compare-and-set on what the table holds. The check runs
on the loaded metadata before the first attempt and on the refreshed metadata before every retry. No exception proves
that a commit did not land, so after any of them the table is read again and answers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import SetPropertiesUpdate, UpdatesAndRequirements
from pyiceberg.table.update.snapshot import _MergeAppendFiles

from frazil.batch.facts import Fit, StagedFile
from frazil.errors import FrazilError, OutcomeUnknown
from frazil.iceberg.catalog import Lake
from frazil.iceberg.data_files import data_file, field_types
from frazil.iceberg.faults import FOREIGN, as_frazil
from frazil.iceberg.holdings import mirror

ATTEMPTS = 5
"""Transactions tried before giving up; each has PyIceberg's own retries (4) inside. Rivals that move the position end
it at once, so only catalog faults and foreign appends that win again and again use this up."""

_log = logging.getLogger(__name__)


class Refused(FrazilError):
    """The table does not hold what the batch was planned on. The batch never happened; plan again.

    Not an error of the program: caught where batches are driven.
    """

    label = "refused"


def fit_of(metadata: TableMetadata) -> Fit:
    """The fit of files that are staged for this metadata."""
    return Fit(str(metadata.table_uuid), metadata.default_spec_id, field_types(metadata))


@dataclass(frozen=True)
class Append:
    """One commit on one table.

    Attributes:
        table: Its name.
        files: Data files that become visible; may be none.
        summary: Snapshot properties.
        mirrored: Keys of `summary` that also become table properties.
        fit: What the files were staged for.
        landed: Finds the snapshot in which this very append landed already, or None.
        check: Raises Refused if the table does not hold what was planned on.
    """

    table: str
    files: tuple[StagedFile, ...]
    summary: Mapping[str, str]
    mirrored: tuple[str, ...]
    fit: Fit
    landed: Callable[[TableMetadata], int | None]
    check: Callable[[TableMetadata], None]
    properties: Mapping[str, str] = field(default_factory=dict)


def commit(lake: Lake, append: Append) -> int:
    """Land an append, once, and return the id of its snapshot.

    Raises:
        Refused: The table holds something else than planned, or the files don't fit it any more.
        OutcomeUnknown: The table can't be read to find out whether the commit landed.
        Retryable: Other writers won every time.
    """
    failure: BaseException | None = None
    for _ in range(ATTEMPTS):
        table = _loaded(lake, append, failure)
        landed = append.landed(table.metadata)
        if landed is not None:
            return landed
        _validate(append, table.metadata)
        try:
            return _attempt(table, append)
        except Refused:
            # A rival may have landed this very batch while we tried: rolling forward is anybody's work.
            landed = append.landed(lake.load_table(append.table).metadata)
            if landed is None:
                raise
            return landed
        except FOREIGN as error:
            _log.info("commit on %s was not confirmed, reading the table again: %s", append.table, error)
            failure = error
    table = _loaded(lake, append, failure)
    landed = append.landed(table.metadata)
    if landed is not None:
        return landed
    raise as_frazil(failure or RuntimeError("no attempt"), f"committing to table {append.table}")


def _loaded(lake: Lake, append: Append, failure: BaseException | None) -> Table:
    try:
        return lake.load_table(append.table)
    except FrazilError as error:
        if failure is None:
            raise
        raise OutcomeUnknown(
            f"a commit to table {append.table} was sent and the table can't be read again: {error.message}",
            next_step="run again: the next plan reads the table and carries on from what it holds",
        ) from failure


def _validate(append: Append, metadata: TableMetadata) -> None:
    mismatch = append.fit.mismatch(fit_of(metadata))
    if mismatch is not None:
        raise Refused(f"table {append.table}: {mismatch}")
    append.check(metadata)


def _attempt(table: Table, append: Append) -> int:
    transaction = table.transaction()
    producer = _CheckedAppend(append, transaction)
    for staged in append.files:
        producer.append_data_file(data_file(staged, table.metadata))
    producer.commit()
    transaction.commit_transaction()
    return producer.snapshot_id


class _CheckedAppend(_MergeAppendFiles):
    """An append that validates itself against refreshed metadata and never deletes what it wrote.

    It merges manifests where the table asks for it (`commit.manifest-merge.enabled`), as Frazil's own tables do: else
    the list of manifests, and with it the cost of every commit and scan, would grow with each batch.
    """

    def __init__(self, append: Append, transaction: Any) -> None:
        super().__init__(
            operation=Operation.APPEND,
            transaction=transaction,
            io=transaction._table.io,
            snapshot_properties=dict(append.summary),
        )
        self._append = append

    def _validate_concurrency(self) -> None:
        # The transaction's own view already contains this commit's pending properties; the table's does not.
        _validate(self._append, self._transaction._table.metadata)

    def _commit(self) -> UpdatesAndRequirements:
        # Returned here, so that a rebuild after a conflict keeps properties and snapshot in one commit.
        updates, requirements = super()._commit()
        properties = {key: mirror(self._append.summary[key], self.snapshot_id) for key in self._append.mirrored}
        properties |= self._append.properties
        return (*updates, SetPropertiesUpdate(updates=properties)), requirements

    def _cleanup_uncommitted(self) -> None:
        """Delete nothing: a late answer to an earlier attempt must not find its manifests gone."""

    def _clean_all_uncommitted(self) -> None:
        """Delete nothing: after an error the commit may have landed all the same. Orphan removal takes leftovers."""


def snapshot_time(table: Table, snapshot_id: int | None) -> datetime | None:
    """When a snapshot was made, or None once it is expired."""
    snapshot = table.metadata.snapshot_by_id(snapshot_id) if snapshot_id is not None else None
    return datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC) if snapshot is not None else None
