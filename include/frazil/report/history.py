"""The past of a pipeline: its batches, from the ledger; the files of its destinations, with the Kafka offsets in each; and a
table's snapshots and schema changes, from its metadata.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby, islice, pairwise
from typing import TYPE_CHECKING, Any, Literal

from frazil.batch.changes import ChangeCounts
from frazil.batch.facts import UnknownFields
from frazil.batch.schema_change import Demands, SchemaChange
from frazil.iceberg.catalog.table import Table
from frazil.iceberg.commit.summary_state import BATCH_KEY
from frazil.iceberg.ledger.dead_letters import open_letters
from frazil.iceberg.ledger.inspection import current_files
from frazil.iceberg.ledger.ledger import read_ledger
from frazil.pipeline.models.pipeline_file import Destination, Pipeline
from frazil.project import Project
from frazil.run.batches.plan import changes_of, unknown_fields_of
from frazil.run.repair.dead_letter_decode import letter_history

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot


Row = Mapping[str, Any]
"""One row of the ledger. Older ledgers lack some columns."""

_DESTINATION = "destination"

OffsetRange = tuple[str, int, int, int]
"""Topic, partition, first offset, one past the last."""


@dataclass(frozen=True, slots=True)
class Removed:
    """Rows that a batch removed from a table: those of a range of offsets, landed by batch `since` or later.

    Attributes:
        partition: Partition of the rows; None for all.
        end: One past the last offset; None for all from `start` on.
        since: Number of the first batch whose rows were removed.
    """

    table: str
    topic: str
    partition: int | None
    start: int
    end: int | None
    since: int


@dataclass(frozen=True, slots=True)
class BatchHistory:
    """One finished batch.

    Attributes:
        kind: `ingest`; `start`: the first commit, which only writes the start position; `replay`; `dead_letters`: a replay of dead
            letters; `reset`; `rewind`: a reset after the closing table was rolled back; `repair` (`settle` in an older Frazil).
        committed_at: When the batch was decided, UTC.
        snapshot_id: Snapshot of the batch in the first destination.
        read, written, dead, filtered: Records by outcome.
        dead_codes: Dead letters by code.
        seconds: Seconds from the begin of staging to the ledger's row.
        phases: Seconds by phase.
        position: Topic -> {"from": [...], "next": [...]}, one offset per partition.
        files: Number of data files that the destinations got.
        snapshots: Table -> snapshot with the batch's part; without tables that got none.
        ranges: Ranges of offsets that the batch read; None if an older Frazil did not store them.
        skipped: Ranges of offsets that were given up, because Kafka deleted them unread, or because a table lost them.
        lost_from: Of a repair: number of the first batch whose part the table may have lost.
        removed: Rows that a replay, reset or rewind removed from tables.
        bytes_read: Bytes of keys and values that were read; None if not stored.
        started_by: `cli:user@host` or `airflow:scheduled|manual|backfill[:user]`; None if not stored.
        reason: The user's reason for the run.
        unknown_fields: Fields of written records that no column takes; None if not counted.
        schema_changes: Table -> changes of its schema for records of the batch.
        changes: Table that rows are merged into -> counts of changes.
    """

    n: int
    kind: str
    batch: str
    run: str
    committed_at: datetime
    snapshot_id: int | None
    read: int
    written: int
    dead: int
    filtered: int
    dead_codes: Mapping[str, int]
    seconds: float
    phases: Mapping[str, float]
    position: Mapping[str, Mapping[str, list[int]]]
    files: int
    bytes: int
    snapshots: Mapping[str, int] = field(default_factory=dict)
    ranges: tuple[OffsetRange, ...] | None = None
    skipped: tuple[OffsetRange, ...] = ()
    lost_from: int | None = None
    removed: tuple[Removed, ...] = ()
    bytes_read: int | None = None
    started_by: str | None = None
    reason: str | None = None
    unknown_fields: UnknownFields | None = None
    schema_changes: Demands = field(default_factory=dict)
    changes: Mapping[str, ChangeCounts] = field(default_factory=dict)


def history(project: Project, pipeline: Pipeline) -> list[BatchHistory]:
    """All finished batches, the oldest first; empty if the pipeline never ran.

    Raises:
        Retryable: The catalog can't be read now.
    """
    rows = read_ledger(project.lake_of(pipeline), pipeline.ledger_table, pipeline.name)
    return [batch_of(list(batch_rows)) for _, batch_rows in groupby(rows, key=lambda row: (row["n"], row["batch"]))]


def dead_letter_counts(project: Project, pipeline: Pipeline) -> dict[str, int]:
    """Open dead letters by code, the most frequent first; empty if the pipeline never ran.

    Raises:
        Retryable: The catalog or the storage can't be read now.
    """
    lake, name = project.lake_of(pipeline), pipeline.dead_letters_table
    table = lake.find_table(name)
    if table is None:
        return {}
    letters_past = letter_history(read_ledger(lake, pipeline.ledger_table, pipeline.name))
    counted = Counter(letter.code for letter in open_letters(table, name, letters_past.taken_back))
    return dict(sorted(counted.items(), key=lambda item: (-item[1], item[0])))


def batch_of(rows: Sequence[Row]) -> BatchHistory:
    """A batch from its rows in the ledger, one per table, those of destinations first."""
    row, destinations = rows[0], [row for row in rows if row["role"] == _DESTINATION]
    topics = json.loads(row["position"])["topics"]
    return BatchHistory(
        n=row["n"],
        kind=row["kind"],
        batch=row["batch"],
        run=row["run"],
        committed_at=row["decided_at"],
        snapshot_id=row["snapshot_id"],
        read=row["records_read"],
        written=row["records_written"],
        dead=row["records_dead"],
        filtered=row["records_filtered"],
        dead_codes=json.loads(row["dead_codes"]),
        seconds=round((row["recorded_at"] - row["started_at"]).total_seconds(), 3),
        phases=json.loads(row["phases"]),
        position={topic: {"from": body["from"], "next": body["next"]} for topic, body in topics.items()},
        files=sum(destination["files"] for destination in destinations),
        bytes=sum(destination["bytes"] for destination in destinations),
        snapshots={
            table_row["table"]: table_row["snapshot_id"] for table_row in rows if table_row["snapshot_id"] is not None
        },
        ranges=_ranges(row["ranges"]) if row.get("ranges") else None,
        skipped=_ranges(row.get("skipped")),
        lost_from=next((table_row["lost_from"] for table_row in rows if table_row.get("lost_from") is not None), None),
        removed=tuple(
            Removed(table_row["table"], *removed)
            for table_row in rows
            for removed in json.loads(table_row.get("removed") or "[]")
        ),
        bytes_read=row.get("bytes_read"),
        started_by=row.get("started_by"),
        reason=row.get("reason"),
        unknown_fields=unknown_fields_of(row),
        schema_changes={
            table_row["table"]: _changes(table_row["schema_changes"])
            for table_row in rows
            if table_row.get("schema_changes")
        },
        changes=changes_of(rows),
    )


def _ranges(text: str | None) -> tuple[OffsetRange, ...]:
    return tuple((topic, partition, start, end) for topic, partition, start, end in json.loads(text or "[]"))


def _changes(text: str) -> tuple[SchemaChange, ...]:
    return tuple(SchemaChange(tuple(change["path"]), change["kind"], change["type"]) for change in json.loads(text))


Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class FileHistory:
    """A file of a destination, and where its rows came from, as far as the file's statistics show.

    Attributes:
        table: The destination.
        path: Location of the file.
        content: `data`, `position deletes` or `equality deletes`; delete files have no Kafka coordinates.
        snapshot_id: Snapshot of the batch or compaction that added the file.
        topics: Topics that its rows may come from: the pipeline's topics between the lowest and the highest name in the file.
        partitions: Lowest and highest partition.
        offsets: Lowest offset in these partitions, and one past the highest.
        batches: Lowest and highest batch number.
    """

    table: str
    path: str
    content: str
    snapshot_id: int | None
    rows: int
    bytes: int
    topics: tuple[str, ...]
    partitions: Span | None
    offsets: Span | None
    batches: Span | None


def files(project: Project, pipeline: Pipeline) -> list[FileHistory]:
    """Present files of the destinations, sorted by table, batch, topic, partition and offset. Empty before the first run.

    Raises:
        Retryable: The catalog or the storage can't be read now.
    """
    pipeline = project.with_auto_created(pipeline)
    lake = project.lake_of(pipeline)
    batches = history(project, pipeline)
    topics = {topic for batch in batches for topic in batch.position}
    histories = [
        file
        for destination in pipeline.destinations
        if (table := lake.find_table(destination.table)) is not None
        for file in _files(table, destination, topics)
    ]
    return sorted(histories, key=_order)


def _files(table: Table, destination: Destination, topics: Collection[str]) -> Iterator[FileHistory]:
    names = destination.kafka_columns
    columns = (names.topic, names.partition, names.offset, names.batch) if names else ()
    for file in current_files(table, columns):
        topic, partition, offset, batch = (file.bounds.get(name) for name in columns) if names else (None,) * 4
        yield FileHistory(
            table=destination.table,
            path=file.path,
            content=file.content,
            snapshot_id=file.snapshot_id,
            rows=file.rows,
            bytes=file.bytes,
            topics=_between(topic, topics) if topic else (),
            partitions=partition,
            offsets=(offset[0], offset[1] + 1) if offset else None,
            batches=batch,
        )


def _between(bounds: tuple[str, str], topics: Collection[str]) -> tuple[str, ...]:
    """Topics between two bounds; the bounds themselves if there is none: statistics have only the first 16 characters of a name."""
    lowest, highest = bounds
    between = tuple(sorted(topic for topic in topics if lowest <= topic <= highest))
    return between or tuple(dict.fromkeys(bounds))


def _order(file: FileHistory) -> tuple[object, ...]:
    nowhere = (-1, -1)
    spans = (file.batches or nowhere, file.topics, file.partitions or nowhere, file.offsets or nowhere)
    return (file.table, *spans, file.path)


@dataclass(frozen=True, slots=True)
class SnapshotFacts:
    """One snapshot.

    Attributes:
        committed_at: When it was committed, UTC.
        operation: Iceberg's name of its operation.
        batch: Number of the batch that it belongs to; None if it belongs to none.
        pipeline: Pipeline of that batch.
        rows, files, bytes: What it added; None if its summary does not say.
        removed_rows: Rows that it removed; None likewise.
        total_rows: Rows of the table in this snapshot; None likewise.
        refs: Branches and tags that name it.
    """

    id: int
    committed_at: datetime
    operation: str
    batch: int | None
    pipeline: str | None
    rows: int | None
    files: int | None
    bytes: int | None
    removed_rows: int | None
    total_rows: int | None
    refs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Snapshots:
    """A page of a table's snapshots, the newest first.

    Attributes:
        total: Number of the table's snapshots.
        next: `start` of the next page; None if this is the last page.
    """

    snapshots: tuple[SnapshotFacts, ...]
    total: int
    next: int | None


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A change of one column: added, removed or altered."""

    kind: Literal["added", "removed", "changed"]
    path: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """One schema of a table, compared with the previous one.

    Attributes:
        since: When the oldest snapshot with this schema was committed; None if no snapshot with it is left.
        columns: Number of columns, including nested ones.
        changes: Differences from the previous schema; empty for the first.
        is_current: Whether it is the table's current schema.
    """

    id: int
    since: datetime | None
    columns: int
    changes: tuple[FieldChange, ...]
    is_current: bool


