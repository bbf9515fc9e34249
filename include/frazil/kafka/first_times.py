"""When the next records of partitions were written: one record of each is read, and none is kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, Message, TopicPartition

from frazil.errors import Retryable
from frazil.kafka.client import REQUEST_SECONDS, Complaints, consumer
from frazil.kafka.cluster import Cluster
from frazil.kafka.failure import reasons, translate

_SMALL: Final[Mapping[str, str]] = {
    # One record of each partition is wanted. A broker sends its first batch whole, however large it is.
    "fetch.message.max.bytes": "1024",
    "queued.min.messages": "1",
    # A partition with a record in the queue makes all of its broker's wait so long: one second by default.
    "fetch.queue.backoff.ms": "5",
    "queued.max.messages.kbytes": "1024",
}

_NOTHING_THERE: Final = (KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)
"""The rest of the partition are transaction markers, or the offset is gone since it was told."""

_Key = tuple[str, int]


def first_times(cluster: Cluster, offsets: Mapping[_Key, int]) -> dict[_Key, int | None]:
    """Read the timestamp of the first committed record at or after an offset of each partition.

    Args:
        cluster: Where.
        offsets: Topic and partition -> offset.

    Returns:
        Milliseconds since 1970 UTC; None of a record without a timestamp. Partitions without such a record are left out.

    Raises:
        Retryable: No broker answers, or nothing arrives for `REQUEST_SECONDS`.
        Terminal: Credentials or permissions don't fit.
    """
    if not offsets:
        return {}
    complaints = Complaints()
    client = consumer(Cluster(cluster.name, {**cluster.properties, **_SMALL}), complaints)
    found: dict[_Key, int | None] = {}
    waiting = set(offsets)
    try:
        client.assign([TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()])
        while waiting:
            message = _next(client, cluster, complaints, min(waiting))
            key = _key(message)
            if key in waiting and message.error() is None:
                found[key] = _milliseconds(message)
            waiting.discard(key)
            client.pause([TopicPartition(*key)])
    finally:
        client.close()
    return found


def _next(client: Consumer, cluster: Cluster, complaints: Complaints, waiting: _Key) -> Message:
    """What Kafka hands out next: a record, or a sign that a partition has none."""
    message = client.poll(REQUEST_SECONDS)
    if message is None:
        topic, partition = waiting
        raise Retryable(
            f"{cluster}, topic {topic!r}, partition {partition}: nothing arrived for {REQUEST_SECONDS:.0f} s"
            f"{reasons(cluster, complaints)}",
            next_step="try again; if it stays, look at the broker that leads the partition",
        )
    error = message.error()
    if error is not None and error.code() not in _NOTHING_THERE:
        topic, partition = _key(message)
        raise translate(error, cluster, complaints, topic=topic, partition=partition)
    return message


def _key(message: Message) -> _Key:
    return str(message.topic()), int(message.partition() or 0)


def _milliseconds(message: Message) -> int | None:
    kind, milliseconds = message.timestamp()
    return None if kind == TIMESTAMP_NOT_AVAILABLE else milliseconds
