"""What more than one tier needs: one real broker, started only if a test asks for it, and fresh topics."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from uuid import uuid4

import pytest

from frazil.kafka.cluster import Cluster
from frazil.kafka.topics import create_topic
from frazil.local import broker as local_broker
from frazil.local.home import Home, bootstrap_servers, with_ports
from frazil.local.process import Processes

TopicFactory = Callable[..., str]


def free_ports(count: int) -> list[int]:
    """Different ports of the loopback interface on which nobody listens now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """`host:port` of a broker in a home of its own; the jars are the project's."""
    kafka, controller = free_ports(2)
    root = tmp_path_factory.mktemp("broker")
    home = with_ports(replace(Home.resolve(), root=root), kafka=kafka, controller=controller)
    processes = Processes(home.run, home.logs, home.root)
    try:
        local_broker.start(home, processes, print)
        yield bootstrap_servers(home)
    finally:
        local_broker.stop(processes)


@pytest.fixture
def cluster(broker: str) -> Cluster:
    """The broker as a cluster named `local`."""
    return Cluster("local", {"bootstrap.servers": broker})


@pytest.fixture
def topic(cluster: Cluster) -> TopicFactory:
    """Make topics that no other test knows: `topic(partitions=1, config={...})` returns the name."""

    def make(partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        name = f"t-{uuid4().hex}"
        assert create_topic(cluster, name, partitions, config or {})
        return name

    return make
