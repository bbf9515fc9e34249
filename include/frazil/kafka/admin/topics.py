"""Create topics, and read their cleanup policies, their retention, and what the credentials may do with them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from confluent_kafka import IsolationLevel, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AclOperation,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
    TopicDescription,
)
from tenacity import RetryError, Retrying, TryAgain, retry_if_exception_type, stop_after_delay, wait_fixed

from frazil.error_codes import KAFKA_DENIED, KAFKA_FAILED, TOPIC_MISSING, TOPIC_UNFIT
from frazil.errors import Terminal
from frazil.kafka.admin.observe import find, topic_id
from frazil.kafka.client.client import REQUEST_SECONDS, Admin, admin
from frazil.kafka.client.cluster import Cluster
from frazil.kafka.client.errors import is_existing_topic, is_not_allowed, is_unknown_topic

_BROKER_DEFAULT: Final = -1
"""Replication factor that stands for the brokers' default (KIP-464)."""

_SPREAD_SECONDS: Final = 6.0
"""Bounds the time from a topic's creation until brokers have leaders for it, usually some milliseconds. With the last request,
which takes REQUEST_SECONDS at most, the caller gets an answer within 15 s."""

_SPREAD_WAIT_SECONDS: Final = 0.05

_CLEANUP_POLICY: Final = "cleanup.policy"
"""Topic configuration: `delete`, `compact`, or both separated by a comma."""

_MAX_BYTES: Final = "max.message.bytes"
"""Topic configuration: the largest batch of records, once it is compressed."""

_BATCH_BYTES: Final = 1_000_000
"""Most bytes of a batch where the topic takes more: the client's default."""

_RETENTION_MS: Final = "retention.ms"
_RETENTION_BYTES: Final = "retention.bytes"
"""Topic configuration: the age and the partition size from which records are deleted; -1 for none."""

_NO_CONFIG: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class TopicRetention:
    """How long a topic keeps records.

    Attributes:
        ms: Age from which a record may be deleted; None if no age is a reason.
        by_size: Whether the size of a partition is a reason as well.
    """

    ms: int | None
    by_size: bool


def create_topic(cluster: Cluster, name: str, partitions: int, config: Mapping[str, str] = _NO_CONFIG) -> bool:
    """Create a topic unless it exists, wait until every partition has a leader, and return whether it was created.

    `config` is not compared with that of an existing topic.

    Raises:
        Terminal: The topic exists with another number of partitions, or the cluster refuses it.
    """
    with admin(cluster) as admin_client:
        created = _create(admin_client, NewTopic(name, partitions, _BROKER_DEFAULT, config=dict(config)))
        count = len(_wait_until_led(admin_client, name).partitions)
    if count != partitions:
        raise TOPIC_UNFIT.terminal(
            f"{cluster}, topic {name!r} exists with another number of partitions: expected {partitions}, found {count}",
            next_step=f"go on with {count} partitions, or choose another topic",
        )
    return created


def ready_topic(cluster: Cluster, name: str, partitions: int) -> str | None:
    """Create a topic for a producer unless it exists, and return its topic id; None where the broker gives none.

    `partitions` is not compared with that of an existing topic.

    Raises:
        Terminal: The topic can't be created, or the credentials may not see or write it.
    """
    with admin(cluster) as admin_client:
        description = find(admin_client, name)
        if description is None:
            _create(admin_client, NewTopic(name, partitions, _BROKER_DEFAULT))
            description = _wait_until_led(admin_client, name)
        _require_write(admin_client, name)
    return topic_id(description.topic_id)


def _require_write(admin_client: Admin, name: str) -> None:
    """Refuse before records are sent what the broker would refuse then. A broker that reports no permissions grants all."""
    described = admin_client.client.describe_topics(
        TopicCollection([name]), include_authorized_operations=True, request_timeout=REQUEST_SECONDS
    )
    allowed = admin_client.answer(described[name], topic=name).authorized_operations
    if allowed and AclOperation.WRITE not in allowed:
        raise KAFKA_DENIED.terminal(
            f"not allowed at {admin_client.cluster}, topic {name!r}: expected Write, found"
            f" {', '.join(one.name.capitalize() for one in allowed)}",
            next_step=f"grant Write on topic {name}",
        )


def compacted(cluster: Cluster, topics: Collection[str]) -> frozenset[str]:
    """The topics that are compacted now, so that Kafka may remove records in the middle of the log. Missing topics are left out.

    Raises:
        Terminal: The credentials may not see the configuration of a topic.
    """
    return frozenset(name for name, policy in cleanup_policies(cluster, topics).items() if "compact" in policy)


def cleanup_policies(cluster: Cluster, topics: Collection[str]) -> dict[str, frozenset[str]]:
    """Topic -> `compact`, `delete` or both, also where that is the brokers' default; empty for a topic that does not exist.

    Raises:
        Terminal: The credentials may not see the configuration of a topic.
    """
    return {name: _cleanup_policy(name, config) for name, config in _configs(cluster, topics).items()}


def retention(cluster: Cluster, topics: Collection[str]) -> dict[str, TopicRetention]:
    """Retention of topics, also where it is the brokers' default. Topics that are missing or may not be seen are left out."""
    configs = _configs(cluster, topics)
    return {name: _retention(config) for name, config in configs.items() if not isinstance(config, Terminal)}


def _configs(cluster: Cluster, topics: Collection[str]) -> dict[str, Mapping[str, ConfigEntry] | Terminal]:
    """The configuration of each topic; the error for a topic that does not exist, or may not be seen."""
    if not topics:
        return {}
    with admin(cluster) as admin_client:
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in sorted(set(topics))]
        futures = admin_client.client.describe_configs(resources, request_timeout=REQUEST_SECONDS)
        return {resource.name: _config(admin_client, resource.name, f) for resource, f in futures.items()}


