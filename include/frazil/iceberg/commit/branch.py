"""Decisions whose rows are prepared on a branch first: one commit then makes main that very snapshot.

Nobody sees the branch's rows before; the commit asserts that main is still the head the branch was made from and that
the branch still is what was prepared. Branch names are unique per attempt, so a late answer never meets another's work.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from itertools import takewhile

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.table.update import AssertRefSnapshotId, RemoveSnapshotRefUpdate, SetPropertiesUpdate

from frazil import failpoints
from frazil.error_codes import AUDIT_FAILED, TABLE_ROLLED_BACK
from frazil.errors import OutcomeUnknown, Retryable
from frazil.failpoints import Failpoint
from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.commit.branch_table import whole_metadata
from frazil.iceberg.commit.commit import (
    ATTEMPTS,
    Change,
    Refused,
    expiry_part,
    landed_or_raise,
    moved_properties,
    pause,
    produce_snapshot,
    refuse_lost_files,
    reload_table,
    validate,
    without_expiry,
)
from frazil.iceberg.commit.producer import CachedTransaction, HeadMoved, SnapshotRequest
from frazil.iceberg.commit.refs import BranchName, branch_name, drop_branches, head_of, send, set_branch
from frazil.iceberg.commit.removal import Rewriter
from frazil.iceberg.commit.summary_state import ancestry
from frazil.iceberg.errors import as_frazil, error_line, foreign_errors

__all__ = [
    "BranchName",
    "PreparedBranch",
    "RowsAddedTwice",
    "Stage",
    "branch_name",
    "branches_in_vain",
    "carries_change",
    "decide_on_branch",
    "publish_branch",
    "remove_stale_branches",
    "replacement_stage",
    "retry_branch_name",
    "verify_tip",
]

STALE_AFTER_MS = 36 * 3_600_000
"""Age at which a branch is nobody's work any more: what was staged longer ago than half the orphan window is refused."""

Stage = Callable[[Lake, Change, str], int]
"""Makes one or more snapshots of a change on the named branch and returns the last one's id.

That one carries the change's summary. It raises Refused if the branch is gone or somebody else's.
"""

_log = logging.getLogger(__name__)


def decide_on_branch(lake: Lake, change: Change, name: str, stage: Stage) -> int:
    """Prepare a change on a branch, then make main its snapshot. Once, and the id of that snapshot is returned.

    Args:
        lake: The catalog.
        change: The commit. `commit` would do the same in one step; a stage may need a branch to work on.
        name: Name of the first attempt's branch, by `branch_name`. Further attempts get names of their own.
        stage: Prepares the rows.

    Raises:
        Refused: The table holds something else than planned, or the branch was taken away.
        OutcomeUnknown: The table can't be read to find out whether the commit landed.
        Retryable: Other writers won every time.
        Terminal: There is nothing on main, or the stage prepared something else.
    """
    failure: BaseException = RuntimeError("no attempt")
    given_up: str | None = None
    for _ in range(ATTEMPTS):
        table = lake.load_table(change.table)
        landed = change.landed(table.metadata)
        if landed is not None:
            return landed
        validate(change, table.metadata)
        refuse_lost_files(change.table, change.files, table)
        planned = _main(table.metadata, change)
        branch = name if given_up is None else retry_branch_name(name)
        try:
            if given_up in table.metadata.refs:
                drop_branches(table, given_up)
            tip = _prepare_branch(lake, change, table, branch, planned, stage)
        except foreign_errors() as error:  # nothing was decided
            _log.info("preparing branch %s of %s failed, trying again: %s", branch, change.table, error_line(error))
            failure = error
        else:
            decided = publish_branch(lake, change, PreparedBranch(branch, planned, tip))
            if decided is not None:
                return decided
            failure = HeadMoved(f"main moved while branch {branch} was prepared")
        given_up = branch
    return landed_or_raise(lake, change, failure)


def replacement_stage() -> Stage:
    """The stage of a replay: one snapshot that takes the removal's rows out and brings the new files in.

    Use it for one change only: over several attempts no data file is rewritten twice.
    """
    rewriters: list[Rewriter] = []

    def stage(lake: Lake, change: Change, name: str) -> int:
        if not rewriters and change.removal is not None:
            rewriters.append(Rewriter(change.table, change.removal))
        return _stage_replacement(lake.load_table(change.table), change, name, rewriters[0] if rewriters else None)

    return stage


