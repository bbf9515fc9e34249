"""Batches of records that unpack to far more than they are: what is too large is told by its place, and nothing else stops."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from frazil.batch.facts import Range
from frazil.errors import Terminal
from frazil.kafka.client.client import ErrorLog, consumer
from frazil.kafka.client.cluster import Cluster
from frazil.kafka.read import read
from frazil.kafka.read.read import ReadLimits, read_range, read_ranges
from frazil.pipeline.settings.settings import ClusterSettings
from frazil.records.model.rows import NOT_UNPACKED, UNREAD_BYTES
from frazil.verify.kafka import PartitionReader, Source

Topic = Callable[..., str]

SMALL = {"receive.message.max.bytes": "20000"}
"""A client that unpacks no batch of more than 20,000 bytes: as the real bound, a thousand times smaller."""

CODECS = ("zstd", "gzip", "lz4", "snappy")


def send(cluster: Cluster, topic: str, values: Sequence[bytes], codec: str = "zstd") -> None:
    """Send values as one batch of records of partition 0."""
    bounds = {"batch.size": 2_000_000_000, "batch.num.messages": 1_000_000, "message.max.bytes": 1_000_000_000}
    producer = Producer({**cluster.properties, **bounds, "compression.type": codec, "linger.ms": 100_000})
    producer.list_topics(topic, timeout=30)  # a partition that flush() still has to look up gets its records one by one
    for value in values:
        producer.produce(topic, value, partition=0)
    producer.flush()


def zeros(count: int, size: int = 1_000) -> list[bytes]:
    """Values of nothing but zeros."""
    return [bytes(size)] * count


def read_offsets(cluster: Cluster, topic: str, start: int, end: int) -> list[tuple[int, int | None]]:
    """Offset of each record, and its bytes if it was not taken over."""
    rows: list[tuple[int, int | None]] = []
    for batch in read_range(cluster, topic, 0, start, end):
        unread = batch.column(UNREAD_BYTES).to_pylist() if UNREAD_BYTES in batch.schema.names else [None] * len(batch)
        rows += zip(batch.column("offset").to_pylist(), unread, strict=True)
    return rows


def test_batches_that_client_cannot_unpack_are_reported_by_offset(cluster: Cluster, topic: Topic) -> None:
    """Each offset of such a batch once, from the beginning of the range to its end; batches around it are read."""
    name = topic()
    sizes = [3, 70, 2, 21, 333, 1, 40]  # of batches, of which the large ones can't be unpacked
    for size in sizes:
        send(cluster, name, zeros(size))
    ends = [sum(sizes[: index + 1]) for index in range(len(sizes))]
    unreadable = {o for size, end in zip(sizes, ends, strict=True) if size > 20 for o in range(end - size, end)}
    small = Cluster(cluster.name, dict(cluster.properties) | SMALL)

    for start, end in ((0, ends[-1]), (1, 50), (10, 11), (72, 80), (74, 76), (100, ends[-1] - 5), (96, 97)):
        expected = [(o, NOT_UNPACKED if o in unreadable else None) for o in range(start, end)]
        assert read_offsets(small, name, start, end) == expected, (start, end)


def test_end_of_unreadable_batch_is_found_with_little_unpacking(
    cluster: Cluster, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A producer may send thousands of batches of 128 MiB in 10 KB each: what looks for their ends unpacks 2 MiB of them."""
    name, built = topic(), list[tuple[Consumer, str]]()
    for size in (2, 300, 300, 1):
        send(cluster, name, zeros(size, 1_000_000 if size == 300 else 10))

    def recorded_consumer(cluster_read: Cluster, client_errors: ErrorLog, **statistics: Any) -> Consumer:
        built.append(
            (
                consumer(cluster_read, client_errors, **statistics),
                cluster_read.properties.get("receive.message.max.bytes", "default"),
            )
        )
        return built[-1][0]

    monkeypatch.setattr(read, "consumer", recorded_consumer)
    expected = [(o, NOT_UNPACKED if 2 <= o < 602 else None) for o in range(603)]
    assert read_offsets(cluster, name, 0, 603) == expected
    assert [bound for _, bound in built] == ["default", str(2 * 2**20)]


def test_end_of_batch_larger_than_probe_is_found(
    cluster: Cluster, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has more bytes in the log than a probe takes: then one that takes as much as the reader looks for its end."""
    name = topic()
    send(cluster, name, zeros(2))
    send(cluster, name, [*zeros(40), random.Random(1).randbytes(12_000)])
    send(cluster, name, zeros(3))
    monkeypatch.setattr(read, "_PROBED_BYTES", 9_000)
    monkeypatch.setattr(read, "_PROBE_SECONDS", 1.0)
    small = Cluster(cluster.name, dict(cluster.properties) | SMALL)
    assert read_offsets(small, name, 0, 46) == [(o, NOT_UNPACKED if 2 <= o < 43 else None) for o in range(46)]


def test_verify_reads_the_same_offsets(cluster: Cluster, topic: Topic) -> None:
    """The reader of the check, which shares no code with the other one, goes on behind such a batch as well."""
    name = topic()
    for size in (3, 70, 2):
        send(cluster, name, zeros(size))
    settings = ClusterSettings(bootstrap_servers=cluster.bootstrap_servers, properties=SMALL)

    reader = PartitionReader(Source("local", settings), name, 0)
    try:
        record = [
            (record.offset(), record.error() is None) for part in ((1, 30), (30, 75)) for record in reader.read(*part)
        ]
    finally:
        reader.close()

    assert record == [(o, o < 3 or o >= 73) for o in range(1, 75)]


def test_other_partitions_flow_beside_a_batch_that_cannot_be_unpacked(cluster: Cluster, topic: Topic) -> None:
    """Of several partitions that are read at once each gives all of its offsets."""
    names = [topic(), topic()]
    send(cluster, names[0], zeros(30))
    for name in reversed(names):
        send(cluster, name, zeros(5))
    small = Cluster(cluster.name, dict(cluster.properties) | SMALL)

    batches = list(read_ranges(small, [Range(names[0], 0, 0, 35), Range(names[1], 0, 0, 5)]))

    places = [
        place
        for batch in batches
        for place in zip(batch["topic"].to_pylist(), batch["offset"].to_pylist(), strict=True)
    ]
    assert sorted(places) == sorted([(names[0], o) for o in range(35)] + [(names[1], o) for o in range(5)])


def test_reading_fails_with_on_unreadable_fail(cluster: Cluster, topic: Topic) -> None:
    """With `on_unreadable: fail` the place is named, and what to raise."""
    name = topic()
    send(cluster, name, zeros(3))
    send(cluster, name, zeros(30))
    small = Cluster(cluster.name, dict(cluster.properties) | SMALL)

    with pytest.raises(Terminal, match=r"partition 0: the batch of records at offset 3 can't be unpacked") as refused:
        list(read_range(small, name, 0, 0, 33, ReadLimits(unreadable="fail")))

    assert "receive.message.max.bytes" in str(refused.value)


@pytest.mark.parametrize("codec", CODECS)
def test_record_above_limit_is_reported_by_size_in_every_codec(cluster: Cluster, topic: Topic, codec: str) -> None:
    """Records around it, in the same batch and in others, are read."""
    name = topic()
    send(cluster, name, [b"1", bytes(17_000_000), b"3"], codec)
    send(cluster, name, [b"4"], codec)

    assert read_offsets(cluster, name, 0, 4) == [(0, None), (1, 17_000_000), (2, None), (3, None)]
