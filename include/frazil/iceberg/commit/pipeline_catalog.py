"""The tables of one pipeline, each in its catalog and on its branch. Also publishes rows that an engine has prepared on a temporary
branch: one commit makes its snapshot the head of main.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import takewhile

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import AssertRefSnapshotId, RemoveSnapshotRefUpdate, SetPropertiesUpdate

from frazil import failpoints
from frazil.error_codes import AUDIT_FAILED, FILE_CONTRADICTS, TABLE_LOST
from frazil.errors import Retryable, Terminal, safe_cause
from frazil.failpoints import Failpoint
from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.catalog.table import BranchName, BranchTable, branch_name, head_of, send, set_branch, whole_metadata
from frazil.iceberg.commit.commit import (
    ATTEMPTS,
    CachedTransaction,
    Change,
    Refused,
    SnapshotRequest,
    append_producer,
    expiry_part,
    landed_or_raise,
    moved_properties,
    pause,
    reload_table,
    validate,
    without_expiry,
)
from frazil.iceberg.commit.summary_state import BATCH_KEY, BRANCH_KEY, POSITION_KEY, ancestry, summary_of
from frazil.iceberg.errors import as_frazil, error_line, foreign_errors
from frazil.iceberg.patches.metadata import FORMAT_VERSION

_ATTEMPTS = 10
"""Attempts to create a branch: each commit of another run may fail one."""


@dataclass(frozen=True, slots=True)
class TablePlace:
    """Where a destination is: in which catalog, and on which branch of the table; None stands for main."""

    catalog: Lake
    branch: str | None = None


class PipelineCatalog(Lake):
    """The tables of one pipeline. Ledger and dead letters are in the first destination's catalog, on main.

    Args:
        pipeline: Name of the pipeline.
        home: The first destination's catalog.
        places: Where the destinations are.
        opened: Opens a catalog of the settings by its name.
        earlier: Names of catalogs in which the pipeline may have had tables.
    """

    def __init__(
        self,
        pipeline: str,
        home: Lake,
        places: Mapping[str, TablePlace],
        opened: Callable[[str], Lake],
        earlier: Iterable[str] = (),
    ) -> None:
        super().__init__(home.name, home.uri, home.warehouse, home.properties, kind=home.kind)
        self._pipeline = pipeline
        self._home = home
        self._places = places
        self._open_catalog = opened
        self._earlier_names = tuple(earlier)

    def with_places(self, places: Mapping[str, tuple[str | None, str | None]]) -> PipelineCatalog:
        """A copy with tables at other places: table -> catalog and branch. Without a catalog a table stays where the file names it."""
        new_places = {
            table: TablePlace(self._used_catalogs.get(catalog) or self._open_catalog(catalog), branch)
            for table, (catalog, branch) in places.items()
            if catalog is not None
        }
        return PipelineCatalog(
            self._pipeline, self._home, {**self._places, **new_places}, self._open_catalog, self._earlier_names
        )

    @property
    def catalogs(self) -> tuple[Lake, ...]:
        """All catalogs in which the pipeline has tables, or may have had some; that of the first destination first."""
        used = self._used_catalogs
        return (*used.values(), *(self._open_catalog(name) for name in self._earlier_names if name not in used))

    @property
    def _used_catalogs(self) -> dict[str, Lake]:
        """The catalogs of the destinations by name, the first destination's catalog first."""
        return {catalog.name: catalog for catalog in (self._home, *(place.catalog for place in self._places.values()))}

    def catalog_of(self, name: str) -> Lake:
        """The catalog that a table is in."""
        return self._places[name].catalog if name in self._places else self._home

    def branch_of(self, name: str) -> str | None:
        """The branch of a table on which the pipeline lands; None stands for main."""
        return self._places[name].branch if name in self._places else None

    def find_table(self, name: str) -> Table | None:
        """The table as it is now, on its branch, or None if there is none.

        Raises:
            Terminal: The pipeline landed on another branch of it, or the branch is gone.
        """
        table = self.catalog_of(name).find_table(name)
        return table if table is None or name not in self._places else self._on_branch(name, table)

    def as_landed(self, name: str) -> Table | None:
        """The table on the branch that the pipeline last wrote to, even if the file names another one; None if it is missing.

        Raises:
            Terminal: The branch is gone.
        """
        catalog = self.catalog_of(name)
        table = catalog.find_table(name)
        if table is None:
            return None
        branch = table.metadata.properties.get(BRANCH_KEY.format(self._pipeline))
        return self.with_places({name: (catalog.name, branch)}).find_table(name)

    def tables(self) -> list[str]:
        """Names of all tables in the first destination's catalog, sorted."""
        return self._home.tables()

    def create_table(
        self,
        name: str,
        schema: Schema,
        spec: PartitionSpec,
        properties: Mapping[str, str],
        order: SortOrder = UNSORTED_SORT_ORDER,
    ) -> Table:
        """Create a table in its catalog, unless somebody else did it first."""
        created = self.catalog_of(name).create_table(name, schema, spec, properties, order)
        return created if self.branch_of(name) is None else self.begin_branch(name)

    def begin_branch(self, name: str) -> Table:
        """The table, after creating its branch if that does not exist: from main, or from an empty snapshot if main is empty.

        In tables of format version 3, whose metadata PyIceberg can't write, the engine creates the branch with the first rows.

        Raises:
            Terminal: The branch with the pipeline's rows is gone.
            Retryable: The catalog can't be reached, or others change the table at the same moment.
        """
        branch = self.branch_of(name)
        failure: BaseException = RuntimeError("no attempt")
        for _ in range(_ATTEMPTS):
            table = self.catalog_of(name).load_table(name)
            branch_table = self._on_branch(name, table)  # refuses a lost branch
            if branch is None or branch in table.metadata.refs or table.format_version >= FORMAT_VERSION:
                return branch_table
            try:
                _begin(table, branch)
            except foreign_errors() as error:  # another run may have created it, or committed to main
                failure = error
        raise as_frazil(failure, f"making branch {branch} of table {name}") from safe_cause(failure)

    def _on_branch(self, name: str, table: Table) -> Table:
        """The table on its branch; refused if the pipeline landed on another one before."""
        branch, properties = self.branch_of(name), table.metadata.properties
        keys = (key.format(self._pipeline) for key in (POSITION_KEY, BATCH_KEY))
        recorded_branch = properties.get(BRANCH_KEY.format(self._pipeline))
        landed_branch = recorded_branch or (MAIN_BRANCH if any(key in properties for key in keys) else None)
        if landed_branch is not None and landed_branch != (branch or MAIN_BRANCH):
            raise self._moved(name, landed_branch, branch or MAIN_BRANCH)
        if branch is None:
            return table
        if landed_branch is not None and branch not in table.metadata.refs:
            raise TABLE_LOST.terminal(
                f"pipeline {self._pipeline}: branch {branch} of table {name} is gone, with the rows that the pipeline landed there",
                next_step="create it again at its last snapshot: ALTER TABLE … CREATE BRANCH … AS OF VERSION …; that snapshot is"
                f" in property {BATCH_KEY.format(self._pipeline)} or {POSITION_KEY.format(self._pipeline)}",
            )
        ref = table.metadata.refs.get(branch)
        if ref is not None and ref.snapshot_ref_type != SnapshotRefType.BRANCH:
            raise FILE_CONTRADICTS.terminal(
                f"pipeline {self._pipeline}: {branch} of table {name} is a tag, to which nothing can be written",
                next_step="name another branch, or drop the tag",
            )
        return BranchTable(table, name, branch)

    def _moved(self, name: str, landed_branch: str, new_branch: str) -> Terminal:
        key = BRANCH_KEY.format(self._pipeline)
        how = (
            f"unset table property {key}" if new_branch == MAIN_BRANCH else f"set table property {key} to {new_branch}"
        )
        return FILE_CONTRADICTS.terminal(
            f"pipeline {self._pipeline} lands on branch {landed_branch} of table {name}, the pipeline file now names {new_branch}",
            next_step=f"name {landed_branch} again; or, once {new_branch} has all that {landed_branch} has (a fast-forward), {how}",
        )


