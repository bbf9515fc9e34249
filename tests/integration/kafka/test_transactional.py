"""Topics with transactions: what is aborted or open at the edges of a range, and how far can be read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from frazil.batch.facts import PartitionFacts
from frazil.errors import Retryable, Terminal
from frazil.kafka.admin.observe import observe
from frazil.kafka.client import client
from frazil.kafka.client.cluster import Cluster, OutgoingRecord
from frazil.kafka.read import read as read_module
from frazil.kafka.read.read import read_range
from frazil.kafka.write.produce import produce
from tests.transactions import transaction, transactions

Topic = Callable[..., str]
Writer = Callable[[str], Any]


def read(cluster: Cluster, topic: str, start: int, end: int) -> dict[int, bytes]:
    """Offset -> value of a range."""
    batches = list(read_range(cluster, topic, 0, start, end))
    return {row["offset"]: row["value"] for batch in batches for row in batch.to_pylist()}


def facts_of(cluster: Cluster, topic: str) -> PartitionFacts:
    (facts,) = observe(cluster, [topic]).topics[topic].partitions
    return facts


def test_topic_of_aborted_records_only_does_not_hang(cluster: Cluster, topic: Topic, transactions: Writer) -> None:
    """There is something to read and it is nothing: every range ends, empty."""
    name = topic()
    writer = transactions(name)
    writer.abort([b"a", b"b"])  # 0 1, marker 2
    writer.abort([b"c"])  # 3, marker 4

    assert facts_of(cluster, name) == PartitionFacts(0, 5, 5, 0)
    assert [read(cluster, name, start, end) for start in range(6) for end in range(start, 6)] == [{}] * 21


def test_long_aborted_range_counts_as_progress(cluster: Cluster, topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is handed out for longer than a silence may last, while the consumer fetches one batch after the other."""
    name = topic()
    with transactions(cluster, name, {"batch.size": 1}) as writer:  # of one record each: an answer has one batch
        writer.abort([bytes(16_000)] * 4_000)
        writer.commit([b"last"])
    monkeypatch.setattr(read_module, "STALL_SECONDS", 0.5)
    monkeypatch.setattr(read_module, "_POLL_SECONDS", 0.1)
    monkeypatch.setattr(read_module, "_WORK_SECONDS", 60.0)  # the work of this test is no excuse
    monkeypatch.setattr(client, "STATISTICS_SECONDS", 0.05)

    assert list(read(cluster, name, 0, 4_003).values()) == [b"last"]


def test_aborted_tail_does_not_hide_last_record(cluster: Cluster, topic: Topic, transactions: Writer) -> None:
    """The range ends at the stable end, beyond the last readable record."""
    name = topic()
    writer = transactions(name)
    writer.commit([b"a", b"b"])  # 0 1, marker 2
    writer.abort([b"c"] * 3)  # 3 4 5, marker 6

    assert facts_of(cluster, name) == PartitionFacts(0, 7, 7, 0)
    assert read(cluster, name, 0, 7) == {0: b"a", 1: b"b"}
    assert read(cluster, name, 2, 7) == {}


def test_an_empty_commit_leaves_only_a_marker(cluster: Cluster, topic: Topic, transactions: Writer) -> None:
    """Trailing control records count in the ends and are no records."""
    name = topic()
    writer = transactions(name)
    writer.commit([b"a"])

    facts = facts_of(cluster, name)

    assert (facts.stable_end, facts.high_watermark) == (2, 2)
    assert read(cluster, name, 1, 2) == {}


@pytest.mark.parametrize("commit", [True, False])
def test_open_transaction_holds_later_records_back(cluster: Cluster, topic: Topic, *, commit: bool) -> None:
    """Plain and committed records behind an open transaction wait for its end, then everything is read in order."""
    name = topic()
    produce(cluster, name, [OutgoingRecord(None, b"before")])
    with transaction(cluster, name, [b"open"], commit=commit) as hanging:  # 1
        produce(cluster, name, [OutgoingRecord(None, b"plain")])  # 2
        with transaction(cluster, name, [b"other"], commit=True):  # 3, marker 4
            pass
        hanging.write([b"open too"])  # 5
        facts = facts_of(cluster, name)
        before = read(cluster, name, 0, facts.stable_end)
        with pytest.raises(Terminal, match="last stable offset"):
            read(cluster, name, 0, facts.high_watermark)
    after = facts_of(cluster, name)

    assert facts == PartitionFacts(log_start=0, stable_end=1, high_watermark=6, leader_epoch=0)
    assert before == {0: b"before"}
    assert after == PartitionFacts(log_start=0, stable_end=7, high_watermark=7, leader_epoch=0)
    rest = {0: b"before", 2: b"plain", 3: b"other"}
    assert read(cluster, name, 0, 7) == (rest | {1: b"open", 5: b"open too"} if commit else rest)


def test_rest_of_half_deleted_aborted_transaction_stays_aborted(
    cluster: Cluster, topic: Topic, transactions: Writer
) -> None:
    """Records deleted up to the middle of a transaction: what is left of it stays aborted."""
    name = topic()
    writer = transactions(name)
    writer.abort([b"lost"] * 4)  # 0 to 3, marker 4
    writer.commit([b"a"])  # 5, marker 6
    with AdminClient(dict(cluster.properties)) as client:
        for future in client.delete_records([TopicPartition(name, 0, 2)]).values():
            future.result(30)

    assert facts_of(cluster, name) == PartitionFacts(2, 7, 7, 0)
    assert read(cluster, name, 2, 7) == {5: b"a"}
    assert read(cluster, name, 3, 5) == {}
    with pytest.raises(Retryable, match="found 2 to 7"):
        read(cluster, name, 1, 7)


def test_emptied_log_is_read_as_empty(cluster: Cluster, topic: Topic, transactions: Writer) -> None:
    """An emptied log has a start, and it is its end: nothing to read, nothing lost."""
    name = topic()
    transactions(name).commit([b"a", b"b"])
    with AdminClient(dict(cluster.properties)) as client:
        for future in client.delete_records([TopicPartition(name, 0, 3)]).values():
            future.result(30)

    assert facts_of(cluster, name) == PartitionFacts(3, 3, 3, 0)
    assert read(cluster, name, 3, 3) == {}
