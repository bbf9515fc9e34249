"""What Kafka's errors mean: who must act, and on what."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from frazil.error_codes import KAFKA_LOGIN_REFUSED
from frazil.errors import FrazilError, Retryable, Terminal
from frazil.kafka.client.cluster import MASK, Cluster
from frazil.kafka.client.errors import translate, translate_group, translate_transaction

CLUSTER = Cluster("prod", {"bootstrap.servers": "kafka:9092", "sasl.password": "hunter2"})

CASES: list[tuple[int, type[FrazilError], str]] = [
    (KafkaError._TIMED_OUT, Retryable, "answered in time"),
    (KafkaError._TRANSPORT, Retryable, "answered in time"),
    (KafkaError._ALL_BROKERS_DOWN, Retryable, "answered in time"),
    (KafkaError._RESOLVE, Retryable, "answered in time"),
    (KafkaError.UNKNOWN_TOPIC_OR_PART, Terminal, "has no topic 'orders' with a partition 3"),
    (KafkaError._UNKNOWN_PARTITION, Terminal, "has no topic 'orders' with a partition 3"),
    (KafkaError._AUTHENTICATION, Terminal, "credentials"),
    (KafkaError.SASL_AUTHENTICATION_FAILED, Terminal, "credentials"),
    (KafkaError.TOPIC_AUTHORIZATION_FAILED, Terminal, "not allowed at"),
    (KafkaError.CLUSTER_AUTHORIZATION_FAILED, Terminal, "not allowed at"),
    (KafkaError._AUTO_OFFSET_RESET, Retryable, "doesn't have the requested offset"),
    (KafkaError.OFFSET_OUT_OF_RANGE, Retryable, "doesn't have the requested offset"),
    (KafkaError._INVALID_ARG, Terminal, "refused"),
    (KafkaError.MSG_SIZE_TOO_LARGE, Terminal, "refused"),
    (KafkaError.TOPIC_EXCEPTION, Terminal, "refused"),
    (KafkaError.LEADER_NOT_AVAILABLE, Retryable, "failed"),
    (KafkaError.NOT_ENOUGH_REPLICAS, Retryable, "failed"),
    (KafkaError._FAIL, Retryable, "failed"),
]


@pytest.mark.parametrize(("code", "kind", "says"), CASES)
def test_every_error_code_has_its_class(code: int, kind: type[FrazilError], says: str) -> None:
    """Each code has its class, names the cluster and servers, and always says what to do."""
    failure = translate(KafkaException(KafkaError(code)), CLUSTER, topic="orders", partition=3)

    assert type(failure) is kind
    assert says in failure.message
    assert str(CLUSTER) in failure.message
    assert failure.next_step


def test_fatal_error_is_terminal() -> None:
    """An error after which the client can't go on needs a person, whatever its code."""
    assert type(translate(KafkaError(KafkaError._FAIL, "x", fatal=True), CLUSTER)) is Terminal


def test_wrong_password_is_terminal() -> None:
    """The reason behind a time-out, reported on the side, decides: no retry with bad credentials."""
    side = [
        KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"),
        KafkaError(KafkaError._AUTHENTICATION, "SASL authentication error: bad hunter2"),
    ]

    failure = translate(KafkaError(KafkaError._TIMED_OUT, "timed out"), CLUSTER, side)

    assert type(failure) is Terminal
    assert f"SASL authentication error: bad {MASK}" in failure.message


KERBEROS = [
    (
        KafkaError._AUTHENTICATION,
        "GSSAPI Error: No Kerberos credentials available",
        Retryable,
        "try again; if it persists, check",
    ),
    (
        KafkaError._AUTHENTICATION,
        "GSSAPI Error: Cannot contact any KDC for realm 'X'",
        Retryable,
        "sasl.kerberos.principal",
    ),
    (
        KafkaError._AUTHENTICATION,
        "Server kafak/k@X not found in Kerberos database",
        Terminal,
        "sasl.kerberos.principal",
    ),
    (KafkaError._INVALID_ARG, "No provider for SASL mechanism GSSAPI: recompile", Terminal, "docs/logins.md"),
]
"""Librdkafka's words, as a real key distribution center and the usual client brought them about."""


@pytest.mark.parametrize(("code", "text", "kind", "mend"), KERBEROS)
def test_kerberos_login_that_fails_names_its_settings(code: int, text: str, kind: type[FrazilError], mend: str) -> None:
    """Only what an outage may cause as well is tried again; `tests/integration/security/test_kerberos.py` has the servers."""
    cluster = Cluster("prod", {"bootstrap.servers": "kafka:9092", "sasl.mechanism": "GSSAPI"})

    failure = translate(KafkaException(KafkaError(code, text)), cluster)

    assert type(failure) is kind
    assert failure.code is KAFKA_LOGIN_REFUSED
    assert mend in (failure.next_step or "")


def test_outage_names_its_reason() -> None:
    """What connections failed with is part of the message, other reports are not."""
    side = [
        KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"),
        KafkaError(KafkaError._TRANSPORT, "kafka:9092: Connection refused"),
    ]

    failure = translate(KafkaError(KafkaError._TIMED_OUT, "timed out"), CLUSTER, side)

    assert failure.message.endswith("answered in time: kafka:9092: Connection refused")
    assert "clusters.prod.bootstrap_servers" in (failure.next_step or "")
    assert "frazil up --only kafka" in (failure.next_step or "")


def test_missing_topic_is_reported_with_a_command() -> None:
    """The next step is a command with this cluster's servers and the topic."""
    failure = translate(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART), CLUSTER, topic="orders")

    assert failure.message == f"{CLUSTER} has no topic 'orders'"
    assert "--bootstrap-server kafka:9092 --topic orders" in (failure.next_step or "")


@pytest.mark.parametrize(
    ("code", "kind", "says"),
    [
        (KafkaError.GROUP_AUTHORIZATION_FAILED, Terminal, "not allowed at"),
        (KafkaError.UNKNOWN_MEMBER_ID, Terminal, "has active members"),
        (KafkaError.REBALANCE_IN_PROGRESS, Terminal, "has active members"),
    ],
)
def test_group_error_names_the_group(code: int, kind: type[FrazilError], says: str) -> None:
    """Who reads it must know which group to free or to have granted."""
    failure = translate_group(KafkaError(code), CLUSTER, "frazil-orders")

    assert type(failure) is kind
    assert says in failure.message
    assert str(CLUSTER) in failure.message
    assert "consumer group 'frazil-orders'" in failure.message
    assert "frazil-orders" in (failure.next_step or "")


def test_topic_error_of_a_group_request_means_the_topic() -> None:
    """What is not about the group means what it means elsewhere."""
    failure = translate_group(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), CLUSTER, "g", topic="orders")
    loading = translate_group(KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS), CLUSTER, "g")

    assert type(failure) is Terminal
    assert "topic 'orders'" in failure.message
    assert type(loading) is Retryable


def test_transaction_without_permission_names_the_missing_grant() -> None:
    """Of the topic, or of the transactional id."""
    codes = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)

    steps = [translate_transaction(KafkaError(code), CLUSTER, "id", topic="logs").next_step for code in codes]

    assert steps == ["grant Write on topic logs", "grant Write on transactional id id"]
