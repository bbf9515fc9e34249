"""Read exact ranges of offsets of partitions, as Arrow batches of `KAFKA_SCHEMA`."""

from __future__ import annotations

import json
import operator
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final, Literal

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from frazil.batch.facts import Range
from frazil.error_codes import KAFKA_FAILED, LOG_TRUNCATED, RECORDS_UNREADABLE
from frazil.errors import FrazilError, Terminal
from frazil.kafka.client.client import FETCH_BYTES, REQUEST_SECONDS, STALL_SECONDS, ErrorLog, consumer
from frazil.kafka.client.cluster import Cluster
from frazil.kafka.client.errors import PLAN_AGAIN, is_out_of_range, reasons, translate
from frazil.kafka.client.messages import Place, place_of, to_batch, unreadable_batch

BATCH_RECORDS: Final = 25_000
"""Most records of a batch: enough that the work for a batch is little next to that for its records."""

_POLL_SECONDS: Final = 0.5
"""How often a silent broker is checked against the time limit."""

_LAST_QUESTION_SECONDS: Final = 2.0
"""Bounds the question that a silence ends with: is the topic gone?"""

_BATCH_BYTES: Final = 64 * 1024 * 1024
"""Bytes of values after which a batch is handed out."""

_LARGE_BYTES: Final = 1024 * 1024
"""A value of so many bytes is taken from the client alone: others behind it may be as large."""


_WORK_SECONDS: Final = 1.0
"""CPU time of this process in a silence after which the client is taken to be at work: it unpacks a large batch of
records before it hands out the first, and nothing else works here meanwhile."""


_PROBED_BYTES: Final = 2 * 2**20
"""What a probe unpacks of a batch of records at most: it only asks to which batch an offset belongs, and dozens of times. A
batch that has more bytes in the log does not come through to it."""

_PROBE_SECONDS: Final = 3.0
"""After so long without an answer that is taken to be so."""


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """Limits on batches and records, and what to do with records that can't be unpacked.

    Attributes:
        batch_records: Most records in a batch. It ends earlier where they are large.
        record_bytes: Most bytes of key, value and headers. Of a larger record only coordinates, timestamp and size are read.
        unreadable: What to do with a batch of records that the client can't unpack: report its offsets as dead letters, or fail.
    """

    batch_records: int = BATCH_RECORDS
    record_bytes: int = 16 * 2**20
    unreadable: Literal["dead_letter", "fail"] = "dead_letter"


_LIMITS: Final = ReadLimits()

WHOLE: Final = ReadLimits(record_bytes=2**27, unreadable="fail")
"""For topics that hold positions: what can't be read must not look like what was never written."""


def read_range(
    cluster: Cluster, topic: str, partition: int, start: int, end: int, limits: ReadLimits = _LIMITS
) -> Iterator[pa.RecordBatch]:
    """Read the committed records with offsets `start` <= o < `end` of one partition, in order; see `read_ranges`."""
    return read_ranges(cluster, (Range(topic, partition, start, end),), limits)


def read_ranges(cluster: Cluster, ranges: Iterable[Range], limits: ReadLimits = _LIMITS) -> Iterator[pa.RecordBatch]:
    """Read the committed records of ranges, those of several partitions at once; the records of a partition in order.

    Offsets may have gaps: transaction markers, aborted records, what compaction removed. A range has been read when Kafka
    hands out something at or beyond its end, a record or the end of the partition, not when its last offset is seen.

    Ends are at most the last stable offset. Batches have the schema `frazil.records.model.rows.KAFKA_SCHEMA`,
    are never empty, and may be of several partitions; with records that were not taken over, they have the further
    column `UNREAD_BYTES`.

    Raises:
        Terminal: a range ends beyond what is committed, or topic, credentials or permissions don't fit; or a batch of
            records can't be unpacked, and the limits say to fail.
        Retryable: the beginning of a range is gone, the broker doesn't answer, or nothing arrives for `STALL_SECONDS`,
            aborted records included, which are not handed out.
    """
    for wave in _waves(ranges):
        complaints = ErrorLog()
        fetched = _Fetched()
        client = consumer(cluster, complaints, statistics=fetched)
        reading = _Reading(cluster, client, complaints, wave, limits, fetched)
        try:
            yield from reading.until_end()
        finally:
            reading.close()


def _waves(ranges: Iterable[Range]) -> Iterator[dict[Place, Range]]:
    """Ranges that one consumer can read at once: it reads a partition from one place on."""
    remaining_ranges = [r for r in ranges if r.span > 0]
    while remaining_ranges:
        wave: dict[Place, Range] = {}
        for r in remaining_ranges:
            wave.setdefault((r.topic, r.partition), r)
        remaining_ranges = [r for r in remaining_ranges if wave[r.topic, r.partition] is not r]
        yield wave


