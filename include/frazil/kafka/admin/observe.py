"""Request a cluster's facts: names, ids and offsets of whole topics, in a few round trips; and which logs were
truncated below a position.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import (
    OFFSET_END,
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
    Uuid,
)
from confluent_kafka.admin import ListOffsetsResultInfo, OffsetSpec, TopicDescription

from frazil.batch.facts import UNKNOWN_EPOCH, ClusterFacts, PartitionFacts, TopicFacts
from frazil.error_codes import BAD_TRANSFORM, KAFKA_FAILED
from frazil.errors import Retryable, Terminal
from frazil.kafka.client.client import REQUEST_SECONDS, Admin, ErrorLog, admin, consumer
from frazil.kafka.client.cluster import Cluster
from frazil.kafka.client.errors import Changed, is_unknown_topic, reasons, translate, unknown_topic, while_changing
from frazil.kafka.client.messages import Place, place_of

_NO_TOPIC_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"
"""Kafka's written form of the zero UUID: what brokers older than topic ids (before 2.8) answer."""

_URL_SAFE: Final = str.maketrans("+/", "-_")

_INTERNAL: Final = "__"

_Key = tuple[str, int]
_Look = Callable[[Admin, Sequence[str]], dict[str, TopicDescription]]


def matching_topics(cluster: Cluster, pattern: str) -> tuple[str, ...]:
    """Names of the topics that match a pattern as a whole, sorted.

    Names that begin with two underscores never match: Kafka's internal topics
    (`__consumer_offsets`, `__transaction_state`, `__share_group_state`) are called so, and by
    custom those of the tools around it. Topics that the credentials may not see are left out.

    The pattern is one that RE2 takes.

    Raises:
        Terminal: the pattern is no regular expression, or credentials or settings don't fit.
    """
    try:
        pc.match_substring_regex(pa.array([""]), pattern)
    except pa.ArrowInvalid as e:
        raise BAD_TRANSFORM.terminal(
            f"topic pattern {pattern!r} is no regular expression: {e}", next_step="correct it"
        ) from e
    with admin(cluster) as admin_client:
        try:
            topics = admin_client.client.list_topics(timeout=REQUEST_SECONDS).topics
        except KafkaException as e:
            admin_client.client.poll(0)  # serves the complaints
            raise translate(e, cluster, admin_client.complaints) from e
    names = pa.array(sorted(name for name in topics if not name.startswith(_INTERNAL)), pa.string())
    return tuple(names.filter(pc.match_substring_regex(names, f"\\A(?s:{pattern})\\z")).to_pylist())


def observe(cluster: Cluster, topics: Sequence[str], *, absent_ok: bool = False) -> ClusterFacts:
    """Read the facts that a plan is made from.

    `stable_end` is the last stable offset: what can be read of committed transactions ends there. Log start <= stable
    end <= high watermark always holds, also when records arrive or expire between the questions. With `absent_ok`
    topics that do not exist, or vanish between two questions, are left out.

    Raises:
        Retryable: no broker answers, or a partition stays without a leader.
        Terminal: a topic is missing, or credentials, permissions or settings don't fit.
    """
    look = _existing if absent_ok else describe
    names = tuple(dict.fromkeys(topics))
    # From the names on: a topic in deletion has no leader either, and never gets one. And by a new client, see `lent`.
    return while_changing()(_cluster_facts, cluster, names, look)


def _cluster_facts(cluster: Cluster, names: Sequence[str], look: _Look) -> ClusterFacts:
    with admin(cluster) as admin_client:
        # Sent before the topics are described, so that both answers travel at the same time.
        cluster_facts = admin_client.client.describe_cluster(request_timeout=REQUEST_SECONDS)
        topics = _topics(admin_client, names, look)
        cluster_id: str = admin_client.answer(cluster_facts).cluster_id
    return ClusterFacts(cluster_id, topics)


def offsets_at(
    cluster: Cluster, partitions: Sequence[tuple[str, int]], at_ms: int
) -> dict[tuple[str, int], int | None]:
    """Find the offsets of an instant: per partition, the first record with that timestamp or a later one.

    Records of open and aborted transactions count too, so the offset may lie beyond the last stable
    offset, and it need not be the smallest of all later ones where producers set times out of order.

    None where there is none. Times before 1970 stand for 1970: below zero, Kafka's numbers have meanings of their own
    (-1 is the log's end).

    Raises:
        Retryable: no broker answers, or a partition stays without a leader.
        Terminal: a topic or partition is missing, or credentials or permissions don't fit.
    """
    keys = tuple(dict.fromkeys(partitions))
    return while_changing()(_offsets_at, cluster, keys, OffsetSpec.for_timestamp(max(0, at_ms)))


def describe(admin_client: Admin, topics: Sequence[str]) -> dict[str, TopicDescription]:
    """Describe topics in one request: ids, partitions, leaders."""
    return {name: admin_client.answer(future, topic=name) for name, future in _describe(admin_client, topics).items()}


