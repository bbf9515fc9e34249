"""Applies a part of a decided batch with Spark, to tables that PyIceberg can't write or can't merge into.

Spark writes to a branch, which then becomes main in one step: by PyIceberg, or, with format version 3, by Spark's fast-forward.
Spark only writes; before and after every step PyIceberg reads the table to find out what became of the step.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as f

from frazil import failpoints
from frazil.batch.changes import Merge, Removal, RemovedRange
from frazil.batch.manifest import Operation
from frazil.error_codes import AUDIT_FAILED, RUN_FAILED, RUN_OVERTAKEN
from frazil.failpoints import Failpoint
from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.catalog.table import BranchName, TableMetadata, head_of
from frazil.iceberg.commit.commit import (
    ATTEMPTS,
    Change,
    moved_properties,
    pause,
    refuse_lost_files,
    reload_table,
    validate,
)
from frazil.iceberg.commit.pipeline_catalog import (
    PreparedBranch,
    RowsAddedTwice,
    carries_change,
    publish_branch,
    retry_branch_name,
    superfluous_branches,
    verify_tip,
)
from frazil.iceberg.commit.summary_state import ancestry, summary_of
from frazil.iceberg.ledger.inspection import may_hold
from frazil.iceberg.patches.metadata import FORMAT_VERSION
from frazil.iceberg.schema.schema import identity_columns
from frazil.spark.errors import SPARK_FAILED, error_text
from frazil.spark.writes.merge import merge_rows
from frazil.spark.writes.rows import Target, prepare_writer, quote_name, quote_text, staged_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_STAMP: Final = "spark.sql.iceberg.snapshot-property."
"""Prefix of settings that a session puts into the summary of each of its snapshots (Iceberg 1.11 and later)."""

_JOINS: Final = {
    "spark.sql.iceberg.planning.preserve-data-grouping": "true",
    "spark.sql.sources.v2.bucketing.enabled": "true",
    "spark.sql.sources.v2.bucketing.pushPartValues.enabled": "true",
    "spark.sql.sources.v2.bucketing.shuffle.enabled": "true",
    "spark.sql.requireAllClusterKeysForCoPartition": "false",
}
"""Settings by which a table that is bucketed by its keys is joined bucket by bucket, so that only the changes are shuffled."""


class MergeSession:
    """Lends a second session, to one thread at a time, whose settings may change without an effect on the job's session."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark: Final = spark
        self._lock: Final = Lock()
        self._own: SparkSession | None = None

    @contextmanager
    def stamped(self, summary: Mapping[str, str]) -> Iterator[SparkSession]:
        """A session that puts `summary` into its snapshots."""
        with self._lock, self._second_session() as session:
            try:
                for key, value in summary.items():
                    session.conf.set(f"{_STAMP}{key}", value)
                yield session
            finally:
                for key in summary:
                    session.conf.unset(f"{_STAMP}{key}")

    @contextmanager
    def _second_session(self) -> Iterator[SparkSession]:
        if hasattr(self._spark, "cloneSession"):  # spark connect
            with _cloned(self._spark) as clone:
                yield _configured(clone)
            return
        self._own = self._own or _configured(_clone_session(self._spark))
        yield self._own


@contextmanager
def _cloned(spark: SparkSession) -> Iterator[SparkSession]:
    """A separate session on the server, closed at the end of the block."""
    from frazil.spark.connect import limit_waiting  # needed only with a server

    clone: Any = spark.cloneSession()  # type: ignore[attr-defined]  # of spark connect
    limit_waiting(clone)
    try:
        yield clone
    finally:
        clone.release_session_on_close = True  # `stop` reads it, and clones of Spark 4.1 lack it
        clone.stop()


def _clone_session(spark: SparkSession) -> SparkSession:
    """A new session of the same application, with the same settings and catalogs."""
    session = spark.newSession()
    for key, value in spark.conf.getAll.items():
        if key.startswith("spark.sql.") and session.conf.get(key, None) != value:  # static ones are shared
            session.conf.set(key, value)
    return session


def _configured(session: SparkSession) -> SparkSession:
    for key, value in _JOINS.items():
        session.conf.set(key, value)
    return session


_log = logging.getLogger(__name__)


