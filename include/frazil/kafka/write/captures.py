"""Sends captured records and, in the same transaction, the new position to a compacted topic of positions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from types import MappingProxyType
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay, wait_fixed

from frazil.batch.facts import PartitionFacts
from frazil.error_codes import KAFKA_FAILED, KAFKA_NAME_IN_USE, TOPIC_UNFIT
from frazil.errors import FrazilError, Retryable
from frazil.failpoints import Failpoint, hit
from frazil.kafka.admin.observe import observe
from frazil.kafka.admin.topics import batch_limit, cleanup_policies, create_topic
from frazil.kafka.client.client import REQUEST_SECONDS, STALL_SECONDS, ErrorLog, transactional_producer
from frazil.kafka.client.cluster import Cluster, OutgoingRecord
from frazil.kafka.client.errors import RecordTooLarge, is_too_large, reasons, translate_transaction
from frazil.kafka.read.read import WHOLE, read_range

# Initialising it ends whatever earlier ones of the name left open and bars them from committing.

_BEGIN_SECONDS: Final = 12.0
"""Bounds the time until a producer is initialised, usually some milliseconds. The first one of a cluster waits for the
topic of transactions to be made, one that follows a crash for the broker's aborting of what is open."""

_POLL_SECONDS: Final = 0.1


@dataclass(slots=True)
class TransactionalProducer:
    """A transactional producer. Opening another one with the same id fences it, so only the newest can commit.

    Attributes:
        topic: An existing topic, that of messages about no record in particular.
    """

    cluster: Cluster
    topic: str
    name: str
    client: Producer
    complaints: ErrorLog
    _sent: int = 0
    _acknowledged: int = 0
    _failed: tuple[KafkaError, str, OutgoingRecord] | None = None

    def begin(self) -> None:
        """Fence earlier producers with this transactional id, and abort their open transactions.

        Raises:
            Fenced: another one was opened at the same moment.
        """
        self.called(lambda: self.client.init_transactions(_BEGIN_SECONDS))

    def send(self, records: Iterable[OutgoingRecord], last: Callable[[], None]) -> None:
        """Send records to the topic in a transaction of their own.

        Records are taken one by one, and held in memory until the broker has them; `last` adds what belongs to them,
        when all of them are acknowledged.

        Raises:
            Fenced: another producer of the name was opened: nothing was sent.
            RecordTooLarge: the topic refuses a record, alone or in a batch with others.
            Retryable: no broker answers. The next producer of the name aborts what is open.
            Terminal: the topic is missing, refuses a record, or credentials or permissions don't fit.
        """
        self.called(self.client.begin_transaction)
        try:
            for record in records:
                self._produce(self.topic, record)
            self._confirm()
            last()
            hit(Failpoint.CAPTURE_COMMITTING)
            self.called(lambda: self.client.commit_transaction(STALL_SECONDS))
        except FrazilError:
            self._abort()
            raise
        hit(Failpoint.CAPTURE_COMMITTED)

    def add(self, topic: str, record: OutgoingRecord) -> None:
        """Send one more record in the open transaction, to any topic, and wait until it is acknowledged."""
        self._produce(topic, record)
        self._confirm()

    def called(self, ask: Callable[[], object]) -> None:
        """Call the client, and translate its errors.

        Raises:
            Fenced, Retryable, Terminal: The client's error, translated.
        """
        try:
            ask()
        except KafkaException as e:
            with suppress(KafkaException):  # it raises a fatal error again
                self.client.poll(0)  # serves the complaints
            raise self._translated(e) from e

    def _abort(self) -> None:
        """Abort the transaction, so that consumers of committed records need not wait. If that fails, the next producer with
        this id aborts it, or the broker after its time-out.
        """
        self.client.purge()
        with suppress(KafkaException):
            self.client.abort_transaction(REQUEST_SECONDS)

    def _produce(self, topic: str, record: OutgoingRecord) -> None:
        began = time.monotonic()
        while not self._accepted(topic, record):
            self._poll(_POLL_SECONDS)  # back-pressure
            if time.monotonic() - began > STALL_SECONDS:
                raise self._stalled()
        self._sent += 1
        self._poll(0)

    def _accepted(self, topic: str, record: OutgoingRecord) -> bool:
        try:
            self.client.produce(
                topic,
                value=record.value,
                key=record.key,
                headers=list(record.headers),
                timestamp=record.timestamp_ms or 0,
                on_delivery=partial(self._delivered, topic, record),
            )
        except BufferError:
            return False
        except KafkaException as e:
            raise self._translated(e, topic, record) from e
        return True

    def _delivered(self, topic: str, record: OutgoingRecord, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._failed = self._failed or (error, topic, record)
        else:
            self._acknowledged += 1

    def _confirm(self) -> None:
        """Wait for every acknowledgement, so that a commit never overtakes a refusal."""
        moved, before = time.monotonic(), self._acknowledged
        while self._failed is None and self._acknowledged < self._sent:
            self._poll(_POLL_SECONDS)
            if self._acknowledged != before:
                moved, before = time.monotonic(), self._acknowledged
            elif time.monotonic() - moved > STALL_SECONDS:
                raise self._stalled()
        if self._failed is not None:
            raise self._translated(*self._failed)

    def _poll(self, seconds: float) -> None:
        """Take acknowledgements for so long."""
        try:
            self.client.poll(seconds)
        except KafkaException as e:
            raise self._translated(e) from e

    def _translated(
        self, error: KafkaException | KafkaError, topic: str | None = None, record: OutgoingRecord | None = None
    ) -> FrazilError:
        if record is not None and is_too_large(error):
            return RecordTooLarge(self.cluster, topic or self.topic, record)
        return translate_transaction(error, self.cluster, self.name, self.complaints, topic=topic or self.topic)

    def _stalled(self) -> Retryable:
        return KAFKA_FAILED.retryable(
            f"{self.cluster}, topic {self.topic!r}: no acknowledgement for {STALL_SECONDS:.0f} s"
            f"{reasons(self.cluster, self.complaints)}",
            next_step="check the brokers, then try again: nothing is sent twice",
        )


_COMPACTED: Final[Mapping[str, str]] = MappingProxyType(
    {"cleanup.policy": "compact", "segment.ms": "600000", "min.cleanable.dirty.ratio": "0.1"}
)
"""Configuration of the topic of positions: of each key the last one stays. Each run reads it from its start, and the broker cleans
no segment that is written, nor where less than half is to go, unless it is told so."""

_OPEN_WAIT_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True)
class CaptureProducer:
    """The producer of a capture. Opening another one fences it, so only the newest can commit."""

    producer: TransactionalProducer
    positions: str
    key: str

    def send(self, records: Iterable[OutgoingRecord], position: Callable[[], str]) -> None:
        """Send records and the position after them in one transaction.

        Records are taken one by one; then `position` is asked.

        Raises:
            Fenced: another run of the capture began: nothing was sent.
            RecordTooLarge: the topic refuses a record.
            Retryable: no broker answers; the next run knows whether this was committed.
            Terminal: a topic is missing, refuses a record, or credentials or permissions don't fit.
        """

        def keep() -> None:
            # Last, so that what a crash leaves open holds other captures up for as short as can be.
            self.producer.add(self.positions, OutgoingRecord(self.key.encode(), position().encode()))

        self.producer.send(_passing(records), keep)