def find(admin_client: Admin, topic: str) -> TopicDescription | None:
    """Describe a topic, or None if it does not exist."""
    return _existing(admin_client, [topic]).get(topic)


def _existing(admin_client: Admin, topics: Sequence[str]) -> dict[str, TopicDescription]:
    descriptions = {}
    for name, future in _describe(admin_client, topics).items():
        try:
            descriptions[name] = admin_client.answer(future, topic=name)
        except Terminal as e:
            if not _is_absent(e):
                raise
    return descriptions


def _describe(admin_client: Admin, topics: Sequence[str]) -> dict[str, Future[TopicDescription]]:
    if not topics:
        return {}
    return admin_client.client.describe_topics(TopicCollection(list(topics)), request_timeout=REQUEST_SECONDS)


def _is_absent(error: BaseException) -> bool:
    """Whether an error says that the cluster doesn't have a topic or partition."""
    return isinstance(error.__cause__, KafkaException) and is_unknown_topic(error.__cause__)


def _topics(admin_client: Admin, names: Sequence[str], look: _Look) -> dict[str, TopicFacts]:
    described = look(admin_client, names)
    offsets = _partition_facts(admin_client, [(name, p.id) for name, d in described.items() for p in d.partitions])
    return {name: _topic_facts(d, offsets) for name, d in described.items()}


def _partition_facts(admin_client: Admin, keys: Sequence[_Key]) -> dict[_Key, PartitionFacts]:
    committed, uncommitted = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
    # All three are on their way before the first is waited for: one round trip per broker.
    waiting = [
        _list_offsets(admin_client, keys, OffsetSpec.earliest(), uncommitted),
        _list_offsets(admin_client, keys, OffsetSpec.latest(), committed),
        _list_offsets(admin_client, keys, OffsetSpec.latest(), uncommitted),
    ]
    starts, stable_ends, high_watermarks = (_answers(admin_client, futures) for futures in waiting)
    return {key: _ordered(starts[key].offset, stable_ends[key], high_watermarks[key].offset) for key in keys}


def _offsets_at(cluster: Cluster, keys: Sequence[_Key], moment: OffsetSpec) -> dict[_Key, int | None]:
    with admin(cluster) as admin_client:
        # Described first: of a topic that isn't there, the question for offsets only says "no leader".
        described = describe(admin_client, tuple(dict.fromkeys(topic for topic, _ in keys)))
        for topic, partition in keys:
            if partition not in {p.id for p in described[topic].partitions}:
                raise unknown_topic(cluster, topic, partition)
        answers = _answers(admin_client, _list_offsets(admin_client, keys, moment, IsolationLevel.READ_UNCOMMITTED))
    return {key: answer.offset if answer.offset >= 0 else None for key, answer in answers.items()}


def _answers(
    admin_client: Admin, futures: Mapping[_Key, Future[ListOffsetsResultInfo]]
) -> dict[_Key, ListOffsetsResultInfo]:
    try:
        return {key: admin_client.answer(f, topic=key[0], partition=key[1]) for key, f in futures.items()}
    except Terminal as e:
        if _is_absent(e):
            raise Changed(e.message, code=e.code, next_step="try again: a topic was just deleted or recreated") from e
        raise


def _list_offsets(
    admin_client: Admin, keys: Sequence[_Key], spec: OffsetSpec, isolation: IsolationLevel
) -> dict[_Key, Future[ListOffsetsResultInfo]]:
    if not keys:
        return {}
    request = {TopicPartition(topic, partition): spec for topic, partition in keys}
    futures = admin_client.client.list_offsets(request, isolation_level=isolation, request_timeout=REQUEST_SECONDS)
    return {(tp.topic, tp.partition): future for tp, future in futures.items()}


def _ordered(log_start: int, stable: ListOffsetsResultInfo, high_watermark: int) -> PartitionFacts:
    """Offsets with their order restored (log start, stable end, high watermark): each grows between the requests."""
    stable_end = max(log_start, stable.offset)
    epoch = UNKNOWN_EPOCH if stable.leader_epoch is None else stable.leader_epoch
    return PartitionFacts(log_start, stable_end, max(stable_end, high_watermark), epoch)


def _topic_facts(description: TopicDescription, offsets: Mapping[_Key, PartitionFacts]) -> TopicFacts:
    numbers = sorted(p.id for p in description.partitions)
    partitions = tuple(offsets[description.name, number] for number in numbers)
    return TopicFacts(topic_id(description.topic_id), partitions)


def topic_id(uuid: Uuid) -> str | None:
    """A topic id as Kafka's own tools write it, or None if the broker gave none.

    librdkafka writes the plain base64 alphabet, Kafka the one for URLs.
    """
    text = str(uuid).translate(_URL_SAFE)
    return None if text == _NO_TOPIC_ID else text


