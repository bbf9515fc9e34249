"""The files of a pipeline's destinations, and the Kafka offsets in each."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from frazil.iceberg.catalog.table import Table
from frazil.iceberg.files.files import current_files
from frazil.pipeline.models.pipeline_file import Destination, Pipeline
from frazil.project import Project
from frazil.report.history import history

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class FileHistory:
    """One file of a destination and where its rows came from, as far as the file's statistics tell.

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
