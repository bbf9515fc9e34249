"""Records and the note that says they were sent: both or neither, whoever else is at work."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest

from frazil.errors import Retryable, Terminal
from frazil.kafka.cluster import Cluster
from frazil.kafka.failure import Fenced
from frazil.kafka.noted import noted_producer
from frazil.kafka.record import OutgoingRecord
from frazil.kafka.topics import delete_topic, ready_topic
from frazil.local.waiting import until
from tests.topic_reader import committed, values

Topic = Callable[..., str]


@pytest.fixture
def name() -> str:
    return f"frazil-{uuid4().hex}"


def record(value: bytes) -> OutgoingRecord:
    return OutgoingRecord(b"key", value)


def test_note_and_records_part(cluster: Cluster, topic: Topic, name: str) -> None:
    """A note is read back by the next producer, records are there as they were sent, and nothing is noted before."""
    letters = topic(partitions=2)
    sent = OutgoingRecord(None, None, (("a", b"1"), ("a", None), ("b", b"")), 1_700_000_000_123)
    with noted_producer(cluster, letters, name) as producer:
        before = producer.note()
        producer.send([sent], 7, '{"n":7}')
        producer.send([], 0, '{"n":0}')

    with noted_producer(cluster, letters, name) as producer:
        after = producer.note()

    (found,) = committed(cluster, letters)
    assert (before, after) == (None, '{"n":0}')
    assert (found.key(), found.value(), found.headers()) == (None, None, list(sent.headers))
    assert found.timestamp()[1] == sent.timestamp_ms


def test_zombie_commits_after_its_successor(cluster: Cluster, topic: Topic, name: str) -> None:
    """A producer that stands still with an open transaction can't commit it once another one is open."""
    letters = topic()
    with noted_producer(cluster, letters, name) as zombie:

        def stand_still() -> Iterator[OutgoingRecord]:
            yield record(b"zombie")
            with noted_producer(cluster, letters, name) as successor:
                assert successor.note() is None
                successor.send([record(b"successor")], 1, "1")

        with pytest.raises(Fenced, match="another producer took over"):
            zombie.send(stand_still(), 2, "2")
        with pytest.raises(Fenced):
            zombie.send([], 2, "2")

    with noted_producer(cluster, letters, name) as producer:
        assert producer.note() == "1"
    assert values(cluster, letters) == [b"successor"]


def test_failure_between_records_sends_some(cluster: Cluster, topic: Topic, name: str) -> None:
    """What the records come from fails half-way: nothing is there, nothing is held back, and the next producer goes on."""
    letters = topic()

    def broken() -> Iterator[OutgoingRecord]:
        yield record(b"first")
        raise Retryable("the storage is away")

    with noted_producer(cluster, letters, name) as producer:
        with pytest.raises(Retryable, match="storage"):
            producer.send(broken(), 1, "1")
        assert committed(cluster, letters) == []
    with noted_producer(cluster, letters, name) as producer:
        assert producer.note() is None
        producer.send([record(b"again")], 1, "1")

    assert values(cluster, letters) == [b"again"]


def test_too_large_a_record_is_retried_for_ever(cluster: Cluster, topic: Topic, name: str) -> None:
    """The topic refuses it: a person must act, and the message says on what; its neighbour isn't there either."""
    letters = topic(config={"max.message.bytes": "1000"})

    with noted_producer(cluster, letters, name) as producer:
        with pytest.raises(Terminal) as caught:
            producer.send([record(b"small"), record(os.urandom(2_000))], 1, "1")
        assert producer.note() is None

    assert "max.message.bytes" in str(caught.value)
    assert values(cluster, letters) == []


def test_note_outlives_its_topic(cluster: Cluster, topic: Topic, name: str) -> None:
    """A topic that is made anew has another id, and the note goes with the old one, a moment later."""
    letters = topic()
    old = ready_topic(cluster, letters, 1)
    with noted_producer(cluster, letters, name) as producer:
        producer.send([], 1, "1")
    delete_topic(cluster, letters)

    new = ready_topic(cluster, letters, 3)

    assert new is not None
    assert new != old
    with noted_producer(cluster, letters, name) as producer:
        assert until(lambda: producer.note() is None, 30)


def test_nobody_to_send_to_is_no_success(nobody: Cluster, name: str) -> None:
    """An unreachable cluster is said, and can be tried again."""
    with pytest.raises(Retryable, match="no broker"), noted_producer(nobody, "letters", name):
        pass
