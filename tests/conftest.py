"""What more than one tier needs: a real broker, started once and only if a test asks for it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace

import pytest

from frazil.kafka.cluster import Cluster
from frazil.local import broker as local_broker
from frazil.local.home import Home, bootstrap_servers, with_ports
from frazil.local.process import Processes


def free_port() -> int:
    """A port of the loopback interface that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """A broker of its own on free ports, with the project's jars."""
    resolved = Home.resolve()
    home = with_ports(replace(resolved, root=tmp_path_factory.mktemp("broker")), kafka=free_port(), controller=free_port())
    processes = Processes(home.run, home.logs, home.root)
    local_broker.start(home, processes, lambda _: None)
    yield home
    local_broker.stop(processes)


@pytest.fixture(scope="session")
def cluster(broker: Home) -> Cluster:
    """The door to the broker."""
    return Cluster("local", {"bootstrap.servers": bootstrap_servers(broker)})
