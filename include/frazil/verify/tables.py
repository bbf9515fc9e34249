"""The tables of a pipeline, those that it created itself included, opened for this check alone, each pinned to one snapshot."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeVar

import pyarrow as pa
from pyiceberg.expressions import (
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThanOrEqual,
    LessThan,
)
from pyiceberg.io.pyarrow import ArrowScan, _read_all_delete_files
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from frazil.errors import Retryable, Terminal
from frazil.pipeline.files.references import References
from frazil.pipeline.models.pipeline_file import KafkaColumns, Pipeline
from frazil.pipeline.models.value import Column
from frazil.pipeline.settings.catalogs import CatalogSettings
from frazil.project import Project
from frazil.verify.catalogs import Catalogs, FileGone, reading_tables
from frazil.verify.facts.coverage import rolled_back
from frazil.verify.facts.dead_letter_filter import letters_of, not_landed
from frazil.verify.facts.ledger import Batch, Position, absent_from, batches_of, position_of, view
from frazil.verify.facts.result import Difference
from frazil.verify.facts.snapshot_facts import SnapshotFacts, altered_reasons, repeated_rows, take_back, with_configs
from frazil.verify.former_files import NO_FORMER_FILES, FormerFiles, former_files, present_names
from frazil.verify.values.evolved_schema import Since, columns_of, earlier_schemas, grows
from frazil.verify.values.typed_expectation import SchemasOf, no_registry

ROUNDS = 3
"""How often the tables are loaded until they show one batch: a run may be rolling one forward."""

LETTER_COLUMNS = KafkaColumns(topic="topic", partition="partition", offset="offset", timestamp="timestamp")
"""Where dead letters say which record they are."""

_POSITION = "kafka.offsets."
"""What the key of a position begins with; the name of the pipeline follows."""

_MANIFEST = "frazil.manifest"
"""Key in summaries: where the manifest of the batch lies."""

_TOPICS, _CLOSING = "frazil.topics.", "frazil.closing."
"""What the keys of the topics begin with that a pipeline reads into a follower, and of its closing table's name."""

_LEDGER_COLUMNS = (
    *("n", "batch", "kind", "role", "table", "config", "rows", "position"),
    *("records_read", "records_written", "records_dead", "records_filtered"),
    *(
        "ranges",
        "skipped",
        "removed",
        "abandoned",
        "dead_codes",
        "table_written",
        "table_dead",
        "table_ranges",
        "snapshot_id",
    ),
)


@dataclass(frozen=True)
class Held:
    """A table, the columns that say which record a row is, and which rows count as outcomes."""

    table: Table
    name: str
    columns: KafkaColumns
    outcomes: BooleanExpression = field(default_factory=AlwaysTrue)


@dataclass(frozen=True)
class Tables:
    """What a pipeline wrote, as of one moment.

    Attributes:
        destination: The table of rows.
        closing: Name of the closing table: a destination, or the ledger.
        letters: The dead letters.
        batches: The ledger.
        summary: Position in the snapshots of the closing table, None once they are expired.
        mirrored: Position in its property.
        done: Number of the batch that the ledger's own mark names; None if it has none.
        others: Topics of other pipelines that land into the destination.
        columns: Those of the destination that are compared.
        earlier: Number of a batch that may have landed while it had other ones -> what they have become since.
        former: Other pipeline files that batches ran under.
        denied: What the ledger says of the destination, and its snapshots deny.
        doubled: Rows of the ledger that can't be: several for one batch and table, or a destination left out that the file names.
        decided: What the snapshots of the closing table say.
    """

    destination: Held
    letters: Held
    closing: str
    batches: list[Batch]
    summary: Position | None
    mirrored: Position | None
    done: int | None
    others: frozenset[str] = frozenset()
    columns: Mapping[str, Column] = field(default_factory=dict)
    earlier: Mapping[int, Since] = field(default_factory=dict)
    former: FormerFiles = NO_FORMER_FILES
    denied: Sequence[Difference] = ()
    doubled: Sequence[Difference] = ()
    decided: SnapshotFacts = field(default_factory=lambda: SnapshotFacts(""))

    @property
    def n(self) -> int | None:
        """Number of the batch that the closing table holds last."""
        found = self.summary or self.mirrored
        return None if found is None else found.n

    @property
    def finished(self) -> int | None:
        """Number of the batch that the ledger holds last."""
        return self.batches[-1].n if self.batches else None


