"""Measures the unread records of a pipeline in Kafka.

Looking costs two round trips to Kafka. The tables are only read for the position when what was known of it says that
enough waits, or is older than `POSITION_SECONDS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import time

from frazil.batch.position import Position
from frazil.batch.waiting import Threshold, Waiting
from frazil.kafka.admin.observe import observe
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.project import Project
from frazil.report.lag import PartitionLag, held_position, partition_lags, topics_of
from frazil.run.state.pipeline_state import bytes_per_record

POSITION_SECONDS = 60.0
"""Age from which a position that was read is read again: a reset may have moved it back."""


def waiting(partitions: Iterable[PartitionLag], epoch: int | None, record_bytes: float | None) -> Waiting:
    """Sum the unread records of all partitions. A partition whose position does not match its topic counts as 0: its run
    would be refused.
    """
    places = [(f"{partition.topic}/{partition.partition}", partition, partition.lag) for partition in partitions]
    readable = [
        (place, partition.log.stable_end, lag)
        for place, partition, lag in places
        if partition.log is not None and lag is not None
    ]
    records = sum(lag for _, _, lag in readable)
    return Waiting(
        records=records,
        bytes=None if record_bytes is None else round(records * record_bytes),
        epoch=epoch,
        position={place: end - lag for place, end, lag in readable},
        ends={place: end for place, end, _ in readable},
    )


class Watch:
    """Looks at a pipeline again and again.

    Attributes:
        project: The project that it was made with.
    """

    def __init__(self, project: Project, pipeline: Pipeline, clock: Callable[[], float] = time) -> None:
        self.project, self._pipeline, self._clock = project, pipeline, clock
        self._cluster = project.cluster(pipeline.source.cluster)
        self._position: Position | None = None
        self._record_bytes: float | None = None
        self._read_at: float | None = None

    def look(self, threshold: Threshold | None = None) -> Waiting:
        """Return the unread records. The position is reloaded before the threshold is reported as reached.

        Raises:
            Retryable: Kafka or the catalog is not available now.
            Terminal: The position can't be told, or access is refused.
        """
        if threshold is not None and self._read_at is not None and self._clock() - self._read_at < POSITION_SECONDS:
            backlog = self._compared()
            if not backlog.reaches(threshold):
                return backlog
        self._read_position()
        return self._compared()

    def _read_position(self) -> None:
        holder = held_position(self.project, self._pipeline)
        self._position = Position.from_json(holder.value) if holder else None
        self._record_bytes = bytes_per_record(holder.summary) if holder else None
        self._read_at = self._clock()

    def _compared(self) -> Waiting:
        # The position before the offsets, which only grow: what lands meanwhile can't look like a position beyond the log.
        position = self._position
        facts = observe(self._cluster, topics_of(self._cluster, self._pipeline, position), absent_ok=True)
        partitions = partition_lags(position, facts, self._pipeline, {})
        return waiting(partitions, position.epoch if position else None, self._record_bytes)
