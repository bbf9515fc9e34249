"""Read an exact range of offsets of one partition, as Arrow batches of `KAFKA_SCHEMA`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, cast

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from frazil.batch.facts import Range
from frazil.errors import FrazilError, Retryable, Terminal
from frazil.kafka.client import REQUEST_SECONDS, STALL_SECONDS, Complaints, consumer
from frazil.kafka.cluster import Cluster
from frazil.kafka.failure import PLAN_AGAIN, reasons, translate
from frazil.kafka.messages import to_batch

_POLL_SECONDS: Final = 0.5
"""How often a silent broker is checked against the time limit."""


_BATCH_BYTES: Final = 64 * 1024 * 1024
"""Bytes of values after which a batch is handed out: as much as librdkafka holds ahead by default, so that large records
need about twice that at most."""


def read_range(
    cluster: Cluster, topic: str, partition: int, start: int, end: int, batch_records: int = 10_000
) -> Iterator[pa.RecordBatch]:
    """Read the committed records with offsets `start` <= o < `end` of one partition, in order.

    Offsets may have gaps: transaction markers, aborted records, what compaction removed. The range
    has been read when Kafka hands out something at or beyond `end`, a record or the end of the
    partition, not when record `end - 1` is seen.

    Args:
        cluster: Where.
        topic: Topic.
        partition: Partition number.
        start: First offset.
        end: One past the last offset; at most the last stable offset.
        batch_records: Most records in a batch. It ends earlier where they are large.

    Yields:
        Batches with the schema `frazil.records.kafka.KAFKA_SCHEMA`, never empty.

    Raises:
        Terminal: the range ends beyond what is committed, or topic, credentials or permissions
            don't fit.
        Retryable: the beginning of the range is gone, the broker doesn't answer, or nothing arrives
            for `STALL_SECONDS`.
    """
    wanted = Range(topic, partition, start, end)
    if wanted.span <= 0:
        return
    complaints = Complaints()
    client = consumer(cluster, complaints)
    reading = _Reading(cluster, client, complaints, wanted)
    try:
        reading.require_held()
        client.assign([TopicPartition(topic, partition, start)])
        for messages in reading.until_end(batch_records):
            yield to_batch(topic, partition, messages)
    finally:
        client.close()


@dataclass(frozen=True, slots=True)
class _Reading:
    """One range on its way through a consumer."""

    cluster: Cluster
    client: Consumer
    complaints: Complaints
    wanted: Range

    def require_held(self) -> None:
        """Refuse a range that the log doesn't hold: it would never end, or with records missing."""
        asked = TopicPartition(self.wanted.topic, self.wanted.partition)
        try:
            # With isolation level read_committed, the upper one is the last stable offset.
            log_start, stable_end = self.client.get_watermark_offsets(asked, timeout=REQUEST_SECONDS)
        except KafkaException as e:
            self.client.poll(0)  # serves the complaints
            raise self._translate(e) from e
        if self.wanted.start < log_start or self.wanted.end > stable_end:
            raise self._out_of_range(log_start, stable_end)

    def until_end(self, batch_records: int) -> Iterator[list[Message]]:
        """Yield the records of the range, in lists of at most `batch_records` that end at `_BATCH_BYTES`."""
        reached, end, size = self.wanted.start, self.wanted.end, 0
        pending: list[Message] = []
        while reached < end:
            arrived = self._next(min(batch_records - len(pending), end - reached), reached)
            records = [m for m in arrived if m.error() is None and self.wanted.start <= _offset(m) < end]
            pending += records
            size += sum(map(len, records))
            reached = max(reached, self._reached(arrived))
            if pending and (len(pending) >= batch_records or size >= _BATCH_BYTES or reached >= end):
                yield pending
                pending, size = [], 0

    def _next(self, most: int, reached: int) -> list[Message]:
        """What Kafka hands out next: at least one message, at most `most`."""
        deadline = time.monotonic() + STALL_SECONDS
        while (first := self.client.poll(_POLL_SECONDS)) is None:
            if time.monotonic() >= deadline:
                raise self._stalled(reached)
        # `consume` alone would wait for a full list; after the first message, what is here already
        # is enough.
        return [first, *(self.client.consume(most - 1, 0) if most > 1 else ())]

    def _reached(self, messages: Sequence[Message]) -> int:
        """The next offset to read after these messages."""
        for message in messages:
            error = message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise self._translate(error)
        last = messages[-1]
        # The end of the partition carries the offset of the next record: markers before it are
        # counted.
        return _offset(last) if last.error() is not None else _offset(last) + 1

    def _translate(self, error: KafkaException | KafkaError) -> FrazilError:
        wanted = self.wanted
        return translate(error, self.cluster, self.complaints, topic=wanted.topic, partition=wanted.partition)

    def _out_of_range(self, log_start: int, stable_end: int) -> FrazilError:
        wanted = self.wanted
        said = (
            f"{self._name()} doesn't hold the whole range: expected offsets {wanted.start} to "
            f"{wanted.end} (exclusive), found {log_start} to {stable_end} (last stable offset)"
        )
        if wanted.end > stable_end:
            return Terminal(
                said,
                next_step="offsets beyond are not committed, or of an earlier topic of this name: compare the topic "
                "ids, then reset",
            )
        # A plan never begins below the log start: retention or delete-records moved it since.
        return Retryable(said, next_step=PLAN_AGAIN)

    def _stalled(self, reached: int) -> Retryable:
        return Retryable(
            f"{self._name()}: nothing arrived for {STALL_SECONDS:.0f} s at offset {reached} of "
            f"{self.wanted.start} to {self.wanted.end}{reasons(self.cluster, self.complaints)}",
            next_step="try again; if it stays, look at the broker that leads the partition",
        )

    def _name(self) -> str:
        return f"{self.cluster}, topic {self.wanted.topic!r}, partition {self.wanted.partition}"


def _offset(message: Message) -> int:
    # Typed as optional for messages that an application makes itself; consumed ones always have it.
    return cast("int", message.offset())