@dataclass(slots=True)
class _Fetched:
    """How far a consumer has fetched, including aborted records, which it never returns."""

    statistics: str = ""
    _offsets: list[int] = field(default_factory=list)

    def __call__(self, statistics: str) -> None:
        self.statistics = statistics

    def offsets(self) -> list[int]:
        """The next offset of each partition, as last reported."""
        # Read once, in a silence only: of thousands of partitions that takes milliseconds of work.
        if self.statistics:
            topics, self.statistics = json.loads(self.statistics)["topics"].values(), ""
            self._offsets = [partition["next_offset"] for topic in topics for partition in topic["partitions"].values()]
        return self._offsets


@dataclass(slots=True)
class _Reading:
    """The state of reading ranges with a consumer.

    Attributes:
        open_ranges: Ranges that have not been read to their end, by partition.
        reached: The next offset to read of each partition of which something came.
        unreadable: Offsets that were passed over since the last batch, because they can't be unpacked.
        passed: The first offset of the last batch of records of each partition that can't be unpacked.
        prober: A second consumer, made on first use: it finds where such a batch ends.
        probes_whole: Whether it unpacks as much as the first one, because a batch did not come through to it.
        topic: The topic of all ranges; None if they have several.
    """

    cluster: Cluster
    client: Consumer
    complaints: ErrorLog
    open_ranges: dict[Place, Range]
    limits: ReadLimits = _LIMITS
    fetched: _Fetched = field(default_factory=_Fetched)
    reached: dict[Place, int] = field(default_factory=dict)
    unreadable: list[Range] = field(default_factory=list)
    passed: dict[Place, int] = field(default_factory=dict)
    prober: Consumer | None = None
    probes_whole: bool = False
    topic: str | None = field(init=False)

    def __post_init__(self) -> None:
        topics = {topic for topic, _ in self.open_ranges}
        self.topic = topics.pop() if len(topics) == 1 else None

    def close(self) -> None:
        """End the consumers."""
        for client in filter(None, (self.client, self.prober)):
            client.close()

    def until_end(self) -> Iterator[pa.RecordBatch]:
        """Yield the records of the ranges, in batches that end at the limit of records or at `_BATCH_BYTES`."""
        batch_records = self.limits.batch_records
        # One question before: that nobody answers, or that the topic is gone, is said sooner and better than by silence.
        self._require_held(next(iter(self.open_ranges)))
        self.client.assign([TopicPartition(r.topic, r.partition, r.start) for r in self.open_ranges.values()])
        size = 0
        pending: list[Message] = []
        while self.open_ranges:
            records = self.records_in_ranges(self._next(batch_records - len(pending)))
            pending += records
            size += sum(map(len, records))
            is_full = len(pending) >= batch_records or size >= _BATCH_BYTES
            if pending and (is_full or not self.open_ranges or self.unreadable):
                for messages in _parts(pending, size):
                    yield to_batch(messages, self.limits.record_bytes, self.topic)
                pending, size = [], 0
            for r in self.unreadable:
                for start in range(r.start, r.end, batch_records):
                    yield unreadable_batch(r.topic, r.partition, start, min(r.end, start + batch_records))
            self.unreadable.clear()

    def _next(self, most: int) -> list[Message]:
        """Poll the next messages: at least one, at most `most`."""
        deadline, worked = time.monotonic() + STALL_SECONDS, time.process_time()
        fetched: list[int] | None = None  # looked up in a silence only
        while (first := self.client.poll(_POLL_SECONDS)) is None:
            before, fetched = fetched, self.fetched.offsets()
            if before not in (None, fetched):
                deadline = time.monotonic() + STALL_SECONDS
            if time.monotonic() < deadline:
                continue
            if time.process_time() - worked < _WORK_SECONDS:
                raise self._stalled()
            deadline, worked = time.monotonic() + STALL_SECONDS, time.process_time()
        # `consume` alone would wait for a full list; after the first message, what is here already is enough.
        return [first, *(self.client.consume(most - 1, 0) if most > 1 and len(first) < _LARGE_BYTES else ())]

    def records_in_ranges(self, arrived: list[Message]) -> list[Message]:
        """Return the records of the ranges among messages, and note how far each partition has been read.

        Raises:
            Terminal, Retryable: One of them is an error, or the end of a partition that has less than its range.
        """
        if any(map(Message.error, arrived)):
            return self._in_turn(arrived)
        # Messages of one partition follow each other, their offsets ascend: only the ends of such a run are compared.
        offsets = np.fromiter(map(Message.offset, arrived), np.int64, len(arrived))
        records: list[Message] = []
        for start, end in pairwise(_run_edges(arrived, one_topic=self.topic is not None)):
            place = place_of(arrived[start])
            first, last = int(offsets[start]), int(offsets[end - 1])
            if self._is_in(place, first) and self._is_in(place, last):
                records += arrived[start:end] if end - start < len(arrived) else arrived
            else:
                records += [message for message in arrived[start:end] if self._is_in(place, _offset(message))]
            self._reach(place, last + 1)
        return records

    def _in_turn(self, arrived: list[Message]) -> list[Message]:
        """The same where messages among them are none: an error before the last record of a range is one of the range."""
        records = []
        for message in arrived:
            if message.error() is not None:
                self._take(message)
                continue
            place, offset = place_of(message), _offset(message)
            if self._is_in(place, offset):
                records.append(message)
            self._reach(place, offset + 1)
        return records

    def _is_in(self, place: Place, offset: int) -> bool:
        open_range = self.open_ranges.get(place)
        return open_range is not None and open_range.start <= offset < open_range.end

    def _reach(self, place: Place, offset: int) -> None:
        if place not in self.open_ranges:
            return
        self.reached[place] = max(offset, self.reached.get(place, 0))
        if offset >= self.open_ranges[place].end:
            del self.open_ranges[place]
            self.client.pause([TopicPartition(*place)])

    def _take(self, event: Message) -> None:
        """Take the end of a partition, or an error of one."""
        place, error = place_of(event), event.error()
        if error is None:
            return
        if event.topic() is None:  # of no partition: a cause, if nothing comes any more
            self.complaints(error)
            return
        if place not in self.open_ranges:
            return
        if error.code() == KafkaError._PARTITION_EOF:
            # It carries the offset of the next record: markers before it are counted.
            self._reach(place, _offset(event))
            if place in self.open_ranges:
                self._require_held(place)
            return
        if error.code() == KafkaError._BAD_COMPRESSION:
            self._pass_over(place, _offset(event), error)
            return
        if is_out_of_range(error):
            self._require_held(place)
        raise translate(error, self.cluster, self.complaints, topic=place[0], partition=place[1])

    def _pass_over(self, place: Place, base: int, error: KafkaError) -> None:
        """Skip a batch of records that the client can't unpack; its first record has the offset `base`."""
        if base <= self.passed.get(place, -1):
            return  # the client told it again before it was moved on
        open_range = self.open_ranges[place]
        start = max(base, self.reached.get(place, open_range.start))
        if self.limits.unreadable == "fail":
            raise RECORDS_UNREADABLE.terminal(
                f"{self._name(place)}: the batch of records at offset {start} can't be unpacked: {error.str()}",
                next_step=f"raise receive.message.max.bytes of clusters.{self.cluster.name}.properties in the settings, or"
                " set source.on_unreadable: dead_letter, which keeps coordinates only",
            )
        end = self._end_of_batch(place, base, start, open_range.end)
        self.passed[place] = base
        self.unreadable.append(replace(open_range, start=start, end=end))
        self._reach(place, end)
        if place in self.open_ranges:
            self.client.seek(TopicPartition(*place, end))

    def _end_of_batch(self, place: Place, base: int, start: int, end: int) -> int:
        """One past the last offset, below `end`, of the batch of records that contains `start`.

        The client does not report it: each offset of the batch gives the same error, the one after it does not.
        """
        inside, outside, step = start, min(start + 1, end), 1
        while outside < end and self._is_of_batch(place, base, outside):
            step *= 2
            inside, outside = outside, min(outside + step, end)
        while outside - inside > 1:
            middle = (inside + outside) // 2
            if self._is_of_batch(place, base, middle):
                inside = middle
            else:
                outside = middle
        return outside

    def _is_of_batch(self, place: Place, base: int, offset: int) -> bool:
        if (answer := self._probe(place, base, offset)) is None and not self.probes_whole:
            self.probes_whole = True
            if self.prober is not None:
                self.prober.close()
                self.prober = None
            answer = self._probe(place, base, offset)
        if answer is None:
            raise self._stalled()
        return answer

    def _probe(self, place: Place, base: int, offset: int) -> bool | None:
        """Return whether the batch that begins at `base` holds an offset; None if nothing was answered."""
        self.prober = client = self.prober or self._made_prober()
        client.assign([TopicPartition(*place, offset)])
        deadline = time.monotonic() + (STALL_SECONDS if self.probes_whole else _PROBE_SECONDS)
        while time.monotonic() < deadline:
            event = client.poll(_POLL_SECONDS)
            error = None if event is None else event.error()
            if event is None or (error is not None and event.topic() is None):
                continue
            if error is not None and error.code() == KafkaError._BAD_COMPRESSION:
                return _offset(event) == base
            if error is None or error.code() == KafkaError._PARTITION_EOF:
                return False
            raise translate(error, self.cluster, self.complaints, topic=place[0], partition=place[1])
        return None

    def _made_prober(self) -> Consumer:
        """A consumer with a small decompression limit: it still reports the first offset of each batch that exceeds the limit."""
        if self.probes_whole:
            return consumer(self.cluster, self.complaints)
        most = min(_PROBED_BYTES, int(self.cluster.properties.get("receive.message.max.bytes", _PROBED_BYTES)))
        bounds = {"receive.message.max.bytes": str(most), "fetch.max.bytes": str(min(FETCH_BYTES, most - 512))}
        return consumer(replace(self.cluster, properties={**self.cluster.properties, **bounds}), ErrorLog())

    def _require_held(self, place: Place, seconds: float = REQUEST_SECONDS) -> None:
        """Refuse a range that the log doesn't hold: it would never end, or with records missing."""
        try:
            # With isolation level read_committed, the upper one is the last stable offset.
            log_start, stable_end = self.client.get_watermark_offsets(TopicPartition(*place), timeout=seconds)
        except KafkaException as e:
            cause = self._explained(e.args[0], place)
            self.client.poll(0)  # serves the complaints
            raise translate(cause, self.cluster, self.complaints, topic=place[0], partition=place[1]) from e
        open_range = self.open_ranges[place]
        detail = (
            f"{self._name(place)} doesn't hold the whole range: expected offsets {open_range.start} to "
            f"{open_range.end} (exclusive), found {log_start} to {stable_end} (last stable offset)"
        )
        if open_range.end > stable_end:
            raise LOG_TRUNCATED.terminal(
                detail,
                next_step="offsets beyond the stable end are uncommitted, or belong to an earlier topic of this name: compare "
                "the topic ids, then run frazil reset",
            )
        if self.reached.get(place, open_range.start) < log_start:
            # A plan never begins below the log start: retention or delete-records moved it since.
            raise KAFKA_FAILED.retryable(detail, next_step=PLAN_AGAIN)

    def _stalled(self) -> FrazilError:
        (place, open_range), *other_ranges = self.open_ranges.items()
        end = time.monotonic() + _LAST_QUESTION_SECONDS
        for silent in self.open_ranges:
            try:
                self._require_held(silent, max(end - time.monotonic(), 0.01))
            except FrazilError as refused:
                if isinstance(refused, Terminal) or refused.next_step == PLAN_AGAIN:
                    return refused
                break  # as silent as before
        more = f", nor of {len(other_ranges)} other partitions" if other_ranges else ""
        return KAFKA_FAILED.retryable(
            f"{self._name(place)}: nothing arrived for {STALL_SECONDS:.0f} s at offset {self.reached.get(place, open_range.start)} of "
            f"{open_range.start} to {open_range.end}{more}{reasons(self.cluster, self.complaints)}",
            next_step="try again; if it persists, check the broker that leads the partition",
        )

    def _explained(self, error: KafkaError, place: Place) -> KafkaError:
        """The error; where the client only knows no leader, the broker's error for the partition instead."""
        if error.code() != KafkaError._UNKNOWN_PARTITION:
            return error
        try:
            topic = self.client.list_topics(place[0], timeout=_LAST_QUESTION_SECONDS).topics[place[0]]
        except KafkaException as silence:
            answer: KafkaError = silence.args[0]
            return answer
        return topic.error or (KafkaError(KafkaError.LEADER_NOT_AVAILABLE) if place[1] in topic.partitions else error)

    def _name(self, place: Place) -> str:
        return f"{self.cluster}, topic {place[0]!r}, partition {place[1]}"


def _parts(messages: list[Message], size: int) -> Iterator[list[Message]]:
    """Messages in lists whose values have about `_BATCH_BYTES` at most; `size` is that of all."""
    if size < 2 * _BATCH_BYTES:
        yield messages
        return
    first = part_bytes = 0
    for end, length in enumerate(map(len, messages), 1):
        part_bytes += length
        if part_bytes >= _BATCH_BYTES or end == len(messages):
            yield messages[first:end]
            first, part_bytes = end, 0


def _offset(message: Message) -> int:
    # Typed as optional for messages that an application makes itself; consumed ones always have it.
    offset: int = message.offset()  # type: ignore[assignment]
    return offset


def _run_edges(messages: Sequence[Message], *, one_topic: bool) -> list[int]:
    """Positions at which the messages of another partition begin, from 0 to the number of messages."""
    partitions = np.fromiter(map(Message.partition, messages), np.int32, len(messages))
    is_edge = partitions[1:] != partitions[:-1]
    if not one_topic:
        topics = list(map(Message.topic, messages))
        is_edge |= np.fromiter(map(operator.ne, topics[1:], topics[:-1]), np.bool_, len(topics) - 1)
    return [0, *(np.flatnonzero(is_edge) + 1).tolist(), len(messages)]
