"""Sending records exactly once: each transaction also writes a note, which says to whoever comes next what was sent.

The note is the metadata of an offset that a consumer group commits for partition 0 of the topic. Producer and group have
one name. Initialising a producer ends whatever earlier ones of the name left open and bars them from committing, so
between reading the note and committing nobody else can have written one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from confluent_kafka import TopicPartition

from frazil.kafka.client import REQUEST_SECONDS, STALL_SECONDS, Complaints, transactional_producer
from frazil.kafka.cluster import Cluster
from frazil.kafka.group import Outsider, outsider
from frazil.kafka.record import OutgoingRecord
from frazil.kafka.transaction import Step, TransactionalProducer


@dataclass(frozen=True, slots=True)
class NotedProducer:
    """The only producer of its name that can commit, as long as nobody opens another one."""

    producer: TransactionalProducer
    group: Outsider

    def note(self) -> str | None:
        """What the last committed transaction noted; None if there was none, or the group has forgotten it.

        Raises:
            Retryable: no broker answers.
            Terminal: credentials or permissions don't fit.
        """
        asked = [TopicPartition(self.producer.topic, 0)]
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
        producer = self.producer

        def write_note() -> None:
            offset = TopicPartition(producer.topic, 0, number, metadata=note)
            group = self.group.metadata()
            producer.called(lambda: producer.client.send_offsets_to_transaction([offset], group, STALL_SECONDS))

        producer.send(records, write_note, step)

    def attempt(self, records: Iterable[OutgoingRecord]) -> None:
        """Send records in a transaction that is aborted, to see that the topic takes them.

        Raises:
            RecordTooLarge: it refuses one.
            Fenced, Retryable, Terminal: as `send`.
        """
        self.producer.attempt(records)


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
        client = transactional_producer(cluster, complaints, name, batch_bytes=1 if alone else None)
        producer = TransactionalProducer(cluster, topic, name, client, complaints, is_noted=True)
        producer.begin()
        yield NotedProducer(producer, group)
