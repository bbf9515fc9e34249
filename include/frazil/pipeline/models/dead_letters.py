"""Keys for dead letters: where they go, how many are tolerated, and how they are reported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from pydantic import Field, field_validator, model_validator

from frazil.pipeline.models.maintenance import Schedule
from frazil.pipeline.syntax.strict import Model, TableName, TopicName


class Tolerance(Model):
    """How many dead letters a batch may have before `dead_letters.on_exceed` decides about it."""

    max_rate: float = Field(0.1, ge=0, le=1, description="Largest share of dead letters in a batch.")
    min_records: int = Field(1000, ge=0, description="Batches smaller than this are not judged by their rate.")
    max_count: int | None = Field(
        None, ge=0, description="Largest number of dead letters in a batch, whatever its size."
    )


class DeadLetterTopic(Model):
    """A Kafka topic that gets dead letters, too."""

    name: TopicName = Field(description="Name of the topic, on the cluster of the source.")
    partitions: int = Field(
        1,
        ge=1,
        description="Partitions of the topic if it is missing and Frazil creates it, with the brokers' default replication. An"
        " existing topic may have any number.",
    )


class LetterReporting(Model):
    """How often new dead letters are reported, and how many of them cause a notice."""

    schedule: Schedule = Field(
        "1d",
        description="How often Airflow checks for new dead letters: a duration or a cron expression, in UTC. Without new ones"
        " there is no report.",
    )
    threshold: int = Field(
        1, ge=1, description="Number of new dead letters from which on the report is also sent, not only stored."
    )
    samples: int = Field(3, ge=0, le=20, description="Letters of each code, topic and table that the report shows.")


class DeadLetters(Model):
    """What happens to records that can't be decoded, converted or routed."""

    table: TableName | None = Field(
        None, description="Name of the table of dead letters. Default: `<namespace>.<pipeline>__dead_letters`."
    )
    tolerance: Tolerance | Literal["none", "all"] = Field(
        default_factory=Tolerance,
        description="How many dead letters a batch may have: `none`, `all`, or limits. Each record counts once, however many"
        " destinations it does not fit. If only records with code `TABLE_NOT_MADE` exceed `max_rate`, the run publishes and reports"
        " it.",
    )
    on_exceed: Literal["fail", "dead_letter_and_alert"] = Field(
        "fail",
        description="What to do with more dead letters than tolerated. `fail`: the run fails and publishes nothing; with"
        " `none` or `max_count` it stops reading at the first one too many. `dead_letter_and_alert`: the run publishes rows and dead"
        " letters and reports it (in its output, and as `tolerance_exceeded` in its result).",
    )
    log: bool = Field(
        False,
        description="Whether a run prints code and coordinates of each dead letter, at most 100 per batch. It never prints"
        " content of a record, nor a message that quotes it.",
    )
    payload: Literal["full", "redacted", "none"] = Field(
        "full",
        description="What a dead letter keeps of its record. `full`: key, value and headers, unchanged. `redacted`: their sizes"
        " and hashes. `none`: nothing. With the latter two it has no message that quotes the record and no undeclared names, and"
        " can't be replayed from the table.",
    )
    topic: DeadLetterTopic | None = Field(
        None,
        description="Kafka topic that gets the dead letters of each batch, too, at least once: a name, or a mapping. The records"
        " are unchanged, with Kafka Connect's `__connect.errors.*` headers. Requires `payload: full`.",
    )
    report: LetterReporting | Literal[False] = Field(
        default_factory=LetterReporting,
        description="The report of the DAG `dead_letters__<pipeline>`. `false`: none, and no such DAG.",
    )

    @field_validator("topic", mode="before", json_schema_input_type=DeadLetterTopic | str | None)
    @classmethod
    def _short_form(cls, topic: object) -> object:
        return {"name": topic} if isinstance(topic, str) else topic

    @model_validator(mode="after")
    def _payload_fits_topic(self) -> DeadLetters:
        if self.topic is not None and self.payload != "full":
            raise ValueError(
                f"topic gets records as they came, and payload: {self.payload} keeps them out of every copy; leave the topic"
                " out, or set payload: full"
            )
        return self

    @property
    def limits(self) -> Tolerance:
        """`tolerance` as limits, also if it is `none` or `all`."""
        if self.tolerance == "none":
            return Tolerance(max_rate=1, min_records=0, max_count=0)
        if self.tolerance == "all":
            return Tolerance(max_rate=1, min_records=0, max_count=None)
        return self.tolerance

    def refuse_as_source(self, reads: Callable[[str], bool]) -> None:
        """Refuse a topic of dead letters that the pipeline itself reads.

        Raises:
            ValueError: The pipeline reads it.
        """
        if self.topic is not None and reads(self.topic.name):
            raise ValueError(
                f"the source reads topic {self.topic.name}, which dead_letters.topic names: each dead letter would come again"
                " as a record"
            )
