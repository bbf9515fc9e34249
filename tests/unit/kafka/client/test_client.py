"""Where partitions end, asked again and again."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from frazil.errors import Retryable
from frazil.kafka.admin.observe import log_ends
from frazil.kafka.client import client
from frazil.kafka.client.client import Admin, AdminPool
from frazil.kafka.client.cluster import Cluster

LOCAL = Cluster("local", {"bootstrap.servers": "127.0.0.1:9092"})


class Broken:
    """Stands for a client whose broker does not answer."""

    def list_offsets(self, request: dict[Any, Any], **_: object) -> dict[Any, Future[Any]]:
        """Time out."""
        answer: Future[Any] = Future()
        answer.set_exception(KafkaException(KafkaError(KafkaError._TIMED_OUT)))
        return dict.fromkeys(request, answer)

    def poll(self, _: float) -> None:
        """Have nothing to say."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


def test_session_never_reuses_a_failed_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look has a loan of its own: a client that failed is not lent to the next one, nor kept by a session."""
    clusters: list[Cluster] = []

    def make(cluster: Cluster) -> Admin:
        clusters.append(cluster)
        return Admin(cluster, cast("Any", Broken()))

    monkeypatch.setattr(client, "_ADMINS", AdminPool(make))

    for _ in range(2):
        with pytest.raises(Retryable):
            log_ends(LOCAL, [("orders", 0)])

    assert clusters == [LOCAL, LOCAL]
    assert client._ADMINS._clients == []
