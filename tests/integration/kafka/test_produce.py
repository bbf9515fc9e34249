"""Producing: every record acknowledged, exactly once, at the asked rate."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from random import Random

import pytest

from frazil.errors import Terminal
from frazil.generators import pizzas
from frazil.kafka.admin.observe import observe
from frazil.kafka.client.cluster import Cluster, OutgoingRecord
from frazil.kafka.client.errors import RecordTooLarge
from frazil.kafka.read.read import read_range
from frazil.kafka.write.produce import produce

Topic = Callable[..., str]


def test_records_are_produced_once(cluster: Cluster, topic: Topic) -> None:
    """As many land as were made, though they do not fit into the client's queue at once."""
    name = topic(partitions=3)
    counts: list[int] = []

    done = produce(cluster, name, pizzas(120_000, seed=1), progress=counts.append)

    ends = [partition.high_watermark for partition in observe(cluster, [name]).topics[name].partitions]
    assert done.count == sum(ends) == 120_000
    assert done.offsets == {number: (0, end - 1) for number, end in enumerate(ends)}
    assert counts == sorted(set(counts))
    assert counts[-1] == 120_000


def test_equal_keys_share_partition_and_order(cluster: Cluster, topic: Topic) -> None:
    """Records of one key share a partition and keep their order."""
    name = topic(partitions=4)
    keys = [b"%d" % (n % 10) for n in range(1_000)]
    produce(cluster, name, [OutgoingRecord(k, b"%d" % n) for n, k in enumerate(keys)])

    homes: dict[bytes, set[int]] = {}
    for number, facts in enumerate(observe(cluster, [name]).topics[name].partitions):
        values = []
        for batch in read_range(cluster, name, number, 0, facts.stable_end):
            values += [int(value) for value in batch["value"].to_pylist()]
            for key in batch["key"].to_pylist():
                homes.setdefault(key, set()).add(number)
        assert values == sorted(values)

    assert homes.keys() == set(keys)
    assert {len(partitions) for partitions in homes.values()} == {1}


def test_rate_does_not_drift(cluster: Cluster, topic: Topic) -> None:
    """Record n is not taken before n / rate seconds, and the whole does not fall behind."""
    times: list[float] = []

    def clocked() -> Iterator[OutgoingRecord]:
        for _ in range(200):
            yield OutgoingRecord(None, b"v")
            times.append(time.monotonic())

    name = topic()
    started = time.monotonic()
    done = produce(cluster, name, clocked(), rate=400)

    # Each stamp is the moment after a record was sent.
    early = [n for n, instant in enumerate(times) if instant - started < n / 400]
    assert early == []
    assert done.count == 200
    assert 199 / 400 <= done.seconds < 30


def test_records_that_fit_one_by_one_are_sent_together(cluster: Cluster, topic: Topic) -> None:
    """A topic's limit is one of batches."""
    records = [OutgoingRecord(None, Random(n).randbytes(6_000)) for n in range(8)]

    assert produce(cluster, topic(config={"max.message.bytes": "20000"}), records).count == 8


def test_record_above_the_limit_of_the_topic_is_named(cluster: Cluster, topic: Topic) -> None:
    """It fails the transfer with the record, the topic and counts."""
    name = topic(config={"max.message.bytes": "500"})
    records = [OutgoingRecord(None, b"small"), OutgoingRecord(None, Random(1).randbytes(2_000))]

    with pytest.raises(RecordTooLarge, match=f"{name}.* 1 of 2 sent records acknowledged") as caught:
        produce(cluster, name, records)

    assert caught.value.record is records[1]


def test_empty_input_is_done_at_once(cluster: Cluster, topic: Topic) -> None:
    """An empty input is done at once."""
    assert produce(cluster, topic(), []).count == 0


def test_missing_topic_takes_no_records(cluster: Cluster) -> None:
    """Nothing is taken from the input when the topic isn't there."""
    untouched = iter([OutgoingRecord(None, b"v")])

    with pytest.raises(Terminal, match="has no topic 'not-there'"):
        produce(cluster, "not-there", untouched)

    assert next(untouched).value == b"v"