class SparkApply:
    """A `frazil.run.state.context.Apply` that lands parts of batches with one Spark session, in which the catalogs are open."""

    def __init__(self, spark: SparkSession) -> None:
        prepare_writer(spark)
        self._spark: Final = spark
        self._merging: Final = MergeSession(spark)

    def __call__(self, lake: Lake, change: Change, operation: Operation, branch: str) -> int:
        """Land a change once, and return the id of the snapshot with its summary.

        Raises:
            Refused: The table does not hold the planned batch, or is not the one that the rows were staged for.
            Retryable: Spark failed, or other commits moved main before every attempt.
            Terminal: Another program wrote to the branch, or the table names a class that Spark would run.
            OutcomeUnknown: The table can't be read, so it is unknown whether the rows landed.
        """
        failure: BaseException | None = None
        name = branch
        for number in range(ATTEMPTS):
            pause(number, failure)
            table = reload_table(lake, change, failure)
            metadata = table.metadata
            landed = change.landed(metadata)
            if landed is not None:
                self._finish(lake, change, metadata, landed, branch)
                return landed
            validate(change, metadata)
            refuse_lost_files(change.table, change.files, table)
            lake.catalog_of(change.table).refuse_code(table)
            name = name if number == 0 else retry_branch_name(name)
            try:
                self._attempt(lake, change, operation, name, head_of(metadata))
            except (*SPARK_FAILED, RowsAddedTwice) as error:
                _log.info("Spark did not bring branch %s of %s to main: %s", name, change.table, error_text(error))
                failure = error
        landed = change.landed(reload_table(lake, change, failure).metadata)
        if landed is None:
            raise RUN_FAILED.retryable(
                f"table {change.table}: Spark could not land its part in {ATTEMPTS} attempts: {error_text(failure)}"
            ) from failure
        return landed

    def _attempt(self, lake: Lake, change: Change, operation: Operation, name: str, planned: int | None) -> None:
        """Write the rows to a branch from the checked head, and make the branch main."""
        table = _table_name(lake, change.table)
        as_of = "" if planned is None else f" AS OF VERSION {planned}"
        self._spark.sql(f"ALTER TABLE {table} CREATE BRANCH {quote_name(name)}{as_of}").collect()
        failpoints.hit(Failpoint.BRANCH_MADE)
        branch = _table_name(lake, change.table, f"branch_{name}")
        if operation.merge is not None and change.files:
            self._merge(lake, change, operation, operation.merge, name)
        else:
            if change.removal is not None and planned is not None:
                self._spark.sql(f"DELETE FROM {branch} WHERE {_removal_condition(change.removal)}").collect()  # noqa: S608 - quoted
            self._append(lake, change, operation, branch)
        tip = _checked_tip(lake, change, operation, name, planned)
        failpoints.hit(Failpoint.BRANCH_STAGED)
        _log.info("branch %s of %s ends in snapshot %d", name, change.table, tip)
        self._make_main(lake, change, PreparedBranch(name, planned, tip))

    def _make_main(self, lake: Lake, change: Change, prepared: PreparedBranch) -> None:
        if lake.load_table(change.table).format_version < FORMAT_VERSION:
            publish_branch(lake, change, prepared)
            return
        failpoints.hit(Failpoint.FOLLOW_COMMITTING)
        # A second branch holds the checked snapshot: if Spark repeats a late write, only the first branch moves.
        checked, table = retry_branch_name(prepared.branch), _table_name(lake, change.table)
        statement = f"ALTER TABLE {table} CREATE BRANCH {quote_name(checked)} AS OF VERSION {prepared.tip}"
        self._spark.sql(statement).collect()
        # Fails unless main is an ancestor of the branch, so it overwrites no commit that moved main meanwhile.
        catalog, onto = lake.catalog_of(change.table).name, lake.branch_of(change.table) or "main"
        call = f"CALL {quote_name(catalog)}.system.fast_forward({quote_text(change.table)}, {quote_text(onto)}, {quote_text(checked)})"
        self._spark.sql(call).collect()
        failpoints.hit(Failpoint.FOLLOW_COMMITTED)

    def _merge(self, lake: Lake, change: Change, operation: Operation, merge: Merge, name: str) -> None:
        """Merge staged changes into the branch, in snapshots with the summary."""
        path = _path(lake, change.table, f"branch_{name}")
        branch = quote_name(*path)
        types = {field.name: field.dataType for field in self._spark.table(branch).schema}
        table = lake.load_table(change.table)
        metadata, planned = table.metadata, head_of(table.metadata, name)
        target = Target(change.table, path, types, identity_columns(metadata), operation.variants)
        with self._merging.stamped(change.summary) as session:
            staged = staged_rows(session, lake, change.table, change.files)
            _require_rows(change, staged.count(), "were staged, their files have")
            merge_rows(session, target, merge, staged, partial(may_hold, table, change.table, planned))
        if not carries_change(lake.load_table(change.table).metadata, change, name):  # no row was changed
            self._append(lake, replace(change, files=()), operation, branch)

    def _append(self, lake: Lake, change: Change, operation: Operation, branch: str) -> None:
        """Append the rows in one snapshot with the summary, even if there are none."""
        rows = self._rows(lake, change, operation, branch) if change.files else self._spark.table(branch).limit(0)
        writer = rows.writeTo(branch)
        for key, value in change.summary.items():
            writer = writer.option(f"snapshot-property.{key}", value)
        writer.append()

    def _rows(self, lake: Lake, change: Change, operation: Operation, branch: str) -> DataFrame:
        staged = staged_rows(self._spark, lake, change.table, change.files)
        types = {field.name: field.dataType for field in self._spark.table(branch).schema}
        target = Target(change.table, _path(lake, change.table), types, variants=operation.variants)
        return staged.select(*(target.value(name, f.col(quote_name(name))).alias(name) for name in staged.columns))

    def _finish(self, lake: Lake, change: Change, metadata: TableMetadata, landed: int, branch: str) -> None:
        """Set the properties that repeat the summary, and drop branches of failed attempts."""
        table = _table_name(lake, change.table)
        is_last = all(_is_last(metadata, key, landed) for key in change.mirrored)
        properties = moved_properties(change, metadata, landed) if is_last else {}
        moved = {key: value for key, value in properties.items() if metadata.properties.get(key) != value}
        own = BranchName.parse(branch)
        stale = superfluous_branches(metadata, own.pipeline, own.n) if own is not None else ()
        try:
            if moved:
                pairs = ", ".join(f"{quote_text(key)} = {quote_text(value)}" for key, value in sorted(moved.items()))
                self._spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ({pairs})").collect()
            for name in stale:
                self._spark.sql(f"ALTER TABLE {table} DROP BRANCH IF EXISTS {quote_name(name)}").collect()
        except SPARK_FAILED as error:
            raise RUN_FAILED.retryable(
                f"table {change.table} has its part, but not its properties: {error_text(error)}"
            ) from error


