"""A cluster's properties never show a secret."""

from __future__ import annotations

import pytest

from frazil.kafka.client.cluster import MASK, Cluster

SECRETS = (
    "sasl.password",
    "ssl.keystore.password",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.assertion.jwt.token",
    "sasl.jaas.config",
    "sasl.oauthbearer.config",
    "ssl.key.pem",
    "SSL.KEY.PEM",
)


@pytest.mark.parametrize("key", SECRETS)
def test_secret_is_not_in_a_log_line(key: str) -> None:
    """No way of writing a cluster shows the value of a secret property; the key stays visible."""
    cluster = Cluster("prod", {"bootstrap.servers": "kafka:9092", key: "hunter2"})

    written = f"{cluster} {cluster!r} {[cluster]} { ({'c': cluster})!s}"

    assert "hunter2" not in written
    assert f"{key!r}: {MASK!r}" in repr(cluster)


def test_names_and_plain_properties_are_shown() -> None:
    """Name, servers and plain properties are shown."""
    cluster = Cluster("prod", {"bootstrap.servers": "a:1,b:2", "security.protocol": "SASL_SSL"})

    assert str(cluster) == "Kafka cluster 'prod' (a:1,b:2)"
    assert "'security.protocol': 'SASL_SSL'" in repr(cluster)


def test_secrets_are_removed_from_client_messages() -> None:
    """Secret values are taken out of foreign text, others and empty ones are left alone."""
    cluster = Cluster("prod", {"sasl.password": "hunter2", "ssl.key.pem": "", "client.id": "me"})

    assert cluster.redact("me: hunter2 is wrong") == f"me: {MASK} is wrong"
