"""What a producer must be allowed, before it sends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Uuid
from confluent_kafka.admin import AclOperation

from frazil.capture.position import TopicState
from frazil.capture.standing import Ground
from frazil.errors import Terminal
from frazil.kafka import topics
from frazil.kafka.cluster import Cluster
from frazil.kafka.topics import ready_topic
from tests.unit.capture.captured import capture_of

CLUSTER = Cluster("local", {"bootstrap.servers": "127.0.0.1:1"})


@pytest.mark.parametrize(
    ("allowed", "is_noted", "refused"),
    [
        ({AclOperation.WRITE, AclOperation.DESCRIBE}, False, None),
        ({AclOperation.WRITE, AclOperation.DESCRIBE}, True, "have Write and Read on topic logs granted: what was sent is noted"),
        ({AclOperation.READ, AclOperation.DESCRIBE}, False, "have Write on topic logs granted$"),
        ({AclOperation.READ, AclOperation.WRITE}, True, None),
    ],
)  # fmt: skip
def test_producer_needs_what_it_never_does(
    allowed: set[AclOperation], is_noted: bool, refused: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read is wanted of those alone whose records are noted as offsets; captures only write."""
    described = SimpleNamespace(topic_id=Uuid(1, 1), authorized_operations=list(allowed))
    client = SimpleNamespace(describe_topics=lambda *_, **__: {"logs": described})

    @contextmanager
    def admin(cluster: Cluster) -> Iterator[Any]:
        yield SimpleNamespace(cluster=cluster, client=client, answer=lambda future, **_: future)

    monkeypatch.setattr(topics, "admin", admin)
    monkeypatch.setattr(topics, "find", lambda *_: described)
    monkeypatch.setattr(Ground, "topic", lambda _: TopicState("logs", "id", 0))

    def ask() -> None:
        if is_noted:
            ready_topic(CLUSTER, "logs", 1, is_noted=True)
        else:
            Ground(capture_of("/app.log", partitions=1), CLUSTER, "positions").ready_topic()

    if refused is None:
        ask()
        return
    with pytest.raises(Terminal) as caught:
        ask()
    assert caught.match(refused)
