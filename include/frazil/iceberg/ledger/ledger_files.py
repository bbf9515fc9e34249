"""The files of a ledger one by one: what each holds by its statistics, and reading some of them.

Files and manifests never change, so whoever keeps what was read of them reads only what is new after each commit, and after a
compaction, an expiry or a rollback what is there then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.parquet import ParquetFile
from pyiceberg.conversions import from_bytes
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow
from pyiceberg.manifest import DataFile, FileFormat, ManifestContent, ManifestFile
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.types import PrimitiveType

from frazil.iceberg.errors import translated

_ANY: Final = (-(2**63), 2**63 - 1)

_AT_ONCE: Final = 16
"""Files read at a time: an object store takes its time for each."""

_PIECE: Final = 1_024
"""Rows of a file that are in memory at a time where only some of them are wanted."""

_FIELD_ID: Final = b"PARQUET:field_id"

Known = MutableMapping[str, tuple["LedgerFile", ...]]
"""Path of a manifest -> the files that it lists."""


@dataclass(frozen=True)
class LedgerFile:
    """One file of a ledger.

    Attributes:
        key: Names what a reader gets of it, for ever.
        n: Smallest and largest batch number; the widest where statistics don't tell.
        decided_us: First and last instant at which a batch of it was decided, in microseconds since 1970 UTC.
        task: How it is read.
    """

    key: str
    n: tuple[int, int]
    decided_us: tuple[int, int]
    task: FileScanTask


def ledger_files(table: Table, name: str, known: Known) -> tuple[LedgerFile, ...]:
    """The files of a ledger as it is.

    Args:
        table: The ledger.
        name: Its name.
        known: What was read of manifests before; is brought up to date.

    Raises:
        Retryable: The storage can't be read now.
    """
    snapshot = table.current_snapshot()
    if snapshot is None:
        known.clear()
        return ()
    with translated(f"reading manifests of table {name}"):
        manifests = snapshot.manifests(table.io)
        if any(of.content == ManifestContent.DELETES for of in manifests):  # another engine deleted rows
            return tuple(_file(of, table.schema(), f"#{snapshot.snapshot_id}") for of in table.scan().plan_files())
        found = {of.manifest_path: known.get(of.manifest_path) or _listed(of, table) for of in manifests}
    known.clear()
    known.update(found)
    return tuple(file for files in found.values() for file in files)


def holding(files: Iterable[LedgerFile], numbers: Collection[int]) -> list[LedgerFile]:
    """Those files that may hold a batch of one of these numbers."""
    return [of for of in files if any(of.n[0] <= n <= of.n[1] for n in numbers)]


def read_ledger_files(
    table: Table,
    name: str,
    files: Iterable[LedgerFile],
    columns: Iterable[str],
    pipeline: str,
    numbers: Collection[int] | None = None,
) -> pa.Table:
    """Rows of a pipeline in some files, in the columns that the ledger has of those asked for.

    Args:
        table: The ledger.
        name: Its name.
        files: Which files.
        columns: Which columns.
        pipeline: The pipeline.
        numbers: Only batches of these numbers, and of a file no more than a piece in memory at a time; None for all. The
            columns have to have `n`.

    Raises:
        Retryable: The storage can't be read now.
    """
    schema = table.schema()
    wanted = schema.select(*(column for column in columns if column in schema.column_names))
    with translated(f"reading table {name}"), ThreadPoolExecutor(_AT_ONCE) as pool:
        parts = list(pool.map(lambda file: _rows(table, file.task, wanted, numbers), files))
    rows = pa.concat_tables([schema_to_pyarrow(wanted, include_field_ids=False).empty_table(), *parts])
    return rows.filter(pc.equal(rows["pipeline"], pipeline)).combine_chunks()


def _rows(table: Table, task: FileScanTask, wanted: Schema, numbers: Collection[int] | None) -> pa.Table:
    is_plain = not task.delete_files and task.file.file_format == FileFormat.PARQUET
    read = _plain(table, task, wanted, numbers) if is_plain else None
    if read is None:
        read = _of(numbers, ArrowScan(table.metadata, table.io, wanted, AlwaysTrue()).to_table([task]))
    return read.cast(schema_to_pyarrow(wanted, include_field_ids=False))


def _plain(table: Table, task: FileScanTask, wanted: Schema, numbers: Collection[int] | None) -> pa.Table | None:
    """The rows, if the file has the table's fields under the names that they have now: ten times as fast as a scan."""
    target = schema_to_pyarrow(wanted, include_field_ids=False)
    with table.io.new_input(task.file.file_path).open() as stream:
        file = ParquetFile(stream)
        ids = {int((field.metadata or {}).get(_FIELD_ID, -1)): field.name for field in file.schema_arrow}
        there = [field for field in wanted.fields if field.field_id in ids]
        if any(ids[field.field_id] != field.name for field in there) or -1 in ids:
            return None
        read = _pieces(file, [field.name for field in there], numbers)
    columns = [read[of.name] if of.name in read.column_names else pa.nulls(len(read), of.type) for of in target]
    return pa.table(columns, target.names)


def _pieces(file: ParquetFile, columns: list[str], numbers: Collection[int] | None) -> pa.Table:
    if numbers is None:
        return file.read(columns)
    schema = pa.schema([field for field in file.schema_arrow if field.name in columns])
    pieces = (pa.Table.from_batches([of]) for of in file.iter_batches(_PIECE, columns=columns))
    return pa.concat_tables([schema.empty_table(), *(_of(numbers, piece) for piece in pieces)])


def _of(numbers: Collection[int] | None, rows: pa.Table) -> pa.Table:
    if numbers is None:
        return rows
    return rows.filter(pc.is_in(rows["n"], pa.array(numbers, pa.int64())))


def _listed(manifest: ManifestFile, table: Table) -> tuple[LedgerFile, ...]:
    schema = table.schema()
    entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
    return tuple(_file(FileScanTask(entry.data_file, residual=AlwaysTrue()), schema) for entry in entries)


def _file(task: FileScanTask, schema: Schema, suffix: str = "") -> LedgerFile:
    file = task.file
    return LedgerFile(file.file_path + suffix, _bounds(file, schema, "n"), _bounds(file, schema, "decided_at"), task)


def _bounds(file: DataFile, schema: Schema, column: str) -> tuple[int, int]:
    field = schema.find_field(column)
    ends: list[Mapping[int, bytes]] = [file.lower_bounds or {}, file.upper_bounds or {}]
    low, high = (of.get(field.field_id) for of in ends)
    if low is None or high is None:
        return _ANY
    kind = cast("PrimitiveType", field.field_type)
    return int(from_bytes(kind, low)), int(from_bytes(kind, high))
