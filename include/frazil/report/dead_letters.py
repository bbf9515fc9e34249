"""The dead letters of a pipeline: listed without their records, or one record's with all that is in them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa

from frazil.batch.letters import LetterChoice, Place, undone
from frazil.batch.removal import RemovedRange
from frazil.iceberg.letter_scan import LetterFile, LetterQuestion, State, can_be_landed, letter_files
from frazil.iceberg.table import Table
from frazil.pipeline.model import Pipeline
from frazil.project import Project
from frazil.report.history import history

LISTED = (
    *("code", "message", "path", "topic", "partition", "offset", "timestamp"),
    *("_frazil_batch", "attempts", "landed_batch"),
)
"""Columns that a list needs: no keys, values or headers, which are most of the table."""

_WHOLE = (*LISTED, "stage", "key", "value", "headers")

_ORDER = [("_frazil_batch", "descending"), *((of, "ascending") for of in ("topic", "partition", "offset"))]


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One letter without its record.

    Attributes:
        topic, partition, offset: Which record it is.
        timestamp: Kafka's timestamp of the record, UTC.
        code: Reason code.
        path: The field in question, as far as there is one.
        message: What was expected and what was found.
        batch: Number of the batch that kept it; None in the oldest tables.
        attempts: How often it was decoded.
        landed_batch: Number of the batch that landed it after all; None while it is open.
    """

    topic: str
    partition: int
    offset: int
    timestamp: datetime | None
    code: str
    path: str | None
    message: str
    batch: int | None
    attempts: int
    landed_batch: int | None

    @property
    def place(self) -> Place:
        """Which record it is."""
        return Place(self.topic, self.partition, self.offset)

    @property
    def found(self) -> str:
        """The message without the path before it."""
        return self.message.removeprefix(f"{self.path}: ") if self.path else self.message


@dataclass(frozen=True, slots=True)
class WholeLetter:
    """One letter with its record: key, value and headers as they came, unless the pipeline keeps less."""

    letter: DeadLetter
    stage: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Listing:
    """Letters of the newest batches first, then by their place, and whether there are more than were asked for."""

    letters: tuple[DeadLetter, ...]
    has_more: bool


def list_letters(
    project: Project, pipeline: Pipeline, choice: LetterChoice, state: State, limit: int | None
) -> Listing | None:
    """Letters without their records. Files that hold only older ones than the last that fits are not opened.

    Args:
        project: Settings and doors.
        pipeline: The pipeline.
        choice: Which letters.
        state: Whether they are open.
        limit: How many at most; None for all.

    Returns:
        The letters; None if the pipeline has no dead-letter table yet.

    Raises:
        Retryable: The catalog or the storage can't be read now.
    """
    found = open_table(project, pipeline, choice, state)
    if found is None:
        return None
    table, question = found
    kept, has_more = _newest(letter_files(table, pipeline.dead_letters_table, question, LISTED), limit)
    return Listing(tuple(letter_of(row, question.undone) for row in kept.to_pylist()), has_more)


def find_letters(project: Project, pipeline: Pipeline, place: Place) -> tuple[WholeLetter, ...]:
    """Every letter of one record, the newest first: there are several if its topic was recreated.

    Raises:
        Retryable: The catalog or the storage can't be read now.
    """
    found = open_table(project, pipeline, LetterChoice(places=frozenset({place})), "all")
    if found is None:
        return ()
    table, question = found
    kept, _ = _newest(letter_files(table, pipeline.dead_letters_table, question, _WHOLE), None)
    return tuple(_whole(row, question.undone) for row in kept.to_pylist())


def open_table(
    project: Project, pipeline: Pipeline, choice: LetterChoice, state: State, *, untimed: bool = False
) -> tuple[Table, LetterQuestion] | None:
    """The dead-letter table, and the question as it is put to it; None if there is no table yet.

    Raises:
        Retryable: The catalog can't be read now.
    """
    table = project.lake(pipeline.catalog).find_table(pipeline.dead_letters_table)
    if table is None:
        return None
    taken_back = _taken_back(project, pipeline) if can_be_landed(table) else frozenset[int]()
    return table, LetterQuestion(choice, state, untimed, taken_back)


def letter_of(row: dict[str, Any], taken_back: frozenset[int]) -> DeadLetter:
    """A letter from its row (`LISTED`). What a batch landed that was taken back is open."""
    landed = row["landed_batch"]
    return DeadLetter(
        topic=row["topic"],
        partition=row["partition"],
        offset=row["offset"],
        timestamp=row["timestamp"],
        code=row["code"],
        path=row["path"],
        message=row["message"],
        batch=row["_frazil_batch"],
        attempts=row["attempts"] or 1,
        landed_batch=None if landed in taken_back else landed,
    )


def _taken_back(project: Project, pipeline: Pipeline) -> frozenset[int]:
    rewinds = [batch for batch in history(project, pipeline) if batch.kind == "rewind"]
    return undone(
        (batch.n, [RemovedRange(r.topic, r.partition, r.start, r.end, r.since) for r in batch.removed])
        for batch in rewinds
    )


def _newest(files: Iterable[LetterFile], limit: int | None) -> tuple[pa.Table, bool]:
    """The first letters in order, and whether there are more."""
    kept: pa.Table | None = None
    has_more = False
    for file in files:
        if kept is not None and limit is not None and kept.num_rows == limit and _is_older(file, kept):
            return kept, True  # perhaps only to others' eyes: a file may hold none that fits
        for batch in file.batches:
            part = pa.Table.from_batches([batch])
            whole = (part if kept is None else pa.concat_tables([kept, part])).sort_by(_ORDER)
            kept = whole if limit is None else whole.slice(0, limit)
            has_more = has_more or whole.num_rows > kept.num_rows
    return (pa.table({}) if kept is None else kept), has_more


def _is_older(file: LetterFile, kept: pa.Table) -> bool:
    last = kept.column("_frazil_batch")[-1].as_py() if kept.num_rows else None
    return last is not None and file.newest is not None and file.newest < last


def _whole(row: dict[str, Any], taken_back: frozenset[int]) -> WholeLetter:
    headers = tuple((header["key"], header["value"]) for header in row["headers"] or ())
    return WholeLetter(letter_of(row, taken_back), row["stage"], row["key"], row["value"], headers)
