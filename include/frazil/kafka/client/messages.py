"""Turns consumed messages into Arrow batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message
from confluent_kafka._types import HeadersType

from frazil.records.model.rows import BAD_HEADERS, KAFKA_SCHEMA, NOT_UNPACKED, UNREAD_BYTES, unread_headers

PartitionKey = tuple[str, int]
"""Topic and partition."""

_HEADERS: Final = KAFKA_SCHEMA.field("headers").type

_MICROSECONDS: Final = 1_000
"""Microseconds in a millisecond, the unit of Kafka's timestamps."""

_LARGEST_MS: Final = (2**63 - 1) // _MICROSECONDS
"""The last time that fits into 64 bits as microseconds (year 294247); later ones, of broken clocks, are read as null."""


def partition_of(message: Message) -> PartitionKey:
    """Topic and partition of a message. They are only optional in messages that an application creates itself."""
    return cast("PartitionKey", (message.topic(), message.partition()))


def to_batch(messages: Sequence[Message], max_record_bytes: int, topic: str | None = None) -> pa.RecordBatch:
    """Turn messages into a batch of `KAFKA_SCHEMA`, in their order.

    Key, value and header value are null where Kafka has null; headers are null for a record without headers. A record without
    timestamp has null in both timestamp columns.

    A record with more than `max_record_bytes` of key, value and headers keeps only its coordinates and its timestamp. A record
    with a header name that is not UTF-8 loses its headers. A batch with such records also has the column `UNREAD_BYTES`.
    """
    count = len(messages)
    # By `map` of methods: for each record and column, a call from C costs a third of one from Python.
    keys, values = list(map(Message.key, messages)), list(map(Message.value, messages))
    headers, bad = _headers(messages)
    columns = [
        pa.array(list(map(Message.topic, messages)), pa.string()) if topic is None else pa.repeat(topic, count),
        pa.array(np.fromiter(map(Message.partition, messages), np.int32, count)),
        pa.array(np.fromiter(map(Message.offset, messages), np.int64, count)),
        *_times(messages),
    ]
    payload = [pa.array(keys, pa.binary()), pa.array(values, pa.binary())]
    largest = sum(pc.max(pc.binary_length(part)).as_py() or 0 for part in payload)
    # Most batches have no headers. Only if one has, each record is looked at by itself.
    if largest <= max_record_bytes and not bad and not any(headers):
        return pa.RecordBatch.from_arrays([*columns, *payload, pa.nulls(count, _HEADERS)], schema=KAFKA_SCHEMA)
    pairs = list(map(_pairs, headers))
    sizes = list(map(_size, keys, values, pairs))
    too_large = {position: size for position, size in enumerate(sizes) if size > max_record_bytes}
    for position, size in too_large.items():
        keys[position] = values[position] = None
        pairs[position] = unread_headers(size)
    payload = [pa.array(keys, pa.binary()), pa.array(values, pa.binary()), pa.array(pairs, _HEADERS)]
    batch = pa.RecordBatch.from_arrays([*columns, *payload], schema=KAFKA_SCHEMA)
    unread = dict.fromkeys(bad, BAD_HEADERS) | too_large
    if not unread:
        return batch
    return batch.append_column(UNREAD_BYTES, pa.array(map(unread.get, range(len(sizes))), pa.int64()))


def unreadable_batch(topic: str, partition: int, start: int, end: int) -> pa.RecordBatch:
    """Return a batch with `UNREAD_BYTES` of the offsets `start` <= o < `end`, whose records can't be unpacked."""
    count = end - start
    columns_by_name = {
        "topic": pa.repeat(pa.scalar(topic), count),
        "partition": pa.repeat(pa.scalar(partition, pa.int32()), count),
        "offset": pa.arange(start, end),
        "headers": pa.repeat(pa.scalar(unread_headers(NOT_UNPACKED), _HEADERS), count),
    }
    columns = [columns_by_name.get(field.name, pa.nulls(count, field.type)) for field in KAFKA_SCHEMA]
    batch = pa.RecordBatch.from_arrays(columns, schema=KAFKA_SCHEMA)
    return batch.append_column(UNREAD_BYTES, pa.repeat(pa.scalar(NOT_UNPACKED, pa.int64()), count))


def _headers(messages: Sequence[Message]) -> tuple[list[HeadersType | None], list[int]]:
    """The headers of each message, and the positions of messages with a header name that is not UTF-8: there the client fails.

    A second call for such a message would return a list without the name, and its use would crash the process. The calls come
    from C, by `map`, because a call that Python's interpreter has specialised does not notice the failure.
    """
    headers: list[HeadersType | None] = []
    bad = []
    answers = map(Message.headers, messages)
    while len(headers) < len(messages):
        try:
            headers.extend(answers)
        except SystemError:
            bad.append(len(headers))
            headers.append(None)
    return headers, bad


def _size(key: bytes | None, value: bytes | None, headers: Sequence[Mapping[str, Any]] | None) -> int:
    """Bytes of key, value, names and values of headers."""
    own = sum(len(header["key"].encode()) + len(header["value"] or b"") for header in headers or ())
    return len(key or b"") + len(value or b"") + own


def _times(messages: Sequence[Message]) -> tuple[pa.Array, pa.Array]:
    """The columns `timestamp` and `timestamp_type`, whose number in Kafka is one less than in librdkafka."""
    pairs = chain.from_iterable(map(Message.timestamp, messages))
    kinds, stamps = np.fromiter(pairs, np.int64, 2 * len(messages)).reshape(-1, 2).T.copy()
    kind, ms = pa.array(kinds), pa.array(stamps)
    has_time = pc.not_equal(kind, TIMESTAMP_NOT_AVAILABLE)
    fits = pc.and_(has_time, pc.and_(pc.less_equal(ms, _LARGEST_MS), pc.greater_equal(ms, -_LARGEST_MS)))
    us = pc.multiply(pc.if_else(fits, ms, None), _MICROSECONDS)
    return us.cast(KAFKA_SCHEMA.field("timestamp").type), pc.if_else(has_time, pc.subtract(kind, 1), None).cast(
        pa.int32()
    )


def _pairs(headers: HeadersType | None) -> list[dict[str, Any]] | None:
    if not headers:
        return None
    pairs = headers.items() if isinstance(headers, dict) else headers
    return [{"key": key, "value": value} for key, value in pairs]
