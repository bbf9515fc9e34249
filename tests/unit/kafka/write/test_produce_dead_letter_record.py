"""Dead letters as records of a topic: what Kafka Connect's users look for, and nothing of the record lost."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from frazil.batch.position import BatchMark
from frazil.kafka.client.cluster import OutgoingRecord
from frazil.kafka.write.produce import STAGES, letter_records
from frazil.records.model.dead_letter import Stage
from frazil.records.model.rows import DEAD_SCHEMA

LETTER: dict[str, Any] = {
    "code": "WRONG_TYPE",
    "stage": "convert",
    "message": "id: expected a long, found 'ü'",
    "path": "id",
    "key": b"\x00k",
    "value": b"\xffv",
    "headers": None,
    "topic": "orders",
    "partition": 3,
    "offset": 2**40,
    "timestamp": 1_700_000_000_123_456,
}


def outgoing(**changes: Any) -> OutgoingRecord:
    letters = pa.RecordBatch.from_pylist([LETTER | changes], schema=DEAD_SCHEMA)
    (record,) = letter_records(letters, "shop", BatchMark(7, "b7", 0))
    return record


def test_headers_are_those_of_kafka_connect() -> None:
    """Names and values to the byte: UTF-8 texts, numbers in decimals, stages by Kafka Connect's names."""
    assert outgoing().headers == (
        ("__connect.errors.topic", b"orders"),
        ("__connect.errors.partition", b"3"),
        ("__connect.errors.offset", b"1099511627776"),
        ("__connect.errors.connector.name", b"shop"),
        ("__connect.errors.task.id", b"0"),
        ("__connect.errors.stage", b"TASK_PUT"),
        ("__connect.errors.class.name", b"frazil.records.decoder.decode.Decoder"),
        ("__connect.errors.exception.class.name", b"frazil.WRONG_TYPE"),
        ("__connect.errors.exception.message", "id: expected a long, found 'ü'".encode()),
        ("frazil.code", b"WRONG_TYPE"),
        ("frazil.batch", b"7"),
        ("frazil.batch.id", b"b7"),
    )


def test_dead_letter_header_names_its_table() -> None:
    """Letters of one record for two tables differ in a header; one of the whole record has none."""
    assert outgoing(destination="shop.orders").headers[-1] == ("frazil.destination", b"shop.orders")
    assert "frazil.destination" not in dict(outgoing(destination=None).headers)


def test_record_survives_the_dead_letter_topic() -> None:
    """Key, value, headers (repeated, null and empty ones, even named like Kafka Connect's) and time in milliseconds."""
    own = [("a", b"1"), ("a", None), ("", b""), ("__connect.errors.topic", b"first")]

    record = outgoing(headers=[{"key": key, "value": value} for key, value in own])

    assert (record.key, record.value, record.timestamp_ms) == (b"\x00k", b"\xffv", 1_700_000_000_123)
    assert list(record.headers[: len(own)]) == own
    assert len(record.headers) == len(own) + 12


@pytest.mark.parametrize("key", [None, b"", b"k"])
@pytest.mark.parametrize("value", [None, b""])
def test_null_stays_null(key: bytes | None, value: bytes | None) -> None:
    """A tombstone stays one, and nothing stays nothing."""
    record = outgoing(key=key, value=value)

    assert (record.key, record.value) == (key, value)


@pytest.mark.parametrize(
    ("timestamp", "sent_as"), [(None, None), (0, None), (-1_000, None), (1_000, 1), (2**62, 2**62 // 1_000)]
)
def test_invalid_timestamp_still_makes_a_dead_letter(timestamp: int | None, sent_as: int | None) -> None:
    """No time, one that Kafka takes for none, and one that Python has no date for."""
    assert outgoing(timestamp=timestamp).timestamp_ms == sent_as


def test_every_stage_has_a_name_of_kafka_connect() -> None:
    """A new stage needs one."""
    assert set(STAGES) == set(Stage)
