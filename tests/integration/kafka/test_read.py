"""Ranged reads of a real broker: exactly the records of the range, whatever lies between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient

from frazil.batch.facts import Range
from frazil.errors import FrazilError, Retryable, Terminal
from frazil.kafka.admin.observe import observe
from frazil.kafka.client.client import STALL_SECONDS, ErrorLog, consumer
from frazil.kafka.client.cluster import Cluster, OutgoingRecord
from frazil.kafka.client.errors import translate
from frazil.kafka.read.read import ReadLimits, _Reading, read_range, read_ranges
from frazil.records.model.rows import KAFKA_SCHEMA
from tests.produce import produce

Topic = Callable[..., str]

SMALL_FETCHES = {
    "fetch.message.max.bytes": "1000",
    "fetch.max.bytes": "300000",
    "message.max.bytes": "250000",
    "queued.min.messages": "1",
    "queued.max.messages.kbytes": "1",
}


def read(cluster: Cluster, topic: str, start: int, end: int, **options: ReadLimits) -> list[dict[str, Any]]:
    """Rows of partition 0."""
    batches = list(read_range(cluster, topic, 0, start, end, **options))
    assert all(batch.num_rows > 0 for batch in batches)
    return pa.Table.from_batches(batches, KAFKA_SCHEMA).to_pylist()


def numbered(count: int, first: int = 0) -> list[bytes]:
    """Values that tell where they stand."""
    return [b"%d" % number for number in range(first, first + count)]


def fill(cluster: Cluster, topic: str, count: int) -> None:
    """Write numbered values without keys to a topic with one partition."""
    produce(cluster, topic, (OutgoingRecord(None, value) for value in numbered(count)))


def fill_large(cluster: Cluster, topic: str, count: int) -> None:
    """Write records so large that a small fetch brings only one or two; most stay in the log when the first is here."""
    for n in range(count):
        produce(cluster, topic, [OutgoingRecord(None, bytes([n]) * 200_000)])


def test_bytes_arrive_unchanged(cluster: Cluster, topic: Topic) -> None:
    """Keys, values, headers and times come back as sent; null and empty stay two things."""
    name = topic()
    binary = bytes(range(256))
    records = [
        OutgoingRecord(b"k", b"v", (("h", b"1"), ("h", None), ("é", b"")), 1_663_027_200_123),
        OutgoingRecord(None, None, (), 1),
        OutgoingRecord(b"", b"", (("binary", binary),), 1_700_000_000_000),
        OutgoingRecord(binary, binary, (), 1_700_000_000_001),
    ]
    for record in records:  # one by one: without keys alike, their order is the order of the calls
        produce(cluster, name, [record])

    rows = read(cluster, name, 0, 4)

    assert [(r["topic"], r["partition"], r["offset"]) for r in rows] == [(name, 0, offset) for offset in range(4)]
    assert [(r["key"], r["value"]) for r in rows] == [(r.key, r.value) for r in records]
    assert [r["headers"] for r in rows] == [
        [{"key": key, "value": value} for key, value in record.headers] or None for record in records
    ]
    assert [int(r["timestamp"].timestamp() * 1_000) for r in rows] == [r.timestamp_ms for r in records]
    assert {r["timestamp_type"] for r in rows} == {0}


def test_partitions_read_at_once_neither_lose_nor_mix_records(cluster: Cluster, topic: Topic) -> None:
    """Ranges of many partitions of several topics, one of them in two parts: each gives its own offsets, in order."""
    names = [topic(partitions=3), topic(partitions=3)]
    for name in names:
        produce(cluster, name, (OutgoingRecord(b"%d" % n, b"%d" % n) for n in range(3_000)))
    ends = {
        (name, number): facts.stable_end
        for name in names
        for number, facts in enumerate(observe(cluster, [name]).topics[name].partitions)
    }
    ranges = [Range(*place, 100, end - 50) for place, end in ends.items()]
    first = ranges[0]
    halves = [Range(*next(iter(ends)), 100, 300), Range(*next(iter(ends)), 300, first.end)]

    batches = list(read_ranges(cluster, [*halves, *ranges[1:], Range(names[0], 1, 7, 7)], limits=ReadLimits(1_000)))

    rows = pa.Table.from_batches(batches, KAFKA_SCHEMA).to_pylist()
    for r in ranges:
        offsets = [row["offset"] for row in rows if (row["topic"], row["partition"]) == (r.topic, r.partition)]
        assert offsets == list(range(r.start, r.end))
    assert len(rows) == sum(r.span for r in ranges)
    assert max(batch.num_rows for batch in batches) <= 1_000


@pytest.fixture
def short_stall(monkeypatch: pytest.MonkeyPatch) -> None:
    """A third of the time that a reader hears nothing before it asks why."""
    monkeypatch.setattr("frazil.kafka.read.read.STALL_SECONDS", STALL_SECONDS / 3)


@pytest.mark.usefixtures("short_stall")
def test_missing_partition_among_others_is_named(cluster: Cluster, topic: Topic) -> None:
    """A topic that is not there is named even where its neighbours flow, or are as silent."""
    names = [topic(), topic()]
    fill(cluster, names[0], 10)
    fill(cluster, names[1], 10)
    # The first is asked for before it is read.
    ranges = [Range(names[0], 0, 0, 10), Range(names[1], 0, 0, 10), Range("not-there", 0, 0, 1)]

    with pytest.raises(Terminal, match="has no topic 'not-there'"):
        list(read_ranges(cluster, ranges))


def test_log_append_time_is_not_taken_for_create_time(cluster: Cluster, topic: Topic) -> None:
    """A topic that stamps records itself says so in the type, and the producer's time is gone."""
    name = topic(config={"message.timestamp.type": "LogAppendTime"})
    produce(cluster, name, [OutgoingRecord(None, b"v", (), 1_000)])

    (row,) = read(cluster, name, 0, 1)

    assert row["timestamp_type"] == 1
    assert row["timestamp"].year > 1970