NO_REFERENCES: Final = References({}, {})


@dataclass(frozen=True)
class LedgerReads:
    """What was read of ledgers, by the location of their metadata: all destinations look at the same.

    Attributes:
        references: What references in pipeline files stand for.
        schemas: Knows the registries that formats need.
        rows: Rows of the pipeline, each with the hash of the pipeline file that its snapshot names.
        of_table: The same as they are written, by the location and the table.
        former: Other pipeline files that its batches ran under.
        doubled: Rows that can't be: several for one batch and table, or a destination left out that the file names.
    """

    references: References = NO_REFERENCES
    schemas: SchemasOf = no_registry
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    former: dict[str, dict[str, Pipeline | str]] = field(default_factory=dict)
    of_table: dict[tuple[str, str], list[dict[str, Any]]] = field(default_factory=dict)
    doubled: dict[str, list[Difference]] = field(default_factory=dict)

    def rows_of(self, table: str) -> list[dict[str, Any]]:
        """Rows of a table, as the ledger that was read last has them."""
        return self.of_table.get((next(reversed(self.rows)), table), [])


def open_tables(
    pipeline: Pipeline,
    settings: Mapping[str, CatalogSettings],
    name: str,
    columns: KafkaColumns,
    known: LedgerReads | None = None,
) -> Tables:
    """Load the tables as one destination sees them, again if a run ended a batch in between.

    Args:
        pipeline: The pipeline.
        settings: Its catalogs.
        name: The destination.
        columns: Its columns that say which record a row is.
        known: What was read of ledgers already; takes what is read here.

    Raises:
        Terminal: A table is missing, or does not have the declared columns.
        Retryable: The catalog or the storage is not available now, or runs don't stop landing batches.
    """
    catalogs, known = Catalogs(pipeline, settings), LedgerReads() if known is None else known
    tables = _load(catalogs, pipeline, name, columns, known)
    for _ in range(ROUNDS):
        # Letters that a rival lands between two of our looks would have no batch: look whether it still stands.
        if tables.n == tables.finished and _position_now(catalogs, pipeline, tables.closing) == (
            tables.summary,
            tables.mirrored,
        ):
            return tables
        tables = _load(catalogs, pipeline, name, columns, known)
    if tables.n == tables.finished:
        raise Retryable(
            f"pipeline {pipeline.name}: a run kept landing batches over {ROUNDS} looks at its tables",
            next_step="verify between two runs",
        )
    return tables


def kafka_columns_of(pipeline: Pipeline, name: str) -> KafkaColumns:
    """Columns of a destination that say which record a row is.

    Raises:
        Terminal: It has none.
    """
    destination = pipeline.destination(name)
    if not destination.kafka_columns:
        raise Terminal(
            f"pipeline {pipeline.name} lands rows without Kafka columns (kafka_columns: false), so no row of"
            f" {destination.table} can be told to be a record's",
            next_step=f"compare the counts per batch (frazil history {pipeline.name}), or land into a table with them",
        )
    return destination.kafka_columns


