"""Request facts of a cluster in a few round trips: names, ids and offsets of topics, and logs that were truncated below a
position.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing
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
from frazil.kafka.client.messages import PartitionKey, partition_of

_NO_TOPIC_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"
"""Kafka's written form of the zero UUID: what brokers older than topic ids (before 2.8) answer."""

_URL_SAFE: Final = str.maketrans("+/", "-_")

_INTERNAL: Final = "__"
"""Prefix of names of internal topics."""

_Describe = Callable[[Admin, Sequence[str]], dict[str, TopicDescription]]


def matching_topics(cluster: Cluster, pattern: str) -> tuple[str, ...]:
    """Names of the topics that match an RE2 pattern as a whole, sorted. Topics that the credentials may not see are left out.

    Names with two leading underscores never match: those are Kafka's internal topics (`__consumer_offsets`,
    `__transaction_state`), and by custom those of tools around Kafka.

    Raises:
        Terminal: The pattern is no regular expression.
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
            admin_client.client.poll(0)  # delivers errors to the callback
            raise translate(e, cluster, admin_client.client_errors) from e
    names = pa.array(sorted(name for name in topics if not name.startswith(_INTERNAL)), pa.string())
    return tuple(names.filter(pc.match_substring_regex(names, f"\\A(?s:{pattern})\\z")).to_pylist())


def observe(cluster: Cluster, topics: Sequence[str], *, absent_ok: bool = False) -> ClusterFacts:
    """Read the facts that a plan is made from.

    `stable_end` is the last stable offset, where committed records end for readers. Log start <= stable end <= high watermark
    always holds, also when records arrive or expire between the requests. With `absent_ok`, topics that do not exist or
    disappear between two requests are left out.

    Raises:
        Retryable: A partition stays without a leader.
        Terminal: A topic is missing.
    """
    describe_topics = _describe_existing if absent_ok else describe
    # Each attempt begins with the names, since a topic in deletion never gets a leader; and with a new client, see `AdminPool`.
    return while_changing()(_cluster_facts, cluster, tuple(dict.fromkeys(topics)), describe_topics)


def _cluster_facts(cluster: Cluster, names: Sequence[str], describe_topics: _Describe) -> ClusterFacts:
    with admin(cluster) as admin_client:
        # Sent before the topics are described, so that both answers travel at the same time.
        cluster_facts = admin_client.client.describe_cluster(request_timeout=REQUEST_SECONDS)
        described = describe_topics(admin_client, names)
        offsets = _partition_facts(admin_client, [(name, p.id) for name, d in described.items() for p in d.partitions])
        cluster_id: str = admin_client.answer(cluster_facts).cluster_id
    return ClusterFacts(cluster_id, {name: _topic_facts(d, offsets) for name, d in described.items()})


def offsets_at(cluster: Cluster, partitions: Sequence[PartitionKey], at_ms: int) -> dict[PartitionKey, int | None]:
    """Find per partition the first offset with a timestamp at or after an instant; None if there is none.

    Records of open and aborted transactions count too, so the offset may be beyond the last stable offset. Where producers set
    timestamps out of order, later records may have earlier ones. Times before 1970 count as 1970, since Kafka gives numbers
    below zero a meaning of their own (-1 is the log's end).

    Raises:
        Retryable: A partition stays without a leader.
        Terminal: A topic or partition is missing.
    """
    keys = tuple(dict.fromkeys(partitions))
    return while_changing()(_offsets_at, cluster, keys, OffsetSpec.for_timestamp(max(0, at_ms)))


def describe(admin_client: Admin, topics: Sequence[str]) -> dict[str, TopicDescription]:
    """Describe topics in one request: ids, partitions, leaders."""
    return {name: admin_client.answer(f, topic=name) for name, f in _describe_futures(admin_client, topics).items()}


def find(admin_client: Admin, topic: str) -> TopicDescription | None:
    """Describe a topic; None if it does not exist."""
    return _describe_existing(admin_client, [topic]).get(topic)


def _describe_existing(admin_client: Admin, topics: Sequence[str]) -> dict[str, TopicDescription]:
    descriptions = {}
    for name, future in _describe_futures(admin_client, topics).items():
        try:
            descriptions[name] = admin_client.answer(future, topic=name)
        except Terminal as e:
            if not _is_absent(e):
                raise
    return descriptions


def _describe_futures(admin_client: Admin, topics: Sequence[str]) -> dict[str, Future[TopicDescription]]:
    if not topics:
        return {}
    return admin_client.client.describe_topics(TopicCollection(list(topics)), request_timeout=REQUEST_SECONDS)


def _is_absent(error: BaseException) -> bool:
    """Whether an error says that the cluster doesn't have a topic or partition."""
    return isinstance(error.__cause__, KafkaException) and is_unknown_topic(error.__cause__)


def _partition_facts(admin_client: Admin, keys: Sequence[PartitionKey]) -> dict[PartitionKey, PartitionFacts]:
    committed, uncommitted = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
    # All three are sent before the first answer is awaited: one round trip per broker.
    waiting = [
        _list_offsets(admin_client, keys, OffsetSpec.earliest(), uncommitted),
        _list_offsets(admin_client, keys, OffsetSpec.latest(), committed),
        _list_offsets(admin_client, keys, OffsetSpec.latest(), uncommitted),
    ]
    starts, stable_ends, high_watermarks = (_answers(admin_client, futures) for futures in waiting)
    return {key: _ordered(starts[key].offset, stable_ends[key], high_watermarks[key].offset) for key in keys}


def _offsets_at(cluster: Cluster, keys: Sequence[PartitionKey], instant: OffsetSpec) -> dict[PartitionKey, int | None]:
    with admin(cluster) as admin_client:
        # Described first: for a missing topic, the request for offsets would only answer "no leader".
        described = describe(admin_client, tuple(dict.fromkeys(topic for topic, _ in keys)))
        for topic, partition in keys:
            if partition not in {p.id for p in described[topic].partitions}:
                raise unknown_topic(cluster, topic, partition)
        answers = _answers(admin_client, _list_offsets(admin_client, keys, instant, IsolationLevel.READ_UNCOMMITTED))
    return {key: answer.offset if answer.offset >= 0 else None for key, answer in answers.items()}


def _answers(
    admin_client: Admin, futures: Mapping[PartitionKey, Future[ListOffsetsResultInfo]]
) -> dict[PartitionKey, ListOffsetsResultInfo]:
    try:
        return {key: admin_client.answer(f, topic=key[0], partition=key[1]) for key, f in futures.items()}
    except Terminal as e:
        if _is_absent(e):
            raise Changed(e.message, code=e.code, next_step="try again: a topic was just deleted or recreated") from e
        raise


def _list_offsets(
    admin_client: Admin, keys: Sequence[PartitionKey], spec: OffsetSpec, isolation: IsolationLevel
) -> dict[PartitionKey, Future[ListOffsetsResultInfo]]:
    if not keys:
        return {}
    request = {TopicPartition(topic, partition): spec for topic, partition in keys}
    futures = admin_client.client.list_offsets(request, isolation_level=isolation, request_timeout=REQUEST_SECONDS)
    return {(tp.topic, tp.partition): future for tp, future in futures.items()}


def _ordered(log_start: int, stable: ListOffsetsResultInfo, high_watermark: int) -> PartitionFacts:
    """The offsets in their order (log start, stable end, high watermark), although each may grow between the requests."""
    stable_end = max(log_start, stable.offset)
    epoch = UNKNOWN_EPOCH if stable.leader_epoch is None else stable.leader_epoch
    return PartitionFacts(log_start, stable_end, max(stable_end, high_watermark), epoch)


def _topic_facts(description: TopicDescription, offsets: Mapping[PartitionKey, PartitionFacts]) -> TopicFacts:
    numbers = sorted(p.id for p in description.partitions)
    partitions = tuple(offsets[description.name, number] for number in numbers)
    return TopicFacts(topic_id(description.topic_id), partitions)


def topic_id(uuid: Uuid) -> str | None:
    """A topic id as Kafka's tools write it, in base64 for URLs; None if the broker gave none."""
    text = str(uuid).translate(_URL_SAFE)
    return None if text == _NO_TOPIC_ID else text


def log_ends(cluster: Cluster, partitions: Collection[PartitionKey]) -> Mapping[PartitionKey, int]:
    """Return the last stable offset of each partition, where readable records end; two round trips over an open connection.

    Raises:
        Retryable: A partition has no leader now.
        Terminal: A topic or partition no longer exists.
    """
    if not partitions:
        return {}
    with admin(cluster) as admin_client:  # per call: a client that failed is not lent again
        futures = _list_offsets(admin_client, list(partitions), OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)
        return {key: admin_client.answer(f, topic=key[0], partition=key[1]).offset for key, f in futures.items()}


_SINGLE_RECORDS: Final[Mapping[str, str]] = {
    # One record per partition is enough. A broker sends a whole first batch anyway.
    "fetch.message.max.bytes": "1024",
    "queued.min.messages": "1",
    # Pause of all partitions of a broker once one of them has a record in the queue (default one second).
    "fetch.queue.backoff.ms": "5",
    "queued.max.messages.kbytes": "1024",
}

_NO_RECORD: Final = (KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)
"""Only transaction markers follow in the partition, or the offset has expired."""


def first_timestamps(cluster: Cluster, offsets: Mapping[PartitionKey, int]) -> dict[PartitionKey, int | None]:
    """Read the timestamp of the first committed record at or after an offset of each partition, in milliseconds since 1970.

    None for a record without timestamp. Partitions without a record are left out.

    Raises:
        Retryable: Nothing arrives for `REQUEST_SECONDS`.
    """
    if not offsets:
        return {}
    client_errors = ErrorLog()
    timestamps: dict[PartitionKey, int | None] = {}
    waiting = set(offsets)
    with closing(consumer(Cluster(cluster.name, {**cluster.properties, **_SINGLE_RECORDS}), client_errors)) as client:
        client.assign([TopicPartition(*key, offset) for key, offset in offsets.items()])
        while waiting:
            message = _next(client, cluster, client_errors, min(waiting))
            key = partition_of(message)
            if key in waiting and message.error() is None:
                kind, milliseconds = message.timestamp()
                timestamps[key] = None if kind == TIMESTAMP_NOT_AVAILABLE else milliseconds
            waiting.discard(key)
            client.pause([TopicPartition(*key)])
    return timestamps


def _next(client: Consumer, cluster: Cluster, client_errors: ErrorLog, waiting: PartitionKey) -> Message:
    """The consumer's next message: a record, or an error which says that a partition has none."""
    message = client.poll(REQUEST_SECONDS)
    if message is None:
        topic, partition = waiting
        raise KAFKA_FAILED.retryable(
            f"{cluster}, topic {topic!r}, partition {partition}: nothing arrived for {REQUEST_SECONDS:.0f} s"
            f"{reasons(cluster, client_errors)}",
            next_step="try again; if it persists, check the broker that leads the partition",
        )
    error = message.error()
    if error is not None and error.code() not in _NO_RECORD:
        topic, partition = partition_of(message)
        raise translate(error, cluster, client_errors, topic=topic, partition=partition)
    return message


_TRUNCATION_SECONDS: Final = 3 * REQUEST_SECONDS
"""Bounds the wait for the next answer, which comes with the first batch of records behind a position, perhaps on a slow link."""

_POLL_SECONDS: Final = 0.1

_READING: Final = frozenset({KafkaError._PARTITION_EOF, KafkaError._BAD_COMPRESSION})
"""Errors of a partition that the client reads as it should: its end, and a batch that the client can't unpack."""

_END: Final = re.compile(r"broker end offset is (-1|\d+)")
"""Where the log of an epoch ends, in the text of the client's error of a truncated log; -1 if the leader does not know the epoch.
The error has it in no other form: with another text, the error would reach a person."""


def truncations(cluster: Cluster, read: Mapping[PartitionKey, tuple[int, int]]) -> dict[PartitionKey, int | None]:
    """Find logs that were truncated below the position, as by an unclean leader election (KIP-320).

    Args:
        cluster: The cluster.
        read: Per partition the next offset to read, and a leader epoch that no earlier record exceeds.

    Returns:
        Truncated partitions -> where the log of that epoch ends; None if the log does not know the epoch.
    """
    if not read:
        return {}
    client_errors, ends, sought, waiting = ErrorLog(), dict[PartitionKey, int | None](), set[PartitionKey](), {*read}
    # Without `read_committed`, under which a long range of aborted records would be silence.
    with closing(consumer(cluster, client_errors, committed=False)) as client:
        # The client asks the leader where an epoch ends when a consumer seeks an offset with that epoch, in a partition that it
        # reads already. So each partition is read at its end first, which exists whatever the position is.
        client.assign([TopicPartition(*key, OFFSET_END) for key in read])
        deadline = time.monotonic() + _TRUNCATION_SECONDS
        while waiting:
            event = client.poll(_POLL_SECONDS)
            if event is None or event.topic() is None or (key := partition_of(event)) not in waiting:
                if time.monotonic() > deadline:
                    raise _unanswered(cluster, read, min(waiting), client_errors)
                continue
            deadline, error = time.monotonic() + _TRUNCATION_SECONDS, event.error()
            if error is not None and (end := _END.search(error.str())) is not None:
                ends[key] = int(end[1]) if end[1] != "-1" else None
            elif error is not None and error.code() not in _READING:
                raise translate(error, cluster, client_errors, topic=key[0], partition=key[1])
            elif key not in sought:
                sought.add(key)
                offset, epoch = read[key]
                client.seek(TopicPartition(*key, offset, leader_epoch=epoch))
                continue
            waiting.remove(key)
            client.pause([TopicPartition(*key)])
    return ends


def _unanswered(
    cluster: Cluster, read: Mapping[PartitionKey, tuple[int, int]], key: PartitionKey, client_errors: ErrorLog
) -> Retryable:
    offset, epoch = read[key]
    return KAFKA_FAILED.retryable(
        f"{cluster}, topic {key[0]!r}, partition {key[1]}: its leader did not answer within {_TRUNCATION_SECONDS:.0f} s whether the log"
        f" still holds the records read up to offset {offset} in leader epoch {epoch}{reasons(cluster, client_errors)}",
        next_step="try again; if it persists, check the broker that leads the partition",
    )
