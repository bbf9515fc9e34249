"""Creating and deleting topics."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from uuid import uuid4

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ConfigEntry

from frazil.errors import Terminal
from frazil.kafka.admin.observe import observe
from frazil.kafka.admin.topics import _cleanup_policy, _config, compacted, create_topic
from frazil.kafka.client.client import admin
from frazil.kafka.client.cluster import Cluster
from tests.servers import delete_topic


def test_second_creation_changes_nothing(cluster: Cluster) -> None:
    """Creating what is there already changes nothing and says so."""
    name = f"t-{uuid4().hex}"

    assert create_topic(cluster, name, 3, {"retention.ms": "600000"})
    observed = observe(cluster, [name]).topics[name]
    assert not create_topic(cluster, name, 3)
    assert observe(cluster, [name]).topics[name] == observed


def test_other_partition_count_is_refused(cluster: Cluster) -> None:
    """A topic with another number of partitions is refused with both numbers."""
    name = f"t-{uuid4().hex}"
    create_topic(cluster, name, 3)

    with pytest.raises(Terminal, match=f"{name}.* expected 4, found 3"):
        create_topic(cluster, name, 4)


@pytest.mark.parametrize(
    ("name", "partitions", "config"),
    [("white space", 1, {}), ("zero", 0, {}), ("config", 1, {"no.such.option": "1"})],
)
def test_impossible_topic_is_not_retried(cluster: Cluster, name: str, partitions: int, config: dict[str, str]) -> None:
    """What the broker refuses by rule needs a person."""
    with pytest.raises(Terminal, match=name):
        create_topic(cluster, name, partitions, config)


def test_deleted_topic_is_gone(cluster: Cluster) -> None:
    """After the deletion nobody finds the topic, and a second deletion says that it isn't there."""
    name = f"t-{uuid4().hex}"
    create_topic(cluster, name, 1)
    delete_topic(cluster, name)

    with pytest.raises(Terminal, match="has no topic"):
        observe(cluster, [name])
    with pytest.raises(Terminal, match="has no topic"):
        delete_topic(cluster, name)


def test_compacted_topic_is_recognised(cluster: Cluster, topic: Callable[..., str]) -> None:
    """What is in force counts, in every way to write it; a topic that isn't there is not compacted."""
    policies = [None, "delete", "compact", "compact,delete", "delete,compact"]
    names = [topic(config={} if policy is None else {"cleanup.policy": policy}) for policy in policies]

    assert compacted(cluster, [*names, "not-there"]) == set(names[2:])
    assert compacted(cluster, []) == frozenset()


def test_missing_permission_is_reported(cluster: Cluster) -> None:
    """Whoever must not see the configuration is told which permission lacks, and for what."""
    refused: Future[dict[str, ConfigEntry]] = Future()
    refused.set_exception(KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)))

    with admin(cluster) as client, pytest.raises(Terminal, match="whether topic 'orders' is compacted") as error:
        _cleanup_policy("orders", _config(client, "orders", refused))

    assert error.value.next_step == "grant DescribeConfigs on topic orders"
