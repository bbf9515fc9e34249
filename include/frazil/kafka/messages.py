"""Consumed messages as an Arrow batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message
from confluent_kafka._types import HeadersType

from frazil.records.kafka import KAFKA_SCHEMA

_MICROSECONDS: Final = 1_000
"""In a millisecond, the unit of Kafka's timestamps."""

_LARGEST_MS: Final = (2**63 - 1) // _MICROSECONDS
"""Beyond it (the year 294247) a time in microseconds does not fit into 64 bits: a broken clock's,
read as null."""


def to_batch(topic: str, partition: int, messages: Sequence[Message]) -> pa.RecordBatch:
    """Turn messages of one partition into a batch of `KAFKA_SCHEMA`, in their order.

    Key, value and header value are null where Kafka has null; headers are null for a record without
    any. A record of a message format without timestamps has null for both timestamp columns.
    """
    count = len(messages)
    stamps = [message.timestamp() for message in messages]
    columns = [
        pa.repeat(pa.scalar(topic, pa.string()), count),
        pa.repeat(pa.scalar(partition, pa.int32()), count),
        pa.array([message.offset() for message in messages], pa.int64()),
        pa.array([_microseconds(kind, ms) for kind, ms in stamps], KAFKA_SCHEMA.field("timestamp").type),
        pa.array([_timestamp_type(kind) for kind, _ in stamps], pa.int32()),
        pa.array([message.key() for message in messages], pa.binary()),
        pa.array([message.value() for message in messages], pa.binary()),
        _headers(messages),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=KAFKA_SCHEMA)


def _headers(messages: Sequence[Message]) -> pa.Array:
    kind = KAFKA_SCHEMA.field("headers").type
    headers = [message.headers() for message in messages]
    if not any(headers):
        return pa.nulls(len(headers), kind)
    return pa.array([_pairs(h) for h in headers], kind)


def _pairs(headers: HeadersType | None) -> list[dict[str, object]] | None:
    if not headers:
        return None
    pairs = headers.items() if isinstance(headers, dict) else headers
    return [{"key": key, "value": value} for key, value in pairs]


def _microseconds(kind: int, ms: int) -> int | None:
    return None if kind == TIMESTAMP_NOT_AVAILABLE or abs(ms) > _LARGEST_MS else ms * _MICROSECONDS


def _timestamp_type(kind: int) -> int | None:
    """Kafka's number: 0 = create time, 1 = log append time. librdkafka counts from one more."""
    return None if kind == TIMESTAMP_NOT_AVAILABLE else kind - 1
