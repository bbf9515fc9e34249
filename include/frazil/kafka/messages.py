"""Consumed messages as an Arrow batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message
from confluent_kafka._types import HeadersType

from frazil.records.kafka import KAFKA_SCHEMA

Place = tuple[str, int]
"""Topic and partition of a message."""

_MICROSECONDS: Final = 1_000
"""In a millisecond, the unit of Kafka's timestamps."""

_LARGEST_MS: Final = (2**63 - 1) // _MICROSECONDS
"""Beyond it (the year 294247) a time in microseconds does not fit into 64 bits: a broken clock's,
read as null."""


def place_of(message: Message) -> Place:
    """Topic and partition of a consumed message. Typed as optional for those that an application makes itself."""
    return cast("Place", (message.topic(), message.partition()))


def to_batch(messages: Sequence[Message]) -> pa.RecordBatch:
    """Turn messages into a batch of `KAFKA_SCHEMA`, in their order.

    Key, value and header value are null where Kafka has null; headers are null for a record without
    any. A record of a message format without timestamps has null for both timestamp columns.
    """
    # Methods by `map`: a call from C, as often as there are records and columns, is a third of one from Python.
    columns = [
        pa.array(list(map(Message.topic, messages)), pa.string()),
        pa.array(list(map(Message.partition, messages)), pa.int32()),
        pa.array(list(map(Message.offset, messages)), pa.int64()),
        *_times(messages),
        pa.array(list(map(Message.key, messages)), pa.binary()),
        pa.array(list(map(Message.value, messages)), pa.binary()),
        _headers(messages),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=KAFKA_SCHEMA)


def _times(messages: Sequence[Message]) -> tuple[pa.Array, pa.Array]:
    """The columns `timestamp` and `timestamp_type`; Kafka's number of the type is one less than librdkafka's."""
    kinds, stamps = zip(*map(Message.timestamp, messages), strict=True) if messages else ((), ())
    kind, ms = pa.array(kinds, pa.int32()), pa.array(stamps, pa.int64())
    is_told = pc.not_equal(kind, TIMESTAMP_NOT_AVAILABLE)
    fits = pc.and_(is_told, pc.and_(pc.less_equal(ms, _LARGEST_MS), pc.greater_equal(ms, -_LARGEST_MS)))
    us = pc.multiply(pc.if_else(fits, ms, None), _MICROSECONDS)
    return us.cast(KAFKA_SCHEMA.field("timestamp").type), pc.if_else(is_told, pc.subtract(kind, 1), None).cast(
        pa.int32()
    )


def _headers(messages: Sequence[Message]) -> pa.Array:
    kind = KAFKA_SCHEMA.field("headers").type
    headers = list(map(Message.headers, messages))
    if not any(headers):
        return pa.nulls(len(headers), kind)
    return pa.array([_pairs(h) for h in headers], kind)


def _pairs(headers: HeadersType | None) -> list[dict[str, object]] | None:
    if not headers:
        return None
    pairs = headers.items() if isinstance(headers, dict) else headers
    return [{"key": key, "value": value} for key, value in pairs]
