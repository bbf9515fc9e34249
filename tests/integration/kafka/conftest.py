"""A raw transactional producer, and a cluster where nobody is."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from uuid import uuid4

import pytest
from confluent_kafka import Producer

from frazil.kafka.cluster import Cluster

_FLUSH_SECONDS = 30


@dataclass(frozen=True)
class Transactions:
    """Writes whole transactions to a topic, committed, aborted or left open."""

    producer: Producer
    topic: str

    def commit(self, values: Iterable[bytes]) -> None:
        """Write values and a commit marker."""
        self.open(values)
        self.producer.commit_transaction(_FLUSH_SECONDS)

    def abort(self, values: Iterable[bytes]) -> None:
        """Write values and an abort marker."""
        self.open(values)
        self.producer.abort_transaction(_FLUSH_SECONDS)

    def open(self, values: Iterable[bytes]) -> None:
        """Write values and leave the transaction open."""
        self.producer.begin_transaction()
        for value in values:
            self.producer.produce(self.topic, value, partition=0)
        assert self.producer.flush(_FLUSH_SECONDS) == 0


@pytest.fixture
def transactions(cluster: Cluster) -> Iterator[Callable[[str], Transactions]]:
    """Make a transactional producer for a topic: `transactions(topic)`."""
    producer = Producer({**cluster.properties, "transactional.id": uuid4().hex})
    producer.init_transactions(_FLUSH_SECONDS)
    yield lambda topic: Transactions(producer, topic)
    producer.close()


@pytest.fixture
def nobody() -> Iterator[Cluster]:
    """A cluster at a port that is taken, so that nobody else may get it, and where nobody listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        yield Cluster("prod", {"bootstrap.servers": f"127.0.0.1:{port}"})