def _begin(table: Table, branch: str) -> None:
    """Create a branch at the head of main, or at an empty snapshot if main is empty: a branch needs a snapshot."""
    head = head_of(table.metadata) or _empty_snapshot(table.metadata)
    if head is None:
        transaction = CachedTransaction(table)
        producer = append_producer(transaction, SnapshotRequest({}, validate=lambda _: None, branch=None), ())
        producer.commit()
        transaction.commit_transaction()
        head = producer.snapshot_id
    send(table, (set_branch(branch, head),), (AssertRefSnapshotId(ref=branch, snapshot_id=None),))


def _empty_snapshot(metadata: TableMetadata) -> int | None:
    """An empty snapshot that another run, perhaps a killed one, has created for the branch."""
    for snapshot in metadata.snapshots:
        if snapshot.parent_snapshot_id is None and summary_of(snapshot).get("total-records") == "0":
            return snapshot.snapshot_id
    return None


def branch_note(lake: Lake, pipeline: str, table: str) -> dict[str, str]:
    """The table property with the branch that a pipeline writes to, set with its commits; none for main."""
    branch = lake.branch_of(table)
    return {} if branch is None else {BRANCH_KEY.format(pipeline): branch}


# Publishing a prepared branch. No reader of main sees its rows before. The commit asserts that main still has the head from which the
# branch was created, and that the branch is unchanged. Each attempt has a branch of its own, so a late commit can't affect another.

_log = logging.getLogger(__name__)


def superfluous_branches(metadata: TableMetadata, pipeline: str, n: int) -> tuple[str, ...]:
    """Branches of a pipeline that were prepared for batch `n` or earlier: those batches have landed."""
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
    """An engine added the rows of one statement more than once: its client sent the statement again after a lost answer."""


@dataclass(frozen=True, slots=True)
class PreparedBranch:
    """A branch, the head of main from which it was created, and its snapshot that is to become the head of main."""

    branch: str
    planned: int | None
    tip: int


def publish_branch(lake: Lake, change: Change, prepared: PreparedBranch) -> int | None:
    """Make the prepared snapshot the head of main, in one commit that also moves the properties and drops the branch.

    Returns that snapshot, or the one in which the change landed meanwhile. None: main moved, prepare again.

    Raises:
        Refused: The table does not hold what was planned on, or the branch is gone or was moved.
        OutcomeUnknown: The table can't be read to find out whether the commit landed.
        Terminal: The snapshot does not carry this change.
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
    """Whether the summary of a branch's last snapshot includes the change's summary."""
    head = head_of(metadata, branch)
    snapshot = metadata.snapshot_by_id(head) if head is not None else None
    return change.summary.items() <= summary_of(snapshot).items()


def verify_tip(metadata: TableMetadata, change: Change, branch: str, planned: int | None, tip: int) -> None:
    """Check that a branch's head descends from main's head, carries this change, and has its rows once.

    Raises:
        RowsAddedTwice: It has the rows twice.
        Terminal: It does not descend from main's head, or carries another change.
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
    """Whether a snapshot appends rows. At most one snapshot of a change does."""
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
