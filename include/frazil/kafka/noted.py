"""Sending records exactly once: each transaction also writes a note, which says to whoever comes next what was sent.

The note is the metadata of an offset that a consumer group commits for partition 0 of the topic. Producer and group have
one name. Initialising a producer ends whatever earlier ones of the name left open and bars them from committing, so
between reading the note and committing nobody else can have written one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from frazil.crash_points import CrashPoint, reached
from frazil.errors import FrazilError, Retryable, Terminal
from frazil.kafka.client import REQUEST_SECONDS, STALL_SECONDS, Complaints, transactional_producer
from frazil.kafka.cluster import Cluster
from frazil.kafka.failure import is_too_large, reasons, translate_transaction
from frazil.kafka.group import Outsider, outsider
from frazil.kafka.record import OutgoingRecord

_BEGIN_SECONDS: Final = 12.0
"""Bounds the time until a producer is initialised, usually some milliseconds. The first one of a cluster waits for the
topic of transactions to be made, one that follows a crash for the broker's aborting of what is open."""

_POLL_SECONDS: Final = 0.1

Step = Literal["ready", "send"]
"""What a transaction is for; its crash points are named so."""


class RecordTooLarge(Terminal):
    """A topic refuses a record, or the batch that it was sent in.

    Attributes:
        record: The record.
    """

    def __init__(self, cluster: Cluster, topic: str, record: OutgoingRecord) -> None:
        self.record = record
        super().__init__(
            f"{cluster}, topic {topic!r} refuses a record of {record.size:,} bytes, or the batch that it is in",
            next_step=f"raise max.message.bytes of topic {topic}",
        )


