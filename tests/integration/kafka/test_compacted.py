"""Compacted topics: offsets are missing in the middle, at the beginning and before the end of a range."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from frazil.kafka.cluster import Cluster
from frazil.kafka.observe import observe, offsets_at
from frazil.kafka.produce import produce
from frazil.kafka.read import read_range
from frazil.kafka.record import OutgoingRecord
from frazil.local.waiting import until

Topic = Callable[..., str]

COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    # Every batch whose time is later begins a segment, and only the last segment is never cleaned.
    "segment.ms": "1",
    "delete.retention.ms": "0",
}
CLEANED_SECONDS = 60
LONG_AGO_MS = 1_700_000_000_000


@pytest.fixture(scope="module", autouse=True)
def _eager_cleaner(broker: str) -> Iterator[None]:
    """The cleaner looks for work all the time, not every 15 s."""
    set_backoff(broker, AlterConfigOpType.SET, "10")
    yield
    set_backoff(broker, AlterConfigOpType.DELETE, None)


def set_backoff(broker: str, operation: AlterConfigOpType, value: str | None) -> None:
    entry = ConfigEntry("log.cleaner.backoff.ms", value, incremental_operation=operation)
    resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
    with AdminClient({"bootstrap.servers": broker}) as client:
        for future in client.incremental_alter_configs([resource]).values():
            future.result(30)


def fill(cluster: Cluster, topic: str, keys: str, first: int = 0) -> None:
    """One record per letter, its key; a capital letter is a tombstone for the small one. Each in a segment of its own."""
    for number, key in enumerate(keys, first):
        value = None if key.isupper() else b"%d" % number
        produce(cluster, topic, [OutgoingRecord(key.lower().encode(), value, (), LONG_AGO_MS + 1_000 * number)])


def read(cluster: Cluster, topic: str, start: int, end: int) -> list[int]:
    """Offsets that a range gives."""
    return [offset for batch in read_range(cluster, topic, 0, start, end) for offset in batch["offset"].to_pylist()]


def wait_for(cluster: Cluster, topic: str, end: int, left: list[int]) -> None:
    assert until(lambda: read(cluster, topic, 0, end) == left, CLEANED_SECONDS), read(cluster, topic, 0, end)


def test_ranges_with_compacted_offsets_hang_or_repeat(cluster: Cluster, topic: Topic) -> None:
    """Every range gives exactly what is left in it, also one with nothing left, and ends."""
    name = topic(config=COMPACTED)
    fill(cluster, name, "aababcbabx")
    (facts,) = observe(cluster, [name]).topics[name].partitions
    left = [5, 7, 8, 9]
    wait_for(cluster, name, 10, left)
    again = observe(cluster, [name]).topics[name].partitions

    assert (facts.log_start, facts.stable_end, facts.high_watermark) == (0, 10, 10)
    assert again == (facts,)
    for start in range(11):
        for end in range(start, 11):
            assert read(cluster, name, start, end) == [o for o in left if start <= o < end], (start, end)


def test_a_range_of_tombstones_hangs(cluster: Cluster, topic: Topic) -> None:
    """Tombstones are records until a later cleaning takes them too; then the range is empty."""
    name = topic(config=COMPACTED)
    fill(cluster, name, "abAB")
    assert set(read(cluster, name, 0, 4)) <= {0, 1, 2, 3}

    def cleaned_again() -> bool:
        (facts,) = observe(cluster, [name]).topics[name].partitions
        fill(cluster, name, "xx", facts.stable_end)  # only what is new since wakes the cleaner
        return read(cluster, name, 0, 4) == []

    assert until(cleaned_again, CLEANED_SECONDS)
    (facts,) = observe(cluster, [name]).topics[name].partitions
    assert read(cluster, name, 0, facts.stable_end)[-1] == facts.stable_end - 1


def test_a_moment_falls_into_compacted_offsets(cluster: Cluster, topic: Topic) -> None:
    """The offset of a moment is one that is still there, at or after it."""
    name = topic(config=COMPACTED)
    fill(cluster, name, "ababax")
    wait_for(cluster, name, 6, [3, 4, 5])

    assert offsets_at(cluster, [(name, 0)], LONG_AGO_MS) == {(name, 0): 3}
    assert offsets_at(cluster, [(name, 0)], LONG_AGO_MS + 3_001) == {(name, 0): 4}


def test_compacted_transactions_hang_or_leak(
    cluster: Cluster, topic: Topic, transactions: Callable[[str], Any]
) -> None:
    """What aborted transactions and markers leave behind is no record, before and after the cleaner."""
    name = topic(config=COMPACTED)
    writer = transactions(name)
    writer.abort([b"lost"] * 2, key=b"a")  # 0 1, marker 2
    writer.commit([b"old"], key=b"a")  # 3, marker 4
    writer.commit([b"new", b"newer"], key=b"a")  # 5 6, marker 7
    writer.abort([b"lost"], key=b"a")  # 8, marker 9
    writer.commit([b"end"], key=b"x")  # 10, marker 11
    assert set(read(cluster, name, 0, 12)) <= {3, 5, 6, 10}
    wait_for(cluster, name, 12, [6, 10])

    for start in range(13):
        for end in range(start, 13):
            assert read(cluster, name, start, end) == [o for o in (6, 10) if start <= o < end], (start, end)
