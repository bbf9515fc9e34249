"""The facts of a cluster."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from frazil.batch.facts import PartitionFacts
from frazil.errors import Terminal
from frazil.kafka.admin.observe import observe
from frazil.kafka.admin.topics import create_topic
from frazil.kafka.client.cluster import Cluster, OutgoingRecord
from tests.produce import produce
from tests.servers import delete_topic

Topic = Callable[..., str]
KAFKA_UUID = re.compile(r"[\w-]{22}")


def test_recreated_topic_has_another_id(cluster: Cluster, topic: Topic) -> None:
    """A topic created anew under its old name has another id; the cluster's id stays."""
    name = topic(partitions=2)
    before = observe(cluster, [name])
    delete_topic(cluster, name)
    create_topic(cluster, name, 2)
    after = observe(cluster, [name])

    first, second = before.topics[name].id, after.topics[name].id
    assert first is not None
    assert second is not None
    assert KAFKA_UUID.fullmatch(first)
    assert first != second
    assert before.cluster_id == after.cluster_id
    assert KAFKA_UUID.fullmatch(before.cluster_id)


def test_partitions_are_kept_apart(cluster: Cluster, topic: Topic) -> None:
    """Facts stand at the index of their partition, per topic, in one answer."""
    names = [topic(partitions=12), topic(partitions=1)]
    records = [OutgoingRecord(b"%d" % n, b"v") for n in range(100)]
    offsets = produce(cluster, names[0], records).offsets

    facts = observe(cluster, [*names, names[0]])

    assert facts.topics.keys() == set(names)
    ends = [offsets[number][1] + 1 if number in offsets else 0 for number in range(12)]
    assert len(set(ends)) > 1
    assert facts.topics[names[0]].partitions == tuple(PartitionFacts(0, end, end, 0) for end in ends)
    assert facts.topics[names[1]].partitions == (PartitionFacts(0, 0, 0, 0),)


def test_end_excludes_open_transaction(cluster: Cluster, topic: Topic, transactions: Callable[[str], Any]) -> None:
    """The stable end stays before the first open transaction while the high watermark moves on."""
    name = topic()
    writer = transactions(name)
    writer.commit([b"a"])
    writer.open([b"b", b"c"])

    (open_facts,) = observe(cluster, [name]).topics[name].partitions
    writer.end(commit=False)
    (ended_facts,) = observe(cluster, [name]).topics[name].partitions

    assert open_facts == PartitionFacts(log_start=0, stable_end=2, high_watermark=4, leader_epoch=0)
    assert ended_facts == PartitionFacts(log_start=0, stable_end=5, high_watermark=5, leader_epoch=0)


def test_deleted_records_are_no_longer_offered(cluster: Cluster, topic: Topic) -> None:
    """The log start moves with what the broker forgot."""
    name = topic()
    produce(cluster, name, [OutgoingRecord(None, b"v")] * 5)
    with AdminClient(dict(cluster.properties)) as client:
        for future in client.delete_records([TopicPartition(name, 0, 4)]).values():
            future.result(30)

    (facts,) = observe(cluster, [name]).topics[name].partitions

    assert facts == PartitionFacts(4, 5, 5, 0)


def test_missing_topic_is_not_taken_for_empty_one(cluster: Cluster, topic: Topic) -> None:
    """One missing topic among others is named, with the way to create it."""
    with pytest.raises(Terminal) as missing:
        observe(cluster, [topic(), "not-there"])

    assert "has no topic 'not-there'" in missing.value.message
    assert "--create" in (missing.value.next_step or "")


def test_no_topics_need_no_listing(cluster: Cluster) -> None:
    """Asking for no topic still tells which cluster it is."""
    facts = observe(cluster, [])

    assert KAFKA_UUID.fullmatch(facts.cluster_id)
    assert facts.topics == {}
