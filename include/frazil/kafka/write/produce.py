"""Sends records to a topic until all in-sync replicas have acknowledged each; and dead letters as records, with Kafka Connect's
error headers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from frazil.batch.position import BatchMark
from frazil.error_codes import COMMIT_UNKNOWN
from frazil.errors import FrazilError, OutcomeUnknown
from frazil.kafka.admin.observe import describe
from frazil.kafka.admin.topics import batch_limit
from frazil.kafka.client.client import STALL_SECONDS, ErrorLog, admin, enqueue, producer
from frazil.kafka.client.cluster import Cluster, Header, OutgoingRecord
from frazil.kafka.client.errors import RecordTooLarge, is_too_large, reasons, translate
from frazil.records.model.dead_letter import Stage

_SERVE_EVERY_RECORDS: Final = 500
"""How often acknowledgements are received while records are sent as fast as possible: a poll per record would cost more than the
record."""

_POLL_SECONDS: Final = 0.1
"""Longest wait for acknowledgements before time limit and progress are checked again."""

_OUTCOME_UNKNOWN: Final = frozenset(
    {
        KafkaError._MSG_TIMED_OUT,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._PURGE_INFLIGHT,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    }
)


@dataclass(frozen=True, slots=True)
class Produced:
    """The result of sending records.

    Attributes:
        offsets: Partition -> first and last acknowledged offset.
        seconds: From the first record to the last acknowledgement.
    """

    count: int
    offsets: Mapping[int, tuple[int, int]]
    seconds: float


def produce(
    cluster: Cluster,
    topic: str,
    records: Iterable[OutgoingRecord],
    rate: float | None = None,
    progress: Callable[[int], None] | None = None,
    limit: int | None = None,
) -> Produced:
    """Send records and wait until each is acknowledged. A record lands once, however often the client retries.

    Records are consumed one by one, so they may be endless or larger than memory. Records with equal keys go to the same
    partition, in order.

    Args:
        cluster: The cluster.
        topic: An existing topic.
        records: Records to send.
        rate: Records per second, exact over the whole time; None for as many as possible.
        progress: Called with the number of acknowledged records whenever it has grown.
        limit: The topic's `record_limit`; None to request it.

    Raises:
        RecordTooLarge: The topic refuses a record for its size.
        Terminal: The topic is missing, or permissions or settings don't fit.
        Retryable: No broker answers; nothing was sent.
        OutcomeUnknown: Records were sent and not acknowledged; the message says how many.
    """
    with admin(cluster) as admin_client:
        describe(admin_client, [topic])
    client_errors = ErrorLog()
    client = producer(cluster, client_errors, batch_bytes=batch_limit(cluster, topic, limit))
    sending = _Sending(cluster, topic, client, client_errors, progress)
    try:
        sending.send(records, rate)
        sending.confirm()
    finally:
        # After a failure nothing may arrive later.
        sending.client.purge()
    return Produced(sending.acknowledged, sending.offsets, time.monotonic() - sending.began)


@dataclass(slots=True)
class _Sending:
    """The state of sending records through a producer."""

    cluster: Cluster
    topic: str
    client: Producer
    client_errors: ErrorLog
    progress: Callable[[int], None] | None
    handed_over: int = 0
    acknowledged: int = 0
    offsets: dict[int, tuple[int, int]] = field(default_factory=dict)
    failed: tuple[KafkaError, OutgoingRecord] | None = None
    began: float = field(default_factory=time.monotonic)
    moved: float = field(default_factory=time.monotonic)

    def send(self, records: Iterable[OutgoingRecord], rate: float | None) -> None:
        """Hand each record to the producer when it is due."""
        for record in records:
            if rate is not None:
                self._wait_until(self.began + self.handed_over / rate)
            elif self.handed_over % _SERVE_EVERY_RECORDS == 0:
                self._receive(0)
            self._send(record)

    def confirm(self) -> None:
        """Wait for the missing acknowledgements."""
        while self.acknowledged < self.handed_over:
            self._receive(_POLL_SECONDS)

    def _wait_until(self, due: float) -> None:
        self._receive(0)
        while (remaining := due - time.monotonic()) > 0:
            self._receive(min(remaining, _POLL_SECONDS))

    def _send(self, record: OutgoingRecord) -> None:
        try:
            while not enqueue(self.client, self.topic, record, partial(self._delivered, record)):
                self._receive(_POLL_SECONDS)  # back-pressure: the queue is full until the broker acknowledges
        except KafkaException as e:
            raise self._not_sent(e) from e
        self.handed_over += 1

    def _delivered(self, record: OutgoingRecord, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed = self.failed or (error, record)
            return
        self.acknowledged += 1
        partition, offset = message.partition(), message.offset()
        if partition is not None and offset is not None:
            first, last = self.offsets.get(partition, (offset, offset))
            self.offsets[partition] = (min(first, offset), max(last, offset))

    def _receive(self, seconds: float) -> None:
        """Receive acknowledgements for so many seconds.

        Raises:
            FrazilError: A record failed, or no acknowledgement arrives for `STALL_SECONDS`.
        """
        before = self.acknowledged
        try:
            self.client.poll(seconds)
        except KafkaException as e:  # a fatal one, such as no permission at all to write
            raise self._failure(e.args[0]) from e
        now = time.monotonic()
        if self.failed is not None:
            raise self._failure(*self.failed)
        if self.acknowledged != before and self.progress is not None:
            self.progress(self.acknowledged)
        if self.acknowledged != before or self.acknowledged == self.handed_over:
            self.moved = now
        elif now - self.moved > STALL_SECONDS:
            raise self._unconfirmed(f"no acknowledgement for {STALL_SECONDS:.0f} s")

    def _failure(self, error: KafkaError, record: OutgoingRecord | None = None) -> FrazilError:
        if record is not None and is_too_large(error):
            return RecordTooLarge(self.cluster, self.topic, record, f"; {self._counts()}")
        if error.code() in _OUTCOME_UNKNOWN:
            return self._unconfirmed(error.str())
        cause = translate(error, self.cluster, self.client_errors, topic=self.topic)
        return type(cause)(f"{cause.message}; {self._counts()}", code=cause.code, next_step=cause.next_step)

    def _unconfirmed(self, why: str) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"{self.cluster}, topic {self.topic!r}: {self._counts()}, the others may or may not "
            f"have arrived: {why}{reasons(self.cluster, self.client_errors)}",
            code=COMMIT_UNKNOWN,
            next_step="check the broker, then compare the topic's end offsets with what was sent",
        )

    def _not_sent(self, error: KafkaException) -> FrazilError:
        cause = translate(error, self.cluster, self.client_errors, topic=self.topic)
        return type(cause)(
            f"{cause.message}; record {self.handed_over} of the input (from 0) was not sent; {self._counts()}",
            code=cause.code,
            next_step=cause.next_step,
        )

    def _counts(self) -> str:
        return f"{self.acknowledged} of {self.handed_over} sent records acknowledged"


# Header names: https://github.com/apache/kafka/blob/trunk/connect/runtime/src/main/java/org/apache/kafka/connect/runtime/errors/DeadLetterQueueReporter.java

PREFIX: Final = "__connect.errors."
"""Prefix of Kafka Connect's headers, whose values are UTF-8 texts, also for numbers."""