def _path(lake: Lake, table: str, *branch: str) -> tuple[str, ...]:
    return lake.catalog_of(table).name, *table.split("."), *branch


def _table_name(lake: Lake, table: str, *branch: str) -> str:
    return quote_name(*_path(lake, table, *branch))


def _is_last(metadata: TableMetadata, key: str, landed: int) -> bool:
    """Whether no newer snapshot has the key in its summary: a property must not move back."""
    for snapshot in ancestry(metadata, metadata.current_snapshot_id):
        if snapshot.snapshot_id == landed:
            return True
        if key in summary_of(snapshot):
            return False
    return False


def _checked_tip(lake: Lake, change: Change, operation: Operation, name: str, planned: int | None) -> int:
    """The snapshot that becomes main's head: it must hold the staged rows, and descend from main's head.

    Raises:
        RowsAddedTwice: The branch has rows twice.
        Retryable: The branch was dropped.
        Terminal: The branch has other rows.
    """
    metadata = lake.load_table(change.table).metadata
    tip = head_of(metadata, name)
    if tip is None:
        raise RUN_OVERTAKEN.retryable(f"table {change.table}: branch {name} was dropped while it was written")
    verify_tip(metadata, change, name, planned, tip)
    if operation.merge is None:
        summary = summary_of(metadata.snapshot_by_id(tip))
        _require_rows(change, int(summary.get("added-records", 0)), f"were staged, snapshot {tip} on branch {name} has")
    return tip


def _require_rows(change: Change, count: int, what: str) -> None:
    expected = sum(file.rows for file in change.files)
    if count != expected:
        raise AUDIT_FAILED.terminal(
            f"table {change.table}: {expected:,} rows {what} {count:,}; main stays as it is",
            next_step="run again: it creates a new branch. If this happens again, check whether staged files are changed",
        )


def _removal_condition(removal: Removal) -> str:
    """The condition for rows to delete, in SQL; `frazil.iceberg.commit.removal.row_filter` is the same for PyIceberg."""
    return " OR ".join(f"({_range_condition(removal, removed_range)})" for removed_range in removal.ranges) or "false"


def _range_condition(removal: Removal, removed_range: RemovedRange) -> str:
    columns = removal.columns
    offset, partition = quote_name(columns.offset), quote_name(columns.partition)
    conditions = [
        f"{quote_name(columns.topic)} = {quote_text(removed_range.topic)}",
        f"{offset} >= {removed_range.start}",
        f"{quote_name(columns.batch)} >= {removed_range.since}",
        f"{partition} IS NOT NULL" if removed_range.partition is None else f"{partition} = {removed_range.partition}",
    ]
    if removed_range.end is not None:
        conditions.append(f"{offset} < {removed_range.end}")
    return " AND ".join(conditions)
