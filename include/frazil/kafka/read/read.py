"""Reads exact ranges of offsets of partitions, as Arrow batches of `KAFKA_SCHEMA`."""

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
from frazil.kafka.client.messages import PartitionKey, partition_of, to_batch, unreadable_batch

BATCH_RECORDS: Final = 25_000
"""Most records of a batch: so many that the cost per batch is small beside the cost per record."""

_POLL_SECONDS: Final = 0.5
"""How often a silent broker is checked against the time limit."""

_LAST_REQUEST_SECONDS: Final = 2.0
"""Bounds the request after a silence, which asks whether the topic still exists."""

_BATCH_BYTES: Final = 64 * 1024 * 1024
"""Bytes of values from which a batch is handed out."""

_LARGE_BYTES: Final = 1024 * 1024
"""Bytes of a value from which it is polled alone, because the values behind it may be as large."""

_WORK_SECONDS: Final = 1.0
"""CPU time of this process during a silence from which the client counts as busy: it unpacks a whole batch of records before it
hands out the first, and nothing else works in this process meanwhile."""

_PROBED_BYTES: Final = 2 * 2**20
"""Most bytes that a probe unpacks of a batch of records: it only checks which batch an offset belongs to, dozens of times. A
batch with more bytes in the log gives a probe no answer."""

_PROBE_SECONDS: Final = 3.0
"""Time without an answer from which a batch counts as too large for a probe."""


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """Limits on batches and records, and what to do with records that can't be unpacked.

    Attributes:
        batch_records: Most records in a batch. It ends earlier where they are large.
        record_bytes: Most bytes of key, value and headers. Of a larger record only coordinates, timestamp and size are read.
        unreadable: What becomes of a batch of records that the client can't unpack: its offsets are dead letters, or the read
            fails.
    """

    batch_records: int = BATCH_RECORDS
    record_bytes: int = 16 * 2**20
    unreadable: Literal["dead_letter", "fail"] = "dead_letter"


_LIMITS: Final = ReadLimits()

WHOLE: Final = ReadLimits(record_bytes=2**27, unreadable="fail")
"""For topics with positions: a record that can't be read must not look like one that was never written."""


def read_range(
    cluster: Cluster, topic: str, partition: int, start: int, end: int, limits: ReadLimits = _LIMITS
) -> Iterator[pa.RecordBatch]:
    """Read the committed records with offsets `start` <= o < `end` of one partition, in order; see `read_ranges`."""
    return read_ranges(cluster, (Range(topic, partition, start, end),), limits)


def read_ranges(cluster: Cluster, ranges: Iterable[Range], limits: ReadLimits = _LIMITS) -> Iterator[pa.RecordBatch]:
    """Read the committed records of ranges: several partitions at once, the records of each partition in order.

    Offsets may have gaps: transaction markers, aborted records, records that compaction removed. So a range has been read when
    Kafka hands out a record at or beyond its end, or the end of the partition, not when its last offset appears.

    Batches have the schema `frazil.records.model.rows.KAFKA_SCHEMA`, are never empty, and may have several partitions. If some
    records were not read whole, they also have the column `UNREAD_BYTES`.

    Raises:
        Terminal: A range ends beyond the last stable offset, or topic, credentials or permissions don't fit; or a batch of
            records can't be unpacked, and the limits say to fail.
        Retryable: The beginning of a range is gone, the broker doesn't answer, or nothing arrives for `STALL_SECONDS`, not even
            aborted records.
    """
    for wave in _waves(ranges):
        client_errors = ErrorLog()
        fetched = _Fetched()
        client = consumer(cluster, client_errors, statistics=fetched)
        reading = _Reading(cluster, client, client_errors, wave, limits, fetched)
        try:
            yield from reading.until_end()
        finally:
            reading.close()


def _waves(ranges: Iterable[Range]) -> Iterator[dict[PartitionKey, Range]]:
    """Groups of ranges that one consumer can read at once: of each partition only one."""
    remaining_ranges = [r for r in ranges if r.span > 0]
    while remaining_ranges:
        wave: dict[PartitionKey, Range] = {}
        for r in remaining_ranges:
            wave.setdefault((r.topic, r.partition), r)
        remaining_ranges = [r for r in remaining_ranges if wave[r.topic, r.partition] is not r]
        yield wave


