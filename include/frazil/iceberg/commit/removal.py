"""Removes rows from a table by Kafka coordinates: data files with such rows are rewritten without them.

Reading uses private names of PyIceberg 0.12's Arrow scan, because its public way holds a whole file decoded in memory;
a contract test pins them.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator
from dataclasses import dataclass, fields
from threading import Lock
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThanOrEqual,
    In,
    LessThan,
    NotNull,
    Or,
)
from pyiceberg.io.pyarrow import ArrowScan, _read_all_delete_files
from pyiceberg.manifest import DataFile, DataFileContent, ManifestContent
from pyiceberg.schema import Schema
from pyiceberg.table import DataScan, FileScanTask, Table

from frazil.batch.changes import Coordinates, Removal, RemovedRange
from frazil.batch.facts import StagedFile
from frazil.error_codes import REPLAY_REFUSED, TABLE_UNFIT
from frazil.errors import without_values
from frazil.iceberg.catalog.table import staging_table
from frazil.iceberg.errors import translated
from frazil.iceberg.files.data_files import DataFileWriter

_NO = pa.scalar(False)  # noqa: FBT003  # an Arrow value

_REWRITING = Lock()
"""Remaining rows are written for one table at a time: followers are committed in parallel, and each writer may hold as many bytes as
a staging task. Finding the rows to remove needs little memory, so it does not wait.
"""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """How a removal changes the files of one snapshot.

    Attributes:
        dropped: Data files that hold rows to be removed.
        added: New files, with the other rows of those files.
    """

    dropped: tuple[DataFile, ...] = ()
    added: tuple[StagedFile, ...] = ()
    rows: int = 0


def check_removable(table: Table, name: str, columns: Coordinates, snapshot_id: int | None = None) -> None:
    """Refuse a table from which rows can't be deleted. Call this before a batch is decided.

    Without a snapshot id, the head of main is checked.

    Raises:
        Terminal: The table lacks a coordinate column, or has equality deletes of another engine.
        Retryable: Its manifests can't be read now.
    """
    with translated(f"reading manifests of table {name}"):
        _check(table, name, columns, snapshot_id)


def _check(table: Table, name: str, columns: Coordinates, snapshot_id: int | None) -> None:
    existing_columns = {field.name for field in table.schema().fields}
    lacking = [column for column in _names(columns) if column not in existing_columns]
    if lacking:
        raise REPLAY_REFUSED.terminal(
            f"table {name} has no column {', '.join(lacking)}: rows can't be identified by their Kafka coordinates,"
            " so none can be removed or replaced",
            next_step="give the pipeline's destination kafka_columns and a new table, or correct the rows by hand",
        )
    path = _equality_delete(table, snapshot_id)
    if path is not None:
        raise TABLE_UNFIT.terminal(
            f"table {name} has equality deletes, for example {without_values(path)}: another engine wrote them, and rows that they"
            " delete would come back if files were rewritten here",
            next_step=f"apply them first, in Spark: CALL <catalog>.system.rewrite_data_files(table => '{name}',"
            " options => map('delete-file-threshold', '1', 'remove-dangling-deletes', 'true'))",
        )


def _names(columns: Coordinates) -> tuple[str, ...]:
    return tuple(getattr(columns, field.name) for field in fields(columns))


def _equality_delete(table: Table, snapshot_id: int | None) -> str | None:
    snapshot = table.metadata.snapshot_by_id(snapshot_id) if snapshot_id is not None else table.current_snapshot()
    for manifest in snapshot.manifests(table.io) if snapshot is not None else ():
        if manifest.content is not ManifestContent.DELETES:
            continue
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            if entry.data_file.content is DataFileContent.EQUALITY_DELETES:
                return entry.data_file.file_path
    return None


def row_filter(removal: Removal) -> BooleanExpression:
    """The filter, for scan planning, of the rows to remove. Rows without coordinates or batch number never match."""
    ranges = [_filter(removal.columns, r) for r in removal.ranges]
    return Or(*ranges) if len(ranges) > 1 else ranges[0] if ranges else AlwaysFalse()


def _filter(columns: Coordinates, removed: RemovedRange) -> BooleanExpression:
    conditions = [
        compare(EqualTo, columns.topic, removed.topic),
        compare(GreaterThanOrEqual, columns.offset, removed.start),
        compare(GreaterThanOrEqual, columns.batch, removed.since),
    ]
    if removed.partition is None:
        conditions.append(compare(NotNull, columns.partition))
    else:
        conditions.append(compare(EqualTo, columns.partition, removed.partition))
    if removed.end is not None:
        conditions.append(compare(LessThan, columns.offset, removed.end))
    return And(*conditions)


def compare(operator: Any, column: str, *value: Any) -> BooleanExpression:
    """A comparison with a column, for mypy: it does not see the `__init__` of PyIceberg's expressions."""
    expression: BooleanExpression = operator(column, *value)
    return expression


def matches(rows: pa.RecordBatch, removal: Removal) -> pa.BooleanArray:
    """Mask of the rows to remove: `row_filter` applied to rows in memory. Never null."""
    topic, partition, offset, batch = (rows.column(name) for name in _names(removal.columns))
    topics, partitions = set(pc.unique(topic).to_pylist()), {None, *pc.unique(partition).to_pylist()}
    mask = pa.repeat(_NO, rows.num_rows)
    for removed in removal.ranges:
        if removed.topic not in topics or removed.partition not in partitions:
            continue
        conditions = [
            pc.equal(topic, removed.topic),
            pc.greater_equal(offset, removed.start),
            pc.greater_equal(batch, removed.since),
        ]
        conditions.append(partition.is_valid() if removed.partition is None else pc.equal(partition, removed.partition))
        if removed.end is not None:
            conditions.append(pc.less(offset, removed.end))
        mask = pc.or_(mask, pc.fill_null(functools.reduce(pc.and_kleene, conditions), _NO))
    return mask