def snapshots(project: Project, pipeline: Pipeline, table: str, start: int, limit: int) -> Snapshots | None:
    """A page of a table's snapshots, the newest first; None if the table does not exist. The `start` newest ones are left out.

    Raises:
        Retryable: The catalog can't be reached.
    """
    iceberg_table = project.lake_of(pipeline).find_table(table)
    if iceberg_table is None:
        return None
    metadata = iceberg_table.metadata
    refs: dict[int, list[str]] = {}
    for name, ref in metadata.refs.items():
        refs.setdefault(ref.snapshot_id, []).append(name)
    newest = sorted(
        metadata.snapshots, key=lambda snapshot: (snapshot.timestamp_ms, snapshot.sequence_number or 0), reverse=True
    )
    shown = tuple(
        _facts(snapshot, tuple(sorted(refs.get(snapshot.snapshot_id, ()))))
        for snapshot in newest[start : start + limit]
    )
    return Snapshots(shown, len(newest), start + limit if start + limit < len(newest) else None)


def schema_versions(project: Project, pipeline: Pipeline, table: str, limit: int) -> tuple[SchemaVersion, ...] | None:
    """Schemas of a table, the newest first, each compared with the previous one; None if the table does not exist.

    Raises:
        Retryable: The catalog can't be reached.
    """
    iceberg_table = project.lake_of(pipeline).find_table(table)
    return None if iceberg_table is None else tuple(islice(_versions(iceberg_table.metadata), limit))


