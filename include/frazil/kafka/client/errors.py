"""Translates errors of librdkafka into Frazil's errors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from confluent_kafka import KafkaError, KafkaException
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

from frazil.error_codes import (
    BROKER_UNREACHABLE,
    KAFKA_DENIED,
    KAFKA_FAILED,
    KAFKA_NAME_IN_USE,
    RECORD_TOO_LARGE,
    TOPIC_MISSING,
)
from frazil.errors import FrazilError, Retryable, Terminal
from frazil.kafka.client.authentication import refusal
from frazil.kafka.client.cluster import Cluster, OutgoingRecord

_AUTHORISATION: Final = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
_UNKNOWN_TOPIC: Final = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    }
)
_ACTIVE_GROUP: Final = frozenset(
    {
        # Errors of a commit by a client that is no member, while the group has members.
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.NON_EMPTY_GROUP,
    }
)
_FENCED: Final = frozenset(
    {
        # Errors of a producer whose transactional id another one took over, depending on its step.
        KafkaError._FENCED,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
        KafkaError.INVALID_TXN_STATE,
    }
)
_OUT_OF_RANGE: Final = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})
_UNREACHABLE: Final = frozenset(
    {
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        # No broker answered who coordinates the group.
        KafkaError._WAIT_COORD,
    }
)
_REFUSED: Final = frozenset(
    {
        KafkaError._INVALID_ARG,
        KafkaError._INVALID_TYPE,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.TOPIC_ALREADY_EXISTS,
        KafkaError.INVALID_PARTITIONS,
        KafkaError.INVALID_REPLICATION_FACTOR,
        KafkaError.INVALID_CONFIG,
        KafkaError.INVALID_REQUEST,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.INVALID_RECORD,
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.POLICY_VIOLATION,
        KafkaError.UNSUPPORTED_VERSION,
        KafkaError._UNSUPPORTED_FEATURE,
    }
)
_MOVING: Final = frozenset(
    {
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.FENCED_LEADER_EPOCH,
        # The coordinator of a group, as at the first use of a cluster's groups.
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        # librdkafka's error for a partition whose leader it can't find yet ("No leaders found").
        KafkaError._NOENT,
    }
)

PLAN_AGAIN: Final = "run again: the next plan refuses or skips exactly what is gone, by source.on_data_loss"
"""Next step where planned offsets have expired: only a plan knows whether the pipeline file allows that."""


def is_moving(error: KafkaException) -> bool:
    """Return whether a partition has no leader now, or a group no coordinator, as after a creation or in a failover."""
    return _kafka_error(error).code() in _MOVING


def is_unknown_topic(error: KafkaException) -> bool:
    """Return whether the cluster doesn't have the topic."""
    return _kafka_error(error).code() in _UNKNOWN_TOPIC


def is_existing_topic(error: KafkaException) -> bool:
    """Return whether a topic could not be created because it exists already."""
    return _kafka_error(error).code() == KafkaError.TOPIC_ALREADY_EXISTS


def is_not_allowed(error: KafkaException) -> bool:
    """Return whether the credentials were accepted, but lack a permission."""
    return _kafka_error(error).code() in _AUTHORISATION


def is_timeout(error: KafkaException) -> bool:
    """Return whether no answer came in time, for whatever reason."""
    return _kafka_error(error).code() == KafkaError._TIMED_OUT


def is_out_of_range(error: KafkaException | KafkaError) -> bool:
    """Return whether the requested offset is outside of the log."""
    return _kafka_error(error).code() in _OUT_OF_RANGE


