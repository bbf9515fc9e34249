"""What a producer must be allowed, before it sends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Uuid
from confluent_kafka.admin import AclOperation

from frazil.errors import Terminal
from frazil.kafka.admin import topics
from frazil.kafka.admin.topics import ready_topic
from frazil.kafka.client.cluster import Cluster

CLUSTER = Cluster("local", {"bootstrap.servers": "127.0.0.1:1"})


@pytest.mark.parametrize(
    ("allowed", "refused"),
    [
        ({AclOperation.WRITE, AclOperation.DESCRIBE}, None),
        ({AclOperation.READ, AclOperation.DESCRIBE}, "grant Write on topic logs$"),
        (set(), None),
    ],
    ids=["allowed", "not allowed", "a broker without an authorizer"],
)
def test_producer_needs_only_the_write_permission(
    allowed: set[AclOperation], refused: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever only sends reads nothing."""
    described = SimpleNamespace(topic_id=Uuid(1, 1), authorized_operations=list(allowed))
    client = SimpleNamespace(describe_topics=lambda *_, **__: {"logs": described})

    @contextmanager
    def admin(cluster: Cluster) -> Iterator[Any]:
        yield SimpleNamespace(cluster=cluster, client=client, answer=lambda future, **_: future)

    monkeypatch.setattr(topics, "admin", admin)
    monkeypatch.setattr(topics, "find", lambda *_: described)

    if refused is None:
        ready_topic(CLUSTER, "logs", 1)
        return
    with pytest.raises(Terminal) as caught:
        ready_topic(CLUSTER, "logs", 1)
    assert caught.match(refused)