def _versions(metadata: TableMetadata) -> Iterator[SchemaVersion]:
    since: dict[int, datetime] = {}
    for snapshot in sorted(metadata.snapshots, key=lambda snapshot: snapshot.timestamp_ms):
        if snapshot.schema_id is not None:
            since.setdefault(snapshot.schema_id, _instant(snapshot.timestamp_ms))
    schemas = sorted(metadata.schemas, key=lambda schema: schema.schema_id)
    fields = [_fields(schema) for schema in schemas]
    changes = [(), *(tuple(_field_changes(before, after)) for before, after in pairwise(fields))]
    for schema, columns, differences in reversed(list(zip(schemas, fields, changes, strict=True))):
        is_current = schema.schema_id == metadata.current_schema_id
        yield SchemaVersion(schema.schema_id, since.get(schema.schema_id), len(columns), differences, is_current)


def _fields(schema: Schema) -> Mapping[int, tuple[str, str]]:
    """Field id -> path and type."""
    columns = {}
    for path in schema.column_names:
        field = schema.find_field(path)
        columns[field.field_id] = (path, f"{field.field_type}" + (" required" if field.required else ""))
    return columns


def _field_changes(
    before: Mapping[int, tuple[str, str]], after: Mapping[int, tuple[str, str]]
) -> Iterable[FieldChange]:
    for field_id in sorted(before.keys() | after.keys()):
        old, new = before.get(field_id), after.get(field_id)
        if old == new:
            continue
        if old is None and new is not None:
            yield FieldChange("added", new[0], None, new[1])
        elif new is None and old is not None:
            yield FieldChange("removed", old[0], old[1], None)
        elif old is not None and new is not None:
            moved = (f"{old[0]}: ", f"{new[0]}: ") if old[0] != new[0] else ("", "")
            yield FieldChange("changed", new[0], moved[0] + old[1], moved[1] + new[1])


def _facts(snapshot: Snapshot, refs: tuple[str, ...]) -> SnapshotFacts:
    summary = snapshot.summary
    properties: Mapping[str, str] = summary.additional_properties if summary is not None else {}
    pipeline = properties.get("frazil.pipeline")
    return SnapshotFacts(
        id=snapshot.snapshot_id,
        committed_at=_instant(snapshot.timestamp_ms),
        operation=summary.operation.value if summary is not None else "",
        batch=_batch(properties, pipeline),
        pipeline=pipeline,
        rows=_number(properties, "added-records"),
        files=_number(properties, "added-data-files"),
        bytes=_number(properties, "added-files-size"),
        removed_rows=_number(properties, "deleted-records"),
        total_rows=_number(properties, "total-records"),
        refs=refs,
    )


def _batch(properties: Mapping[str, str], pipeline: str | None) -> int | None:
    """Number of the batch, from its mark; None without a mark."""
    number = json.loads(properties.get(BATCH_KEY.format(pipeline), "{}")).get("n")
    return int(number) if isinstance(number, int) else None


def _number(properties: Mapping[str, str], key: str) -> int | None:
    text = properties.get(key, "")
    return int(text) if text.isdecimal() else None


def _instant(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