@dataclass(frozen=True, slots=True)
class _Outcome:
    """The result of a removal for one data file: removed rows, and new files with the remaining rows."""

    rows: int
    survivors: tuple[StagedFile, ...]


class Rewriter:
    """Applies one removal to snapshots of one table.

    Each file is read and rewritten only once, even if the removal is computed again because the head moved: outcomes are cached
    by the file's path and the deletes that apply to it.
    """

    def __init__(self, name: str, removal: Removal) -> None:
        self.row_filter = row_filter(removal)
        self._name = name
        self._removal = removal
        self._outcomes: dict[tuple[str, frozenset[str]], _Outcome] = {}

    def rewrite(self, table: Table, snapshot_id: int | None) -> Rewrite:
        """Rewrite the affected files of a snapshot. Remaining rows get the table's current partition spec.

        Foreign exceptions pass through: a missing file may only mean that the snapshot is gone, so the caller reads the table
        again.

        Raises:
            Terminal: Rows can't be deleted from this table.
        """
        _check(table, self._name, self._removal.columns, snapshot_id)
        if snapshot_id is None:
            return Rewrite()
        # A scan without the catalog is planned here, from manifests, not by a REST server.
        scan = DataScan(table.metadata, table.io, row_filter=self.row_filter, snapshot_id=snapshot_id)
        outcomes = [(task.file, self._outcome(table, task)) for task in scan.plan_files()]
        affected = [(file, outcome) for file, outcome in outcomes if outcome.rows]
        return Rewrite(
            tuple(file for file, _ in affected),
            tuple(survivor for _, outcome in affected for survivor in outcome.survivors),
            sum(outcome.rows for _, outcome in affected),
        )

    def _outcome(self, table: Table, task: FileScanTask) -> _Outcome:
        key = task.file.file_path, frozenset(file.file_path for file in task.delete_files)
        if key not in self._outcomes:
            self._outcomes[key] = self._rewrite_file(table, task)
        return self._outcomes[key]

    def _rewrite_file(self, table: Table, task: FileScanTask) -> _Outcome:
        # Coordinates alone are read first: most files are removed as a whole, or only seem to match by their statistics.
        coordinates = table.schema().select(*_names(self._removal.columns))
        going = staying = 0
        for batch in file_rows(table, task, coordinates):
            hits = pc.sum(matches(batch, self._removal)).as_py() or 0
            going, staying = going + hits, staying + batch.num_rows - hits
        return _Outcome(going, self._survivors(table, task) if going and staying else ())

    def _survivors(self, table: Table, task: FileScanTask) -> tuple[StagedFile, ...]:
        with _REWRITING:
            writer = DataFileWriter(staging_table(self._name, table))
            for batch in file_rows(table, task, table.schema()):
                writer.write(batch.filter(pc.invert(matches(batch, self._removal))))
            return writer.close()


def file_rows(
    table: Table, task: FileScanTask, columns: Schema, where: BooleanExpression | None = None
) -> Iterator[pa.RecordBatch]:
    """Rows of one data file in the table's columns, with position deletes applied, batch by batch."""
    scan = ArrowScan(table.metadata, table.io, columns, where or AlwaysTrue())
    deletes = _read_all_delete_files(table.io, [task])
    return scan._record_batches_from_scan_tasks_and_deletes([task], deletes)


def scan_rows(
    table: Table, doing: str, where: BooleanExpression, columns: tuple[str, ...] = ("*",)
) -> Iterator[pa.RecordBatch]:
    """Rows of a table's present snapshot in batches, with position deletes applied.

    The scan is planned here, from manifests, not by a REST server. `doing` begins the messages of errors.
    """
    if (head := table.metadata.current_snapshot_id) is None:
        return
    scan = DataScan(table.metadata, table.io, where, columns, snapshot_id=head)
    with translated(doing):
        for task in scan.plan_files():
            yield from file_rows(table, task, scan.projection(), scan.row_filter)


def count_rows(table: Table, name: str, removal: Removal) -> int:
    """How many rows a removal would delete."""
    if table.current_snapshot() is None:
        return 0
    with translated(f"counting rows of table {name}"):
        return table.scan(row_filter(removal), selected_fields=(removal.columns.offset,)).count()


def offsets_held(table: Table, name: str, removal: Removal) -> pa.Array:
    """Offsets of the rows that a removal would delete, each once, in no order."""
    column = removal.columns.offset
    with translated(f"reading offsets of table {name}"):
        rows = table.scan(row_filter(removal), selected_fields=(column,)).to_arrow()
    return pc.unique(rows.column(column)).cast(pa.int64())


def rows_of_batches(
    table: Table, name: str, columns: Coordinates, numbers: Collection[int]
) -> Iterator[tuple[str, int, int, int]]:
    """Topic, partition, offset and batch number of the rows that these batches landed, in no order, in one scan."""
    if not numbers:
        return
    names = _names(columns)
    where = compare(In, columns.batch, frozenset(numbers))
    for batch in scan_rows(table, f"reading rows of {len(numbers)} batches in table {name}", where, names):
        yield from zip(*(batch.column(column).to_pylist() for column in names), strict=True)
