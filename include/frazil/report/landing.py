"""How far a pipeline has read its topics, in offsets: the progress of a demo."""

from __future__ import annotations

from dataclasses import dataclass

from frazil.kafka.admin.observe import observe
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.project import Project
from frazil.report.history import BatchHistory, history


@dataclass(frozen=True, slots=True)
class Landing:
    """A pipeline's progress.

    Attributes:
        produced: Records in the topics, from the pipeline's start position to the high watermarks.
        landed: Of these, what the position has passed.
    """

    produced: int
    landed: int

    @property
    def is_complete(self) -> bool:
        """Whether everything has been read."""
        return self.landed >= self.produced


def landing(project: Project, pipeline: Pipeline) -> Landing:
    """Measure how far a pipeline has read its topics.

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
            begins, ends = (_offsets(batches, topic, number, key) for key in ("from", "next"))
            begin = begins[0] if begins else partition.log_start
            produced += partition.high_watermark - begin
            landed += ends[-1] - begin if ends else 0
    return Landing(produced, landed)


def _offsets(batches: list[BatchHistory], topic: str, partition: int, key: str) -> list[int]:
    """Where each batch began to read a partition (`from`), or was behind it (`next`), of those that know the partition."""
    per_batch = (batch.position.get(topic, {}).get(key, []) for batch in batches)
    return [offsets[partition] for offsets in per_batch if partition < len(offsets)]
