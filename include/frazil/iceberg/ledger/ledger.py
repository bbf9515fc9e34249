"""The ledger and the dead-letter table: their schemas, the columns that a newer Frazil adds to them; and reading the ledger, whole or
file by file.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.parquet import ParquetFile
from pyiceberg.conversions import from_bytes
from pyiceberg.expressions import AlwaysTrue, And, EqualTo
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow
from pyiceberg.manifest import DataFile, FileFormat, ManifestContent, ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.types import (
    BinaryType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestamptzType,
)

from frazil.batch.position import check_version
from frazil.error_codes import BAD_TABLE_PROPERTY
from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.commit.removal import compare
from frazil.iceberg.errors import translated

# Data files and manifests never change. So a caller that caches them reads only new ones, whatever happened to the table.

_ALL_NUMBERS: Final = (-(2**63), 2**63 - 1)

_AT_ONCE: Final = 16
"""Files read at the same time: an object store takes tens of milliseconds for each."""

_PIECE: Final = 1_024
"""Rows of a file that are in memory at a time, if only rows of some batches are read."""

_FIELD_ID: Final = b"PARQUET:field_id"

ManifestCache = MutableMapping[str, tuple["LedgerFile", ...]]
"""Path of a manifest -> the files that it lists."""


@dataclass(frozen=True)
class LedgerFile:
    """One file of a ledger.

    Attributes:
        n: Smallest and largest batch number; the widest range if statistics are missing.
        decided_us: First and last instant at which one of its batches was decided, in microseconds since 1970 UTC.
    """

    key: str
    n: tuple[int, int]
    decided_us: tuple[int, int]
    task: FileScanTask


def ledger_files(table: Table, name: str, manifest_cache: ManifestCache) -> tuple[LedgerFile, ...]:
    """The data files of a ledger's present snapshot.

    `manifest_cache` has the manifests that were read before, and is updated in place.
    """
    snapshot = table.current_snapshot()
    if snapshot is None:
        manifest_cache.clear()
        return ()
    with translated(f"reading manifests of table {name}"):
        manifests = snapshot.manifests(table.io)
        if any(manifest.content == ManifestContent.DELETES for manifest in manifests):  # another engine deleted rows
            return tuple(_file(task, table.schema(), f"#{snapshot.snapshot_id}") for task in table.scan().plan_files())
        files_by_manifest = {
            manifest.manifest_path: manifest_cache.get(manifest.manifest_path) or _files_of_manifest(manifest, table)
            for manifest in manifests
        }
    manifest_cache.clear()
    manifest_cache.update(files_by_manifest)
    return tuple(file for files in files_by_manifest.values() for file in files)


def files_of_batches(files: Iterable[LedgerFile], numbers: Collection[int]) -> list[LedgerFile]:
    """The files that, by their bounds, may have rows of batches with these numbers."""
    return [file for file in files if any(file.n[0] <= n <= file.n[1] for n in numbers)]


def read_ledger_files(
    table: Table,
    name: str,
    files: Iterable[LedgerFile],
    columns: Iterable[str],
    pipeline: str,
    numbers: Collection[int] | None = None,
) -> pa.Table:
    """Rows of a pipeline in some files, with those of the columns that the ledger has.

    With `numbers`, only rows of these batches are read, and memory holds only a piece of each file; `columns` must include `n`.
    """
    schema = table.schema()
    read_schema = schema.select(*(column for column in columns if column in schema.column_names))
    with translated(f"reading table {name}"), ThreadPoolExecutor(_AT_ONCE) as pool:
        parts = list(pool.map(lambda file: _rows(table, file.task, read_schema, numbers), files))
    rows = pa.concat_tables([schema_to_pyarrow(read_schema, include_field_ids=False).empty_table(), *parts])
    return rows.filter(pc.equal(rows["pipeline"], pipeline)).combine_chunks()


def _rows(table: Table, task: FileScanTask, read_schema: Schema, numbers: Collection[int] | None) -> pa.Table:
    is_plain = not task.delete_files and task.file.file_format == FileFormat.PARQUET
    read = _read_parquet(table, task, read_schema, numbers) if is_plain else None
    if read is None:
        read = _of_batches(numbers, ArrowScan(table.metadata, table.io, read_schema, AlwaysTrue()).to_table([task]))
    return read.cast(schema_to_pyarrow(read_schema, include_field_ids=False))


def _read_parquet(
    table: Table, task: FileScanTask, read_schema: Schema, numbers: Collection[int] | None
) -> pa.Table | None:
    """The rows, read ten times as fast as by a scan; None if the file has other names for the table's fields."""
    target = schema_to_pyarrow(read_schema, include_field_ids=False)
    with table.io.new_input(task.file.file_path).open() as stream:
        file = ParquetFile(stream)
        ids = {int((field.metadata or {}).get(_FIELD_ID, -1)): field.name for field in file.schema_arrow}
        stored_fields = [field for field in read_schema.fields if field.field_id in ids]
        if any(ids[field.field_id] != field.name for field in stored_fields) or -1 in ids:
            return None
        read = _pieces(file, [field.name for field in stored_fields], numbers)
    columns = [
        read[field.name] if field.name in read.column_names else pa.nulls(len(read), field.type) for field in target
    ]
    return pa.table(columns, target.names)


