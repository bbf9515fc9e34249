"""Rows that an engine prepares on a branch first: one commit then makes main that very snapshot.

No reader of main sees the branch's rows before. The commit asserts that main still has the head from which the branch was
made, and that the branch is unchanged. Branch names are unique per attempt, so a late answer never affects another attempt.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from itertools import takewhile

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.table.update import AssertRefSnapshotId, RemoveSnapshotRefUpdate, SetPropertiesUpdate

from frazil import failpoints
from frazil.error_codes import AUDIT_FAILED
from frazil.errors import Retryable
from frazil.failpoints import Failpoint
from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.commit.commit import (
    ATTEMPTS,
    Change,
    Refused,
    expiry_part,
    landed_or_raise,
    moved_properties,
    pause,
    reload_table,
    validate,
    without_expiry,
)
from frazil.iceberg.commit.refs import BranchName, branch_name, head_of, send, set_branch, whole_metadata
from frazil.iceberg.commit.summary_state import ancestry, summary_of
from frazil.iceberg.errors import error_line, foreign_errors

_log = logging.getLogger(__name__)


def superfluous_branches(metadata: TableMetadata, pipeline: str, n: int) -> tuple[str, ...]:
    """Superfluous branches of a pipeline: those prepared for batch `n` or earlier, which have landed already."""
    branches = {name: BranchName.parse(name) for name in metadata.refs}
    return tuple(
        name
        for name, branch in branches.items()
        if branch is not None and branch.pipeline == pipeline and branch.n <= n
    )


def retry_branch_name(name: str) -> str:
    """A branch name for a further attempt."""
    branch = BranchName.parse(name)
    if branch is None:
        raise ValueError(f"{name} is not a name by branch_name()")
    return branch_name(branch.pipeline, branch.n)


class RowsAddedTwice(Retryable):
    """An engine added the rows of one statement more than once: a client that lost the answer sent it again."""


@dataclass(frozen=True, slots=True)
class PreparedBranch:
    """A branch, the head of main it was made from, and the snapshot on it that main is to become."""

    branch: str
    planned: int | None
    tip: int


def publish_branch(lake: Lake, change: Change, prepared: PreparedBranch) -> int | None:
    """Make the prepared snapshot the head of main, in one commit that also moves the properties and drops the branch.

    Returns that snapshot, or the one in which the change landed meanwhile. None: main moved, prepare again.

    Raises:
        Refused: The table contains something else than planned, or the branch was taken away.
        OutcomeUnknown: The table can't be read to find out whether the commit landed.
        Terminal: The snapshot is not of this change.
    """
    failure: BaseException | None = None
    for number in range(ATTEMPTS):
        pause(number, failure)
        table = reload_table(lake, change, failure)
        landed = change.landed(table.metadata)
        if landed is not None:
            return landed
        if failure is not None:
            failpoints.hit(Failpoint(f"{change.step}.retrying"))
        validate(change, table.metadata)
        if head_of(table.metadata) != prepared.planned:
            return None
        if head_of(table.metadata, prepared.branch) != prepared.tip:
            raise Refused(f"table {change.table}: branch {prepared.branch} is gone or was moved by somebody else")
        verify_tip(table.metadata, change, prepared.branch, prepared.planned, prepared.tip)
        try:
            return _move_main(table, change, prepared)
        except foreign_errors() as error:
            _log.info("commit on %s was not confirmed, reading the table again: %s", change.table, error_line(error))
            failure, change = error, without_expiry(change, table, error)
    return landed_or_raise(lake, change, failure or RuntimeError("no attempt"))


def carries_change(metadata: TableMetadata, change: Change, branch: str) -> bool:
    """Whether the summary of a branch's last snapshot carries the change's summary."""
    head = head_of(metadata, branch)
    snapshot = metadata.snapshot_by_id(head) if head is not None else None
    return change.summary.items() <= summary_of(snapshot).items()


def verify_tip(metadata: TableMetadata, change: Change, branch: str, planned: int | None, tip: int) -> None:
    """Check that a branch's head descends from main's head and carries this very change.

    Raises:
        RowsAddedTwice: It has rows twice.
        Terminal: It does not.
    """
    snapshots = list(ancestry(metadata, tip))
    carried = summary_of(snapshots[0] if snapshots else None)
    lacking = sorted(key for key, value in change.summary.items() if carried.get(key) != value)
    descends = planned is None or planned in {snapshot.snapshot_id for snapshot in snapshots[1:]}
    if lacking or not descends:
        mismatch = f"lacks {', '.join(lacking)}" if lacking else f"does not descend from main's head {planned}"
        raise AUDIT_FAILED.terminal(
            f"table {change.table}: snapshot {tip} on branch {branch} {mismatch}; main stays as it is",
            next_step="run again: it creates a new branch. If this happens again, check whether another engine writes to the branch",
        )
    if (
        sum(_adds_rows(snapshot) for snapshot in takewhile(lambda snapshot: snapshot.snapshot_id != planned, snapshots))
        > 1
    ):
        raise RowsAddedTwice(
            f"table {change.table}: branch {branch} has rows twice; main stays as it is", code=AUDIT_FAILED
        )


def _adds_rows(snapshot: Snapshot) -> bool:
    """Whether a snapshot only adds rows. At most one snapshot of a change does."""
    summary = snapshot.summary
    return (
        summary is not None
        and summary.operation is Operation.APPEND
        and "added-records" in summary.additional_properties
    )


def _move_main(table: Table, change: Change, prepared: PreparedBranch) -> int:
    failpoints.hit(Failpoint(f"{change.step}.committing"))
    send(
        table,
        (
            set_branch(MAIN_BRANCH, prepared.tip),
            SetPropertiesUpdate(updates=moved_properties(change, table.metadata, prepared.tip)),
            RemoveSnapshotRefUpdate(ref_name=prepared.branch),
            *expiry_part(change, whole_metadata(table)),
        ),
        (
            AssertRefSnapshotId(ref=MAIN_BRANCH, snapshot_id=prepared.planned),
            AssertRefSnapshotId(ref=prepared.branch, snapshot_id=prepared.tip),
        ),
    )
    failpoints.hit(Failpoint(f"{change.step}.committed"))
    return prepared.tip
