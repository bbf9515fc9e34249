"""One scenario of the Iceberg sink for Kafka Connect, as data: what is sent, into which pipeline, and what is there then."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any


@dataclass(frozen=True)
class SinkRecord:
    """One record.

    Attributes:
        value: Its value: bytes as they are, anything else as JSON; None is a tombstone.
        partition: Where it goes.
        topic: What follows the topic's name, in scenarios of several topics.
    """

    value: Any
    partition: int = 0
    topic: str = ""

    @property
    def bytes(self) -> bytes | None:
        """The value as it is sent."""
        return self.value if self.value is None or isinstance(self.value, bytes) else json.dumps(self.value).encode()


@dataclass(frozen=True)
class TableContents:
    """What a table holds.

    Attributes:
        columns: All columns but Kafka's: name -> type, with a `!` where null is refused.
        rows: Values of these columns, in the order of topic, partition and offset.
        partition: Partition fields, as `name transform`.
        files: Number of data files, where the scenario is about that.
    """

    columns: Mapping[str, str]
    rows: tuple[tuple[Any, ...], ...]
    partition: tuple[str, ...] = ()
    files: int | None = None


@dataclass(frozen=True)
class Scenario:
    """One scenario.

    Attributes:
        name: What it is about.
        after: The sink's test, or the place in its code, that it comes from.
        file: The pipeline file without name, source and engine; `TOPIC` stands for the topic's name.
        rounds: Records, run by run.
        tables: What each table holds at the end.
        letters: Dead letters: offset, table (None: of the whole record) and code, in this order.
        filtered: Records that were left out on record.
        topics: What follows the names of the topics.
        partitions: Of each topic.
    """

    name: str
    after: str
    file: str
    rounds: tuple[tuple[SinkRecord, ...], ...]
    tables: Mapping[str, TableContents]
    letters: tuple[tuple[int, str | None, str], ...] = ()
    filtered: int = 0
    topics: tuple[str, ...] = ("",)
    partitions: int = field(default=1)

    def __str__(self) -> str:
        return self.name.replace(" ", "_")

    @property
    def has_several_publishes(self) -> bool:
        """Whether a batch gives more tables their parts than the one that decides, and the ledger."""
        return len(self.tables) + bool(self.letters) > 1

    @property
    def read(self) -> int:
        """Records that all runs together read."""
        return sum(map(len, self.rounds))


def sink_records(*values: Any) -> tuple[SinkRecord, ...]:
    """Records of one partition."""
    return tuple(map(SinkRecord, values))


# The events that the sink's own integration tests send: of two days, and of two types.
FIRST = datetime(2026, 5, 1, 10, 30, tzinfo=UTC)
SECOND = datetime(2026, 5, 2, 11, 45, tzinfo=UTC)

EVENT = "{id: long, type: string, ts: {type: timestamptz, unit: ms}, payload: string}"
"""Declared columns of these events."""

EVENT_COLUMNS = {"id": "long", "type": "string", "ts": "timestamptz", "payload": "string"}


def event(
    number: int, kind: str | None, instant: datetime = FIRST, payload: str | None = "hello world!"
) -> dict[str, Any]:
    """An event as JSON without a schema has it."""
    return {"id": number, "type": kind, "ts": millis(instant), "payload": payload}


def row(
    number: int, kind: str | None, instant: datetime = FIRST, payload: str | None = "hello world!"
) -> tuple[Any, ...]:
    """Its row."""
    return number, kind, instant, payload


def millis(instant: datetime) -> int:
    """Milliseconds since 1970, as Kafka Connect counts."""
    return int(instant.timestamp()) * 1000


Schema = dict[str, Any]

TIMESTAMP: Schema = {"type": "int64", "name": "org.apache.kafka.connect.data.Timestamp", "version": 1}


def schema(kind: str | Schema, *, optional: bool = True) -> Schema:
    """A schema of Kafka Connect: of a type by its name, or with what else belongs to it."""
    return {**({"type": kind} if isinstance(kind, str) else kind), "optional": optional}


def struct(*, optional: bool = True, **fields: Schema) -> Schema:
    """The schema of a struct."""
    return schema(
        {"type": "struct", "fields": [{**field, "field": name} for name, field in fields.items()]}, optional=optional
    )


def with_schema(declared: Schema, value: Any) -> dict[str, Any]:
    """A value beside its schema, as JsonConverter writes both."""
    return {"schema": declared, "payload": value}