def _pieces(file: ParquetFile, columns: list[str], numbers: Collection[int] | None) -> pa.Table:
    if numbers is None:
        return file.read(columns)
    schema = pa.schema([field for field in file.schema_arrow if field.name in columns])
    pieces = (pa.Table.from_batches([batch]) for batch in file.iter_batches(_PIECE, columns=columns))
    return pa.concat_tables([schema.empty_table(), *(_of_batches(numbers, piece) for piece in pieces)])


def _of_batches(numbers: Collection[int] | None, rows: pa.Table) -> pa.Table:
    if numbers is None:
        return rows
    return rows.filter(pc.is_in(rows["n"], pa.array(numbers, pa.int64())))


def _files_of_manifest(manifest: ManifestFile, table: Table) -> tuple[LedgerFile, ...]:
    schema = table.schema()
    entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
    return tuple(_file(FileScanTask(entry.data_file, residual=AlwaysTrue()), schema) for entry in entries)


def _file(task: FileScanTask, schema: Schema, suffix: str = "") -> LedgerFile:
    file = task.file
    return LedgerFile(file.file_path + suffix, _bounds(file, schema, "n"), _bounds(file, schema, "decided_at"), task)


def _bounds(file: DataFile, schema: Schema, column: str) -> tuple[int, int]:
    field = schema.find_field(column)
    ends: list[Mapping[int, bytes]] = [file.lower_bounds or {}, file.upper_bounds or {}]
    low, high = (bounds.get(field.field_id) for bounds in ends)
    if low is None or high is None:
        return _ALL_NUMBERS
    kind = cast("PrimitiveType", field.field_type)
    return int(from_bytes(kind, low)), int(from_bytes(kind, high))


UNPARTITIONED = PartitionSpec()
TEXT, LONG, INT, TIME, BYTES = StringType(), LongType(), IntegerType(), TimestamptzType(), BinaryType()


def _schema(fields: list[tuple[str, IcebergType, bool, str]]) -> Schema:
    return Schema(
        *(
            NestedField(n, name, field_type, required=req, doc=doc)
            for n, (name, field_type, req, doc) in enumerate(fields, 1)
        )
    )


