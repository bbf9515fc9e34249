"""A table whose rows say where they came from, batches that remove rows from it, and deletes of other engines."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
)
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _FastAppendFiles
from pyiceberg.typedef import Record

from frazil.batch.changes import Coordinates, Removal, RemovedRange
from frazil.batch.position import BatchMark
from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.catalog.table import TABLE_PROPERTIES
from frazil.iceberg.commit.commit import Change
from frazil.iceberg.schema.schema import declared_schema, declared_spec
from tests.unit.iceberg.orders import TABLE, batch, destination, elsewhere

COLUMNS = Coordinates("_kafka_topic", "_kafka_partition", "_kafka_offset", "_frazil_batch")
SPECS: list[list[str]] = [[], ["day"], ["_kafka_topic", "bucket(2, id)"]]
"""How tables are partitioned."""


class Row(NamedTuple):
    """One order and where it came from. Rows that others wrote came from nowhere."""

    id: int
    topic: str | None = "orders"
    partition: int | None = 0
    offset: int | None = 0
    batch: int | None = 1
    day: str = "mon"


def create(lake: Lake, partition_by: list[str], **properties: str) -> Table:
    """The empty table, with quick retries."""
    declared = destination(partition_by=partition_by, kafka_columns={})
    schema = declared_schema(declared)
    quick = {"commit.retry.min-wait-ms": "0", "commit.retry.num-retries": "2"}
    return lake.create_table(TABLE, schema, declared_spec(declared, schema), TABLE_PROPERTIES | quick | properties)


def data(lake: Lake, rows: Iterable[Row]) -> pa.Table:
    """Rows as Arrow."""
    schema = schema_to_pyarrow(lake.load_table(TABLE).schema(), include_field_ids=False)
    columns = {
        "id": "id",
        "day": "day",
        COLUMNS.topic: "topic",
        COLUMNS.partition: "partition",
        COLUMNS.offset: "offset",
        COLUMNS.batch: "batch",
    }
    body = [{name: getattr(row, field) for name, field in columns.items()} for row in rows]
    return pa.Table.from_pylist(body, schema)


def numbered(ids: range, **options: Any) -> list[Row]:
    """Orders whose offset is their id."""
    return [Row(n, offset=n, **options) for n in ids]


def foreign(lake: Lake, rows: Iterable[Row]) -> None:
    """Another engine appends rows."""
    elsewhere(lake).load_table(TABLE).append(data(lake, rows))


def removing(start: int, end: int | None, *, partition: int | None = 0, since: int = 0) -> Removal:
    """One range of the topic."""
    return Removal(COLUMNS, (RemovedRange("orders", partition, start, end, since),))


def change(
    lake: Lake, mark: BatchMark, after: BatchMark | None, rows: Iterable[Row] = (), removal: Removal | None = None
) -> Change:
    """A staged batch that also removes rows."""
    return replace(batch(lake, mark, after, data(lake, rows)), removal=removal)


def everything(lake: Lake, snapshot_id: int | None = None) -> list[Row]:
    """Every row of main, or of one snapshot, read through its manifests and data files, in the order of their ids."""
    loaded_rows = lake.load_table(TABLE).scan(snapshot_id=snapshot_id).to_arrow().to_pylist()
    rows = [
        Row(
            row["id"],
            *(row[name] for name in (COLUMNS.topic, COLUMNS.partition, COLUMNS.offset, COLUMNS.batch)),
            row["day"],
        )
        for row in loaded_rows
    ]
    return sorted(rows, key=lambda row: row.id)


def every_snapshot_is_readable(lake: Lake) -> None:
    """Every manifest and data file that any snapshot names can be read."""
    for snapshot in lake.load_table(TABLE).metadata.snapshots:
        everything(lake, snapshot.snapshot_id)


def summary_of(lake: Lake, snapshot_id: int) -> dict[str, Any]:
    """The summary of one snapshot, with its operation."""
    snapshot = lake.load_table(TABLE).metadata.snapshot_by_id(snapshot_id)
    assert snapshot is not None
    assert snapshot.summary is not None
    return {"operation": snapshot.summary.operation} | snapshot.summary.additional_properties


def data_paths(lake: Lake) -> set[str]:
    """Paths of the data files of main."""
    return {task.file.file_path for task in lake.load_table(TABLE).scan().plan_files()}


class _DeleteManifestWriter(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return super()._meta | {"content": "deletes"}


class _RowDelta(_FastAppendFiles):
    """What other engines commit: an append of one delete file."""

    delete: DataFile

    def _process_manifests(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        spec, output = self.spec(self.delete.spec_id), self.new_manifest_output()
        with _DeleteManifestWriter(spec, self.schema(), output, self._snapshot_id, "deflate") as writer:
            writer.add(ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, data_file=self.delete))
        return [*manifests, writer.to_manifest_file()]


def foreign_deletes(lake: Lake, content: DataFileContent, partition: Record, rows: pa.Table) -> None:
    """Another engine commits a delete file: by position (columns file_path and pos), or by equality on the id."""
    table = elsewhere(lake).load_table(TABLE)
    path = f"{table.location()}/data/deletes-{uuid4()}.parquet"
    with table.io.new_output(path).create() as stream:
        pq.write_table(rows, stream)
    transaction = table.transaction()
    producer = _RowDelta(Operation.OVERWRITE, transaction, table.io)
    producer.delete = DataFile.from_args(
        content=content,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=partition,
        record_count=rows.num_rows,
        file_size_in_bytes=len(table.io.new_input(path)),
        equality_ids=[1] if content is DataFileContent.EQUALITY_DELETES else None,
    )
    producer.delete.spec_id = table.spec().spec_id
    producer.commit()
    transaction.commit_transaction()


def positions(deleted: dict[str, list[int]]) -> pa.Table:
    """The rows of a position-delete file."""
    pairs = [(path, n) for path, numbers in sorted(deleted.items()) for n in numbers]
    schema = pa.schema(
        [
            pa.field("file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": "2147483546"}),
            pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": "2147483545"}),
        ]
    )
    return pa.table([[path for path, _ in pairs], [n for _, n in pairs]], schema=schema)
