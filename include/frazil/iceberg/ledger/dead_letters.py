"""Reads the dead-letter table: open letters, whole letters in bounded parts, and the rows and columns of a query."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import reduce
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.conversions import from_bytes
from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    Or,
)
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.table import DataScan, FileScanTask, Table
from pyiceberg.types import LongType

from frazil.batch.changes import LetterChoice, Place, Removal
from frazil.batch.facts import StagedFile
from frazil.iceberg.commit.removal import compare, file_rows, matches, row_filter, scan_rows
from frazil.iceberg.errors import translated
from frazil.iceberg.ledger.ledger import DEAD_LETTER_SCHEMA
from frazil.records.model.rows import with_python_times

State = Literal["open", "landed", "all"]
"""Letters that are still dead, letters that a later batch landed, or both."""

LANDED_COLUMN = "landed_batch"
_BATCH_COLUMN = "_frazil_batch"
_TABLE_COLUMN = "destination"


@dataclass(frozen=True, slots=True)
class LetterQuestion:
    """A query for dead letters.

    Attributes:
        untimed: Whether letters without a timestamp match any `choice.since`.
        undone: Numbers of rolled-back batches: letters that they landed are open again.
        batches: Only letters of batches after the first number, up to the second; None for all.
        newest: Only letters of batches up to this number, and those without a batch number; None for all.
    """

    choice: LetterChoice = field(default_factory=LetterChoice)
    state: State = "all"
    untimed: bool = False
    undone: frozenset[int] = frozenset()
    batches: tuple[int, int] | None = None
    newest: int | None = None


@dataclass(frozen=True)
class LetterFile:
    """One data file of the table.

    Attributes:
        newest: Highest batch number of its letters; None if the file has no statistics.
    """

    newest: int | None
    batches: Iterator[pa.RecordBatch]


def letter_files(table: Table, name: str, question: LetterQuestion, columns: Sequence[str]) -> Iterator[LetterFile]:
    """Files that may contain letters of the query, newest batches first."""
    if table.metadata.current_snapshot_id is None:
        return
    where = _row_filter(question)
    scan = DataScan(table.metadata, table.io, where, tuple(columns), snapshot_id=table.metadata.current_snapshot_id)
    with translated(f"reading manifests of table {name}"):
        tasks = [(_newest(table, task.file), task) for task in scan.plan_files()]
    for newest, task in sorted(tasks, key=lambda numbered: (numbered[0] is None, numbered[0] or 0), reverse=True):
        yield LetterFile(newest, _rows(table, name, task, scan, columns))


def count_letters(table: Table, name: str) -> int:
    """Count all dead letters, from the manifests."""
    if table.metadata.current_snapshot_id is None:
        return 0
    with translated(f"reading manifests of table {name}"):
        return sum(int(task.file.record_count) for task in table.scan().plan_files())


def count_open_letters(table: Table, name: str, undone: Callable[[], Collection[int]]) -> int:
    """Count the open dead letters, mostly from manifests. Only files with letters that a rolled-back batch landed are read.

    `undone` returns the numbers of rolled-back batches; it is called only if some letter has landed.
    """
    if table.metadata.current_snapshot_id is None:
        return 0
    with translated(f"reading manifests of table {name}"):
        tasks = list(table.scan().plan_files())
    field = table.schema().find_field(LANDED_COLUMN).field_id
    taken_back = frozenset(undone()) if any(_landed_by(task.file, field) for task in tasks) else frozenset()
    return sum(_open_in(table, name, task, field, taken_back) for task in tasks)


def _open_in(table: Table, name: str, task: FileScanTask, field: int, undone: frozenset[int]) -> int:
    file = task.file
    if not task.delete_files and file.value_counts and undone.isdisjoint(_landed_by(file, field)):
        counts: Mapping[int, int] = file.null_value_counts or {}
        return int(counts.get(field, 0))
    where, column = is_open(undone), table.schema().select(LANDED_COLUMN)
    with translated(f"reading table {name}"):
        return sum(batch.num_rows for batch in file_rows(table, task, column, where))


def _landed_by(file: DataFile, field: int) -> range:
    """The range of batch numbers that landed letters of a file, by its bounds."""
    low, high = ((bounds or {}).get(field) for bounds in (file.lower_bounds, file.upper_bounds))
    if low is None or high is None:
        return range(0)
    return range(int(from_bytes(LongType(), low)), int(from_bytes(LongType(), high)) + 1)


def _newest(table: Table, file: DataFile) -> int | None:
    bound = (file.upper_bounds or {}).get(table.schema().find_field(_BATCH_COLUMN).field_id)
    return None if bound is None else int(from_bytes(LongType(), bound))


def _rows(
    table: Table, name: str, task: FileScanTask, scan: DataScan, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    types = schema_to_pyarrow(DEAD_LETTER_SCHEMA, include_field_ids=False)
    schema = pa.schema([types.field(column).with_nullable(nullable=True) for column in columns])
    with translated(f"reading table {name}"):
        for batch in file_rows(table, task, scan.projection(), scan.row_filter):
            yield pa.RecordBatch.from_arrays(
                [batch.column(field.name).cast(field.type) for field in schema], schema=schema
            )


def _row_filter(question: LetterQuestion) -> BooleanExpression:
    choice = question.choice
    parts = [_state_filter(question)]
    for column, values in (("code", choice.codes), ("topic", choice.topics), (_TABLE_COLUMN, choice.tables)):
        if values:
            parts.append(compare(In, column, values))
    if choice.since is not None:
        recent = compare(GreaterThanOrEqual, "timestamp", choice.since.isoformat())
        parts.append(Or(compare(IsNull, "timestamp"), recent) if question.untimed else recent)
    if choice.until is not None:
        parts.append(compare(LessThan, "timestamp", choice.until.isoformat()))
    if question.batches is not None:
        after, through = question.batches
        parts += [compare(GreaterThan, _BATCH_COLUMN, after), compare(LessThanOrEqual, _BATCH_COLUMN, through)]
    if question.newest is not None:
        parts.append(Or(compare(IsNull, _BATCH_COLUMN), compare(LessThanOrEqual, _BATCH_COLUMN, question.newest)))
    if choice.places or choice.of_tables:
        nothing: BooleanExpression = AlwaysFalse()
        parts.append(reduce(Or, _chosen_letters(choice), nothing))
    return reduce(And, parts)


def _chosen_letters(choice: LetterChoice) -> Iterator[BooleanExpression]:
    """Filters for the letters that are chosen one by one."""
    yield from map(_is_record, sorted(choice.places))
    yield from (
        And(_is_record(place), compare(In, _TABLE_COLUMN, {table})) for place, table in sorted(choice.of_tables)
    )


def _is_record(place: Place) -> BooleanExpression:
    return reduce(And, (compare(EqualTo, *equality) for equality in zip(place._fields, place, strict=True)))


def _state_filter(question: LetterQuestion) -> BooleanExpression:
    if question.state == "all":
        return AlwaysTrue()
    return is_open(question.undone) if question.state == "open" else Not(is_open(question.undone))


def is_open(undone: Collection[int]) -> BooleanExpression:
    """Filter for open letters: those that no batch landed, or only a batch that was rolled back since."""
    never = compare(IsNull, LANDED_COLUMN)
    return Or(never, compare(In, LANDED_COLUMN, frozenset(undone))) if undone else never


_LETTERS_AT_ONCE = 250
"""Whole letters in memory at a time."""

_NAMED = ("topic", "partition", "offset", "code", "timestamp", "_frazil_batch", "destination")


@dataclass(frozen=True, slots=True)
class Letter:
    """One letter without its record.

    Attributes:
        timestamp: Kafka timestamp of the record; None also for one beyond year 9999.
        batch: Number of the batch that wrote it.
        destination: The table that the record does not fit; None for a record as a whole.
    """

    place: Place
    code: str
    timestamp: datetime | None
    batch: int | None
    destination: str | None = None


def open_letters(table: Table, name: str, undone: Collection[int]) -> Iterator[Letter]:
    """Open letters: those that no batch landed, or only a batch that was rolled back since. Keys and values are not read.

    `undone`: numbers of rolled-back batches.
    """
    for batch in scan_rows(table, f"reading table {name}", is_open(undone), _NAMED):
        for row in with_python_times(batch).to_pylist():
            place = Place(row["topic"], row["partition"], row["offset"])
            yield Letter(place, row["code"], row["timestamp"], row["_frazil_batch"], row["destination"])


def letters_within(table: Table, name: str, removal: Removal) -> Iterator[pa.RecordBatch]:
    """All letters that a removal would delete, in bounded parts."""
    for batch in scan_rows(table, f"reading table {name}", row_filter(removal)):
        yield batch.filter(matches(batch, removal))


def staged_letters(table: Table, name: str, files: Sequence[StagedFile]) -> Iterator[pa.RecordBatch]:
    """All letters of staged files, in bounded parts and a fixed order. The files may be committed or not.

    Raises:
        Terminal: A file is gone.
    """
    for file in files:
        with translated(f"reading staged letters of table {name}"), table.io.new_input(file.path).open() as stream:
            yield from pq.ParquetFile(stream).iter_batches(_LETTERS_AT_ONCE)
