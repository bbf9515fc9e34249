"""The batches of a pipeline, from its ledger, and the files of its destinations with the Kafka offsets in each."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from typing import Any

from frazil.batch.changes import ChangeCounts
from frazil.batch.facts import UnknownFields
from frazil.batch.schema_change import Demands, SchemaChange
from frazil.iceberg.catalog.table import Table
from frazil.iceberg.files.files import current_files
from frazil.iceberg.ledger.dead_letters import open_letters
from frazil.iceberg.ledger.ledger import read_ledger
from frazil.pipeline.models.pipeline_file import Destination, Pipeline
from frazil.project import Project
from frazil.run.batches.plan import changes_of, unknown_fields_of
from frazil.run.repair.dead_letter_decode import letter_history

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
        since: Number of the first batch whose rows were taken.
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
        kind: `ingest`, or `start` for the first commit, which only writes the start position, or `replay`, `reset`,
            `rewind` (a reset by itself after the closing table was rolled back) or `repair` (`settle` in an older Frazil).
        committed_at: When the position moved, UTC.
        snapshot_id: Snapshot of the (first) destination.
        read, written, dead, filtered: Records by outcome.
        dead_codes: Dead letters per reason code.
        seconds: From the begin of staging to the ledger's row.
        phases: Seconds per phase.
        position: Topic -> {"from": [...], "next": [...]}, one offset per partition.
        files: Data files of the destinations.
        snapshots: Table -> snapshot in which the batch became visible there; tables without any are left out.
        ranges: Ranges that the batch read; None in rows of an older version, which did not store them.
        skipped: Offsets given up because Kafka had deleted them before they were read, or a table lost them.
        lost_from: Of a repair: the first batch whose part the table may have lost.
        removed: Rows removed from tables by replay, reset and rewind.
        bytes_read: Bytes of the keys and values read, if written down.
        started_by: `cli:user@host` or `airflow:scheduled|manual|backfill[:user]`, if written down.
        reason: Why, as the user wrote it.
        unknown_fields: Fields of written records that no column took, if they were counted.
        schema_changes: Table -> what of its schema was changed for records of the batch.
        changes: Table that rows are merged into -> changes that were staged for it.
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
    """All finished batches, the oldest first. Empty if the pipeline never ran.

    Raises:
        Retryable: The catalog can't be read now.
    """
    rows = read_ledger(project.lake_of(pipeline), pipeline.ledger_table, pipeline.name)
    return [batch_of(list(batch_rows)) for _, batch_rows in groupby(rows, key=lambda row: (row["n"], row["batch"]))]


def dead_letter_counts(project: Project, pipeline: Pipeline) -> dict[str, int]:
    """Open dead letters per reason code, the most frequent first; none if the pipeline never ran.

    Raises:
        Retryable: The catalog or the storage can't be read now.
    """
    lake, name = project.lake_of(pipeline), pipeline.dead_letters_table
    table = lake.find_table(name)
    if table is None:
        return {}
    past = letter_history(read_ledger(lake, pipeline.ledger_table, pipeline.name))
    counted = Counter(letter.code for letter in open_letters(table, name, past.taken_back))
    return dict(sorted(counted.items(), key=lambda item: (-item[1], item[0])))


def batch_of(rows: Sequence[Row]) -> BatchHistory:
    """One batch from its rows, one per table; those of destinations come first."""
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
        removed=tuple(_removed(rows)),
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


def _removed(rows: Sequence[Row]) -> Iterable[Removed]:
    for row in rows:
        for topic, partition, start, end, since in json.loads(row.get("removed") or "[]"):
            yield Removed(row["table"], topic, partition, start, end, since)


Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class FileHistory:
    """One file of a destination and where its rows came from, as far as the file's statistics show.

    Attributes:
        table: The destination.
        path: Location of the file.
        content: `data`, `position deletes` or `equality deletes`; delete files have no Kafka coordinates.
        snapshot_id: Snapshot that added it: of a batch, or of a compaction.
        topics: Topics its rows may come from: the known ones between the lowest and the highest name.
        partitions: Lowest and highest partition.
        offsets: Lowest offset over all these partitions, and one past the highest.
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
    """Files of the destinations as they are now, by batch, topic, partition and offset. Empty before the first run.

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
    """Topics that a file's bounds allow. Statistics keep the first 16 characters of a text, so names are looked up."""
    lowest, highest = bounds
    between = tuple(sorted(topic for topic in topics if lowest <= topic <= highest))
    return between or tuple(dict.fromkeys(bounds))


def _order(file: FileHistory) -> tuple[object, ...]:
    nowhere = (-1, -1)
    spans = (file.batches or nowhere, file.topics, file.partitions or nowhere, file.offsets or nowhere)
    return (file.table, *spans, file.path)
