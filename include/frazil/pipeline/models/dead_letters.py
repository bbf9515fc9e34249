"""Keys for records that can't become rows: where dead letters go, and how many are tolerated."""

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
        description="Partitions that it is made with if it is missing, replicated as the brokers are configured. Another"
        " number of one that exists is fine.",
    )


class LetterReporting(Model):
    """How often new dead letters are reported, and from how many on people are notified."""

    schedule: Schedule = Field(
        "1d",
        description="How often Airflow looks for new dead letters: a duration or a cron expression, in UTC. Without new ones"
        " there is no report.",
    )
    threshold: int = Field(
        1, ge=1, description="New dead letters from which on the report is sent. Below, it is only kept."
    )
    samples: int = Field(3, ge=0, le=20, description="Letters of each code, topic and table that the report shows.")


class DeadLetters(Model):
    """Where records go that can't be decoded, converted or routed."""

    table: TableName | None = Field(None, description="Default: `<namespace>.<pipeline>__dead_letters`.")
    tolerance: Tolerance | Literal["none", "all"] = Field(
        default_factory=Tolerance,
        description="How many a batch may have: `none` (the first one is one too many), `all`, or limits. Records count, each"
        " once, however many of the destinations it does not fit. Where only records with code `TABLE_NOT_MADE` exceed `max_rate`, the run"
        " publishes, and says so.",
    )
    on_exceed: Literal["fail", "dead_letter_and_alert"] = Field(
        "fail",
        description="With more than tolerated: the run fails and publishes nothing, or it publishes rows and dead letters"
        " and says so loudly (in its report, and as `tolerance_exceeded` in its result). A run that fails for `none` or"
        " `max_count` stops reading there.",
    )
    log: bool = Field(
        False,
        description="Whether a run reports code and coordinates of each dead letter, at most 100 per batch. Never what is"
        " in a record, nor a message that quotes it.",
    )
    payload: Literal["full", "redacted", "none"] = Field(
        "full",
        description="What a dead letter keeps of its record: `full` is key, value and headers as they came; `redacted`"
        " their sizes and hashes; `none` nothing. The latter two keep no message that quotes the record either, nor"
        " names that are not declared, and such letters can't be replayed from the table.",
    )

    topic: DeadLetterTopic | None = Field(
        None,
        description="Kafka topic that gets the dead letters of each batch as well, at least once, as they came, with Kafka Connect's"
        " `__connect.errors.*` headers: a name, or a mapping. Needs `payload: full`.",
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
    def _has_records(self) -> DeadLetters:
        if self.topic is not None and self.payload != "full":
            raise ValueError(
                f"topic gets records as they came, and payload: {self.payload} keeps them out of every copy; leave the topic"
                " out, or set payload: full"
            )
        return self

    @property
    def limits(self) -> Tolerance:
        """`tolerance` as limits, whatever way it is written."""
        if self.tolerance == "none":
            return Tolerance(max_rate=1, min_records=0, max_count=0)
        if self.tolerance == "all":
            return Tolerance(max_rate=1, min_records=0, max_count=None)
        return self.tolerance

    def refuse_as_source(self, reads: Callable[[str], bool]) -> None:
        """Refuse a topic of dead letters that the pipeline reads.

        Raises:
            ValueError: It does.
        """
        if self.topic is not None and reads(self.topic.name):
            raise ValueError(
                f"the source reads topic {self.topic.name}, which dead_letters.topic names: each dead letter would come again"
                " as a record"
            )