@dataclass(slots=True)
class _Fetched:
    """How far a consumer has fetched, including aborted records, which it does not hand out."""

    statistics: str = ""
    _offsets: list[int] = field(default_factory=list)

    def __call__(self, statistics: str) -> None:
        self.statistics = statistics

    def offsets(self) -> list[int]:
        """The next offset of each partition, as last reported."""
        # Parsed only in a silence, and once: for thousands of partitions that takes milliseconds.
        if self.statistics:
            topics, self.statistics = json.loads(self.statistics)["topics"].values(), ""
            self._offsets = [partition["next_offset"] for topic in topics for partition in topic["partitions"].values()]
        return self._offsets


@dataclass(slots=True)
class _Reading:
    """The state of reading ranges with a consumer.

    Attributes:
        open_ranges: Ranges that have not been read to their end, by partition.
        reached: The next offset to read of each partition from which something arrived.
        unreadable: Offsets skipped since the last batch, because they can't be unpacked.
        passed: Per partition, the first offset of the last batch of records that can't be unpacked.
        prober: A second consumer, made on first use, that finds the end of such a batch.
        probes_whole: Whether the prober unpacks as much as `client`, because a batch was too large for it.
        topic: The topic of all ranges; None if they have several.
    """

    cluster: Cluster
    client: Consumer
    client_errors: ErrorLog
    open_ranges: dict[PartitionKey, Range]
    limits: ReadLimits = _LIMITS
    fetched: _Fetched = field(default_factory=_Fetched)
    reached: dict[PartitionKey, int] = field(default_factory=dict)
    unreadable: list[Range] = field(default_factory=list)
    passed: dict[PartitionKey, int] = field(default_factory=dict)
    prober: Consumer | None = None
    probes_whole: bool = False
    topic: str | None = field(init=False)

    def __post_init__(self) -> None:
        topics = {topic for topic, _ in self.open_ranges}
        self.topic = topics.pop() if len(topics) == 1 else None

    def close(self) -> None:
        """Close the consumers."""
        for client in filter(None, (self.client, self.prober)):
            client.close()

    def until_end(self) -> Iterator[pa.RecordBatch]:
        """Yield the records of the ranges, in batches that end at the limit of records or at `_BATCH_BYTES`."""
        batch_records = self.limits.batch_records
        # One request first: if no broker answers, or the topic is gone, its error comes sooner and says more than a silence.
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
        fetched: list[int] | None = None
        while (first := self.client.poll(_POLL_SECONDS)) is None:
            before, fetched = fetched, self.fetched.offsets()
            if before not in (None, fetched):
                deadline = time.monotonic() + STALL_SECONDS
            if time.monotonic() < deadline:
                continue
            if time.process_time() - worked < _WORK_SECONDS:
                raise self._stall_error()
            deadline, worked = time.monotonic() + STALL_SECONDS, time.process_time()
        # `consume` alone would wait for a full list. Behind the first message, take only what has arrived already.
        return [first, *(self.client.consume(most - 1, 0) if most > 1 and len(first) < _LARGE_BYTES else ())]

    def records_in_ranges(self, arrived: list[Message]) -> list[Message]:
        """Return the records of the ranges among messages, and note how far each partition has been read.

        Raises:
            Terminal, Retryable: One of them is an error, or the end of a partition that has less than its range.
        """
        if any(map(Message.error, arrived)):
            return self._records_one_by_one(arrived)
        # Messages come in runs of one partition with ascending offsets, so it is enough to compare the ends of each run.
        offsets = np.fromiter(map(Message.offset, arrived), np.int64, len(arrived))
        records: list[Message] = []
        for start, end in pairwise(_run_edges(arrived, one_topic=self.topic is not None)):
            key = partition_of(arrived[start])
            first, last = int(offsets[start]), int(offsets[end - 1])
            if self._is_in(key, first) and self._is_in(key, last):
                records += arrived[start:end] if end - start < len(arrived) else arrived
            else:
                records += [message for message in arrived[start:end] if self._is_in(key, _offset(message))]
            self._reach(key, last + 1)
        return records

    def _records_one_by_one(self, arrived: list[Message]) -> list[Message]:
        """As `records_in_ranges`, message by message, for lists with errors: an error that comes before a range's end counts."""
        records = []
        for message in arrived:
            if message.error() is not None:
                self._handle_event(message)
                continue
            key, offset = partition_of(message), _offset(message)
            if self._is_in(key, offset):
                records.append(message)
            self._reach(key, offset + 1)
        return records

    def _is_in(self, key: PartitionKey, offset: int) -> bool:
        open_range = self.open_ranges.get(key)
        return open_range is not None and open_range.start <= offset < open_range.end

    def _reach(self, key: PartitionKey, offset: int) -> None:
        if key not in self.open_ranges:
            return
        self.reached[key] = max(offset, self.reached.get(key, 0))
        if offset >= self.open_ranges[key].end:
            del self.open_ranges[key]
            self.client.pause([TopicPartition(*key)])

    def _handle_event(self, event: Message) -> None:
        """Handle the end of a partition, or an error."""
        key, error = partition_of(event), event.error()
        if error is None:
            return
        if event.topic() is None:  # an error of no partition, which may explain a later silence
            self.client_errors(error)
            return
        if key not in self.open_ranges:
            return
        if error.code() == KafkaError._PARTITION_EOF:
            # Its offset is that of the next record, behind transaction markers.
            self._reach(key, _offset(event))
            if key in self.open_ranges:
                self._require_held(key)
            return
        if error.code() == KafkaError._BAD_COMPRESSION:
            self._skip_batch(key, _offset(event), error)
            return
        if is_out_of_range(error):
            self._require_held(key)
        raise translate(error, self.cluster, self.client_errors, topic=key[0], partition=key[1])

    def _skip_batch(self, key: PartitionKey, base: int, error: KafkaError) -> None:
        """Skip a batch of records that the client can't unpack; its first record has the offset `base`."""
        if base <= self.passed.get(key, -1):
            return  # the client reported the batch again before the seek
        open_range = self.open_ranges[key]
        start = max(base, self.reached.get(key, open_range.start))
        if self.limits.unreadable == "fail":
            raise RECORDS_UNREADABLE.terminal(
                f"{self._name(key)}: the batch of records at offset {start} can't be unpacked: {error.str()}",
                next_step=f"raise receive.message.max.bytes of clusters.{self.cluster.name}.properties in the settings, or"
                " set source.on_unreadable: dead_letter, which keeps coordinates only",
            )
        end = self._end_of_batch(key, base, start, open_range.end)
        self.passed[key] = base
        self.unreadable.append(replace(open_range, start=start, end=end))
        self._reach(key, end)
        if key in self.open_ranges:
            self.client.seek(TopicPartition(*key, end))

    def _end_of_batch(self, key: PartitionKey, base: int, start: int, end: int) -> int:
        """One past the last offset, below `end`, of the batch of records that contains `start`.

        The client does not report it: each offset of the batch gives the same error, the one after it does not.
        """
        inside, outside, step = start, min(start + 1, end), 1
        while outside < end and self._is_in_batch(key, base, outside):
            step *= 2
            inside, outside = outside, min(outside + step, end)
        while outside - inside > 1:
            middle = (inside + outside) // 2
            if self._is_in_batch(key, base, middle):
                inside = middle
            else:
                outside = middle
        return outside

    def _is_in_batch(self, key: PartitionKey, base: int, offset: int) -> bool:
        if (answer := self._probe(key, base, offset)) is None and not self.probes_whole:
            self.probes_whole = True
            if self.prober is not None:
                self.prober.close()
                self.prober = None
            answer = self._probe(key, base, offset)
        if answer is None:
            raise self._stall_error()
        return answer

    def _probe(self, key: PartitionKey, base: int, offset: int) -> bool | None:
        """Return whether the batch that begins at `base` holds an offset; None without an answer."""
        self.prober = client = self.prober or self._make_prober()
        client.assign([TopicPartition(*key, offset)])
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
            raise translate(error, self.cluster, self.client_errors, topic=key[0], partition=key[1])
        return None

    def _make_prober(self) -> Consumer:
        """A consumer that unpacks little: it still reports the first offset of each batch that is too large for it."""
        if self.probes_whole:
            return consumer(self.cluster, self.client_errors)
        most = min(_PROBED_BYTES, int(self.cluster.properties.get("receive.message.max.bytes", _PROBED_BYTES)))
        bounds = {"receive.message.max.bytes": str(most), "fetch.max.bytes": str(min(FETCH_BYTES, most - 512))}
        return consumer(replace(self.cluster, properties={**self.cluster.properties, **bounds}), ErrorLog())

    def _require_held(self, key: PartitionKey, seconds: float = REQUEST_SECONDS) -> None:
        """Refuse a range that the log doesn't hold: its read would never end, or would miss records."""
        try:
            # With isolation level read_committed, the upper watermark is the last stable offset.
            log_start, stable_end = self.client.get_watermark_offsets(TopicPartition(*key), timeout=seconds)
        except KafkaException as e:
            cause = self._explain(e.args[0], key)
            self.client.poll(0)  # delivers errors to the callback
            raise translate(cause, self.cluster, self.client_errors, topic=key[0], partition=key[1]) from e
        open_range = self.open_ranges[key]
        detail = (
            f"{self._name(key)} doesn't hold the whole range: expected offsets {open_range.start} to "
            f"{open_range.end} (exclusive), found {log_start} to {stable_end} (last stable offset)"
        )
        if open_range.end > stable_end:
            raise LOG_TRUNCATED.terminal(
                detail,
                next_step="offsets beyond the stable end are uncommitted, or belong to an earlier topic of this name: compare "
                "the topic ids, then run frazil reset",
            )
        if self.reached.get(key, open_range.start) < log_start:
            # A plan never begins below the log start, so retention or delete-records moved it since.
            raise KAFKA_FAILED.retryable(detail, next_step=PLAN_AGAIN)

    def _stall_error(self) -> FrazilError:
        (key, open_range), *other_ranges = self.open_ranges.items()
        end = time.monotonic() + _LAST_REQUEST_SECONDS
        for silent in self.open_ranges:
            try:
                self._require_held(silent, max(end - time.monotonic(), 0.01))
            except FrazilError as refused:
                if isinstance(refused, Terminal) or refused.next_step == PLAN_AGAIN:
                    return refused
                break  # still no answer
        more = f", nor of {len(other_ranges)} other partitions" if other_ranges else ""
        return KAFKA_FAILED.retryable(
            f"{self._name(key)}: nothing arrived for {STALL_SECONDS:.0f} s at offset {self.reached.get(key, open_range.start)} of "
            f"{open_range.start} to {open_range.end}{more}{reasons(self.cluster, self.client_errors)}",
            next_step="try again; if it persists, check the broker that leads the partition",
        )

    def _explain(self, error: KafkaError, key: PartitionKey) -> KafkaError:
        """The error; if the client only finds no leader, the broker's error for the topic instead."""
        if error.code() != KafkaError._UNKNOWN_PARTITION:
            return error
        try:
            topic = self.client.list_topics(key[0], timeout=_LAST_REQUEST_SECONDS).topics[key[0]]
        except KafkaException as silence:
            answer: KafkaError = silence.args[0]
            return answer
        return topic.error or (KafkaError(KafkaError.LEADER_NOT_AVAILABLE) if key[1] in topic.partitions else error)

    def _name(self, key: PartitionKey) -> str:
        return f"{self.cluster}, topic {key[0]!r}, partition {key[1]}"


def _parts(messages: list[Message], size: int) -> Iterator[list[Message]]:
    """Split messages into lists whose values have about `_BATCH_BYTES` at most; `size` is the size of all values."""
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
    # Only optional in messages that an application creates itself.
    offset: int = message.offset()  # type: ignore[assignment]
    return offset


def _run_edges(messages: Sequence[Message], *, one_topic: bool) -> list[int]:
    """Positions at which the partition changes, with 0 and the number of messages."""
    partitions = np.fromiter(map(Message.partition, messages), np.int32, len(messages))
    is_edge = partitions[1:] != partitions[:-1]
    if not one_topic:
        topics = list(map(Message.topic, messages))
        is_edge |= np.fromiter(map(operator.ne, topics[1:], topics[:-1]), np.bool_, len(topics) - 1)
    return [0, *(np.flatnonzero(is_edge) + 1).tolist(), len(messages)]