def test_neighbours_of_range_are_left_out(cluster: Cluster, topic: Topic) -> None:
    """A range in the middle of one Kafka batch gives its own offsets and nothing around them."""
    name = topic()
    fill(cluster, name, 100)

    rows = read(cluster, name, 37, 61)

    assert [row["offset"] for row in rows] == list(range(37, 61))
    assert [row["value"] for row in rows] == numbered(24, 37)


@pytest.mark.parametrize("offset", [0, 3, 5])
def test_empty_range_ends_at_once(cluster: Cluster, topic: Topic, offset: int) -> None:
    """Start equal to end gives nothing, at the ends of the log too."""
    name = topic()
    fill(cluster, name, 5)

    assert read(cluster, name, offset, offset) == []


def test_long_range_is_read_whole_in_bounded_batches(cluster: Cluster, topic: Topic) -> None:
    """Every record once and in order, in batches of at most the asked size."""
    name = topic()
    fill(cluster, name, 30_000)

    batches = list(read_range(cluster, name, 0, 0, 30_000, limits=ReadLimits(7_000)))

    offsets = [offset for batch in batches for offset in batch["offset"].to_pylist()]
    assert offsets == list(range(30_000))
    assert max(batch.num_rows for batch in batches) <= 7_000


def test_markers_and_aborted_records_neither_hang_nor_leak(
    cluster: Cluster, topic: Topic, transactions: Callable[[str], Any]
) -> None:
    """Aborted records stay out, and a range that ends in markers or aborted records ends."""
    name = topic()
    writer = transactions(name)
    writer.commit(numbered(3))  # 0 1 2, marker 3
    writer.abort(numbered(4, 100))  # 4 to 7, marker 8
    writer.commit(numbered(2, 3))  # 9 10, marker 11
    writer.abort(numbered(5, 200))  # 12 to 16, marker 17
    expected = {0: b"0", 1: b"1", 2: b"2", 9: b"3", 10: b"4"}

    for start in range(19):
        for end in range(start, 19):
            rows = read(cluster, name, start, end)
            values = {row["offset"]: row["value"] for row in rows}
            assert values == {o: v for o, v in expected.items() if start <= o < end}, (start, end)


def test_deleted_records_are_not_skipped(cluster: Cluster, topic: Topic) -> None:
    """A range that begins below the log start is left to the next plan; one from the log start on is read."""
    name = topic()
    fill(cluster, name, 20)
    delete_before(cluster, name, 12)

    with pytest.raises(Retryable, match=r"run again: the next plan .* source\.on_data_loss") as refused:
        read(cluster, name, 11, 20)

    message = str(refused.value)
    assert all(part in message for part in (name, "partition 0", "11", "20", "12", "'local'"))
    assert [row["offset"] for row in read(cluster, name, 12, 20)] == list(range(12, 20))