def _passing(records: Iterable[OutgoingRecord]) -> Iterator[OutgoingRecord]:
    for record in records:
        yield record
        hit(Failpoint.CAPTURE_SENDING)


@contextmanager
def capture_producer(
    cluster: Cluster, topic: str, positions: str, name: str, seconds: float | None = None
) -> Iterator[CaptureProducer]:
    """Open the producer of a capture. This aborts open transactions of earlier ones and fences them.

    Both topics exist. A transaction may be open for so many seconds; None for the usual minute.

    Raises:
        Fenced: another one was opened at the same moment.
    """
    complaints = ErrorLog()
    of_capture = f"frazil.capture.{name}"
    size = batch_limit(cluster, topic)
    client = transactional_producer(cluster, complaints, of_capture, batch_bytes=size, seconds=seconds)
    producer = TransactionalProducer(cluster, topic, of_capture, client, complaints)
    producer.begin()
    try:
        yield CaptureProducer(producer, positions, name)
    finally:
        client.purge()  # nothing may arrive behind the caller's back


def ready_positions(cluster: Cluster, topic: str) -> None:
    """Make the topic of positions if it is missing.

    Raises:
        Terminal: It can't be made, forgets positions, or has several partitions.
    """
    if topic not in observe(cluster, [topic], absent_ok=True).topics:
        create_topic(cluster, topic, 1, _COMPACTED)
    policy = cleanup_policies(cluster, [topic])[topic]
    if policy != {"compact"}:
        raise TOPIC_UNFIT.terminal(
            f"{cluster}, topic {topic!r} holds the positions of captures, and Kafka would delete them: expected cleanup.policy compact,"
            f" found {','.join(sorted(policy)) or 'none'}",
            next_step=f"set cleanup.policy=compact on topic {topic}, or name another one: captures.positions of the settings",
        )
    _partition(cluster, topic)


def last_position(cluster: Cluster, topic: str, name: str) -> tuple[bytes, datetime] | None:
    """The last committed position of a capture and its time; None if it has none, or there is no such topic.

    Of a capture whose producer is open it is the last one there will be.
    """
    if topic not in observe(cluster, [topic], absent_ok=True).topics:
        return None
    end = _partition(cluster, topic).high_watermark
    retrying = Retrying(
        retry=retry_if_result(lambda facts: facts.stable_end < end),
        stop=stop_after_delay(REQUEST_SECONDS),
        wait=wait_fixed(_OPEN_WAIT_SECONDS),
    )
    try:
        partition = retrying(_partition, cluster, topic)
    except RetryError as error:
        raise KAFKA_NAME_IN_USE.retryable(
            f"{cluster}, topic {topic!r}: a transaction of another capture stays open; records after it can't be read yet",
            next_step="try again in a minute: the next run of that capture ends it, or the broker does after its timeout",
        ) from error
    position: tuple[bytes, datetime] | None = None
    key = name.encode()
    for batch in read_range(cluster, topic, 0, partition.log_start, end, WHOLE):
        columns = (batch[column].to_pylist() for column in ("key", "value", "timestamp"))
        for capture_key, value, timestamp in zip(*columns, strict=True):
            position = (value, timestamp) if capture_key == key else position
    return position


def _partition(cluster: Cluster, topic: str) -> PartitionFacts:
    partitions = observe(cluster, [topic]).topics[topic].partitions
    if len(partitions) != 1:
        raise TOPIC_UNFIT.terminal(
            f"{cluster}, topic {topic!r} holds the positions of captures: expected 1 partition, found {len(partitions)}",
            next_step="name another topic: captures.positions of the settings",
        )
    return partitions[0]
