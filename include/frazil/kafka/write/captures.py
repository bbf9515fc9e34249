"""Sends captured records, and in the same transaction the capture's new position, to a compacted topic of positions."""

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
from frazil.kafka.client.client import REQUEST_SECONDS, STALL_SECONDS, ErrorLog, enqueue, transactional_producer
from frazil.kafka.client.cluster import Cluster, OutgoingRecord
from frazil.kafka.client.errors import RecordTooLarge, is_too_large, reasons, translate_transaction
from frazil.kafka.read.read import WHOLE, read_range

_BEGIN_SECONDS: Final = 12.0
"""Bounds the initialisation of a producer, usually some milliseconds. The first producer of a cluster waits until the topic of
transactions exists, and one after a crash until the broker has aborted the open transaction."""

_POLL_SECONDS: Final = 0.1


@dataclass(slots=True)
class CaptureProducer:
    """The transactional producer of a capture. The capture's next producer fences it, so that only the newest can commit.

    Attributes:
        topic: The topic of the records; messages name it unless another topic failed.
        positions: The topic of positions.
        name: The capture's name, which is the key of its position.
    """

    cluster: Cluster
    topic: str
    positions: str
    name: str
    client: Producer
    client_errors: ErrorLog
    _sent: int = 0
    _acknowledged: int = 0
    _failed: tuple[KafkaError, str, OutgoingRecord] | None = None

    def begin(self) -> None:
        """Fence earlier producers of the capture, and abort their open transactions.

        Raises:
            Fenced: Another producer began at the same moment.
        """
        self._call(lambda: self.client.init_transactions(_BEGIN_SECONDS))

    def send(self, records: Iterable[OutgoingRecord], position: Callable[[], str]) -> None:
        """Send records and the position after them in one transaction.

        Records are consumed one by one, and stay in memory until the broker has them. `position` is called after the last one.

        Raises:
            Fenced: Another run of the capture began: nothing was sent.
            RecordTooLarge: The topic refuses a record, alone or in a batch with others.
            Retryable: No broker answers; the next run knows whether this was committed.
            Terminal: A topic is missing, refuses a record, or credentials or permissions don't fit.
        """
        self._call(self.client.begin_transaction)
        try:
            for record in records:
                self._produce(self.topic, record)
                hit(Failpoint.CAPTURE_SENDING)
            self._confirm()
            # Last: from then on the open transaction delays readers of the topic of positions, which all captures share.
            self._produce(self.positions, OutgoingRecord(self.name.encode(), position().encode()))
            self._confirm()
            hit(Failpoint.CAPTURE_COMMITTING)
            self._call(lambda: self.client.commit_transaction(STALL_SECONDS))
        except FrazilError:
            self._abort()
            raise
        hit(Failpoint.CAPTURE_COMMITTED)

    def _call(self, action: Callable[[], object]) -> None:
        """Call the client, and translate its errors."""
        try:
            action()
        except KafkaException as e:
            with suppress(KafkaException):  # a fatal error is raised again
                self.client.poll(0)  # delivers errors to the callback
            raise self._translate(e) from e

    def _abort(self) -> None:
        """Abort the transaction, so that consumers of committed records need not wait. If that fails, the next producer with this
        id aborts it, or the broker after the time-out.
        """
        self.client.purge()
        with suppress(KafkaException):
            self.client.abort_transaction(REQUEST_SECONDS)

    def _produce(self, topic: str, record: OutgoingRecord) -> None:
        began = time.monotonic()
        while not self._accepted(topic, record):
            self._poll(_POLL_SECONDS)  # back-pressure
            if time.monotonic() - began > STALL_SECONDS:
                raise self._stall_error()
        self._sent += 1
        self._poll(0)

    def _accepted(self, topic: str, record: OutgoingRecord) -> bool:
        try:
            return enqueue(self.client, topic, record, partial(self._delivered, topic, record))
        except KafkaException as e:
            raise self._translate(e, topic, record) from e

    def _delivered(self, topic: str, record: OutgoingRecord, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._failed = self._failed or (error, topic, record)
        else:
            self._acknowledged += 1

    def _confirm(self) -> None:
        """Wait for every acknowledgement, so that no commit overtakes a refusal."""
        moved, before = time.monotonic(), self._acknowledged
        while self._failed is None and self._acknowledged < self._sent:
            self._poll(_POLL_SECONDS)
            if self._acknowledged != before:
                moved, before = time.monotonic(), self._acknowledged
            elif time.monotonic() - moved > STALL_SECONDS:
                raise self._stall_error()
        if self._failed is not None:
            raise self._translate(*self._failed)

    def _poll(self, seconds: float) -> None:
        """Receive acknowledgements for so many seconds."""
        try:
            self.client.poll(seconds)
        except KafkaException as e:
            raise self._translate(e) from e

    def _translate(
        self, error: KafkaException | KafkaError, topic: str | None = None, record: OutgoingRecord | None = None
    ) -> FrazilError:
        if record is not None and is_too_large(error):
            return RecordTooLarge(self.cluster, topic or self.topic, record)
        return translate_transaction(
            error, self.cluster, _transactional_id(self.name), self.client_errors, topic=topic or self.topic
        )

    def _stall_error(self) -> Retryable:
        return KAFKA_FAILED.retryable(
            f"{self.cluster}, topic {self.topic!r}: no acknowledgement for {STALL_SECONDS:.0f} s"
            f"{reasons(self.cluster, self.client_errors)}",
            next_step="check the brokers, then try again: nothing is sent twice",
        )


_COMPACTED: Final[Mapping[str, str]] = MappingProxyType(
    {"cleanup.policy": "compact", "segment.ms": "600000", "min.cleanable.dirty.ratio": "0.1"}
)
"""Configuration of the topic of positions: the last record of each key stays. Runs read the topic from its start, so it must stay
short: the last two keys let the broker compact sooner than by default."""

_OPEN_WAIT_SECONDS: Final = 0.05


@contextmanager
def capture_producer(
    cluster: Cluster, topic: str, positions: str, name: str, seconds: float | None = None
) -> Iterator[CaptureProducer]:
    """Open the producer of a capture, which fences the capture's earlier producers and aborts their transactions.

    Both topics must exist. `seconds` bound a transaction, which may take a minute by default.

    Raises:
        Fenced: Another producer of the capture began at the same moment.
    """
    client_errors = ErrorLog()
    size = batch_limit(cluster, topic)
    client = transactional_producer(cluster, client_errors, _transactional_id(name), batch_bytes=size, seconds=seconds)
    producer = CaptureProducer(cluster, topic, positions, name, client, client_errors)
    producer.begin()
    try:
        yield producer
    finally:
        client.purge()  # nothing may arrive after the block


def _transactional_id(name: str) -> str:
    return f"frazil.capture.{name}"


def ready_positions(cluster: Cluster, topic: str) -> None:
    """Create the topic of positions unless it exists.

    Raises:
        Terminal: The topic can't be created, does not keep all positions, or has several partitions.
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
    """The last committed position of a capture and its time; None if there is none, or the topic is missing.

    If the caller has the capture's producer open, no other process can add a later one.
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