def _load(catalogs: Catalogs, pipeline: Pipeline, name: str, columns: KafkaColumns, known: LedgerReads) -> Tables:
    declared = pipeline.destination(name)
    # The ledger comes last in a batch, so it is read last: what it names is in the others.
    destination = catalogs.table(name)
    letters = catalogs.table(pipeline.dead_letters_table)
    ledger = catalogs.table(pipeline.ledger_table)
    _require(destination, declared.table, [*declared.columns, *declared.added_columns])
    at = ledger.metadata_location
    first = pipeline.ledger_table if pipeline.create is not None else pipeline.destinations[0].table
    closing = ledger.metadata.properties.get(_CLOSING + pipeline.name, first)
    closes = {name: destination, pipeline.ledger_table: ledger}.get(closing) or catalogs.table(closing)
    positions = _positions(closes, pipeline, closing)
    decided = SnapshotFacts.of(closing, closes.metadata, pipeline.name)
    if at not in known.rows:
        written = list(_ledger_rows(ledger, pipeline))
        for row in written:
            known.of_table.setdefault((at, row["table"]), []).append(row)
        known.doubled[at] = list(repeated_rows(written))
        known.rows[at] = with_configs(written, decided)
        hashes, made = {row["config"] for row in known.rows[at]}, _made_tables(ledger, pipeline)
        known.former[at] = former_files(ledger, pipeline, hashes, known.references, made)
        files = known.former[at] | {pipeline.outcome_fingerprint: pipeline}
        named = {config: of.tables for config, of in files.items() if not isinstance(of, str)}
        known.doubled[at] += take_back(known.rows[at], named)
    rows = known.rows[at]
    batches = batches_of(view(rows, name), pipeline.ledger_table)
    facts, undone = SnapshotFacts.of(name, destination.metadata, pipeline.name), rolled_back(batches)
    return Tables(
        Held(destination, declared.table, columns),
        Held(
            letters,
            pipeline.dead_letters_table,
            LETTER_COLUMNS,
            letters_of(letters, name, not_landed(letters.schema(), batches), absent_from(rows, name)),
        ),
        closing,
        batches,
        *positions,
        _done(ledger.metadata, pipeline),
        _topics_of_others(destination.metadata, pipeline, name),
        columns_of(declared, destination.schema(), pipeline.value),
        earlier_schemas(rows, name, destination.metadata) if grows(declared) else {},
        FormerFiles(known.former[at], destination.schema(), present_names(destination.metadata), known.schemas),
        list(facts.differences(known.of_table.get((at, name), ()), undone)),
        known.doubled[at],
        decided,
    )


def denied_beside(tables: Tables, pipeline: Pipeline, known: LedgerReads) -> Iterator[Difference]:
    """What the ledger says of the tables beside the destinations, and is denied; and letters whose reason was altered."""
    yield from tables.doubled
    undone, letters = rolled_back(tables.batches), tables.letters.table
    beside = [SnapshotFacts.of(tables.letters.name, letters.metadata, pipeline.name)]
    if tables.closing == pipeline.ledger_table:
        beside.append(tables.decided)
    for of in beside:
        yield from of.differences(known.rows_of(of.table), undone)
    yield from altered_reasons(letters.metadata, partial(_rows_at, letters, tables.letters.name))


