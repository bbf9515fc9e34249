"""Reads what a person asks of the dead-letter table: only the rows and columns that are asked for, newest files first."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import reduce
from typing import Any, Literal

import pyarrow as pa
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

from frazil.batch.dead_letters import LetterChoice, Place
from frazil.iceberg.commit.removal import file_rows
from frazil.iceberg.errors import translated
from frazil.iceberg.ledger.ledger import DEAD_LETTER_SCHEMA

State = Literal["open", "landed", "all"]
"""Letters that no batch landed, those that one landed after all, or both."""

LANDED_COLUMN = "landed_batch"
_BATCH_COLUMN = "_frazil_batch"
_TABLE_COLUMN = "destination"


@dataclass(frozen=True, slots=True)
class LetterQuestion:
    """Which letters are asked for.

    Attributes:
        untimed: Whether letters without a timestamp are recent enough for any `choice.since`.
        undone: Numbers of batches that were taken back: what they landed is open again.
        batches: Only those that batches behind the first number kept, up to the second.
        newest: Only of batches up to this number, and of those that nobody numbered; None for all.
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
        newest: Highest number of a batch that put letters into it; None if the file does not tell.
    """

    newest: int | None
    batches: Iterator[pa.RecordBatch]


def letter_files(table: Table, name: str, question: LetterQuestion, columns: Sequence[str]) -> Iterator[LetterFile]:
    """Files that may hold letters that are asked for, those with the newest batches first."""
    if table.metadata.current_snapshot_id is None:
        return
    where = _row_filter(question)
    scan = DataScan(table.metadata, table.io, where, tuple(columns), snapshot_id=table.metadata.current_snapshot_id)
    with translated(f"reading manifests of table {name}"):
        tasks = [(_newest(table, task.file), task) for task in scan.plan_files()]
    for newest, task in sorted(tasks, key=lambda numbered: (numbered[0] is None, numbered[0] or 0), reverse=True):
        yield LetterFile(newest, _rows(table, name, task, scan, columns))


def letters_held(table: Table, name: str) -> int:
    """How many letters there are, as the manifests tell."""
    if table.metadata.current_snapshot_id is None:
        return 0
    with translated(f"reading manifests of table {name}"):
        return sum(int(task.file.record_count) for task in table.scan().plan_files())


def letters_open(table: Table, name: str, undone: Callable[[], Collection[int]]) -> int:
    """How many letters no batch landed that still stands, as the manifests tell: of the files, at most those are read in which
    letters were landed by a batch that was taken back.

    `undone` tells the numbers of batches that were taken back; it is asked if any letter was landed.
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
    question = LetterQuestion(state="open", undone=undone)
    where, column = _state_filter(question), table.schema().select(LANDED_COLUMN)
    with translated(f"reading table {name}"):
        return sum(batch.num_rows for batch in file_rows(table, task, column, where))


def _landed_by(file: DataFile, field: int) -> range:
    """Numbers of the batches that may have landed letters of a file."""
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
    if choice.codes:
        parts.append(_is_one_of("code", choice.codes))
    if choice.topics:
        parts.append(_is_one_of("topic", choice.topics))
    if choice.since is not None:
        parts.append(_is_recent(choice.since, untimed=question.untimed))
    if choice.until is not None:
        parts.append(LessThan("timestamp", choice.until.isoformat()))  # type: ignore[call-arg, arg-type]
    if question.batches is not None:
        parts.append(_is_of_batches(*question.batches))
    if choice.tables:
        parts.append(_is_one_of(_TABLE_COLUMN, choice.tables))
    if question.newest is not None:
        parts.append(_up_to(question.newest))
    if choice.places or choice.of_tables:
        nothing: BooleanExpression = AlwaysFalse()
        parts.append(reduce(Or, _chosen_letters(choice), nothing))
    return reduce(And, parts)


def _chosen_letters(choice: LetterChoice) -> Iterator[BooleanExpression]:
    """Filters for the letters that are chosen one by one."""
    yield from map(_is_record, sorted(choice.places))
    yield from (
        And(_is_record(place), _is_one_of(_TABLE_COLUMN, frozenset({table})))
        for place, table in sorted(choice.of_tables)
    )


# Below, mypy sees the fields of PyIceberg's models and not their __init__.


def _state_filter(question: LetterQuestion) -> BooleanExpression:
    if question.state == "all":
        return AlwaysTrue()
    never: BooleanExpression = IsNull(LANDED_COLUMN)  # type: ignore[call-arg, arg-type]
    is_open = Or(never, _is_one_of(LANDED_COLUMN, question.undone)) if question.undone else never
    return is_open if question.state == "open" else Not(is_open)


def _is_one_of(column: str, values: frozenset[Any]) -> BooleanExpression:
    return In(column, values)  # type: ignore[call-arg, arg-type]


def _up_to(number: int) -> BooleanExpression:
    return Or(IsNull(_BATCH_COLUMN), LessThanOrEqual(_BATCH_COLUMN, number))  # type: ignore[call-arg, arg-type]


def _is_recent(instant: datetime, *, untimed: bool) -> BooleanExpression:
    recent: BooleanExpression = GreaterThanOrEqual("timestamp", instant.isoformat())  # type: ignore[call-arg, arg-type]
    return Or(IsNull("timestamp"), recent) if untimed else recent  # type: ignore[call-arg, arg-type]


def _is_of_batches(after: int, through: int) -> BooleanExpression:
    behind: BooleanExpression = GreaterThan(_BATCH_COLUMN, after)  # type: ignore[call-arg, arg-type]
    return And(behind, LessThanOrEqual(_BATCH_COLUMN, through))  # type: ignore[call-arg, arg-type]


def _is_record(place: Place) -> BooleanExpression:
    return reduce(And, (EqualTo(*equality) for equality in zip(place._fields, place, strict=True)))  # type: ignore[call-arg, arg-type]
