"""How far a pipeline is behind its topics: lag per partition, landed records, and unread records. It only reads: it creates no
table and commits nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from time import time
from typing import Literal

from frazil.batch.facts import ClusterFacts, PartitionFacts, TopicPartition
from frazil.batch.plan import Backlog, Threshold
from frazil.batch.position import Position
from frazil.error_codes import POSITION_LOST
from frazil.errors import FrazilError
from frazil.iceberg.catalog.table import Table
from frazil.iceberg.commit.summary_state import (
    CLOSING_KEY,
    POSITION_KEY,
    SummaryValue,
    lookup_position,
    refuse_rolled_back,
)
from frazil.kafka.admin.consumer_group import group_offsets
from frazil.kafka.admin.observe import matching_topics, observe
from frazil.kafka.client.cluster import Cluster
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.project import Project
from frazil.report.history import BatchHistory, history
from frazil.run.state.pipeline_state import bytes_per_record

COMPLETE_KEY = "frazil.complete-through"
"""Summary key of the instant through which the pipeline is complete: all records that Kafka had accepted by then landed."""

State = Literal["", "new", "vanished", "recreated", "other cluster"]


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """The position of a pipeline in one partition, and the offsets of the partition's log.

    Attributes:
        position: Next offset to read, from the closing table; None if the position lacks the partition.
        log: Log start, stable end and high watermark; None if Kafka doesn't have the partition.
        mirrored: Committed offset of the consumer group that mirrors the position; None if there is none.
        state: `new`: the position lacks the partition, so reading begins at the log start. `vanished`, `recreated`,
            `other cluster`: the position does not fit the partition that Kafka has now. Else empty.
    """

    topic: str
    partition: int
    position: int | None
    log: PartitionFacts | None
    mirrored: int | None
    state: State = ""

    @property
    def lag(self) -> int | None:
        """Readable offsets that were not read yet, including gaps of transactions and compaction. None if unknown."""
        begin = self.begin
        return None if begin is None or self.log is None else max(0, self.log.stable_end - begin)

    @property
    def held_back(self) -> int | None:
        """Offsets from the first open transaction on, which consumers can't read yet. None if Kafka lacks the partition."""
        return None if self.log is None else self.log.high_watermark - self.log.stable_end

    @property
    def headroom(self) -> int | None:
        """Offsets from the log start to the position; if negative, so many were deleted unread. None if unknown."""
        begin = self.begin
        return None if begin is None or self.log is None else begin - self.log.log_start

    @property
    def is_caught_up(self) -> bool:
        """Whether all records that Kafka has accepted landed."""
        return self.lag == 0 and self.held_back == 0

    @property
    def begin(self) -> int | None:
        """Offset at which the next run begins to read; None if unknown."""
        if self.state == "new" and self.log is not None:
            return self.log.log_start
        return self.position if self.state == "" else None


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a pipeline is behind.

    Attributes:
        n: Number of the last batch; None if the pipeline never ran.
        snapshot_id: Snapshot that has the position.
        complete_through: Instant, ISO 8601, through which the pipeline is complete: all records that Kafka had accepted by then
            landed. None if unknown.
        group: Consumer group that mirrors the position; None if the pipeline has none.
        group_problem: Why its offsets could not be read.
        partitions: Sorted by topic and number.
        absent: Topics of the pipeline file that neither Kafka nor the position has.
    """

    n: int | None
    snapshot_id: int | None
    complete_through: str | None
    group: str | None
    group_problem: str | None
    partitions: tuple[PartitionLag, ...]
    absent: tuple[str, ...]

    @property
    def total(self) -> int | None:
        """Sum of the known lags of partitions; None if none is known."""
        return _sum(partition.lag for partition in self.partitions)

    @property
    def held_back(self) -> int | None:
        """Sum of the offsets that open transactions hold back; None if Kafka has none of the partitions."""
        return _sum(partition.held_back for partition in self.partitions)

    @property
    def headroom(self) -> int | None:
        """The smallest headroom of a partition with unread records; None if there is none."""
        return min(
            (partition.headroom for partition in self.partitions if partition.headroom is not None and partition.lag),
            default=None,
        )


def lag(project: Project, pipeline: Pipeline, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> Lag:
    """Compare the position of a pipeline with its topics.

    Raises:
        Retryable: Kafka or the catalog is not available now.
        Terminal: The position can't be determined, or access is refused.
    """
    # The position comes first, since offsets only grow: so a batch in between can't look like a position beyond the log.
    holder = held_position(project, pipeline)
    position = Position.from_json(holder.value) if holder else None
    cluster = project.cluster(pipeline.source.cluster)
    asked_at = clock()
    facts = observe(cluster, topics_of(cluster, pipeline, position), absent_ok=True)
    group_offsets, problem = _consumer_group_offsets(cluster, pipeline.consumer_group, facts)
    return replace(lag_in(pipeline, holder, facts, asked_at, group_offsets), group_problem=problem)


def lag_in(
    pipeline: Pipeline,
    holder: SummaryValue | None,
    facts: ClusterFacts,
    asked_at: datetime,
    group_offsets: Mapping[TopicPartition, int] | None = None,
) -> Lag:
    """Compare the position of a pipeline with the broker's facts about the topics of `topics_of`, as of `asked_at`.

    `holder`: the value with the position, None before the first run. It must be read before the facts.
    """
    position = Position.from_json(holder.value) if holder else None
    partitions = tuple(partition_lags(position, facts, pipeline, group_offsets or {}))
    topics = facts.topics.keys() | (position.topics.keys() if position else set())
    is_complete = bool(partitions) and all(partition.is_caught_up for partition in partitions)
    complete_through = asked_at.isoformat(timespec="milliseconds") if is_complete else None
    return Lag(
        n=position.n if position else None,
        snapshot_id=holder.snapshot_id if holder else None,
        complete_through=complete_through or (holder.summary.get(COMPLETE_KEY) if holder else None),
        group=pipeline.consumer_group,
        group_problem=None,
        partitions=partitions,
        absent=tuple(topic for topic in pipeline.source.topics if topic not in topics),
    )


def held_position(project: Project, pipeline: Pipeline) -> SummaryValue | None:
    """The value with the position of a pipeline; None if the pipeline never ran.

    Raises:
        Retryable: The catalog is not available now.
        Terminal: The position can't be determined.
    """
    lake = project.lake_of(pipeline)
    ledger = lake.find_table(pipeline.ledger_table)
    closing = ledger.metadata.properties.get(CLOSING_KEY.format(pipeline.name)) if ledger is not None else None
    if closing is None:
        first = pipeline.destinations[0].table if pipeline.create is None else pipeline.ledger_table
        table = lake.find_table(first)
        return _held_in(table, pipeline, first) if table is not None else None
    holder = _held_in(lake.load_table(closing), pipeline, closing)
    if holder is None:
        raise POSITION_LOST.terminal(
            f"pipeline {pipeline.name}: its position should be in table {closing}, but that table has none",
            next_step=f"{closing} was probably dropped and created again: the error of frazil run {pipeline.name} has the steps",
        )
    return holder


def _held_in(table: Table, pipeline: Pipeline, name: str) -> SummaryValue | None:
    return refuse_rolled_back(lookup_position(table, pipeline.name, name), POSITION_KEY.format(pipeline.name), name)


def topics_of(cluster: Cluster, pipeline: Pipeline, position: Position | None) -> tuple[str, ...]:
    """Topics that the pipeline reads now, and topics of its position that it would read again if they were recreated.

    Raises:
        Retryable: No broker answers.
        Terminal: Credentials or settings don't fit.
    """
    source = pipeline.source
    current = source.topics if source.topics_pattern is None else matching_topics(cluster, source.topics_pattern)
    before = [topic for topic in position.topics if source.reads(topic)] if position else []
    return tuple(sorted({*current, *before}))


def _consumer_group_offsets(
    cluster: Cluster, group: str | None, facts: ClusterFacts
) -> tuple[Mapping[TopicPartition, int], str | None]:
    """Offsets of the consumer group, or why they can't be read. They are only a copy, so an error must not stop the report."""
    if group is None:
        return {}, None
    partitions = [(name, number) for name, topic in facts.topics.items() for number in range(len(topic.partitions))]
    try:
        return group_offsets(cluster, group, partitions), None
    except FrazilError as problem:
        return {}, problem.message_with_code