def translate(
    error: KafkaException | KafkaError,
    cluster: Cluster,
    client_errors: Iterable[KafkaError] = (),
    *,
    topic: str | None = None,
    partition: int | None = None,
) -> FrazilError:
    """Translate an error of the Kafka client into an error of Frazil with a next step.

    It is `Terminal` where a person must act (settings, credentials, permissions, a missing topic), else `Retryable`: to plan
    and read again does no harm. That holds for offsets that expired during the read, too, about which a plan decides. The
    reason of a time-out is among `client_errors`.
    """
    cause, where = _kafka_error(error), _where(cluster, topic, partition)
    # A request with refused credentials only times out; the refusal goes to the error callback.
    reports = (cause, *client_errors) if cause.code() in _UNREACHABLE else (cause,)
    if (refused := refusal(cluster, where, reports)) is not None:
        return refused
    if cause.code() in _UNREACHABLE:
        return unreachable(cluster, client_errors)
    if cause.code() in _UNKNOWN_TOPIC and topic is not None:
        return unknown_topic(cluster, topic, partition)
    detail = cluster.redact(f"{cause.str()} ({cause.name()})")
    if cause.code() in _AUTHORISATION:
        return KAFKA_DENIED.terminal(f"not allowed at {where}: {detail}", next_step=_permission(cause, topic))
    return _other_error(cause, cluster, where, detail)


def translate_group(
    error: KafkaException | KafkaError,
    cluster: Cluster,
    group: str,
    client_errors: Iterable[KafkaError] = (),
    *,
    topic: str | None = None,
) -> FrazilError:
    """Translate an error about a consumer group; other errors as `translate` does."""
    code = _kafka_error(error).code()
    where = f"{cluster}, consumer group {group!r}"
    if code in _ACTIVE_GROUP:
        return KAFKA_NAME_IN_USE.terminal(
            f"{where} has active members, so Frazil can't write its offsets",
            next_step=f"stop the consumers of group {group}: Frazil copies a pipeline's position to it",
        )
    if code == KafkaError.GROUP_AUTHORIZATION_FAILED:
        return KAFKA_DENIED.terminal(
            f"not allowed at {where}: {cluster.redact(_kafka_error(error).str())}",
            next_step=f"grant Read on group {group} (Read includes Describe)",
        )
    return translate(error, cluster, client_errors, topic=topic)


def is_too_large(error: KafkaException | KafkaError) -> bool:
    """Return whether a broker, or the client, refuses a record for its size."""
    return _kafka_error(error).code() == KafkaError.MSG_SIZE_TOO_LARGE


class RecordTooLarge(Terminal):
    """A topic refuses the size of a record, or of the batch that it was sent in."""

    def __init__(self, cluster: Cluster, topic: str, record: OutgoingRecord, counts: str = "") -> None:
        self.record = record
        super().__init__(
            f"{cluster}, topic {topic!r} refuses a record of {record.size:,} bytes, or the batch that it is in{counts}",
            code=RECORD_TOO_LARGE,
            next_step=f"raise max.message.bytes of topic {topic}",
        )


class Fenced(Retryable):
    """Another producer with the same transactional id took over and aborted this one's open transaction."""


def translate_transaction(
    error: KafkaException | KafkaError,
    cluster: Cluster,
    name: str,
    client_errors: Iterable[KafkaError] = (),
    *,
    topic: str,
) -> FrazilError:
    """Translate an error of a transactional producer; other errors as `translate` does.

    A fatal error is no reason for a person to act: it ends this producer only, and the next one starts over.
    """
    failed = _kafka_error(error)
    where = f"{cluster}, topic {topic!r}, transactional id {name!r}"
    if failed.code() in _FENCED:
        return Fenced(
            f"{where}: another producer took over ({failed.str()})", code=KAFKA_NAME_IN_USE, next_step="try again"
        )
    denied = {
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: f"transactional id {name}",
        KafkaError.TOPIC_AUTHORIZATION_FAILED: f"topic {topic}",
    }
    if failed.code() in denied:
        return KAFKA_DENIED.terminal(
            f"not allowed at {where}: {cluster.redact(failed.str())}",
            next_step=f"grant Write on {denied[failed.code()]}",
        )
    if failed.code() == KafkaError.MSG_SIZE_TOO_LARGE:
        return RECORD_TOO_LARGE.terminal(
            f"{where}: a record is larger than the topic takes: {failed.str()}",
            next_step=f"raise max.message.bytes of topic {topic}",
        )
    return translate(KafkaError(failed.code(), failed.str(), fatal=False), cluster, client_errors, topic=topic)


