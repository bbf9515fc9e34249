"""Creating and deleting topics."""

from __future__ import annotations

from uuid import uuid4

import pytest

from frazil.errors import Terminal
from frazil.kafka.cluster import Cluster
from frazil.kafka.observe import observe
from frazil.kafka.topics import create_topic, delete_topic


def test_second_creation_fails_or_replaces(cluster: Cluster) -> None:
    """Creating what is there already changes nothing and says so."""
    name = f"t-{uuid4().hex}"

    assert create_topic(cluster, name, 3, {"retention.ms": "600000"})
    made = observe(cluster, [name]).topics[name]
    assert not create_topic(cluster, name, 3)
    assert observe(cluster, [name]).topics[name] == made


def test_other_partition_count_is_accepted(cluster: Cluster) -> None:
    """A topic with another number of partitions is refused with both numbers."""
    name = f"t-{uuid4().hex}"
    create_topic(cluster, name, 3)

    with pytest.raises(Terminal, match=f"{name}.* expected 4, found 3"):
        create_topic(cluster, name, 4)


@pytest.mark.parametrize(
    ("name", "partitions", "config"),
    [("white space", 1, {}), ("zero", 0, {}), ("config", 1, {"no.such.option": "1"})],
)
def test_impossible_topic_is_retried(cluster: Cluster, name: str, partitions: int, config: dict[str, str]) -> None:
    """What the broker refuses by rule needs a person."""
    with pytest.raises(Terminal, match=name):
        create_topic(cluster, name, partitions, config)


def test_deleted_topic_lingers(cluster: Cluster) -> None:
    """After the deletion nobody finds the topic, and a second deletion says that it isn't there."""
    name = f"t-{uuid4().hex}"
    create_topic(cluster, name, 1)
    delete_topic(cluster, name)

    with pytest.raises(Terminal, match="has no topic"):
        observe(cluster, [name])
    with pytest.raises(Terminal, match="has no topic"):
        delete_topic(cluster, name)
