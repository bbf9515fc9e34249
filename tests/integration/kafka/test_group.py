"""The consumer group that mirrors a position."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest
from confluent_kafka import Consumer

from frazil.errors import Retryable, Terminal
from frazil.kafka.admin.consumer_group import group_offsets, mirror_offsets
from frazil.kafka.client.cluster import Cluster
from frazil.runtime.process import until
from tests.servers import delete_topic

Topic = Callable[..., str]


@pytest.fixture
def group() -> Iterator[str]:
    return f"frazil-{uuid4().hex}"


def test_consumer_group_moves_forward_and_backward(cluster: Cluster, topic: Topic, group: str) -> None:
    """The group is made by the first write; offsets move forward and backward, others stay."""
    name = topic(partitions=3)
    three = [(name, number) for number in range(3)]
    assert group_offsets(cluster, group, three) == {}

    mirror_offsets(cluster, group, {(name, 0): 5, (name, 1): 7})
    first = group_offsets(cluster, group, three)
    mirror_offsets(cluster, group, {(name, 0): 2, (name, 2): 0})

    assert first == {(name, 0): 5, (name, 1): 7}
    assert group_offsets(cluster, group, three) == {(name, 0): 2, (name, 1): 7, (name, 2): 0}
    assert group_offsets(cluster, group, three[1:2]) == {(name, 1): 7}
    assert group_offsets(cluster, group, []) == {}
    assert group_offsets(cluster, group) == group_offsets(cluster, group, three)


def test_vanished_topic_does_not_keep_other_group_offsets(cluster: Cluster, topic: Topic, group: str) -> None:
    """A topic or partition that is gone is left out; the rest is written."""
    deleted, name = topic(), topic()
    delete_topic(cluster, deleted)

    mirror_offsets(cluster, group, {(deleted, 0): 1, (name, 0): 2, (name, 9): 3})
    mirror_offsets(cluster, group, {(deleted, 0): 1})
    mirror_offsets(cluster, group, {})

    assert group_offsets(cluster, group, [(deleted, 0), (name, 0), (name, 9)]) == {(name, 0): 2}


def test_group_with_members_is_refused(cluster: Cluster, topic: Topic, group: str) -> None:
    """A group with members is refused by name, and its offsets stay; once they left it is written."""
    name = topic()
    mirror_offsets(cluster, group, {(name, 0): 1})
    consumer = Consumer({**cluster.properties, "group.id": group, "enable.auto.commit": False, "log_level": 0})
    consumer.subscribe([name])

    def joined() -> bool:
        consumer.poll(0.05)
        return bool(consumer.assignment())

    try:
        assert until(joined, 30)
        with pytest.raises(Terminal, match=f"consumer group '{group}' has active members"):
            mirror_offsets(cluster, group, {(name, 0): 2})
    finally:
        consumer.close()

    assert group_offsets(cluster, group, [(name, 0)]) == {(name, 0): 1}
    mirror_offsets(cluster, group, {(name, 0): 2})
    assert group_offsets(cluster, group, [(name, 0)]) == {(name, 0): 2}


def test_unreachable_cluster_fails_consumer_group_in_time(unreachable: Cluster, group: str) -> None:
    """An unreachable cluster is said in time, for writing and for reading."""

    def write() -> None:
        began = time.monotonic()
        with pytest.raises(Retryable, match="answered in time"):
            mirror_offsets(unreachable, group, {("t", 0): 1})
        assert time.monotonic() - began < 15

    with ThreadPoolExecutor(1) as pool:  # both at once: each takes the whole time
        written = pool.submit(write)
        with pytest.raises(Retryable, match="answered in time"):
            group_offsets(unreachable, group, [("t", 0)])
        written.result()