@dataclass(slots=True)
class NotedProducer:
    """The only producer of its name that can commit, as long as nobody opens another one."""

    cluster: Cluster
    topic: str
    name: str
    client: Producer
    group: Outsider
    complaints: Complaints
    _sent: int = 0
    _acknowledged: int = 0
    _failed: tuple[KafkaError, OutgoingRecord] | None = None

    def note(self) -> str | None:
        """What the last committed transaction noted; None if there was none, or the group has forgotten it.

        Raises:
            Retryable: no broker answers.
            Terminal: credentials or permissions don't fit.
        """
        asked = [TopicPartition(self.topic, 0)]
        found = self.group.ask(lambda consumer: consumer.committed(asked, timeout=REQUEST_SECONDS))
        return next((tp.metadata for tp in found if tp.offset >= 0), None)

    def send(self, records: Iterable[OutgoingRecord], number: int, note: str, step: Step = "send") -> None:
        """Send records and write a note, both or neither.

        Args:
            records: What is sent; held in memory until the broker has it.
            number: Offset of the note, which tools show; 0 or more.
            note: The note, at most 4,096 bytes.
            step: What it is for.

        Raises:
            Fenced: another producer of the name was opened: nothing was sent.
            RecordTooLarge: the topic refuses a record, alone or in a batch with others.
            Retryable: no broker answers. The next producer of the name aborts what is open, and its note knows whether
                this was committed.
            Terminal: the topic is missing, refuses a record, or credentials or permissions don't fit.
        """
        self._called(self.client.begin_transaction)
        try:
            for record in records:
                self._produce(record)
            self._confirm()
            offset = TopicPartition(self.topic, 0, number, metadata=note)
            group = self.group.metadata()
            self._called(lambda: self.client.send_offsets_to_transaction([offset], group, STALL_SECONDS))
            reached(CrashPoint(f"{step}.committing"))
            self._called(lambda: self.client.commit_transaction(STALL_SECONDS))
        except FrazilError:
            self._abort()
            raise
        reached(CrashPoint(f"{step}.committed"))

    def attempt(self, records: Iterable[OutgoingRecord]) -> None:
        """Send records in a transaction that is aborted, to see that the topic takes them.

        Raises:
            RecordTooLarge: it refuses one.
            Fenced, Retryable, Terminal: as `send`.
        """
        self._called(self.client.begin_transaction)
        try:
            for record in records:
                self._produce(record)
            self._confirm()
        except FrazilError:
            self._abort()
            raise
        self._called(lambda: self.client.abort_transaction(STALL_SECONDS))

    def begin(self) -> None:
        """End what earlier producers of the name left open, and bar them from committing."""
        self._called(lambda: self.client.init_transactions(_BEGIN_SECONDS))

    def _abort(self) -> None:
        """Let readers of committed records go on at once. What can't be aborted here, the next producer of the name aborts,
        or the broker in its time.
        """
        self.client.purge()
        with suppress(KafkaException):
            self.client.abort_transaction(REQUEST_SECONDS)

    def _produce(self, record: OutgoingRecord) -> None:
        began = time.monotonic()
        while not self._accepted(record):
            self._poll(_POLL_SECONDS)  # back-pressure
            if time.monotonic() - began > STALL_SECONDS:
                raise self._stalled()
        self._sent += 1
        self._poll(0)

    def _accepted(self, record: OutgoingRecord) -> bool:
        try:
            self.client.produce(
                self.topic,
                value=record.value,
                key=record.key,
                headers=list(record.headers),
                timestamp=record.timestamp_ms or 0,
                on_delivery=partial(self._delivered, record),
            )
        except BufferError:
            return False
        except KafkaException as e:
            raise self._translated(e, record) from e
        return True

    def _delivered(self, record: OutgoingRecord, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._failed = self._failed or (error, record)
        else:
            self._acknowledged += 1

    def _confirm(self) -> None:
        """Wait for every acknowledgement: a commit must not be asked for while a refusal is under way."""
        moved, before = time.monotonic(), self._acknowledged
        while self._failed is None and self._acknowledged < self._sent:
            self._poll(_POLL_SECONDS)
            if self._acknowledged != before:
                moved, before = time.monotonic(), self._acknowledged
            elif time.monotonic() - moved > STALL_SECONDS:
                raise self._stalled()
        if self._failed is not None:
            raise self._translated(*self._failed)

    def _called(self, ask: Callable[[], object]) -> None:
        try:
            ask()
        except KafkaException as e:
            with suppress(KafkaException):  # it raises a fatal error again
                self.client.poll(0)  # serves the complaints
            raise self._translated(e) from e

    def _poll(self, seconds: float) -> None:
        """Take acknowledgements for so long."""
        try:
            self.client.poll(seconds)
        except KafkaException as e:
            raise self._translated(e) from e

    def _translated(self, error: KafkaException | KafkaError, record: OutgoingRecord | None = None) -> FrazilError:
        if record is not None and is_too_large(error):
            return RecordTooLarge(self.cluster, self.topic, record)
        return translate_transaction(error, self.cluster, self.name, self.complaints, topic=self.topic)

    def _stalled(self) -> Retryable:
        return Retryable(
            f"{self.cluster}, topic {self.topic!r}: no acknowledgement for {STALL_SECONDS:.0f} s"
            f"{reasons(self.cluster, self.complaints)}",
            next_step="look at the brokers, then try again: nothing is sent twice",
        )


@contextmanager
def noted_producer(cluster: Cluster, topic: str, name: str, *, alone: bool = False) -> Iterator[NotedProducer]:
    """Open the only producer of a name: what earlier ones left open is aborted, and they can't commit any more.

    Args:
        cluster: Where.
        topic: An existing topic.
        name: Name of producer and group.
        alone: Whether each record is sent as a batch of its own, which takes longer.

    Raises:
        Fenced: another one was opened at the same moment.
        Retryable: no broker answers.
        Terminal: credentials, permissions or settings don't fit.
    """
    complaints = Complaints()
    with outsider(cluster, name) as group:
        client = transactional_producer(cluster, complaints, name, alone=alone)
        producer = NotedProducer(cluster, topic, name, client, group, complaints)
        producer.begin()
        yield producer
