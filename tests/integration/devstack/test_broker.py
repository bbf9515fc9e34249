"""The embedded broker, started for real."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from frazil.devstack import broker, stack
from frazil.errors import Retryable, Terminal
from frazil.runtime.home import Home, bootstrap_servers, is_free
from frazil.runtime.process import Processes, until
from tests.servers import with_ports

Survivors = Callable[[], list[str]]


def silent(_: str) -> None:
    """Report nothing."""


def create_topic(home: Home, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers(home)})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(10)


def produce(home: Home, topic: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers(home), "acks": "all"})
    producer.produce(topic, value)
    assert producer.flush(10) == 0


def first_value(home: Home, topic: str) -> bytes | None:
    consumer = Consumer({"bootstrap.servers": bootstrap_servers(home), "group.id": "test"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        message = consumer.poll(10)
        assert message is not None
        assert message.error() is None
        return message.value()
    finally:
        consumer.close()


def cluster_id(home: Home) -> str:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers(home)})
    return str(admin.describe_cluster().result(10).cluster_id)


def test_a_record_goes_in_and_comes_out(home: Home, processes: Processes) -> None:
    """`start` returns when the broker serves: the first request must not need a retry."""
    broker.start(home, processes, silent)
    create_topic(home, "orders")

    produce(home, "orders", b"pizza")

    assert first_value(home, "orders") == b"pizza"


def test_nothing_is_left_after_the_stop(home: Home, processes: Processes, survivors: Survivors) -> None:
    """A forgotten broker keeps its port and 500 MB."""
    broker.start(home, processes, silent)
    assert survivors() != []

    broker.stop(processes)

    assert survivors() == []
    assert is_free(home.ports.kafka)
    assert is_free(home.ports.controller)


def test_a_killed_broker_comes_back_with_its_data(home: Home, processes: Processes) -> None:
    """Another cluster id or an empty topic after a crash would make every pipeline refuse."""
    broker.start(home, processes, silent)
    create_topic(home, "orders")
    produce(home, "orders", b"pizza")
    before, running = cluster_id(home), processes.running(broker.NAME)
    assert running is not None
    os.kill(running.pid, signal.SIGKILL)
    assert until(lambda: processes.running(broker.NAME) is None, 10)

    broker.start(home, processes, silent)

    assert first_value(home, "orders") == b"pizza"
    assert cluster_id(home) == before


def test_misspelt_topic_is_not_created(home: Home, processes: Processes) -> None:
    """A misspelt name would be an empty topic, and its pipeline idle for ever."""
    broker.start(home, processes, silent)
    admin = AdminClient({"bootstrap.servers": bootstrap_servers(home)})

    admin.list_topics("ordres", timeout=10)

    assert "ordres" not in admin.list_topics(timeout=10).topics


@pytest.mark.parametrize(
    ("name", "variable"),
    [("kafka", "FRAZIL_KAFKA_PORT"), ("controller", "FRAZIL_KAFKA_CONTROLLER_PORT")],
)
def test_a_busy_port_is_named_with_the_variable_that_moves_it(
    home: Home, processes: Processes, name: str, variable: str
) -> None:
    """The user must learn which port, and what to type."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        busy = int(server.getsockname()[1])

        with pytest.raises(Terminal, match=rf"port {busy} (.|\n)*{variable}="):
            broker.start(with_ports(home, **{name: busy}), processes, silent)

    assert processes.record(broker.NAME) is None


def test_a_broker_that_cannot_start_is_quoted(home: Home, processes: Processes) -> None:
    """Without the end of its log the user sees only that something did not start."""
    broker.start(home, processes, silent)
    broker.stop(processes)
    meta = home.kafka / "data" / "meta.properties"
    meta.write_text("version=1\nnode.id=7\ncluster.id=somebody-elses-cluster-\n")

    with pytest.raises(Retryable, match=r"ended while starting(.|\n)*Stored node id 7"):
        broker.start(home, processes, silent)


def test_two_ups_at_once_start_one_broker(home: Home, survivors: Survivors) -> None:
    """Two terminals, or a test run beside a demo, must not start rivals on one data folder."""
    with ThreadPoolExecutor() as pool:
        for done in [pool.submit(stack.up, home, {"kafka"}) for _ in range(2)]:
            done.result()

    assert len([line for line in survivors() if "kafka.Kafka" in line]) == 1
    assert stack.status(home).is_running("kafka")


def test_down_ends_what_a_killed_up_left(home: Home, survivors: Survivors) -> None:
    """Killed at any moment, `up` leaves no process that `down` does not know."""
    variables = {
        "FRAZIL_HOME": str(home.root),
        "FRAZIL_JARS": str(home.jars),
        "FRAZIL_KAFKA_PORT": str(home.ports.kafka),
        "FRAZIL_KAFKA_CONTROLLER_PORT": str(home.ports.controller),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    code = (
        "from frazil.runtime import home; from frazil.devstack import stack; stack.up(home.Home.resolve(), {'kafka'})"
    )
    with subprocess.Popen([sys.executable, "-c", code], env={**os.environ, **variables}) as up:
        assert until((home.run / "kafka.pid").exists, 60)
        up.kill()
    assert any("kafka.Kafka" in line for line in survivors())

    stack.down(home)

    assert survivors() == []


def test_up_records_its_ports_for_other_shells(home: Home) -> None:
    """A shell without the variables must find the stack where it really is."""
    stack.up(home, {"kafka"})

    second_home = Home.resolve({"FRAZIL_HOME": str(home.root)})

    assert asdict(second_home.ports) == asdict(home.ports)
