"""Sends captured records and, in the same transaction, the new position to a compacted topic of positions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Final

from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay, wait_fixed

from frazil.batch.facts import PartitionFacts
from frazil.error_codes import KAFKA_NAME_IN_USE, TOPIC_UNFIT
from frazil.failpoints import Failpoint, hit
from frazil.kafka.admin.observe import observe
from frazil.kafka.admin.topics import batch_limit, cleanup_policies, create_topic
from frazil.kafka.client.client import REQUEST_SECONDS, ErrorLog, transactional_producer
from frazil.kafka.client.cluster import Cluster
from frazil.kafka.client.record import OutgoingRecord
from frazil.kafka.read.read import WHOLE, read_range
from frazil.kafka.write.transaction import TransactionalProducer

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
            f"{cluster}, topic {topic!r} holds positions of captures, which Kafka would forget: expected cleanup.policy compact,"
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
            f"{cluster}, topic {topic!r}: a transaction of another capture stays open; what is behind it can't be read",
            next_step="try again in a minute: the next run of that capture ends it, or the broker does in its time",
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
            f"{cluster}, topic {topic!r} holds positions of captures: expected 1 partition, found {len(partitions)}",
            next_step="name another topic: captures.positions of the settings",
        )
    return partitions[0]
