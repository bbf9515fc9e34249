"""How far a range has been read, told from what Kafka handed out."""

from __future__ import annotations

from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, Message

from frazil.batch.facts import Range
from frazil.errors import Retryable, Terminal
from frazil.kafka.client.client import ErrorLog
from frazil.kafka.client.cluster import Cluster
from frazil.kafka.read.read import _Reading

PLACE = ("t", 3)


class HeldLog:
    """A consumer of a log that holds the range; all that is asked of one here."""

    def get_watermark_offsets(self, _: object, timeout: float) -> tuple[int, int]:
        """The log's bounds."""
        assert timeout > 0
        return 0, 10

    def pause(self, _: object) -> None:
        """Nothing flows anyway."""


def reading() -> _Reading:
    """A range of ten offsets of which nothing was read."""
    cluster = Cluster("local", {"bootstrap.servers": "kafka:9092"})
    return _Reading(cluster, cast("Any", HeldLog()), ErrorLog(), {PLACE: Range(*PLACE, 0, 10)})


def message(offset: int, code: int | None = None) -> Message:
    """A record, or what the client reports in its place."""
    return Message(topic="t", partition=3, offset=offset, error=None if code is None else KafkaError(code))


@pytest.mark.parametrize(
    ("messages", "reached"),
    [
        ([message(4)], 5),
        ([message(4), message(7)], 8),
        ([message(4, KafkaError._PARTITION_EOF)], 4),
        ([message(4), message(9, KafkaError._PARTITION_EOF)], 9),
        ([message(5, KafkaError._PARTITION_EOF), message(5)], 6),
        ([message(9), message(12)], 13),
    ],
)
def test_end_of_partition_is_not_a_record(messages: list[Message], reached: int) -> None:
    """The end of the partition says which offset comes next; a record says that the one after it does."""
    reader = reading()
    reader.records_in_ranges(messages)

    assert reader.reached[PLACE] == reached


def test_records_outside_the_range_are_left_out() -> None:
    """Records before and behind it, and of partitions that nobody asked for, stay out."""
    second_message = Message(topic="t", partition=4, offset=5)
    reader = reading()

    records = reader.records_in_ranges([message(0), message(9), message(10), second_message])

    assert [record.offset() for record in records] == [0, 9]
    assert not reader.open_ranges
    assert reader.records_in_ranges([message(11)]) == []


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, Terminal),
        (KafkaError._AUTO_OFFSET_RESET, Retryable),
        (KafkaError._BAD_MSG, Retryable),
    ],
)
@pytest.mark.parametrize("last", [6, 9, 12])
def test_error_among_records_ends_the_range(code: int, kind: type[Exception], last: int) -> None:
    """An error ends the range with its coordinates, whatever comes behind it: also the last record of the range."""
    with pytest.raises(kind, match=r"topic 't', partition 3"):
        reading().records_in_ranges([message(4), message(5, code), message(last)])


def test_error_behind_a_finished_range_is_ignored() -> None:
    """What a partition reports once its range has been read is of no matter."""
    reader = reading()

    assert [record.offset() for record in reader.records_in_ranges([message(9), message(10, KafkaError._BAD_MSG)])] == [
        9
    ]


def test_silence_is_reported_with_its_cause() -> None:
    """An error of no partition is told if nothing comes any more."""
    reader = reading()

    assert reader.records_in_ranges([Message(error=KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))]) == []
    assert [error.code() for error in reader.client_errors] == [KafkaError.GROUP_AUTHORIZATION_FAILED]
