"""Transactions as other applications write them: committed, aborted, or left open."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final
from uuid import uuid4

from confluent_kafka import KafkaError, Message, Producer

from frazil.kafka.admin.observe import observe
from frazil.kafka.client.cluster import Cluster
from frazil.runtime.process import until

_NONE: Final[Mapping[str, Any]] = MappingProxyType({})

_SECONDS = 30
"""Bounds each step with the transaction coordinator."""

_OPEN_MS = 600_000
"""The coordinator aborts an open transaction after this time; the default of a minute is short for a slow machine."""


@dataclass(frozen=True)
class Transactions:
    """A transactional producer for one topic; it has at most one open transaction."""

    cluster: Cluster
    producer: Producer
    topic: str
    last: dict[int, int] = field(default_factory=dict)

    def commit(self, values: Iterable[bytes], partition: int = 0, key: bytes | None = None) -> None:
        """Write values and a commit marker."""
        self.open(values, partition, key)
        self.end(commit=True)

    def abort(self, values: Iterable[bytes], partition: int = 0, key: bytes | None = None) -> None:
        """Write values and an abort marker."""
        self.open(values, partition, key)
        self.end(commit=False)

    def open(self, values: Iterable[bytes], partition: int = 0, key: bytes | None = None) -> None:
        """Write values, all of them acknowledged, and leave the transaction open."""
        self.producer.begin_transaction()
        self.write(values, partition, key)

    def write(self, values: Iterable[bytes], partition: int = 0, key: bytes | None = None) -> None:
        """Write further values into the open transaction."""
        for value in values:
            self.producer.produce(self.topic, value, key, partition=partition, on_delivery=self._written)
        assert self.producer.flush(_SECONDS) == 0

    def end(self, *, commit: bool) -> None:
        """End the open transaction and wait until its markers are in the topic.

        The coordinator says yes before it writes them; with several writers of one partition, a record of another may
        be taken for the marker.
        """
        if commit:
            self.producer.commit_transaction(_SECONDS)
        else:
            self.producer.abort_transaction(_SECONDS)
        assert until(self._marked, _SECONDS)
        self.last.clear()

    def _written(self, error: KafkaError | None, message: Message) -> None:
        assert error is None
        self.last[message.partition()] = message.offset()

    def _marked(self) -> bool:
        partitions = observe(self.cluster, [self.topic]).topics[self.topic].partitions
        return all(partitions[number].high_watermark > last + 1 for number, last in self.last.items())


@contextmanager
def transactions(cluster: Cluster, topic: str, options: Mapping[str, Any] = _NONE) -> Iterator[Transactions]:
    """A transactional producer of its own; what it leaves open at the end stays open in the topic."""
    properties = {"transactional.id": uuid4().hex, "transaction.timeout.ms": _OPEN_MS, "linger.ms": 0}
    producer = Producer({**cluster.properties, **properties, **options})
    try:
        producer.init_transactions(_SECONDS)
        yield Transactions(cluster, producer, topic)
    finally:
        producer.close()


@contextmanager
def transaction(
    cluster: Cluster, topic: str, values: Sequence[bytes] = (), *, commit: bool, partition: int = 0
) -> Iterator[Transactions]:
    """One transaction: open inside the `with` block, committed or aborted at its end, left hanging if the block fails."""
    with transactions(cluster, topic) as writer:
        writer.open(values, partition)
        yield writer
        writer.end(commit=commit)