def test_large_records_do_not_fill_memory(cluster: Cluster, topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch ends by its bytes too, so its size does not follow from the number of records alone."""
    name = topic()
    fill_large(cluster, name, 20)
    slow = Cluster(cluster.name, dict(cluster.properties) | SMALL_FETCHES)
    monkeypatch.setattr("frazil.kafka.read.read._BATCH_BYTES", 200_000)

    batches = list(read_range(slow, name, 0, 0, 20))

    assert [offset for batch in batches for offset in batch["offset"].to_pylist()] == list(range(20))
    assert max(batch.num_rows for batch in batches) <= 5


@pytest.mark.usefixtures("short_stall")
def test_records_deleted_during_read_are_not_skipped(cluster: Cluster, topic: Topic) -> None:
    """What goes between two fetches is left to the next plan: the rest alone would look like the whole range."""
    name = topic()
    fill_large(cluster, name, 30)
    slow = Cluster(cluster.name, dict(cluster.properties) | SMALL_FETCHES)
    batches = read_range(slow, name, 0, 0, 30, limits=ReadLimits(1))
    assert next(batches)["offset"].to_pylist() == [0]

    delete_before(cluster, name, 29)

    with pytest.raises(
        Retryable, match=r"expected offsets 0 to 30 .* found 29 to 30 .*\n.* the next plan refuses or skips"
    ):
        list(batches)


def test_too_short_topic_is_refused(cluster: Cluster, topic: Topic) -> None:
    """Where both ends are missing no later plan can fit: it is another topic."""
    name = topic()
    fill(cluster, name, 5)
    delete_before(cluster, name, 3)

    with pytest.raises(Terminal, match=r"compare the topic ids"):
        read(cluster, name, 0, 6)


def test_end_beyond_log_is_refused(cluster: Cluster, topic: Topic) -> None:
    """Offsets that Kafka never gave are refused: the topic is not the one of the position."""
    name = topic()
    fill(cluster, name, 3)

    with pytest.raises(Terminal, match=r"expected offsets 0 to 4 .* found 0 to 3"):
        read(cluster, name, 0, 4)


def test_open_transaction_is_not_read(cluster: Cluster, topic: Topic, transactions: Callable[[str], Any]) -> None:
    """The stable end is the last that can be asked for while a transaction is open."""
    name = topic()
    writer = transactions(name)
    writer.commit(numbered(2))
    writer.open(numbered(2))
    (facts,) = observe(cluster, [name]).topics[name].partitions

    assert (facts.stable_end, facts.high_watermark) == (3, 5)
    assert [row["value"] for row in read(cluster, name, 0, 3)] == numbered(2)
    with pytest.raises(Terminal, match="last stable offset"):
        read(cluster, name, 0, 5)


def test_missing_topic_is_reported_at_once(cluster: Cluster) -> None:
    """A topic or partition that isn't there is said at once."""
    with pytest.raises(Terminal, match="has no topic 'not-there'"):
        read(cluster, "not-there", 0, 1)


def test_lost_leader_is_told_apart_from_missing_partition(cluster: Cluster, unreachable: Cluster, topic: Topic) -> None:
    """The client has one word for a partition that is gone, one that is led again in a moment, and brokers that are silent."""
    name = topic()

    def explained_error(cluster_asked: Cluster, place: tuple[str, int]) -> FrazilError:
        client_errors = ErrorLog()
        client = consumer(cluster_asked, client_errors)
        reading = _Reading(cluster_asked, client, client_errors, {place: Range(*place, 0, 1)})
        try:
            cause = reading._explain(KafkaError(KafkaError._UNKNOWN_PARTITION), place)
        finally:
            reading.close()
        return translate(cause, cluster_asked, topic=place[0], partition=place[1])

    assert isinstance(explained_error(cluster, (name, 0)), Retryable)
    assert isinstance(explained_error(cluster, (name, 7)), Terminal)
    assert isinstance(explained_error(cluster, ("not-there", 0)), Terminal)
    assert isinstance(explained_error(unreachable, (name, 0)), Retryable)


def delete_before(cluster: Cluster, topic: str, offset: int) -> None:
    """Have the broker forget the records of partition 0 before an offset."""
    with AdminClient(dict(cluster.properties)) as client:
        for future in client.delete_records([TopicPartition(topic, 0, offset)]).values():
            future.result(30)
