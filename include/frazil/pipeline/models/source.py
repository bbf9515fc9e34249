"""Where records come from, and where the very first run begins."""

from __future__ import annotations

from typing import Literal

from pydantic import AwareDatetime, Field, field_validator, model_validator

from frazil.pipeline.syntax.patterns import Expression, matches
from frazil.pipeline.syntax.strict import Model, TopicName


class Source(Model):
    """Where records come from."""

    cluster: str = Field("local", description="Name of a Kafka cluster in the settings file.")
    topics: tuple[TopicName, ...] = Field((), description="Topics to read, by exact name.")
    topics_pattern: Expression | None = Field(
        None,
        description="Instead of `topics`: a regular expression (RE2's) that matches whole names, such as `events\\.\\d{8}`."
        " Topics that appear later are read from their beginning; topics that were read to their end may vanish.",
    )
    on_data_loss: Literal["fail", "skip_recorded"] = Field(
        "fail",
        description="What to do where Kafka deleted records before they were read: `fail` stops and says which,"
        " `skip_recorded` goes on behind them and writes what was skipped into the snapshot and the ledger. A partition, or a"
        " topic of a pattern, that appears later is owed from offset 0 on; of a topic that is added to `topics`, what is gone"
        " already is skipped, on record.",
    )
    on_unreadable: Literal["dead_letter", "fail"] = Field(
        "dead_letter",
        description="What to do with a batch of records that the Kafka client can't unpack, since it is damaged or larger"
        " than `receive.message.max.bytes` of the cluster: a dead letter `UNREADABLE_BATCH` for each of its offsets, or the"
        " run fails and says where.",
    )
    consumer_group: str | Literal[False] | None = Field(
        None,
        description="Consumer group that mirrors the position for lag tools, `frazil-<pipeline>` by default; it is"
        " written after each run and never read. `false`: none.",
    )

    @field_validator("topics")
    @classmethod
    def _once(cls, topics: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(topics)) < len(topics):
            raise ValueError("a topic is named twice")
        return topics

    @model_validator(mode="after")
    def _either(self) -> Source:
        if bool(self.topics) == bool(self.topics_pattern):
            raise ValueError("name either topics or a topics_pattern")
        return self

    def reads(self, topic: str) -> bool:
        """Whether a topic belongs to the pipeline."""
        if self.topics_pattern is None:
            return topic in self.topics
        return matches(self.topics_pattern, topic)

    @property
    def described(self) -> str:
        """The topics for people."""
        return ", ".join(self.topics) if self.topics_pattern is None else f"topics like {self.topics_pattern}"


class StartAt(Model):
    """Begin at an instant, or at given offsets."""

    timestamp: AwareDatetime | None = Field(
        None, description="The first record at or after this instant, such as 2026-05-01T00:00:00Z."
    )
    offsets: dict[TopicName, dict[int, int]] | None = Field(
        None, description="Topic -> partition -> first offset. Every partition must be named."
    )

    @model_validator(mode="after")
    def _either(self) -> StartAt:
        if (self.timestamp is None) == (self.offsets is None):
            raise ValueError("name either a timestamp or offsets")
        return self

    def __str__(self) -> str:
        return self.timestamp.isoformat() if self.timestamp else "given offsets"


Start = Literal["earliest", "latest"] | StartAt
"""Where the very first run begins."""