def _other_error(cause: KafkaError, cluster: Cluster, where: str, detail: str) -> FrazilError:
    if is_out_of_range(cause):
        return KAFKA_FAILED.retryable(f"{where} doesn't have the requested offset: {detail}", next_step=PLAN_AGAIN)
    if cause.code() in _REFUSED or cause.fatal():
        return KAFKA_FAILED.terminal(
            f"{where} refused: {detail}",
            next_step=f"check clusters.{cluster.name} of the settings, and the names and values of the request",
        )
    return KAFKA_FAILED.retryable(
        f"{where} failed: {detail}", next_step="try again; if it persists, check the broker's log"
    )


def _permission(error: KafkaError, topic: str | None) -> str:
    """The next step for a missing permission; docs/grants.md has the whole list."""
    code, resource = error.code(), "the topic" if topic is None else f"topic {topic}"
    if code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        return f"grant Read on {resource} to ingest it (Read includes Describe), Write to send to it, Create to make it"
    if code == KafkaError.GROUP_AUTHORIZATION_FAILED:
        return "grant Read on the consumer group (Read includes Describe)"
    if code == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
        return "grant Write on the transactional id (Write includes Describe)"
    # The error of an idempotent producer that may write to no topic at all.
    return f"grant Write on {resource}; brokers before Kafka 3.0 want IdempotentWrite on the cluster as well"


def unreachable(cluster: Cluster, client_errors: Iterable[KafkaError] = ()) -> Retryable:
    """The error for a cluster whose addresses do not answer."""
    return BROKER_UNREACHABLE.retryable(
        f"no broker of {cluster} answered in time{reasons(cluster, client_errors)}",
        next_step="start the embedded broker with `frazil up --only kafka`, "
        f"or check clusters.{cluster.name}.bootstrap_servers of the settings, and security.protocol of its properties",
    )


def reasons(cluster: Cluster, client_errors: Iterable[KafkaError]) -> str:
    """The reported connection errors, to append to a message; empty without any."""
    messages = sorted(c.str() for c in client_errors if c.code() in {KafkaError._TRANSPORT, KafkaError._RESOLVE})
    return f": {cluster.redact('; '.join(messages))}" if messages else ""


def unknown_topic(cluster: Cluster, topic: str, partition: int | None = None) -> Terminal:
    """The error for a topic or partition that the cluster does not have."""
    missing = f"topic {topic!r}" if partition is None else f"topic {topic!r} with a partition {partition}"
    return TOPIC_MISSING.terminal(
        f"{cluster} has no {missing}",
        next_step="correct the name, grant Read if the topic exists, or create it: "
        f"frazil produce {topic} --partitions N --file LINES, or kafka-topics.sh --create --bootstrap-server {cluster.bootstrap_servers} "
        f"--topic {topic} --partitions N",
    )


def _kafka_error(error: KafkaException | KafkaError) -> KafkaError:
    if isinstance(error, KafkaError):
        return error
    inner: KafkaError = error.args[0]
    return inner


def _where(cluster: Cluster, topic: str | None, partition: int | None) -> str:
    parts = [str(cluster)]
    if topic is not None:
        parts.append(f"topic {topic!r}")
    if partition is not None:
        parts.append(f"partition {partition}")
    return ", ".join(parts)


_CHANGE_SECONDS: Final = 5.0
"""Bounds the wait for a leader or coordinator, usually well below a second. With the last request, which takes REQUEST_SECONDS
at most, the caller gets an answer within 15 s."""

_WAIT_SECONDS: Final = 0.1


class Changed(Retryable):
    """A topic or partition disappeared between two requests: only a repetition of all requests gives a consistent answer."""


def while_changing() -> Retrying:
    """Repeat requests while they fail because the cluster is changing."""
    return Retrying(
        retry=retry_if_exception(_is_change),
        stop=stop_after_delay(_CHANGE_SECONDS),
        wait=wait_fixed(_WAIT_SECONDS),
        reraise=True,
    )


def _is_change(error: BaseException) -> bool:
    is_moved = isinstance(error.__cause__, KafkaException) and is_moving(error.__cause__)
    return is_moved or isinstance(error, Changed)