def log_ends(cluster: Cluster, partitions: Collection[tuple[str, int]]) -> Mapping[tuple[str, int], int]:
    """Return the last stable offset of each partition: where what can be read ends. Two round trips, over a kept connection.

    Raises:
        Retryable: No broker answers, or a partition has no leader now.
        Terminal: A topic or partition no longer exists, or access is refused.
    """
    if not partitions:
        return {}
    with admin(cluster) as admin_client:  # of each look its own loan: a client that failed is not asked again
        futures = _list_offsets(admin_client, list(partitions), OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)
        return {key: admin_client.answer(f, topic=key[0], partition=key[1]).offset for key, f in futures.items()}


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


def first_times(cluster: Cluster, offsets: Mapping[_Key, int]) -> dict[_Key, int | None]:
    """Read the timestamp of the first committed record at or after an offset of each partition.

    In milliseconds since 1970 UTC; None of a record without a timestamp. Partitions without such a record are left out.

    Raises:
        Retryable: No broker answers, or nothing arrives for `REQUEST_SECONDS`.
    """
    if not offsets:
        return {}
    complaints = ErrorLog()
    client = consumer(Cluster(cluster.name, {**cluster.properties, **_SMALL}), complaints)
    timestamps: dict[_Key, int | None] = {}
    waiting = set(offsets)
    try:
        client.assign([TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()])
        while waiting:
            message = _next(client, cluster, complaints, min(waiting))
            key = _key(message)
            if key in waiting and message.error() is None:
                timestamps[key] = _milliseconds(message)
            waiting.discard(key)
            client.pause([TopicPartition(*key)])
    finally:
        client.close()
    return timestamps


def _next(client: Consumer, cluster: Cluster, complaints: ErrorLog, waiting: _Key) -> Message:
    """The next message of the consumer: a record, or the sign that a partition has none."""
    message = client.poll(REQUEST_SECONDS)
    if message is None:
        topic, partition = waiting
        raise KAFKA_FAILED.retryable(
            f"{cluster}, topic {topic!r}, partition {partition}: nothing arrived for {REQUEST_SECONDS:.0f} s"
            f"{reasons(cluster, complaints)}",
            next_step="try again; if it persists, check the broker that leads the partition",
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


_SECONDS: Final = 3 * REQUEST_SECONDS
"""Bounds the wait for the next answer: it comes with the first batch of records behind a position, perhaps on a slow link."""

_POLL_SECONDS: Final = 0.1

_HELD: Final = frozenset({KafkaError._PARTITION_EOF, KafkaError._BAD_COMPRESSION})
"""What the client says, beside handing out a record, of a partition that it reads: the end, and what it can't unpack."""

_END: Final = re.compile(r"broker end offset is (-1|\d+)")
"""Where the log of an epoch ends, in the client's error of a truncated log; -1 if the leader does not know the epoch. It is
told in words only: other words would be an error that a person sees."""


def truncations(cluster: Cluster, read: Mapping[Place, tuple[int, int]]) -> dict[Place, int | None]:
    """Find logs that were truncated below the position, as by an unclean leader election (KIP-320).

    The client asks the leader where the log of an epoch ends when a consumer seeks an offset with an epoch in a partition
    that it reads. So each is first read at its end, which is in the log whatever the position is.

    Per partition it takes the next offset to read, and a leader epoch that no record before it is beyond. It returns
    where the log of the epoch ends; None if the log does not know it.
    """
    if not read:
        return {}
    complaints, log_ends, sought, waiting = ErrorLog(), dict[Place, int | None](), set[Place](), {*read}
    # A long range of aborted records would be silence under `read_committed`.
    client = consumer(cluster, complaints, committed=False)
    try:
        client.assign([TopicPartition(*place, OFFSET_END) for place in read])
        deadline = time.monotonic() + _SECONDS
        while waiting:
            event = client.poll(_POLL_SECONDS)
            if event is None or event.topic() is None or (place := place_of(event)) not in waiting:
                if time.monotonic() > deadline:
                    raise _unanswered(cluster, read, min(waiting), complaints)
                continue
            deadline, error = time.monotonic() + _SECONDS, event.error()
            if error is not None and (end := _END.search(error.str())) is not None:
                log_ends[place] = int(end[1]) if end[1] != "-1" else None
            elif error is not None and error.code() not in _HELD:
                raise translate(error, cluster, complaints, topic=place[0], partition=place[1])
            elif place not in sought:
                sought.add(place)
                offset, epoch = read[place]
                client.seek(TopicPartition(*place, offset, leader_epoch=epoch))
                continue
            waiting.remove(place)
            client.pause([TopicPartition(*place)])
    finally:
        client.close()
    return log_ends


def _unanswered(
    cluster: Cluster, read: Mapping[Place, tuple[int, int]], place: Place, complaints: ErrorLog
) -> Retryable:
    offset, epoch = read[place]
    return KAFKA_FAILED.retryable(
        f"{cluster}, topic {place[0]!r}, partition {place[1]}: its leader did not answer within {_SECONDS:.0f} s whether the log"
        f" still holds the records read up to offset {offset} in leader epoch {epoch}{reasons(cluster, complaints)}",
        next_step="try again; if it persists, check the broker that leads the partition",
    )
