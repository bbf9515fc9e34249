"""Ask a cluster for its facts: ids and offsets of whole topics, in a few round trips."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Final

from confluent_kafka import IsolationLevel, KafkaException, TopicCollection, TopicPartition, Uuid
from confluent_kafka.admin import ListOffsetsResultInfo, OffsetSpec, TopicDescription
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

from frazil.batch.facts import ClusterFacts, PartitionFacts, TopicFacts
from frazil.kafka.client import REQUEST_SECONDS, Admin, admin
from frazil.kafka.cluster import Cluster
from frazil.kafka.failure import is_moving

_NO_TOPIC_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"
"""Kafka's written form of the zero UUID: what brokers older than topic ids (before 2.8) answer."""

_URL_SAFE: Final = str.maketrans("+/", "-_")

_FAILOVER_SECONDS: Final = 5.0
"""Bounds waiting for partitions to get a leader, usually well below a second. With the one request
that may start just before it ends, REQUEST_SECONDS long at most, the caller hears within 15 s."""

_FAILOVER_WAIT_SECONDS: Final = 0.1

_Key = tuple[str, int]


def observe(cluster: Cluster, topics: Sequence[str]) -> ClusterFacts:
    """Read the facts that a plan is made from.

    Returns:
        Ids and offsets. `stable_end` is the last stable offset: what can be read of committed
        transactions ends there. Partitions stand in the order of their numbers. Log start <= stable
        end <= high watermark always holds, also when records arrive or expire between the
        questions.

    Raises:
        Retryable: no broker answers, or a partition stays without a leader.
        Terminal: a topic is missing, or credentials, permissions or settings don't fit.
    """
    with admin(cluster) as asked:
        # Sent before the topics are described, so that both answers travel at the same time.
        cluster_facts = asked.client.describe_cluster(request_timeout=REQUEST_SECONDS)
        described = describe(asked, tuple(dict.fromkeys(topics)))
        cluster_id: str = asked.answer(cluster_facts).cluster_id
        offsets = _offsets_when_led(asked, described)
    return ClusterFacts(cluster_id, {name: _topic_facts(d, offsets) for name, d in described.items()})


def describe(asked: Admin, topics: Sequence[str]) -> dict[str, TopicDescription]:
    """Describe topics in one request: ids, partitions, leaders.

    Raises:
        FrazilError: as `observe`.
    """
    if not topics:
        return {}
    futures = asked.client.describe_topics(TopicCollection(list(topics)), request_timeout=REQUEST_SECONDS)
    return {name: asked.answer(future, topic=name) for name, future in futures.items()}


def is_leaderless(error: BaseException) -> bool:
    """Return whether an error says that a partition has no leader at this moment."""
    return isinstance(error.__cause__, KafkaException) and is_moving(error.__cause__)


def while_leaderless() -> Retrying:
    """Ask again while a partition has no leader, as right after creation or in a failover."""
    return Retrying(
        retry=retry_if_exception(is_leaderless),
        stop=stop_after_delay(_FAILOVER_SECONDS),
        wait=wait_fixed(_FAILOVER_WAIT_SECONDS),
        reraise=True,
    )


def _offsets_when_led(asked: Admin, described: Mapping[str, TopicDescription]) -> dict[_Key, PartitionFacts]:
    keys = [(name, p.id) for name, description in described.items() for p in description.partitions]
    return while_leaderless()(_partition_facts, asked, keys) if keys else {}


def _partition_facts(asked: Admin, keys: Sequence[_Key]) -> dict[_Key, PartitionFacts]:
    committed, uncommitted = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
    # All three are on their way before the first is waited for: one round trip per broker.
    waiting = [
        _list_offsets(asked, keys, OffsetSpec.earliest(), uncommitted),
        _list_offsets(asked, keys, OffsetSpec.latest(), committed),
        _list_offsets(asked, keys, OffsetSpec.latest(), uncommitted),
    ]
    starts, stable_ends, high_watermarks = (
        {key: asked.answer(f, topic=key[0], partition=key[1]).offset for key, f in futures.items()}
        for futures in waiting
    )
    return {key: _ordered(starts[key], stable_ends[key], high_watermarks[key]) for key in keys}


def _list_offsets(
    asked: Admin, keys: Sequence[_Key], spec: OffsetSpec, isolation: IsolationLevel
) -> dict[_Key, Future[ListOffsetsResultInfo]]:
    request = {TopicPartition(topic, partition): spec for topic, partition in keys}
    futures = asked.client.list_offsets(request, isolation_level=isolation, request_timeout=REQUEST_SECONDS)
    return {(tp.topic, tp.partition): future for tp, future in futures.items()}


def _ordered(log_start: int, stable_end: int, high_watermark: int) -> PartitionFacts:
    """Facts in their order, which holds whenever they are read together: each only ever grows."""
    stable_end = max(log_start, stable_end)
    return PartitionFacts(log_start, stable_end, max(stable_end, high_watermark))


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