def partition_lags(
    position: Position | None, facts: ClusterFacts, pipeline: Pipeline, group_offsets: Mapping[TopicPartition, int]
) -> Iterator[PartitionLag]:
    """Every partition of the position or of Kafka, sorted by topic and number."""
    before = {name for name in position.topics if pipeline.source.reads(name)} if position else set()
    for topic in sorted(before | facts.topics.keys()):
        log = facts.topics[topic].partitions if topic in facts.topics else ()
        next_offsets = position.topics[topic].next if position and topic in position.topics else ()
        state = _state(position, facts, topic)
        for number in range(max(len(log), len(next_offsets))):
            offset = next_offsets[number] if number < len(next_offsets) else None
            partition_log = log[number] if number < len(log) else None
            partition_state = (
                "vanished" if partition_log is None else "new" if position and offset is None and not state else state
            )
            yield PartitionLag(
                topic, number, offset, partition_log, group_offsets.get((topic, number)), partition_state
            )


def _state(position: Position | None, facts: ClusterFacts, topic: str) -> State:
    if position is None or topic not in facts.topics:
        return ""
    if position.cluster != facts.cluster_id:
        return "other cluster"
    read_id = position.topics[topic].id if topic in position.topics else None
    topic_id = facts.topics[topic].id
    return "recreated" if None not in (read_id, topic_id) and read_id != topic_id else ""