CODE_HEADER: Final = "frazil.code"
BATCH_HEADER: Final = "frazil.batch"
BATCH_ID_HEADER: Final = "frazil.batch.id"
"""Number and id of the batch. A letter that was sent twice has both headers twice the same, with the same origin and destination."""

DESTINATION_HEADER: Final = "frazil.destination"
"""The table that the record does not fit; missing if the letter is for the whole record."""

OMITTED_HEADER: Final = "frazil.omitted.bytes"
"""Bytes of the record's key, value and headers, if they are too large for the topic; the dead-letter table has them."""

STAGES: Final[Mapping[str, str]] = {
    Stage.DECODE: "VALUE_CONVERTER",
    Stage.TRANSFORM: "TRANSFORMATION",
    Stage.CONVERT: "TASK_PUT",
    Stage.ROUTE: "TASK_PUT",
}
"""Stage -> Kafka Connect's name of it. There, values that don't fit a table's columns fail in the sink's `put`."""

_MICROSECONDS: Final = 1_000
"""Microseconds in a millisecond, the unit of Kafka's timestamps."""

_CLASS: Final = "frazil.records.decoder.decode.Decoder"
"""The class that failed; in Kafka Connect a converter or a transform."""


def letter_records(letters: pa.RecordBatch, pipeline: str, batch: BatchMark) -> Iterator[OutgoingRecord]:
    """Turn dead letters into records of a dead-letter topic.

    Key, value, timestamp and the first headers are those of the record. So a record that fails again in another pipeline has the
    headers of both failures, the newer ones last.
    """
    stamps = letters.column("timestamp").cast(pa.int64()).to_pylist()  # Python knows no years beyond 9999
    for row, stamp in zip(letters.drop_columns("timestamp").to_pylist(), stamps, strict=True):
        headers = tuple((header["key"] or "", header["value"]) for header in row["headers"] or ())
        yield OutgoingRecord(
            row["key"], row["value"], (*headers, *_failure_headers(row, pipeline, batch)), _milliseconds(stamp)
        )


def without_record(letter: OutgoingRecord) -> OutgoingRecord:
    """Return the letter with its record's coordinates and reason, but without the record's key, value and headers."""
    first = max(position for position, (name, _) in enumerate(letter.headers) if name == f"{PREFIX}topic")
    headers = (*letter.headers[first:], (OMITTED_HEADER, str(letter.size).encode()))
    return replace(letter, key=None, value=None, headers=headers)


def origin(letter: OutgoingRecord) -> str:
    """Return the coordinates of a letter's record, for messages. If a header repeats, the last one is Frazil's."""
    headers = {
        name: (value or b"").decode(errors="replace") for name, value in letter.headers if name.startswith(PREFIX)
    }
    return ", ".join(f"{what} {headers[PREFIX + what]}" for what in ("topic", "partition", "offset"))


def _failure_headers(row: Mapping[str, Any], pipeline: str, batch: BatchMark) -> Iterator[Header]:
    headers = {
        f"{PREFIX}topic": row["topic"],
        f"{PREFIX}partition": row["partition"],
        f"{PREFIX}offset": row["offset"],
        f"{PREFIX}connector.name": pipeline,
        f"{PREFIX}task.id": 0,
        f"{PREFIX}stage": STAGES[row["stage"]],
        f"{PREFIX}class.name": _CLASS,
        f"{PREFIX}exception.class.name": f"frazil.{row['code']}",
        f"{PREFIX}exception.message": row["message"],
        CODE_HEADER: row["code"],
        BATCH_HEADER: batch.n,
        BATCH_ID_HEADER: batch.batch,
    }
    if (destination := row.get("destination")) is not None:
        headers[DESTINATION_HEADER] = destination
    return ((name, str(value).encode()) for name, value in headers.items())


def _milliseconds(microseconds: int | None) -> int | None:
    """The timestamp in milliseconds; None if the record has none that Kafka accepts."""
    return microseconds // _MICROSECONDS if microseconds is not None and microseconds >= _MICROSECONDS else None
