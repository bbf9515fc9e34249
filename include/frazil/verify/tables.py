"""Opens the tables of a pipeline, including auto-created ones, for one check, each pinned to one snapshot."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeVar

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, EqualTo, GreaterThanOrEqual, LessThan
from pyiceberg.io.pyarrow import ArrowScan, _read_all_delete_files
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from frazil.error_codes import BAD_STATE, NEVER_RAN, REPLAY_REFUSED, ROW_KEY_UNKNOWN, RUN_OVERTAKEN, TABLE_UNFIT
from frazil.pipeline.files.files import References
from frazil.pipeline.models.pipeline_file import KafkaColumns, Pipeline
from frazil.pipeline.models.value import Column
from frazil.pipeline.settings.catalogs import CatalogSettings
from frazil.project import Project
from frazil.verify.catalogs import Catalogs, FileGone, reading_tables
from frazil.verify.facts.coverage import rolled_back_batches
from frazil.verify.facts.ledger import Batch, Position, absent_batches, destination_view, parse_position, read_batches
from frazil.verify.facts.result import Difference
from frazil.verify.facts.snapshot_facts import (
    SnapshotFacts,
    altered_reasons,
    ancestry,
    letters_filter,
    repeated_rows,
    restore_roles,
    summary_of,
    unlanded_filter,
    with_configs,
)
from frazil.verify.former_files import NO_FORMER_FILES, FormerFiles, former_files, present_names
from frazil.verify.values.column_readers import ColumnChanges, compared_columns, earlier_schemas, has_undeclared_columns
from frazil.verify.values.typed_expectation import SchemasOf

ROUNDS = 3
"""Most repeated loads of the tables until all show the same batch: a run may be finishing one."""

LETTER_COLUMNS = KafkaColumns(topic="topic", partition="partition", offset="offset", timestamp="timestamp")
"""Columns of dead letters that name their record."""

_POSITION = "kafka.offsets."
"""Prefix of the property key of a position; the name of the pipeline follows."""

_MANIFEST = "frazil.manifest"
"""Key in summaries: path of the batch's manifest."""

_TOPICS, _CLOSING = "frazil.topics.", "frazil.closing."
"""Prefixes of property keys: the topics that a pipeline writes into a follower, and the name of its closing table."""

_CREATED = "frazil.made."
"""Prefix of the property key of the names of auto-created tables."""

_EDITED: Final = "it was probably edited by hand: take its text from an older metadata file of the table"

TABLE_NOT_MADE = "TABLE_NOT_MADE"
"""Code of a dead letter whose record names a table that its batch could not create; a later batch may have created it."""

_LEDGER_COLUMNS = (
    *("n", "batch", "kind", "role", "table", "config", "rows", "position"),
    *("records_read", "records_written", "records_dead", "records_filtered"),
    *("ranges", "skipped", "removed", "abandoned", "dead_codes", "table_written", "table_dead", "table_ranges"),
    "snapshot_id",
)

T = TypeVar("T")


@dataclass(frozen=True)
class ScannedTable:
    """A table to scan, with the columns that name the record of a row, and the filter for rows that count as outcomes."""

    table: Table
    name: str
    columns: KafkaColumns
    outcomes: BooleanExpression = field(default_factory=AlwaysTrue)


@dataclass(frozen=True)
class Tables:
    """The tables of a pipeline as of one batch.

    Attributes:
        destination: The table of rows.
        letters: The table of dead letters.
        closing: Name of the closing table: a destination, or the ledger.
        batches: The batches of the ledger, as the destination sees them.
        summary: The position in the snapshots of the closing table; None once they are expired.
        property_position: The position in the property of the closing table.
        finished_by_mark: Number of the last finished batch by the property of the ledger; None without that property.
        foreign_topics: Topics of other pipelines that write into the destination.
        columns: Columns of the destination that are compared.
        earlier: Number of a batch that may have landed while the table had other columns -> how they changed since.
        former: Former pipeline files that batches ran under.
        contradictions: Differences between the ledger and the snapshots of the destination.
        impossible_rows: Differences within the ledger: several rows of one batch and table, or role `left` for a destination.
        closing_snapshots: The batches that the snapshots of the closing table name.
    """

    destination: ScannedTable
    letters: ScannedTable
    closing: str
    batches: list[Batch]
    summary: Position | None
    property_position: Position | None
    finished_by_mark: int | None
    foreign_topics: frozenset[str] = frozenset()
    columns: Mapping[str, Column] = field(default_factory=dict)
    earlier: Mapping[int, ColumnChanges] = field(default_factory=dict)
    former: FormerFiles = NO_FORMER_FILES
    contradictions: Sequence[Difference] = ()
    impossible_rows: Sequence[Difference] = ()
    closing_snapshots: SnapshotFacts = field(default_factory=lambda: SnapshotFacts(""))

    @property
    def positions(self) -> tuple[Position | None, Position | None]:
        """The position by the snapshots of the closing table, and the one in its property."""
        return self.summary, self.property_position

    @property
    def n(self) -> int | None:
        """Number of the last batch that the closing table contains."""
        position = self.summary or self.property_position
        return None if position is None else position.n

    @property
    def finished(self) -> int | None:
        """Number of the last batch by the ledger."""
        return self.batches[-1].n if self.batches else None