def _config(
    admin_client: Admin, topic: str, future: Future[dict[str, ConfigEntry]]
) -> Mapping[str, ConfigEntry] | Terminal:
    try:
        return admin_client.answer(future, topic=topic)
    except Terminal as e:
        if isinstance(e.__cause__, KafkaException) and (is_unknown_topic(e.__cause__) or is_not_allowed(e.__cause__)):
            return e
        raise


def _retention(config: Mapping[str, ConfigEntry]) -> TopicRetention:
    policy = config[_CLEANUP_POLICY].value or ""
    if "delete" not in policy:
        return TopicRetention(None, by_size=False)
    ms, size = (int(config[name].value or -1) for name in (_RETENTION_MS, _RETENTION_BYTES))
    return TopicRetention(ms if ms >= 0 else None, by_size=size >= 0)


def _cleanup_policy(topic: str, config: Mapping[str, ConfigEntry] | Terminal) -> frozenset[str]:
    """The cleanup policies of a topic; empty for a topic that does not exist."""
    if not isinstance(config, Terminal):
        return frozenset(policy.strip() for policy in (config[_CLEANUP_POLICY].value or "").split(","))
    if config.code == TOPIC_MISSING:
        return frozenset()
    raise KAFKA_DENIED.terminal(
        f"{config.message}; before Frazil removes rows it must know whether topic {topic!r} is compacted, since compacted records"
        " can't be read again",
        next_step=f"grant DescribeConfigs on topic {topic}",
    ) from config


def batch_limit(cluster: Cluster, topic: str, limit: int | None = None) -> int | None:
    """Return the most bytes of a producer's batch: a topic that takes each record alone must not refuse them as a batch.

    None if the topic's limit may not be seen. `limit` is the topic's `record_limit`, if the caller has it.

    Raises:
        Terminal: There is no such topic.
    """
    limit = limit or record_limit(cluster, topic)
    return None if limit is None else min(limit, _BATCH_BYTES)


def record_limit(cluster: Cluster, topic: str) -> int | None:
    """Return the most bytes of a record, compressed; None if the topic's limit is unknown or may not be seen.

    Raises:
        Terminal: There is no such topic.
    """
    config = _configs(cluster, [topic])[topic]
    if isinstance(config, Terminal):
        if config.code == TOPIC_MISSING:
            raise config
        return None
    entry = config.get(_MAX_BYTES)
    return None if entry is None or entry.value is None else int(entry.value)


def _create(admin_client: Admin, topic: NewTopic) -> bool:
    future = admin_client.client.create_topics([topic], request_timeout=REQUEST_SECONDS)[topic.topic]
    try:
        admin_client.answer(future, topic=topic.topic)
    except Terminal as e:
        if isinstance(e.__cause__, KafkaException) and is_existing_topic(e.__cause__):
            return False
        raise
    return True


def _wait_until_led(admin_client: Admin, name: str) -> TopicDescription:
    """Wait until each partition of a topic has a leader: brokers learn of a new topic a moment after the controller."""

    def describe_led() -> TopicDescription:
        description = find(admin_client, name)
        if description is None or any(p.leader is None for p in description.partitions):
            raise TryAgain
        return description

    retrying = Retrying(
        retry=retry_if_exception_type(TryAgain),
        stop=stop_after_delay(_SPREAD_SECONDS),
        wait=wait_fixed(_SPREAD_WAIT_SECONDS),
    )
    try:
        return retrying(describe_led)
    except RetryError as e:
        raise KAFKA_FAILED.retryable(
            f"{admin_client.cluster}: its brokers don't show the change of topic {name!r} after {_SPREAD_SECONDS:.0f} s",
            next_step="check the brokers: one of them may be down",
        ) from e


NEEDED: Final = frozenset({"READ", "DESCRIBE"})
"""Operations that a pipeline needs on its topics, by the client's names."""


@dataclass(frozen=True, slots=True)
class TopicAccess:
    """A topic as the credentials see it.

    Attributes:
        operations: Operations that they allow, by the client's names; None where the brokers do not report them.
        newest: Latest timestamp of the topic's records, seconds since 1970; None without records.
    """

    partitions: int
    operations: frozenset[str] | None
    newest: float | None


def topic_access(cluster: Cluster, topics: Collection[str]) -> dict[str, TopicAccess]:
    """The allowed operations on topics (KIP-430), and their newest timestamps (KIP-734).

    Raises:
        Terminal: A topic is missing.
    """
    if not topics:
        return {}
    with admin(cluster) as admin_client:
        futures = admin_client.client.describe_topics(
            TopicCollection(sorted(topics)), include_authorized_operations=True, request_timeout=REQUEST_SECONDS
        )
        access = {}
        for name, future in futures.items():
            description = admin_client.answer(future, topic=name)
            operations = description.authorized_operations
            allowed = None if operations is None else frozenset(operation.name for operation in operations)
            numbers = [partition.id for partition in description.partitions]
            access[name] = TopicAccess(len(numbers), allowed, _newest(admin_client, name, numbers))
        return access


def _newest(admin_client: Admin, topic: str, partitions: Collection[int]) -> float | None:
    request = {TopicPartition(topic, number): OffsetSpec.max_timestamp() for number in partitions}
    futures = admin_client.client.list_offsets(
        request, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=REQUEST_SECONDS
    )
    times = [admin_client.answer(future, topic=topic).timestamp for future in futures.values()]
    return max((timestamp / 1_000 for timestamp in times if timestamp is not None and timestamp >= 0), default=None)