def remove_stale_branches(lake: Lake, table: str, pipeline: str, n: int, now_ms: int) -> tuple[str, ...]:
    """Drop what earlier attempts of a pipeline left behind, and return its names. Others' branches are never touched.

    Args:
        lake: The catalog.
        table: Name of the table.
        pipeline: Whose branches.
        n: The last decided batch: what prepares it, or an earlier one, is in vain.
        now_ms: The present, milliseconds since 1970.

    Raises:
        Retryable: The catalog can't be reached, or others won every time.
    """
    failure: BaseException = RuntimeError("no attempt")
    for _ in range(ATTEMPTS):
        loaded_table = lake.load_table(table)
        stale = tuple(name for name in loaded_table.metadata.refs if _is_stale(name, pipeline, n, now_ms))
        if not stale:
            return ()
        try:
            drop_branches(loaded_table, *stale)
        except foreign_errors() as error:
            failure = error
        else:
            return stale
    meaning = as_frazil(failure, f"removing stale branches of table {table}")
    # Dropping is repeatable, so an unknown outcome is no worse than a failure.
    raise Retryable(meaning.message, code=meaning.code) if isinstance(meaning, OutcomeUnknown) else meaning from failure


def branches_in_vain(metadata: TableMetadata, pipeline: str, n: int) -> tuple[str, ...]:
    """Branches of a pipeline that were prepared for batch `n` or an earlier one, which has landed already."""
    branches = {name: BranchName.parse(name) for name in metadata.refs}
    return tuple(
        name
        for name, branch in branches.items()
        if branch is not None and branch.pipeline == pipeline and branch.n <= n
    )


def _is_stale(name: str, pipeline: str, n: int, now_ms: int) -> bool:
    branch = BranchName.parse(name)
    if branch is None or branch.pipeline != pipeline:
        return False
    return branch.n <= n or now_ms - branch.made_ms > STALE_AFTER_MS


def retry_branch_name(name: str) -> str:
    """A name for another attempt at what a branch prepares."""
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


def _main(metadata: TableMetadata, change: Change) -> int:
    head = head_of(metadata)
    if head is None:
        raise TABLE_ROLLED_BACK.terminal(
            f"table {change.table} has no snapshot on main, so it holds nothing that could be replaced",
            next_step="was it emptied or rolled back? frazil history PIPELINE shows what was landed there",
        )
    return head


def _prepare_branch(lake: Lake, change: Change, table: Table, branch: str, planned: int, stage: Stage) -> int:
    send(table, (set_branch(branch, planned),), (AssertRefSnapshotId(ref=branch, snapshot_id=None),))
    failpoints.hit(Failpoint.BRANCH_MADE)
    tip = stage(lake, change, branch)
    failpoints.hit(Failpoint.BRANCH_STAGED)
    return tip


def _stage_replacement(table: Table, change: Change, name: str, rewriter: Rewriter | None) -> int:
    head = head_of(table.metadata, name)
    if head is None:
        raise _branch_refusal(change, name)

    def validate_again(metadata: TableMetadata) -> None:
        if head_of(metadata, name) != head:
            raise _branch_refusal(change, name)

    transaction = CachedTransaction(table)
    request = SnapshotRequest(change.summary, validate_again, branch=name)
    producer = produce_snapshot(transaction, table, change, request, rewriter)
    transaction.commit_transaction()
    return producer.snapshot_id


def _branch_refusal(change: Change, name: str) -> Refused:
    return Refused(f"table {change.table}: branch {name} is gone or was moved by somebody else")


def publish_branch(lake: Lake, change: Change, prepared: PreparedBranch) -> int | None:
    """Make the prepared snapshot the head of main, in one commit that also moves the properties and drops the branch.

    Returns:
        That snapshot, or the one in which the change landed meanwhile. None: main moved, prepare anew.

    Raises:
        Refused: The table holds something else than planned, or the branch was taken away.
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
            raise _branch_refusal(change, prepared.branch)
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
    summary = snapshot.summary.additional_properties if snapshot is not None and snapshot.summary is not None else {}
    return change.summary.items() <= summary.items()


def verify_tip(metadata: TableMetadata, change: Change, branch: str, planned: int | None, tip: int) -> None:
    """What becomes main must descend from what main is, and carry this very change.

    Raises:
        Repeated: It has rows twice.
        Terminal: It does not.
    """
    snapshots = list(ancestry(metadata, tip))
    summary = snapshots[0].summary if snapshots else None
    carried = summary.additional_properties if summary is not None else {}
    lacking = sorted(key for key, value in change.summary.items() if carried.get(key) != value)
    descends = planned is None or planned in {snapshot.snapshot_id for snapshot in snapshots[1:]}
    if lacking or not descends:
        mismatch = f"lacks {', '.join(lacking)}" if lacking else f"does not descend from main's head {planned}"
        raise AUDIT_FAILED.terminal(
            f"table {change.table}: snapshot {tip} on branch {branch} {mismatch}; main stays as it is",
            next_step="did another engine write to the branch? Run again, a new branch will be made",
        )
    if (
        sum(_adds_rows(snapshot) for snapshot in takewhile(lambda snapshot: snapshot.snapshot_id != planned, snapshots))
        > 1
    ):
        raise RowsAddedTwice(
            f"table {change.table}: branch {branch} has rows twice; main stays as it is", code=AUDIT_FAILED
        )


def _adds_rows(snapshot: Snapshot) -> bool:
    """Whether a snapshot does nothing but add rows. Of a change one does, at most."""
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
