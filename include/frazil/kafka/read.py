"""Read exact ranges of offsets of partitions, as Arrow batches of `KAFKA_SCHEMA`."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from frazil.batch.facts import Range
from frazil.errors import FrazilError, Retryable, Terminal
from frazil.kafka.client import REQUEST_SECONDS, STALL_SECONDS, Complaints, consumer
from frazil.kafka.cluster import Cluster
from frazil.kafka.failure import PLAN_AGAIN, reasons, translate
from frazil.kafka.messages import Place, place_of, to_batch

BATCH_RECORDS: Final = 25_000
"""Most records of a batch: enough that the work for a batch is little next to that for its records."""

_POLL_SECONDS: Final = 0.5
"""How often a silent broker is checked against the time limit."""

_LAST_QUESTION_SECONDS: Final = 2.0
"""Bounds the question that a silence ends with: is the topic gone?"""

_BATCH_BYTES: Final = 64 * 1024 * 1024
"""Bytes of values after which a batch is handed out: as much as librdkafka holds ahead by default, so that large records
need about twice that at most."""


def read_range(
    cluster: Cluster, topic: str, partition: int, start: int, end: int, batch_records: int = BATCH_RECORDS
) -> Iterator[pa.RecordBatch]:
    """Read the committed records with offsets `start` <= o < `end` of one partition, in order; see `read_ranges`."""
    return read_ranges(cluster, (Range(topic, partition, start, end),), batch_records)


def read_ranges(
    cluster: Cluster, ranges: Iterable[Range], batch_records: int = BATCH_RECORDS
) -> Iterator[pa.RecordBatch]:
    """Read the committed records of ranges, those of several partitions at once; the records of a partition in order.

    Offsets may have gaps: transaction markers, aborted records, what compaction removed. A range has been read when Kafka
    hands out something at or beyond its end, a record or the end of the partition, not when its last offset is seen.

    Args:
        cluster: Where.
        ranges: What; ends are at most the last stable offset.
        batch_records: Most records in a batch. It ends earlier where they are large.

    Yields:
        Batches with the schema `frazil.records.kafka.KAFKA_SCHEMA`, never empty, perhaps of several partitions.

    Raises:
        Terminal: a range ends beyond what is committed, or topic, credentials or permissions don't fit.
        Retryable: the beginning of a range is gone, the broker doesn't answer, or nothing arrives for `STALL_SECONDS`.
    """
    for wave in _waves(ranges):
        complaints = Complaints()
        client = consumer(cluster, complaints)
        try:
            for messages in _Reading(cluster, client, complaints, wave).until_end(batch_records):
                yield to_batch(messages)
        finally:
            client.close()


def _waves(ranges: Iterable[Range]) -> Iterator[dict[Place, Range]]:
    """Ranges that one consumer can read at once: it reads a partition from one place on."""
    left = [r for r in ranges if r.span > 0]
    while left:
        wave: dict[Place, Range] = {}
        for r in left:
            wave.setdefault((r.topic, r.partition), r)
        left = [r for r in left if wave[r.topic, r.partition] is not r]
        yield wave


@dataclass(slots=True)
class _Reading:
    """Ranges on their way through a consumer.

    Attributes:
        cluster: Where.
        client: The consumer.
        complaints: What it reports on the side.
        left: Ranges that have not been read to their end, by partition.
        reached: The next offset to read of each partition of which something came.
    """

    cluster: Cluster
    client: Consumer
    complaints: Complaints
    left: dict[Place, Range]
    reached: dict[Place, int] = field(default_factory=dict)

    def until_end(self, batch_records: int) -> Iterator[list[Message]]:
        """Yield the records of the ranges, in lists of at most `batch_records` that end at `_BATCH_BYTES`."""
        # One question before: that nobody answers, or that the topic is gone, is said sooner and better than by silence.
        self._require_held(next(iter(self.left)))
        self.client.assign([TopicPartition(r.topic, r.partition, r.start) for r in self.left.values()])
        size = 0
        pending: list[Message] = []
        while self.left:
            records = self.wanted(self._next(batch_records - len(pending)))
            pending += records
            size += sum(map(len, records))
            if pending and (len(pending) >= batch_records or size >= _BATCH_BYTES or not self.left):
                yield pending
                pending, size = [], 0

    def _next(self, most: int) -> list[Message]:
        """What Kafka hands out next: at least one message, at most `most`."""
        deadline = time.monotonic() + STALL_SECONDS
        while (first := self.client.poll(_POLL_SECONDS)) is None:
            if time.monotonic() >= deadline:
                raise self._stalled()
        # `consume` alone would wait for a full list; after the first message, what is here already is enough.
        return [first, *(self.client.consume(most - 1, 0) if most > 1 else ())]

    def wanted(self, arrived: list[Message]) -> list[Message]:
        """Return the records of the ranges among messages, and note how far each partition has been read.

        Raises:
            Terminal, Retryable: One of them is an error, or the end of a partition that has less than its range.
        """
        if any(map(Message.error, arrived)):
            return self._in_turn(arrived)
        places = list(map(place_of, arrived))
        last = dict(zip(places, map(_offset, arrived), strict=True))
        # Mostly all lie within their ranges: only where one begins or ends each is looked at.
        if all(
            place in self.reached and place in self.left and at < self.left[place].end for place, at in last.items()
        ):
            records = arrived
        else:
            records = [of for of, place in zip(arrived, places, strict=True) if self._is_in(place, _offset(of))]
        for place, at in last.items():
            self._reach(place, at + 1)
        return records

    def _in_turn(self, arrived: list[Message]) -> list[Message]:
        """The same where messages among them are none: an error before the last record of a range is one of the range."""
        records = []
        for message in arrived:
            if message.error() is not None:
                self._take(message)
                continue
            place, at = place_of(message), _offset(message)
            if self._is_in(place, at):
                records.append(message)
            self._reach(place, at + 1)
        return records

    def _is_in(self, place: Place, offset: int) -> bool:
        of = self.left.get(place)
        return of is not None and of.start <= offset < of.end

    def _reach(self, place: Place, offset: int) -> None:
        if place not in self.left:
            return
        self.reached[place] = max(offset, self.reached.get(place, 0))
        if offset >= self.left[place].end:
            del self.left[place]
            self.client.pause([TopicPartition(*place)])

    def _take(self, event: Message) -> None:
        """Take the end of a partition, or an error of one."""
        place, error = place_of(event), event.error()
        if error is None:
            return
        if event.topic() is None:  # of no partition: a cause, if nothing comes any more
            self.complaints(error)
            return
        if place not in self.left:
            return
        if error.code() == KafkaError._PARTITION_EOF:
            # It carries the offset of the next record: markers before it are counted.
            self._reach(place, _offset(event))
            if place in self.left:
                self._require_held(place)
            return
        if error.code() in _OUT_OF_RANGE:
            self._require_held(place)
        raise translate(error, self.cluster, self.complaints, topic=place[0], partition=place[1])

    def _require_held(self, place: Place, seconds: float = REQUEST_SECONDS) -> None:
        """Refuse a range that the log doesn't hold: it would never end, or with records missing."""
        try:
            # With isolation level read_committed, the upper one is the last stable offset.
            log_start, stable_end = self.client.get_watermark_offsets(TopicPartition(*place), timeout=seconds)
        except KafkaException as e:
            self.client.poll(0)  # serves the complaints
            raise translate(e, self.cluster, self.complaints, topic=place[0], partition=place[1]) from e
        of = self.left[place]
        said = (
            f"{self._name(place)} doesn't hold the whole range: expected offsets {of.start} to "
            f"{of.end} (exclusive), found {log_start} to {stable_end} (last stable offset)"
        )
        if of.end > stable_end:
            raise Terminal(
                said,
                next_step="offsets beyond are not committed, or of an earlier topic of this name: compare the topic "
                "ids, then reset",
            )
        if self.reached.get(place, of.start) < log_start:
            # A plan never begins below the log start: retention or delete-records moved it since.
            raise Retryable(said, next_step=PLAN_AGAIN)

    def _stalled(self) -> FrazilError:
        (place, of), *others = self.left.items()
        end = time.monotonic() + _LAST_QUESTION_SECONDS
        for silent in self.left:
            try:
                self._require_held(silent, max(end - time.monotonic(), 0.01))
            except FrazilError as refused:
                if isinstance(refused, Terminal) or refused.next_step == PLAN_AGAIN:
                    return refused
                break  # as silent as before
        more = f", nor of {len(others)} other partitions" if others else ""
        return Retryable(
            f"{self._name(place)}: nothing arrived for {STALL_SECONDS:.0f} s at offset {self.reached.get(place, of.start)} of "
            f"{of.start} to {of.end}{more}{reasons(self.cluster, self.complaints)}",
            next_step="try again; if it stays, look at the broker that leads the partition",
        )

    def _name(self, place: Place) -> str:
        return f"{self.cluster}, topic {place[0]!r}, partition {place[1]}"


_OUT_OF_RANGE: Final = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})


def _offset(message: Message) -> int:
    # Typed as optional for messages that an application makes itself; consumed ones always have it.
    offset: int = message.offset()  # type: ignore[assignment]
    return offset