@dataclass(frozen=True)
class LedgerRead:
    """A pipeline's entries in a ledger.

    Attributes:
        rows: The entries, each with the hash of the pipeline file that its snapshot names.
        written: Table -> its entries, unchanged.
        former: Hash -> former pipeline that batches ran under, or the reason why it is unknown.
        impossible_rows: Differences within the ledger: several rows of one batch and table, or role `left` for a destination.
    """

    rows: list[dict[str, Any]]
    written: Mapping[str, list[dict[str, Any]]]
    former: Mapping[str, Pipeline | str]
    impossible_rows: Sequence[Difference]


@dataclass(frozen=True)
class LedgerReads:
    """Reads of the ledger, which all destinations share.

    Attributes:
        references: Resolves references in former pipeline files.
        schemas: Returns the schemas of a registry, for the formats of former pipeline files.
        by_location: Location of the ledger's metadata -> what was read, the last one last.
    """

    references: References
    schemas: SchemasOf
    by_location: dict[str, LedgerRead] = field(default_factory=dict)

    @property
    def last(self) -> LedgerRead:
        """The ledger that was read last."""
        return self.by_location[next(reversed(self.by_location))]


def open_tables(
    pipeline: Pipeline,
    settings: Mapping[str, CatalogSettings],
    name: str,
    columns: KafkaColumns,
    reads: LedgerReads,
) -> Tables:
    """Load the tables as one destination sees them; again if a run finished a batch in between.

    Raises:
        Terminal: A table is missing, or does not have the declared columns.
        Retryable: The catalog or the storage is not available now, or runs don't stop landing batches.
    """
    catalogs = Catalogs(pipeline, settings)
    tables = _load(catalogs, pipeline, name, columns, reads)
    for _ in range(ROUNDS):
        # A concurrent run may land dead letters between these loads, of a batch that the ledger read lacks: compare positions.
        is_finished = tables.n == tables.finished
        if is_finished and _positions(catalogs.table(tables.closing), pipeline, tables.closing) == tables.positions:
            return tables
        tables = _load(catalogs, pipeline, name, columns, reads)
    if tables.n == tables.finished:
        raise RUN_OVERTAKEN.retryable(
            f"pipeline {pipeline.name}: a run landed batches between all {ROUNDS} reads of its tables",
            next_step="verify between two runs",
        )
    return tables


def kafka_columns_of(pipeline: Pipeline, name: str) -> KafkaColumns:
    """Columns of a destination that name the record of a row.

    Raises:
        Terminal: It has none.
    """
    destination = pipeline.destination(name)
    if not destination.kafka_columns:
        raise REPLAY_REFUSED.terminal(
            f"pipeline {pipeline.name} lands rows without Kafka columns (kafka_columns: false), so no row of"
            f" {destination.table} can be matched with a record",
            next_step=f"compare the counts per batch (frazil history {pipeline.name}), or land into a table with them",
        )
    return destination.kafka_columns


