"""What the stack says about itself, without starting it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from frazil.devstack import stack
from frazil.devstack.broker import new_cluster_id, server_properties
from frazil.errors import Terminal
from frazil.runtime.home import Home, bootstrap_servers
from frazil.runtime.process import Processes, Spec, until
from tests.servers import with_ports


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home.resolve({"FRAZIL_HOME": str(tmp_path / "home")})


@pytest.fixture
def processes(home: Home) -> Iterator[Processes]:
    processes = stack.processes_of(home)
    yield processes
    processes.stop(("kafka", 0.0))


def state_of(home: Home, name: str) -> str:
    return next(c.state for c in stack.status(home).components if c.name == name)


def test_down_of_a_home_that_never_was_up_leaves_no_trace(home: Home) -> None:
    """Cleaning up twice, or before the first start, is not an error."""
    stack.down(home)

    assert not home.root.exists()


def test_a_crashed_component_is_dead_not_stopped(home: Home, processes: Processes) -> None:
    """Who looks for a fault must see that the process ended by itself."""
    assert state_of(home, "kafka") == "stopped"

    processes.start(Spec("kafka", ["true"], dict(os.environ)))

    assert until(lambda: state_of(home, "kafka") == "dead", 5.0)


def test_status_names_what_other_programs_need(home: Home) -> None:
    """Scripts read these keys."""
    shown = stack.status(home).to_json()

    assert shown["bootstrap_servers"] == "127.0.0.1:19092"
    assert shown["catalog"] == {
        "name": "lake",
        "uri": f"sqlite:///{home.root}/catalog.db",
        "warehouse": f"file://{home.root}/warehouse",
    }
    assert shown["airflow"]["url"] == "http://127.0.0.1:18080"
    assert not stack.status(home).is_running("kafka")


def test_a_port_is_not_moved_under_a_running_component(home: Home, processes: Processes) -> None:
    """Else every later command would talk to a port on which nobody listens."""
    running = Spec("kafka", ["sleep", "600"], dict(os.environ), bootstrap_servers(home))
    processes.start(running)

    with pytest.raises(Terminal, match=r"127\.0\.0\.1:19092.*FRAZIL_KAFKA_PORT.*:25001"):
        stack.up(with_ports(home, kafka=25001), {"kafka"})


def test_the_broker_listens_on_the_loopback_interface_only(home: Home) -> None:
    """It has no authentication: whoever reaches it may read and delete everything."""
    properties = server_properties(with_ports(home, kafka=25001, controller=25002))

    assert properties["listeners"] == "PLAINTEXT://127.0.0.1:25001,CONTROLLER://127.0.0.1:25002"
    assert properties["advertised.listeners"] == "PLAINTEXT://127.0.0.1:25001"


def test_a_cluster_id_is_never_taken_for_an_option() -> None:
    """A leading dash, one in 64, makes the storage tool fail."""
    cluster_ids = {new_cluster_id() for _ in range(2000)}

    assert len(cluster_ids) == 2000
    assert all(len(text) == 22 and not text.startswith("-") for text in cluster_ids)
