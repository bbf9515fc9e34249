"""Compacted topics: offsets are missing in the middle, at the beginning and before the end of a range."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from frazil.kafka.admin.observe import observe, offsets_at
from frazil.kafka.client.cluster import Cluster
from frazil.runtime.process import until
from tests.compaction import CLEANED_SECONDS, COMPACTED, LONG_AGO_MS, eager_cleaner, read, send_apart, wait_for

Topic = Callable[..., str]


@pytest.fixture(scope="module", autouse=True)
def _eager_cleaner(broker: str) -> Iterator[None]:
    with eager_cleaner(broker):
        yield


def fill(cluster: Cluster, topic: str, keys: str, first: int = 0) -> None:
    """One record per letter, its key; a capital letter is a tombstone for the small one."""
    numbered = enumerate(keys, first)
    records = [(key.lower().encode(), None if key.isupper() else b"%d" % number) for number, key in numbered]
    send_apart(cluster, topic, records, first)


def test_ranges_with_compacted_offsets_end_without_repeats(cluster: Cluster, topic: Topic) -> None:
    """Every range gives exactly what is left in it, also one with nothing left, and ends."""
    name = topic(config=COMPACTED)
    fill(cluster, name, "aababcbabx")
    (facts,) = observe(cluster, [name]).topics[name].partitions
    remaining_offsets = [5, 7, 8, 9]
    wait_for(cluster, name, 10, remaining_offsets)
    again = observe(cluster, [name]).topics[name].partitions

    assert (facts.log_start, facts.stable_end, facts.high_watermark) == (0, 10, 10)
    assert again == (facts,)
    for start in range(11):
        for end in range(start, 11):
            assert read(cluster, name, start, end) == [o for o in remaining_offsets if start <= o < end], (start, end)


def test_range_of_tombstones_ends(cluster: Cluster, topic: Topic) -> None:
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


def test_timestamp_in_compacted_offsets_finds_next_record(cluster: Cluster, topic: Topic) -> None:
    """The offset of a moment is one that is still there, at or after it."""
    name = topic(config=COMPACTED)
    fill(cluster, name, "ababax")
    wait_for(cluster, name, 6, [3, 4, 5])

    assert offsets_at(cluster, [(name, 0)], LONG_AGO_MS) == {(name, 0): 3}
    assert offsets_at(cluster, [(name, 0)], LONG_AGO_MS + 3_001) == {(name, 0): 4}


def test_compacted_transactions_neither_hang_nor_leak(
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