LEDGER_SCHEMA = _schema(
    [
        ("pipeline", TEXT, True, "Pipeline name"),
        ("n", LONG, True, "Batch number"),
        ("epoch", INT, True, "Epoch of the position"),
        ("batch", TEXT, True, "Batch id"),
        ("run", TEXT, True, "Id of the run that planned the batch"),
        ("kind", TEXT, True, "start | ingest | replay | dead_letters | reset | rewind | repair | apply | settle"),
        ("table", TEXT, True, "Table this row is about"),
        ("role", TEXT, True, "destination | dead_letters | ledger (it closes the batch) | left (named no more)"),
        (
            "snapshot_id",
            LONG,
            False,
            "Snapshot in which the batch became visible; null if the batch had nothing for the table",
        ),
        ("rows", LONG, True, "Rows the batch put into the table"),
        ("files", LONG, True, "Data files"),
        ("bytes", LONG, True, "Bytes of the data files"),
        ("records_read", LONG, True, "Records read from Kafka"),
        ("records_written", LONG, True, "Records that became rows"),
        ("records_dead", LONG, True, "Records that became dead letters"),
        ("records_filtered", LONG, True, "Records left out on purpose"),
        ("dead_codes", TEXT, True, "Dead letters per reason code, as JSON"),
        ("position", TEXT, True, "Position after the batch, as JSON"),
        ("planned_at", TIME, True, "When the ends were fixed"),
        ("started_at", TIME, True, "When staging began"),
        ("decided_at", TIME, True, "When the position moved"),
        ("recorded_at", TIME, True, "When this row was written"),
        ("phases", TEXT, True, "Seconds per phase, as JSON"),
        ("version", TEXT, True, "Frazil version"),
        ("config", TEXT, True, "Hash of what decides the outcome of a record: value format and destinations"),
        ("ranges", TEXT, False, "What was read, as JSON: [[topic, partition, first offset, end], ...]"),
        ("skipped", TEXT, False, "Offsets given up because they were gone, as JSON like ranges"),
        ("removed", TEXT, False, "Rows taken out of the table, as JSON: [[topic, partition, start, end, since]]"),
        ("bytes_read", LONG, False, "Bytes of the keys and values read"),
        ("table_uuid", TEXT, False, "UUID of the table"),
        ("started_by", TEXT, False, "Who or what started the run"),
        ("reason", TEXT, False, "Why, in the words of whoever asked"),
        (
            "abandoned",
            LONG,
            False,
            "Batches that a repair of the ledger gave up; rows, at most, of a settle of another table",
        ),
        (
            "records_unknown",
            LONG,
            False,
            "Of the records written, those with fields that a table of theirs has no column for",
        ),
        ("unknown_fields", TEXT, False, "Names of these fields with records each, as JSON: at most 20"),
        ("table_written", LONG, False, "Records of the batch that became rows of this table; null: all written"),
        ("table_dead", LONG, False, "Records of the batch that are dead letters of this table alone"),
        ("table_ranges", TEXT, False, "What of ranges is about this table, as JSON; null: all of it"),
        (
            "schema_changes",
            TEXT,
            False,
            "Changes of the table for records of the batch, or by the pipeline file, as JSON: [{path, kind, type}]",
        ),
        ("table_unknown", LONG, False, "Of table_written, those with fields that no column of this table takes"),
        ("table_unknown_fields", TEXT, False, "Names of these fields with records each, as JSON: at most 20"),
        ("table_upserts", LONG, False, "Of rows, those that changes leave as they are; null: rows are added"),
        ("table_deletes", LONG, False, "Of rows, those that go, each by its key; others are truncates"),
        (
            "record_ages",
            TEXT,
            False,
            "Records read by their age at planned_at, as JSON: [[class, records]]; class 0: to 0.1 s, each next 1.1 times older",
        ),
        (
            "lost_from",
            LONG,
            False,
            "First batch whose part the table of a repair may have lost; skipped: which offsets",
        ),
    ]
)

DEAD_LETTER_SCHEMA = Schema(
    NestedField(1, "code", TEXT, required=True, doc="Reason code"),
    NestedField(2, "stage", TEXT, required=True, doc="decode | transform | convert | route"),
    NestedField(3, "message", TEXT, required=True, doc="What was expected and what was found"),
    NestedField(4, "path", TEXT, required=False, doc="Field path in the value"),
    NestedField(5, "key", BYTES, required=False, doc="Key, as it came"),
    NestedField(6, "value", BYTES, required=False, doc="Value, as it came"),
    NestedField(
        7,
        "headers",
        ListType(
            12,
            StructType(
                NestedField(13, "key", TEXT, required=False),
                NestedField(14, "value", BYTES, required=False),
            ),
            element_required=False,
        ),
        required=False,
        doc="Headers, as they came",
    ),
    NestedField(8, "topic", TEXT, required=True, doc="Kafka topic"),
    NestedField(9, "partition", INT, required=True, doc="Kafka partition"),
    NestedField(10, "offset", LONG, required=True, doc="Kafka offset"),
    NestedField(11, "timestamp", TIME, required=False, doc="Kafka timestamp"),
    NestedField(15, "_frazil_batch", LONG, required=False, doc="Number of the batch that kept it"),
    NestedField(16, "attempts", INT, required=False, doc="How often it was decoded; null: once"),
    NestedField(
        17, "landed_batch", LONG, required=False, doc="Number of the batch that landed it after all, if one did"
    ),
    NestedField(
        18,
        "destination",
        TEXT,
        required=False,
        doc="Table that the record does not fit; null: the record as a whole, it is in no table",
    ),
)


def ledger_rows(rows: list[dict[str, Any]]) -> pa.Table:
    """Rows of the ledger as Arrow."""
    return pa.Table.from_pylist(rows, schema_to_pyarrow(LEDGER_SCHEMA, include_field_ids=False))


