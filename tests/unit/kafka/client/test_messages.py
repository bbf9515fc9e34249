"""Consumed messages as Arrow: nulls, times and headers in the shape that decoding expects."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, TIMESTAMP_NOT_AVAILABLE, Message

from frazil.kafka.client.messages import to_batch
from frazil.records.model.rows import KAFKA_SCHEMA, UNREAD_BYTES


def rows(*messages: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows of messages with the given parts and consecutive offsets."""
    made = [
        Message(topic="t", partition=3, offset=n, **{"timestamp": (TIMESTAMP_CREATE_TIME, 0), **parts})
        for n, parts in enumerate(messages)
    ]
    batch = to_batch(made, 1_000)
    assert batch.schema.equals(KAFKA_SCHEMA)
    batch.validate(full=True)
    return batch.to_pylist()


def test_null_and_empty_stay_apart() -> None:
    """No key or value is null, an empty one is empty."""
    message_rows = rows({"key": None, "value": b""}, {"key": b"", "value": None})

    assert [(row["key"], row["value"]) for row in message_rows] == [(None, b""), (b"", None)]
    assert [(row["topic"], row["partition"], row["offset"]) for row in message_rows] == [
        ("t", 3, 0),
        ("t", 3, 1),
    ]


def test_headers_keep_order_and_nulls() -> None:
    """Headers keep order, repeated names and null values; a record without any has null."""
    message_rows = rows({"headers": [("b", b"1"), ("a", None), ("b", b"")]}, {"headers": None})

    assert message_rows[0]["headers"] == [
        {"key": "b", "value": b"1"},
        {"key": "a", "value": None},
        {"key": "b", "value": b""},
    ]
    assert message_rows[1]["headers"] is None


def test_timestamp_keeps_unit_and_type() -> None:
    """Milliseconds become microseconds UTC, the type gets Kafka's number."""
    ms = 1_663_027_200_123
    message_rows = rows(
        {"timestamp": (TIMESTAMP_CREATE_TIME, ms)},
        {"timestamp": (TIMESTAMP_LOG_APPEND_TIME, ms)},
        {"timestamp": (TIMESTAMP_NOT_AVAILABLE, -1)},
    )

    instant = datetime(2022, 9, 13, 0, 0, 0, 123_000, tzinfo=UTC)
    assert [(row["timestamp"], row["timestamp_type"]) for row in message_rows] == [
        (instant, 0),
        (instant, 1),
        (None, None),
    ]


def test_invalid_timestamp_becomes_null() -> None:
    """A time beyond what microseconds can hold is null; its record and the others stay."""
    message_rows = rows({"timestamp": (TIMESTAMP_CREATE_TIME, 1_663_027_200_123_000_000)}, {"value": b"v"})

    assert [row["timestamp"] for row in message_rows] == [None, datetime(1970, 1, 1, tzinfo=UTC)]
    assert message_rows[1]["value"] == b"v"


def message(offset: int, **parts: Any) -> Message:
    """A record of 1970."""
    return Message(topic="t", partition=3, offset=offset, timestamp=(TIMESTAMP_CREATE_TIME, 0), **parts)


def test_record_above_the_limit_keeps_only_size_and_coordinates() -> None:
    """Key, value, names and values of headers count together; the limit itself is allowed."""
    at_the_limit = message(0, key=b"k" * 10, value=b"v" * 80, headers=[("name", b"123456")])
    above = [message(1, value=b"v" * 101), message(2, key=b"k" * 101), message(3, headers=[("n", b"x" * 100)])]

    batch = to_batch([at_the_limit, *above, message(4, value=b"v")], 100)

    assert batch.column(UNREAD_BYTES).to_pylist() == [None, 101, 101, 101, None]
    assert batch.column("offset").to_pylist() == [0, 1, 2, 3, 4]
    assert batch.column("key").to_pylist() == [b"k" * 10, None, None, None, None]
    assert batch.column("value").to_pylist() == [b"v" * 80, None, None, None, b"v"]
    assert batch.column("headers").to_pylist()[1] == [
        {"key": "frazil.payload", "value": b"none"},
        {"key": "frazil.bytes", "value": b"101"},
    ]
    assert batch.select(KAFKA_SCHEMA.names).schema.equals(KAFKA_SCHEMA)


def test_many_headers_count_by_their_bytes() -> None:
    """Names count as well as values, whatever the number of headers is."""
    headers = [("h", None)] * 100_000

    assert to_batch([message(0, headers=headers)], 100_000).schema.equals(KAFKA_SCHEMA)
    assert to_batch([message(0, headers=headers)], 99_999).column(UNREAD_BYTES).to_pylist() == [100_000]
