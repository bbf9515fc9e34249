"""Do topic and tables agree: every record of the topic is a row, a dead letter or a counted filter."""

from __future__ import annotations

from dataclasses import dataclass

from frazil.kafka.observe import observe
from frazil.pipeline.model import Pipeline
from frazil.project import Project
from frazil.report.history import BatchHistory, dead_letter_counts, history


@dataclass(frozen=True, slots=True)
class Landing:
    """How far a pipeline is.

    Attributes:
        produced: Records in the topics, from the pipeline's start position to the high watermarks.
        landed: Of these, what the position has passed.
    """

    produced: int
    landed: int

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left to read."""
        return self.landed >= self.produced


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """What was produced, and what became of it, counted in the tables themselves."""

    produced: int
    rows: int
    dead: int
    filtered: int

    @property
    def difference(self) -> int:
        """Records that are missing; below zero, records that are there too often."""
        return self.produced - self.rows - self.dead - self.filtered

    def __str__(self) -> str:
        sign = "=" if self.difference == 0 else "!="
        filtered = f" + filtered {self.filtered}" if self.filtered else ""
        return f"produced {self.produced} {sign} rows {self.rows} + dead letters {self.dead}{filtered}"


def landing(project: Project, pipeline: Pipeline) -> Landing:
    """How much of the topics a pipeline has passed.

    Offsets are counted, so topics with transactions or compaction, whose offsets have gaps, count for more than their
    records.

    Raises:
        Retryable: Kafka or the catalog is not available now.
        Terminal: A topic is missing.
    """
    batches = history(project, pipeline)
    produced = landed = 0
    for topic, facts in observe(project.cluster(pipeline.source.cluster), pipeline.source.topics).topics.items():
        for number, partition in enumerate(facts.partitions):
            begin = _start(batches, topic, number, partition.log_start)
            produced += partition.high_watermark - begin
            landed += _passed(batches, topic, number, begin) - begin
    return Landing(produced, landed)


def reconcile(project: Project, pipeline: Pipeline) -> Reconciliation:
    """Count the rows of the destination and of the dead letters, and compare with the topics.

    Raises:
        Retryable: Kafka or the catalog is not available now.
        Terminal: A topic or a table is missing.
    """
    lake = project.lake(pipeline.catalog)
    rows = lake.load_table(pipeline.destinations[0].table).scan().count()
    dead = sum(dead_letter_counts(project, pipeline).values())
    filtered = sum(batch.filtered for batch in history(project, pipeline))
    return Reconciliation(landing(project, pipeline).produced, rows, dead, filtered)


def _start(batches: list[BatchHistory], topic: str, partition: int, log_start: int) -> int:
    """Where the pipeline began to read a partition; its log start if it has not yet."""
    for batch in batches:
        begins = batch.position.get(topic, {}).get("from", [])
        if partition < len(begins):
            return begins[partition]
    return log_start


def _passed(batches: list[BatchHistory], topic: str, partition: int, begin: int) -> int:
    for batch in reversed(batches):
        ends = batch.position.get(topic, {}).get("next", [])
        if partition < len(ends):
            return ends[partition]
    return begin