def _rows_at(table: Table, name: str, snapshot: int, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Rows of a snapshot, up to the first file that is gone: one whose files were taken is as good as expired."""
    there = {of.name for of in table.schema().fields}
    past = copy(table)
    past.metadata = table.metadata.model_copy(update={"current_snapshot_id": snapshot})
    absent = dict.fromkeys(columns)
    with suppress(FileGone):
        for batch in scan(Held(past, name, LETTER_COLUMNS), None, [of for of in columns if of in there]):
            yield from ({**absent, **row} for row in batch.to_pylist())


def _position_now(catalogs: Catalogs, pipeline: Pipeline, closing: str) -> tuple[Position | None, Position | None]:
    return _positions(catalogs.table(closing), pipeline, closing)


def _positions(closes: Table, pipeline: Pipeline, table: str) -> tuple[Position | None, Position | None]:
    """The position by the snapshots of the closing table, and the one in its property."""
    key = _POSITION + pipeline.name
    return _in_snapshots(closes, key, table), _in_property(closes.metadata, key, table)


def _require(table: Table, name: str, columns: Sequence[str]) -> None:
    there = {field.name for field in table.schema().fields}
    if missing := [column for column in columns if column not in there]:
        raise Terminal(
            f"table {name} has no column {', '.join(missing)}, which the pipeline file declares",
            next_step="change the pipeline file, or alter the table: frazil run says what does not fit",
        )


def _ledger_rows(ledger: Table, pipeline: Pipeline) -> Iterator[dict[str, Any]]:
    there = {field.name for field in ledger.schema().fields}  # older ledgers have fewer
    held = Held(ledger, pipeline.ledger_table, LETTER_COLUMNS)
    for batch in scan(held, equals("pipeline", pipeline.name), [name for name in _LEDGER_COLUMNS if name in there]):
        yield from batch.to_pylist()


def _in_snapshots(closes: Table, key: str, table: str) -> Position | None:
    """The position of the newest snapshot of main that tells of one; None if its manifest is gone: Iceberg's own removal of
    orphan files takes those of old batches.
    """
    metadata = closes.metadata
    by_id = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    head = metadata.current_snapshot()
    while head is not None:
        if head.summary is not None and (text := head.summary.additional_properties.get(key)) is not None:
            where = f"snapshot {head.snapshot_id} of {table}"
            path = head.summary.additional_properties.get(_MANIFEST)
            if json.loads(text).get("v") == 1:  # older snapshots carry the whole position
                return position_of(text, where)
            return None if path is None else _in_manifest(closes, path, where)
        head = None if head.parent_snapshot_id is None else by_id.get(head.parent_snapshot_id)
    return None


def _in_manifest(closes: Table, path: str, where: str) -> Position | None:
    with reading_tables(f"reading manifest {path}"):
        try:
            with closes.io.new_input(path).open() as stream:
                body = json.loads(stream.read())
        except FileNotFoundError:
            return None
    return position_of(str(body["position"]), where)


def _in_property(metadata: TableMetadata, key: str, table: str) -> Position | None:
    value = _mirrored(metadata, key, table)
    return None if value is None else position_of(value, f"property {key} of {table}")


def _topics_of_others(metadata: TableMetadata, pipeline: Pipeline, table: str) -> frozenset[str]:
    keys = [key for key in metadata.properties if key.startswith(_POSITION) and key != _POSITION + pipeline.name]
    found = [position for key in keys if (position := _in_property(metadata, key, table)) is not None]
    others = [key for key in metadata.properties if key.startswith(_TOPICS) and key != _TOPICS + pipeline.name]
    read = [json.loads(_mirrored(metadata, key, table) or "[]") for key in others]
    return frozenset(topic for position in found for topic in position.topics) | {topic for of in read for topic in of}


def _done(metadata: TableMetadata, pipeline: Pipeline) -> int | None:
    value = _mirrored(metadata, f"frazil.done.{pipeline.name}", pipeline.ledger_table)
    return None if value is None else int(json.loads(value)["n"])


def _mirrored(metadata: TableMetadata, key: str, table: str) -> str | None:
    """A value that a property keeps, beside the id of the snapshot that brought it."""
    text = metadata.properties.get(key)
    if text is None:
        return None
    try:
        return str(json.loads(text)["value"])
    except (ValueError, KeyError, TypeError) as error:
        raise Terminal(
            f"property {key} of {table} can't be read: {text[:200]!r}", next_step="was it edited by hand?"
        ) from error


def equals(column: str, value: str | int) -> BooleanExpression:
    """The filter `column = value`."""
    return EqualTo(column, value)  # type: ignore[call-arg, arg-type]  # mypy sees the model's fields, not its __init__


def within(held: Held, topic: str, partition: int, start: int, end: int | None) -> BooleanExpression:
    """The filter for offsets `start` <= o < `end` of one partition; no end stands for no bound."""
    names = held.columns
    place = And(equals(names.topic, topic), equals(names.partition, partition))
    found = And(place, GreaterThanOrEqual(names.offset, start))  # type: ignore[call-arg, arg-type]
    return found if end is None else And(found, LessThan(names.offset, end))  # type: ignore[call-arg, arg-type]


def scan(held: Held, where: BooleanExpression | None, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Rows of a table, batch by batch. One file is open at a time: PyIceberg's own way decodes several ahead, as a whole.

    Raises:
        Retryable: The storage is not available now.
        FileGone: A file is gone.
        Terminal: A file can't be read.
    """
    with reading_tables(f"reading table {held.name}"):
        wanted = held.outcomes if where is None else And(where, held.outcomes)
        asked = held.table.scan(row_filter=wanted, selected_fields=tuple(columns))
        asked.catalog = None  # a server that plans scans would plan one of main, as it is by then
        rows = ArrowScan(held.table.metadata, held.table.io, asked.projection(), asked.row_filter)
        for task in asked.plan_files():
            deletes = _read_all_delete_files(held.table.io, [task])
            yield from rows._record_batches_from_scan_tasks_and_deletes([task], deletes)  # noqa: SLF001 - a contract test pins it


T = TypeVar("T")

NOT_MADE = "TABLE_NOT_MADE"
"""Code of a letter whose record names a table that its batch could not make; a later one may have."""

_MADE = "frazil.made."
"""What the key of their names begins with; the name of the pipeline follows."""


def steady(project: Project, pipeline: Pipeline, opened: Callable[[Pipeline], T]) -> tuple[Pipeline, T]:
    """The pipeline with the tables that it made, and these opened: again if a run made one meanwhile.

    Raises:
        Terminal: As `with_made`.
        Retryable: The catalog is not available now, or runs don't stop making tables.
    """
    told = with_made(project, pipeline)
    for _ in range(ROUNDS):
        found, now = opened(told), with_made(project, told)
        if now.auto_created == told.auto_created:
            return told, found
        told = now
    raise Retryable(
        f"pipeline {pipeline.name}: runs kept making tables over {ROUNDS} looks at them",
        next_step="verify between two runs",
    )


def _made_tables(ledger: Table, pipeline: Pipeline) -> tuple[str, ...]:
    """Names of the tables that a pipeline made, whatever its file says by now."""
    text = ledger.metadata.properties.get(_MADE + pipeline.name)
    try:
        return tuple(json.loads(json.loads(text)["value"])) if text is not None else ()
    except (ValueError, KeyError, TypeError) as error:
        raise Terminal(
            f"table {pipeline.ledger_table}: property {_MADE}{pipeline.name} is not readable: {text!r}",
            next_step="was it edited by hand?",
        ) from error


def with_made(project: Project, pipeline: Pipeline) -> Pipeline:
    """The pipeline with the tables that it made.

    Raises:
        Terminal: There is no ledger, it is not readable, or there is no table at all yet.
        Retryable: The catalog is not available now.
    """
    if pipeline.create is None or pipeline.home_catalog not in project.settings.catalogs:
        return pipeline
    ledger = Catalogs(pipeline, project.settings.catalogs).table(pipeline.ledger_table)
    told = pipeline.with_made(_made_tables(ledger, pipeline))
    if not told.tables:
        raise Terminal(
            f"pipeline {pipeline.name} has no table yet: no record named one that could be made",
            next_step=f"frazil dead-letters {pipeline.name} says what became of its records",
        )
    return told


def with_key(pipeline: Pipeline, name: str, table: Table) -> Pipeline:
    """The pipeline with the key of one destination; what its file is known by stays the same.

    Raises:
        Terminal: Rows are merged, and neither the file nor the table says by what.
    """
    destination = pipeline.destination(name)
    if destination.identifier or not destination.is_merged:
        return pipeline
    found = tuple(sorted(table.schema().identifier_field_names()))
    if not found:
        raise Terminal(
            f"table {name} has no identifier fields, and the pipeline file names no identifier: nothing says which rows are one",
            next_step="name the columns under identifier",
        )
    keyed = [of.keyed(found) if of.table == name else of for of in pipeline.destinations]
    return pipeline.model_copy(update={"destinations": tuple(keyed)})


def letters_of_topics(
    held: Held, topics: Collection[str]
) -> Iterator[tuple[int | None, tuple[str, int, int], str, int | None]]:
    """Batch number, record, code and attempts of each dead letter of these topics, whatever became of it."""
    there = {of.name for of in held.table.schema().fields}
    columns = ["topic", "partition", "offset", "code", "_frazil_batch", *({"attempts"} & there)]
    for batch in scan(replace(held, outcomes=AlwaysTrue()), None, columns):
        for row in batch.to_pylist():
            if row["topic"] in topics:
                place = row["topic"], row["partition"], row["offset"]
                yield row["_frazil_batch"], place, row["code"], row.get("attempts")