def _sum(values: Iterator[int | None]) -> int | None:
    counts = [value for value in values if value is not None]
    return sum(counts) if counts else None


@dataclass(frozen=True, slots=True)
class Landing:
    """A pipeline's progress.

    Attributes:
        produced: Offsets from the pipeline's first position to the high watermarks.
        landed: Offsets from the pipeline's first position to the present one.
    """

    produced: int
    landed: int

    @property
    def is_complete(self) -> bool:
        """Whether all offsets have been read."""
        return self.landed >= self.produced


def landing(project: Project, pipeline: Pipeline) -> Landing:
    """Measure how far a pipeline has read its topics.

    Gaps in the offsets, from transactions and compaction, count as well.

    Raises:
        Retryable: Kafka or the catalog is not available now.
        Terminal: A topic is missing.
    """
    batches = history(project, pipeline)
    produced = landed = 0
    for topic, facts in observe(project.cluster(pipeline.source.cluster), pipeline.source.topics).topics.items():
        for number, partition in enumerate(facts.partitions):
            begins, ends = (_offsets(batches, topic, number, key) for key in ("from", "next"))
            begin = begins[0] if begins else partition.log_start
            produced += partition.high_watermark - begin
            landed += ends[-1] - begin if ends else 0
    return Landing(produced, landed)


def _offsets(batches: list[BatchHistory], topic: str, partition: int, key: str) -> list[int]:
    """First (`from`) or next (`next`) offset of a partition in each batch whose position has the partition."""
    per_batch = (batch.position.get(topic, {}).get(key, []) for batch in batches)
    return [offsets[partition] for offsets in per_batch if partition < len(offsets)]


# A measurement costs two round trips to Kafka. The tables are read for the position only if the position read before is older than
# `POSITION_SECONDS`, or if by that position enough records wait.

POSITION_SECONDS = 60.0
"""Age from which the position is read again: a reset may have moved it back."""


def waiting(partitions: Iterable[PartitionLag], epoch: int | None, record_bytes: float | None) -> Backlog:
    """Sum the unread records of all partitions. Without a fitting position, a partition counts as 0: runs are refused."""
    places = [(f"{partition.topic}/{partition.partition}", partition, partition.lag) for partition in partitions]
    readable = [
        (place, partition.log.stable_end, lag)
        for place, partition, lag in places
        if partition.log is not None and lag is not None
    ]
    records = sum(lag for _, _, lag in readable)
    return Backlog(
        records=records,
        bytes=None if record_bytes is None else round(records * record_bytes),
        epoch=epoch,
        position={place: end - lag for place, end, lag in readable},
        ends={place: end for place, end, _ in readable},
    )


class LagWatch:
    """Measures the unread records of one pipeline again and again.

    Attributes:
        project: The project of the pipeline.
    """

    def __init__(self, project: Project, pipeline: Pipeline, clock: Callable[[], float] = time) -> None:
        self.project, self._pipeline, self._clock = project, pipeline, clock
        self._cluster = project.cluster(pipeline.source.cluster)
        self._position: Position | None = None
        self._record_bytes: float | None = None
        self._read_at: float | None = None

    def measure(self, threshold: Threshold | None = None) -> Backlog:
        """Measure the unread records. If they reach the threshold, the position is from the tables as they are now.

        Raises:
            Retryable: Kafka or the catalog is not available now.
            Terminal: The position can't be determined, or access is refused.
        """
        if threshold is not None and self._read_at is not None and self._clock() - self._read_at < POSITION_SECONDS:
            backlog = self._unread()
            if not backlog.reaches(threshold):
                return backlog
        self._read_position()
        return self._unread()

    def _read_position(self) -> None:
        holder = held_position(self.project, self._pipeline)
        self._position = Position.from_json(holder.value) if holder else None
        self._record_bytes = bytes_per_record(holder.summary) if holder else None
        self._read_at = self._clock()

    def _unread(self) -> Backlog:
        position = self._position
        facts = observe(self._cluster, topics_of(self._cluster, self._pipeline, position), absent_ok=True)
        partitions = partition_lags(position, facts, self._pipeline, {})
        return waiting(partitions, position.epoch if position else None, self._record_bytes)