def _load(catalogs: Catalogs, pipeline: Pipeline, name: str, columns: KafkaColumns, reads: LedgerReads) -> Tables:
    declared = pipeline.destination(name)
    # A batch writes the ledger last, so the ledger is loaded last: the other tables then have all rows that it counts.
    destination = catalogs.table(name)
    letters = catalogs.table(pipeline.dead_letters_table)
    ledger = catalogs.table(pipeline.ledger_table)
    _require_columns(destination, declared.table, [*declared.columns, *declared.added_columns])
    location = ledger.metadata_location
    default = pipeline.ledger_table if pipeline.create is not None else pipeline.destinations[0].table
    closing = ledger.metadata.properties.get(_CLOSING + pipeline.name, default)
    closing_table = {name: destination, pipeline.ledger_table: ledger}.get(closing) or catalogs.table(closing)
    positions = _positions(closing_table, pipeline, closing)
    decided = SnapshotFacts.from_metadata(closing, closing_table.metadata, pipeline.name)
    if location not in reads.by_location:
        reads.by_location[location] = _read_ledger(ledger, pipeline, decided, reads.references)
    read = reads.by_location[location]
    rows = read.rows
    batches = read_batches(destination_view(rows, name), pipeline.ledger_table)
    facts, undone = SnapshotFacts.from_metadata(name, destination.metadata, pipeline.name), rolled_back_batches(batches)
    return Tables(
        ScannedTable(destination, declared.table, columns),
        ScannedTable(
            letters,
            pipeline.dead_letters_table,
            LETTER_COLUMNS,
            letters_filter(letters, name, unlanded_filter(letters.schema(), batches), absent_batches(rows, name)),
        ),
        closing,
        batches,
        *positions,
        _finished_by_mark(ledger.metadata, pipeline),
        _foreign_topics(destination.metadata, pipeline, name),
        compared_columns(declared, destination.schema(), pipeline.value),
        earlier_schemas(rows, name, destination.metadata) if has_undeclared_columns(declared) else {},
        FormerFiles(read.former, destination.schema(), present_names(destination.metadata), reads.schemas),
        list(facts.differences(read.written.get(name, ()), undone)),
        read.impossible_rows,
        decided,
    )


def _read_ledger(ledger: Table, pipeline: Pipeline, decided: SnapshotFacts, references: References) -> LedgerRead:
    every_row = list(_ledger_rows(ledger, pipeline))
    written: dict[str, list[dict[str, Any]]] = {}
    for row in every_row:
        written.setdefault(row["table"], []).append(row)
    rows = with_configs(every_row, decided)
    hashes = {row["config"] for row in rows}
    former = former_files(ledger, pipeline, hashes, references, _created_tables(ledger, pipeline))
    files = {**former, pipeline.outcome_fingerprint: pipeline}
    named = {config: file.tables for config, file in files.items() if not isinstance(file, str)}
    return LedgerRead(rows, written, former, [*repeated_rows(every_row), *restore_roles(rows, named)])


def other_contradictions(tables: Tables, pipeline: Pipeline, reads: LedgerReads) -> Iterator[Difference]:
    """Contradictions of the tables beside the destinations: ledger, dead letters and their reasons, closing table."""
    yield from tables.impossible_rows
    undone, letters = rolled_back_batches(tables.batches), tables.letters.table
    snapshot_facts = [SnapshotFacts.from_metadata(tables.letters.name, letters.metadata, pipeline.name)]
    if tables.closing == pipeline.ledger_table:
        snapshot_facts.append(tables.closing_snapshots)
    for facts in snapshot_facts:
        yield from facts.differences(reads.last.written.get(facts.table, ()), undone)
    yield from altered_reasons(letters.metadata, partial(_rows_of_snapshot, letters, tables.letters.name))


