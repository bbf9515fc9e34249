"""Transactional producers, a broker to mistreat, and a cluster where nobody is."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from frazil.devstack import broker as local_broker
from frazil.kafka.client.cluster import Cluster
from frazil.runtime.home import Home, bootstrap_servers
from frazil.runtime.process import Processes
from tests.conftest import FreePorts
from tests.servers import with_ports
from tests.transactions import Transactions
from tests.transactions import transactions as open_transactions


@pytest.fixture
def transactions(cluster: Cluster) -> Iterator[Callable[[str], Transactions]]:
    """Make a transactional producer for a topic: `transactions(topic)`."""
    with ExitStack() as opened:
        yield lambda topic: opened.enter_context(open_transactions(cluster, topic))


@pytest.fixture
def unreachable() -> Iterator[Cluster]:
    """A cluster at a port that is bound, so that nobody else gets it, and where nobody listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        yield Cluster("prod", {"bootstrap.servers": f"127.0.0.1:{port}"})


@dataclass(frozen=True)
class Patient:
    """A broker of its own for a test that mistreats it."""

    cluster: Cluster
    pid: int

    def freeze(self) -> None:
        """Stop it where it stands: connections stay, answers don't come."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        os.kill(self.pid, signal.SIGCONT)


@pytest.fixture
def patient(tmp_path: Path, free_ports: FreePorts) -> Iterator[Patient]:
    """A broker of its own, thawed and stopped at the end."""
    kafka, controller = free_ports(2)
    home = with_ports(replace(Home.resolve(), root=tmp_path / "home"), kafka=kafka, controller=controller)
    processes = Processes(home.run, home.logs, home.root)
    with ExitStack() as cleanup:
        cleanup.callback(local_broker.stop, processes)
        local_broker.start(home, processes, print)
        record = processes.running(local_broker.NAME)
        assert record is not None
        patient = Patient(Cluster("local", {"bootstrap.servers": bootstrap_servers(home)}), record.pid)
        cleanup.callback(patient.thaw)
        yield patient