def first_rows(rows: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The first row of each batch, for facts that all of its rows repeat: a destination's row if it has one."""
    n: int | None = None
    for row in rows:
        if row["n"] != n:
            n = row["n"]
            yield row


def read_ledger(lake: Lake, table: str, pipeline: str, run: str | None = None) -> list[dict[str, Any]]:
    """Rows of one pipeline, or of one of its runs, by batch number and table. Empty if there is no ledger yet."""
    ledger = lake.find_table(table)
    if ledger is None:
        return []
    of_pipeline = compare(EqualTo, "pipeline", pipeline)
    where = of_pipeline if run is None else And(of_pipeline, compare(EqualTo, "run", run))
    with translated(f"reading ledger {table}"):
        rows: list[dict[str, Any]] = ledger.scan(row_filter=where).to_arrow().to_pylist()
    return in_order(rows)


def read_letter_rows(lake: Lake, table: str, pipeline: str) -> list[dict[str, Any]]:
    """Rows of one pipeline that matter to its dead letters, in batch order, with only the columns needed for that.

    Batches of kind `ingest` are left out, except the last one and those just before a reset. Only the rows of these and of resets
    have the position, the largest column. Empty if there is no ledger yet.
    """
    ledger = lake.find_table(table)
    if ledger is None:
        return []
    files = ledger_files(ledger, table, {})
    return letter_rows(
        read_ledger_files(ledger, table, files, OF_LETTERS, pipeline),
        lambda numbers: read_ledger_files(ledger, table, files_of_batches(files, numbers), PLACED, pipeline, numbers),
    )


def read_rewinds(lake: Lake, table: str, pipeline: str) -> list[dict[str, Any]]:
    """Rows of a pipeline's rewinds: batch number, kind and removed ranges. Few files of a ledger have any."""
    ledger = lake.find_table(table)
    if ledger is None:
        return []
    where = And(compare(EqualTo, "pipeline", pipeline), compare(EqualTo, "kind", "rewind"))
    with translated(f"reading ledger {table}"):
        scan = ledger.scan(row_filter=where, selected_fields=("n", "kind", "removed"))
        rows: list[dict[str, Any]] = scan.to_arrow().to_pylist()
    return sorted(rows, key=lambda row: row["n"])


OF_LETTERS = ("pipeline", "n", "kind", "role", "table", "records_written", "removed")
"""Columns of the ledger that matter to letters."""

PLACED = (*OF_LETTERS, "position")
"""Columns for batches whose position matters, too."""


def letter_rows(rows: pa.Table, placed_rows: Callable[[frozenset[int]], pa.Table]) -> list[dict[str, Any]]:
    """Rows that matter to dead letters: see `read_letter_rows`.

    `rows` has the columns `OF_LETTERS`; `placed_rows` reads the rows of some batches with the columns `PLACED`.
    """
    if not len(rows):
        return []
    placed = _numbers_with_position(rows)
    unplaced = rows.filter(pc.and_(pc.not_equal(rows["kind"], "ingest"), pc.invert(pc.is_in(rows["n"], placed))))
    return in_order(unplaced.to_pylist() + placed_rows(frozenset(placed.to_pylist())).to_pylist())


def _numbers_with_position(rows: pa.Table) -> pa.Array:
    """Numbers of the batches whose position matters to letters: resets, those before them, and the last."""
    numbers = rows["n"]
    resets = pc.unique(rows.filter(pc.equal(rows["kind"], "reset"))["n"]).to_pylist()
    before = [pc.max(numbers.filter(pc.less(numbers, n))).as_py() for n in resets]
    placed = {*resets, *before, pc.max(numbers).as_py()} - {None}
    return pa.array(sorted(placed), pa.int64())


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of a ledger, sorted by batch number; those of a batch by table, destinations first."""
    return sorted(rows, key=lambda row: (row["n"], row["role"] != "destination", row["table"]))


FORMAT_KEY = "frazil.format"
"""Table property with the format version of a ledger or dead-letter table. A table without it has version 1."""

FORMAT = 1
"""The format version that this Frazil reads and writes. Further optional columns don't change it."""


def with_all_columns(table: Table, name: str, newest_schema: Schema) -> Table:
    """Add the columns that a ledger or dead-letter table of an older Frazil lacks, and return the table.

    Raises:
        Terminal: A newer Frazil changed the table's format.
        Retryable: The catalog can't be reached, or others change the table at the same moment.
    """
    _check_format(table, name)
    if {field.name for field in newest_schema.fields} <= {field.name for field in table.schema().fields}:
        return table
    with translated(f"adding columns to table {name}"), table.update_schema() as update:
        update.union_by_name(newest_schema)
    return table


def _check_format(table: Table, name: str) -> None:
    version = table.properties.get(FORMAT_KEY, str(FORMAT))
    try:
        check_version(f"table {name}", int(version), FORMAT)
    except ValueError as error:
        raise BAD_TABLE_PROPERTY.terminal(
            f"table {name}: property {FORMAT_KEY} is {version!r}, expected a number",
            next_step=f"remove it, or set it to {FORMAT}; it was probably edited by hand",
        ) from error
