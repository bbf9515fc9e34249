"""The dead letters of a pipeline: a list of letters without their records, or all letters of one record, with the record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

import pyarrow as pa

from frazil.batch.changes import LetterChoice, Place
from frazil.batch.position import Position, TopicPosition
from frazil.iceberg.catalog.table import Table
from frazil.iceberg.ledger.dead_letters import LetterFile, LetterQuestion, State, letter_files
from frazil.iceberg.ledger.ledger import read_letter_rows
from frazil.iceberg.schema.schema import arrow_type, declared_columns
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.pipeline.syntax.types import parse_type
from frazil.project import Project
from frazil.records.decoder.redaction import DeclaredNames
from frazil.records.model.rows import with_python_times
from frazil.run.repair.dead_letter_decode import LetterHistory, landed_rows, letter_history

LISTED = (
    *("code", "message", "path", "topic", "partition", "offset", "timestamp"),
    *("_frazil_batch", "attempts", "landed_batch", "destination"),
)
"""Columns for a list: without keys, values and headers, which are most of the table."""

_WHOLE = (*LISTED, "stage", "key", "value", "headers")

_PLACE = ("topic", "partition", "offset", "destination")
_MARK = ["_frazil_batch", *_PLACE]
_ORDER = [("_frazil_batch", "descending"), *((column, "ascending") for column in _PLACE)]


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One letter without its record.

    Attributes:
        topic, partition, offset: Coordinates of the record.
        timestamp: Kafka's timestamp of the record, UTC.
        code: The reason's code.
        path: The field that does not fit; None if the reason is not about one field.
        message: What was expected and what was found.
        batch: Number of the batch that landed the letter; None in the oldest tables.
        attempts: Number of attempts to decode the record.
        landed_batch: Number of the batch that landed the record as a row later; None while the letter is open.
        destination: The table that the record does not fit; None if it fits none, or the pipeline has only one.
        row_batch: Number of a batch that landed the record of an open letter: the dead-letter table lost the mark of it. Such a
            letter does not land again.
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
    destination: str | None = None
    row_batch: int | None = None

    @property
    def place(self) -> Place:
        """Coordinates of the record."""
        return Place(self.topic, self.partition, self.offset)

    @property
    def plain_message(self) -> str:
        """The message without the path at its beginning."""
        return self.message.removeprefix(f"{self.path}: ") if self.path else self.message

    @property
    def mark(self) -> LetterMark:
        """Its place in a list."""
        return LetterMark(self.batch, self.topic, self.partition, self.offset, self.destination)


class LetterMark(NamedTuple):
    """Place of a letter in a list, from which a next page begins."""

    batch: int | None
    topic: str
    partition: int
    offset: int
    destination: str | None

    @property
    def order(self) -> tuple[bool, int, str, int, int, bool, str]:
        """Sort key: newest batches first, then coordinates, letters without a table last."""
        batch, table = self.batch, self.destination
        return (batch is None, -(batch or 0), *self[1:4], table is None, table or "")


@dataclass(frozen=True, slots=True)
class WholeLetter:
    """One letter with its record: key, value and headers, as far as the pipeline keeps them."""

    letter: DeadLetter
    stage: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


LetterRows = Callable[[], list[dict[str, Any]]]
"""Reads the rows of a ledger that concern dead letters, as `read_letter_rows` does."""


@dataclass(frozen=True, slots=True)
class Listing:
    """A page of letters, in the order of their marks, and whether there are more."""

    letters: tuple[DeadLetter, ...]
    has_more: bool


def list_letters(  # noqa: PLR0913, PLR0917 - filters of a list
    project: Project,
    pipeline: Pipeline,
    choice: LetterChoice,
    state: State,
    limit: int | None,
    after: LetterMark | None = None,
    rows: LetterRows | None = None,
) -> Listing | None:
    """List letters without their records. Files whose letters are all older than the page are not read. `after`: mark of the
    last letter of the previous page. `rows`: reads the ledger's rows, for callers with a cache.

    Returns:
        The letters; None if the pipeline has no dead-letter table yet.

    Raises:
        Retryable: The catalog or the storage can't be read now.
    """
    letters_table = open_table(project, pipeline, choice, state, rows=rows)
    if letters_table is None:
        return None
    rows_read, has_more = _rows(pipeline, letters_table, LISTED, limit, after)
    row_batch_of = _row_finder(project, pipeline, letters_table) if rows_read else _no_row
    letters = (letter_of(row, letters_table.question.undone) for row in rows_read)
    return Listing(tuple(replace(letter, row_batch=row_batch_of(letter)) for letter in letters), has_more)


def find_letters(
    project: Project, pipeline: Pipeline, place: Place, table: str | None = None, rows: LetterRows | None = None
) -> tuple[WholeLetter, ...]:
    """Every letter of one record, the newest first, or only that of `table`. There are several if several destinations have
    one, or if the topic was recreated, which gives the same coordinates to another record.

    Raises:
        Retryable: The catalog or the storage can't be read now.
    """
    tables = frozenset[str]() if table is None else frozenset({table})
    letters_table = open_table(
        project, pipeline, LetterChoice(places=frozenset({place}), tables=tables), "all", rows=rows
    )
    if letters_table is None:
        return ()
    rows_read, _ = _rows(pipeline, letters_table, _WHOLE)
    row_batch_of = _row_finder(project, pipeline, letters_table) if rows_read else _no_row
    return tuple(_whole(row, letters_table.question.undone, row_batch_of) for row in rows_read)


@dataclass(frozen=True)
class OpenTable:
    """The dead-letter table, a query for it, the history of its letters, and the position's topics."""

    table: Table
    question: LetterQuestion
    past: LetterHistory
    topics: Mapping[str, TopicPosition]