def _rows_of_snapshot(table: Table, name: str, snapshot: int, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Rows of a snapshot, up to the first missing file: a snapshot without its files counts as expired."""
    present = {field.name for field in table.schema().fields}
    past = copy(table)
    past.metadata = table.metadata.model_copy(update={"current_snapshot_id": snapshot})
    absent = dict.fromkeys(columns)
    with suppress(FileGone):
        scanned = ScannedTable(past, name, LETTER_COLUMNS)
        for batch in scan(scanned, None, [column for column in columns if column in present]):
            yield from ({**absent, **row} for row in batch.to_pylist())


def _positions(closing: Table, pipeline: Pipeline, name: str) -> tuple[Position | None, Position | None]:
    """The position in the snapshots of the closing table, and the one in its property."""
    key = _POSITION + pipeline.name
    return _snapshot_position(closing, key, name), _property_position(closing.metadata, key, name)


def _require_columns(table: Table, name: str, columns: Sequence[str]) -> None:
    present = {field.name for field in table.schema().fields}
    if missing := [column for column in columns if column not in present]:
        raise TABLE_UNFIT.terminal(
            f"table {name} has no column {', '.join(missing)}, which the pipeline file declares",
            next_step="change the pipeline file, or alter the table: frazil run says what does not fit",
        )


def _ledger_rows(ledger: Table, pipeline: Pipeline) -> Iterator[dict[str, Any]]:
    present = {field.name for field in ledger.schema().fields}  # older ledgers have fewer
    scanned = ScannedTable(ledger, pipeline.ledger_table, LETTER_COLUMNS)
    columns = [name for name in _LEDGER_COLUMNS if name in present]
    for batch in scan(scanned, equals("pipeline", pipeline.name), columns):
        yield from batch.to_pylist()


def _snapshot_position(closing: Table, key: str, name: str) -> Position | None:
    """The position of the newest snapshot that has one; None if an orphan removal deleted its manifest file."""
    for head in ancestry(closing.metadata):
        summary = summary_of(head)
        if (text := summary.get(key)) is not None:
            where, path = f"snapshot {head.snapshot_id} of {name}", summary.get(_MANIFEST)
            if json.loads(text).get("v") == 1:  # older snapshots have the whole position
                return parse_position(text, where)
            return None if path is None else _manifest_position(closing, path, where)
    return None


def _manifest_position(closing: Table, path: str, where: str) -> Position | None:
    with reading_tables(f"reading manifest {path}"):
        try:
            with closing.io.new_input(path).open() as stream:
                body = json.loads(stream.read())
        except FileNotFoundError:
            return None
    return parse_position(str(body["position"]), where)


def _property_position(metadata: TableMetadata, key: str, table: str) -> Position | None:
    return _property_value(metadata, key, table, lambda text: parse_position(text, f"property {key} of {table}"))


def _foreign_topics(metadata: TableMetadata, pipeline: Pipeline, table: str) -> frozenset[str]:
    topics: set[str] = set()
    for key in metadata.properties:
        prefix, _, name = key.rpartition(".")
        if name != pipeline.name and f"{prefix}." == _POSITION:
            position = _property_position(metadata, key, table)
            topics.update(() if position is None else position.topics)
        elif name != pipeline.name and f"{prefix}." == _TOPICS:
            topics.update(_property_value(metadata, key, table, _names) or ())
    return frozenset(topics)


def _finished_by_mark(metadata: TableMetadata, pipeline: Pipeline) -> int | None:
    key = f"frazil.done.{pipeline.name}"
    return _property_value(metadata, key, pipeline.ledger_table, lambda text: int(json.loads(text)["n"]))


def _created_tables(ledger: Table, pipeline: Pipeline) -> tuple[str, ...]:
    """Names of the tables that a pipeline created, whether or not its present file would."""
    return _property_value(ledger.metadata, _CREATED + pipeline.name, pipeline.ledger_table, _names) or ()


def _names(text: str) -> tuple[str, ...]:
    names = json.loads(text)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise TypeError("expected a list of names")
    return tuple(names)


def _property_value(metadata: TableMetadata, key: str, table: str, parse: Callable[[str], T]) -> T | None:
    """The parsed value of a property, which is stored as JSON next to the id of the snapshot that set it; None without it.

    Raises:
        Terminal: The property can't be read.
    """
    text = metadata.properties.get(key)
    if text is None:
        return None
    try:
        return parse(str(json.loads(text)["value"]))
    except (ArithmeticError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise BAD_STATE.terminal(
            f"property {key} of {table} can't be read: {text[:200]!r}", next_step=_EDITED
        ) from error


def equals(column: str, value: str | int) -> BooleanExpression:
    """The filter `column = value`."""
    return EqualTo(column, value)  # type: ignore[call-arg, arg-type]  # mypy sees the model's fields, not its __init__


def offset_filter(table: ScannedTable, topic: str, partition: int, start: int, end: int | None) -> BooleanExpression:
    """Filter for offsets `start` <= o < `end` of one partition; an end of None means no upper bound."""
    names = table.columns
    in_partition = And(equals(names.topic, topic), equals(names.partition, partition))
    condition = And(in_partition, GreaterThanOrEqual(names.offset, start))  # type: ignore[call-arg, arg-type]
    return condition if end is None else And(condition, LessThan(names.offset, end))  # type: ignore[call-arg, arg-type]


def scan(table: ScannedTable, where: BooleanExpression | None, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Rows of a table as Arrow batches, with one file open at a time: PyIceberg itself would decode several whole files ahead.

    Raises:
        Retryable: The storage is not available now.
        FileGone: A file no longer exists.
        Terminal: A file can't be read.
    """
    with reading_tables(f"reading table {table.name}"):
        row_filter = table.outcomes if where is None else And(where, table.outcomes)
        table_scan = table.table.scan(row_filter=row_filter, selected_fields=tuple(columns))
        table_scan.catalog = (
            None  # otherwise a REST server may plan the scan, by the present snapshot instead of this one
        )
        rows = ArrowScan(table.table.metadata, table.table.io, table_scan.projection(), table_scan.row_filter)
        for task in table_scan.plan_files():
            deletes = _read_all_delete_files(table.table.io, [task])
            yield from rows._record_batches_from_scan_tasks_and_deletes([task], deletes)  # noqa: SLF001 - a contract test pins it


def open_declared(project: Project, pipeline: Pipeline, open_all: Callable[[Pipeline], T]) -> tuple[Pipeline, T]:
    """The pipeline with its auto-created tables, and the result of `open_all`; called again if a run created a table meanwhile.

    Raises:
        Terminal: As `with_created_tables`.
        Retryable: The catalog is not available now, or runs don't stop creating tables.
    """
    current = with_created_tables(project, pipeline)
    for _ in range(ROUNDS):
        opened, latest = open_all(current), with_created_tables(project, current)
        if latest.auto_created == current.auto_created:
            return current, opened
        current = latest
    raise RUN_OVERTAKEN.retryable(
        f"pipeline {pipeline.name}: runs created tables between all {ROUNDS} reads of them",
        next_step="verify between two runs",
    )


def with_created_tables(project: Project, pipeline: Pipeline) -> Pipeline:
    """The pipeline with its auto-created tables as destinations.

    Raises:
        Terminal: There is no ledger, it can't be read, or there is no table yet.
        Retryable: The catalog is not available now.
    """
    if pipeline.create is None or pipeline.home_catalog not in project.settings.catalogs:
        return pipeline
    ledger = Catalogs(pipeline, project.settings.catalogs).table(pipeline.ledger_table)
    declared = pipeline.with_auto_created(_created_tables(ledger, pipeline))
    if not declared.tables:
        raise NEVER_RAN.terminal(
            f"pipeline {pipeline.name} has no table yet: no record named a table that can be created",
            next_step=f"frazil dead-letters list {pipeline.name} shows the dead letters of its records",
        )
    return declared


def with_key(pipeline: Pipeline, name: str, table: Table) -> Pipeline:
    """The pipeline with the identifier of one destination taken from its table; the fingerprint stays the same.

    Raises:
        Terminal: Rows are merged, and neither the pipeline file nor the table has an identifier.
    """
    destination = pipeline.destination(name)
    if destination.identifier or not destination.is_merged:
        return pipeline
    identifier = tuple(sorted(table.schema().identifier_field_names()))
    if not identifier:
        raise ROW_KEY_UNKNOWN.terminal(
            f"table {name} has no identifier fields, and the pipeline file names no identifier: the key of its rows is unknown",
            next_step="name the columns under identifier",
        )
    destinations = tuple(each.keyed(identifier) if each.table == name else each for each in pipeline.destinations)
    return pipeline.model_copy(update={"destinations": destinations})


def letters_of_topics(
    letters: ScannedTable, topics: Collection[str]
) -> Iterator[tuple[int | None, tuple[str, int, int], str, int | None]]:
    """Batch number, record, code and attempts of each dead letter of these topics, including those that landed later."""
    present = {field.name for field in letters.table.schema().fields}
    columns = ["topic", "partition", "offset", "code", "_frazil_batch", *({"attempts"} & present)]
    for batch in scan(replace(letters, outcomes=AlwaysTrue()), None, columns):
        for row in batch.to_pylist():
            if row["topic"] in topics:
                place = row["topic"], row["partition"], row["offset"]
                yield row["_frazil_batch"], place, row["code"], row.get("attempts")