def open_table(
    project: Project,
    pipeline: Pipeline,
    choice: LetterChoice,
    state: State,
    *,
    untimed: bool = False,
    rows: LetterRows | None = None,
) -> OpenTable | None:
    """Open the dead-letter table for a query; None if it does not exist yet. The ledger is read after the table.

    Raises:
        Retryable: The catalog can't be read now.
    """
    lake = project.lake_of(pipeline)
    table = lake.find_table(pipeline.dead_letters_table)
    if table is None:
        return None
    ledger_rows = rows() if rows is not None else read_letter_rows(lake, pipeline.ledger_table, pipeline.name)
    past = letter_history(ledger_rows)
    topics = Position.from_json(ledger_rows[-1]["position"]).topics if ledger_rows else {}
    return OpenTable(table, LetterQuestion(choice, state, untimed, past.taken_back), past, topics)


def letter_of(row: dict[str, Any], taken_back: frozenset[int]) -> DeadLetter:
    """A letter from its row with the columns `LISTED`. `taken_back`: rolled-back batches, whose letters are open again."""
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
        destination=row["destination"],
    )


def _no_row(_: DeadLetter) -> None:
    return None


def _row_finder(project: Project, pipeline: Pipeline, letters_table: OpenTable) -> Callable[[DeadLetter], int | None]:
    """A function that returns `row_batch` of a letter. It reads tables only if the dead-letter table may have lost marks."""
    if not letters_table.past.landing_batches or not letters_table.past.may_lack_marks:
        return _no_row
    pipeline = project.with_auto_created(pipeline)
    lake = project.lake_of(pipeline)
    destinations = {name: table for name in pipeline.tables if (table := lake.find_table(name)) is not None}
    landed = landed_rows(pipeline, destinations, letters_table.past)

    def row_batch_of(letter: DeadLetter) -> int | None:
        topic = letters_table.topics.get(letter.topic)
        if letter.landed_batch is not None or topic is None or (letter.batch or 0) < topic.since:
            return None
        return landed.batch_of(letter.place, letter.destination, topic.since)

    return row_batch_of


def _rows(
    pipeline: Pipeline,
    letters_table: OpenTable,
    columns: tuple[str, ...],
    limit: int | None = None,
    after: LetterMark | None = None,
) -> tuple[list[dict[str, Any]], bool]:
    """The first letters after a mark, in order, as rows; and whether there are more."""
    question = letters_table.question if after is None else replace(letters_table.question, newest=after.batch)
    newest, has_more = _newest(
        letter_files(letters_table.table, pipeline.dead_letters_table, question, columns), limit, after
    )
    return with_python_times(newest).to_pylist(), has_more


def _newest(files: Iterable[LetterFile], limit: int | None, after: LetterMark | None = None) -> tuple[pa.Table, bool]:
    """The first letters after a mark, in order, as a table; and whether there are more."""
    newest: pa.Table | None = None
    has_more = False
    for file in files:
        if newest is not None and limit is not None and newest.num_rows == limit and _is_older(file, newest):
            return newest, True  # perhaps wrongly: the files that are left may have no letter that fits
        for batch in file.batches:
            part = _letters_after(pa.Table.from_batches([batch]), after)
            whole = (part if newest is None else pa.concat_tables([newest, part])).sort_by(_ORDER)
            newest = whole if limit is None else whole.slice(0, limit)
            has_more = has_more or whole.num_rows > newest.num_rows
    return (pa.table({}) if newest is None else newest), has_more


def _letters_after(letters: pa.Table, mark: LetterMark | None) -> pa.Table:
    if mark is None:
        return letters
    is_after = [
        batch is not None and mark.batch is not None and batch < mark.batch
        for batch in letters.column("_frazil_batch").to_pylist()
    ]
    unsure = [number for number, sure in enumerate(is_after) if not sure]  # mostly letters of the mark's own batch, few
    for number, place in zip(unsure, letters.select(_MARK).take(unsure).to_pylist() if unsure else (), strict=True):
        is_after[number] = LetterMark(*place.values()).order > mark.order
    return letters.filter(pa.array(is_after, pa.bool_()))


def _is_older(file: LetterFile, letters: pa.Table) -> bool:
    last = letters.column("_frazil_batch")[-1].as_py() if letters.num_rows else None
    return last is not None and file.newest is not None and file.newest < last


def _whole(
    row: dict[str, Any], taken_back: frozenset[int], row_batch_of: Callable[[DeadLetter], int | None]
) -> WholeLetter:
    letter = letter_of(row, taken_back)
    headers = tuple((header["key"], header["value"]) for header in row["headers"] or ())
    return WholeLetter(replace(letter, row_batch=row_batch_of(letter)), row["stage"], row["key"], row["value"], headers)


def declared_names(pipeline: Pipeline) -> DeclaredNames:
    """Names of fields that the pipeline file itself declares, without those of a registry, a schema file or a table."""
    value = DeclaredNames()
    key, header = value.child(["key"]), value.child(["header"])  # paths of dead letters begin with these parts
    for destination in pipeline.destinations:
        for field in declared_columns(destination) if destination.columns else ():
            if (column := destination.columns.get(field.name)) is not None:
                names = {"value": value, "key": key, "header": header}[column.part]
                names.child(column.source or (field.name,)).add_type(field.type)
    for decoding, names in ((pipeline.value, value), (pipeline.key, key)):
        fields = None if decoding is None else decoding.fields
        if isinstance(fields, dict):
            names.add_type(pa.struct([pa.field(name, arrow_type(parse_type(type_))) for name, type_ in fields.items()]))
        elif isinstance(fields, tuple):
            names.add_type(pa.struct([pa.field(name, pa.string()) for name in fields]))
    return value
