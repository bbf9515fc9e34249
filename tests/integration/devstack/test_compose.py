"""Services of docker-compose.yml, started as processes: the commands and environments of the file, on the loopback interface."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from frazil.devstack.broker import new_cluster_id
from frazil.devstack.spark_cluster import _is_registered
from frazil.kafka.admin.topics import create_topic
from frazil.kafka.client.cluster import Cluster
from frazil.runtime.home import Home, answers, interpreter_bin, project_root
from frazil.runtime.jars import fetch, jar_paths
from frazil.runtime.java import ensure_java
from frazil.runtime.process import Processes, Spec

FreePorts = Callable[[int], list[int]]
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((project_root() / "docker-compose.yml").read_text())["services"]

pytestmark = [
    pytest.mark.full,
    pytest.mark.timeout(300),
    pytest.mark.tried("Docker Compose: its broker and Spark, as processes", "real"),
]
"""Short form: tests/unit/test_repository_compose.py, which reads the file."""


def on_loopback(text: str, places: dict[str, str]) -> str:
    """A value of the file with places of this machine for those of containers, and defaults for variables."""
    filled = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)
    for container_path, host_path in places.items():
        filled = filled.replace(container_path, host_path)
    return filled


def properties_of(environment: dict[str, str]) -> dict[str, str]:
    """What Kafka's image makes of its environment: three underscores are a hyphen, two are one, one is a dot."""
    own = {name.removeprefix("KAFKA_"): value for name, value in environment.items() if name != "KAFKA_HEAP_OPTS"}
    marks = {"___": "-", "__": "_", "_": "."}
    return {re.sub("_{1,3}", lambda match: marks[match[0]], name).lower(): value for name, value in own.items()}


def test_broker_starts_with_the_environment_of_the_file(tmp_path: Path, free_ports: FreePorts) -> None:
    """A listener that nobody can reach, or a property that Kafka refuses, would show at the first `up` only."""
    inside, controller, outside = free_ports(3)
    places = {
        "INSIDE://:9092": f"INSIDE://127.0.0.1:{inside}",
        "INSIDE://kafka:9092": f"INSIDE://127.0.0.1:{inside}",
        "CONTROLLER://:9093": f"CONTROLLER://127.0.0.1:{controller}",
        "kafka:9093": f"127.0.0.1:{controller}",
        "OUTSIDE://:19092": f"OUTSIDE://127.0.0.1:{outside}",
        "127.0.0.1:19092": f"127.0.0.1:{outside}",
        "/var/lib/kafka/data": str(tmp_path / "data"),
    }
    service = SERVICES["kafka"]
    environment = {name: on_loopback(value, places) for name, value in service["environment"].items()}
    file = tmp_path / "server.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in properties_of(environment).items()))
    home = replace(Home.resolve(), root=tmp_path)
    fetch(home, "broker")
    classpath = ":".join(map(str, jar_paths(home, "broker")))
    java = [str(ensure_java(print).command), environment["KAFKA_HEAP_OPTS"], "-cp", classpath]
    subprocess.run(
        [*java, "kafka.tools.StorageTool", "format", "-t", new_cluster_id(), "-c", str(file)],
        capture_output=True,
        check=True,
    )
    processes = Processes(home.run, home.logs, home.root)
    try:
        processes.start(Spec("kafka", [*java, "kafka.Kafka", str(file)], dict(os.environ)))
        processes.wait_ready("kafka", "kafka", lambda: answers(outside) and answers(inside), 120, [])

        assert create_topic(Cluster("local", {"bootstrap.servers": f"127.0.0.1:{outside}"}), "orders", 1)
    finally:
        processes.stop(("kafka", 30.0))


def test_spark_starts_with_the_commands_of_the_file(tmp_path: Path, free_ports: FreePorts) -> None:
    """A worker registers with its master, and the health check of each says so."""
    master, master_page, worker_page = map(str, free_ports(3))
    names = {"spark-master": "127.0.0.1", "7077": master, "/tmp/work": str(tmp_path / "work")}  # noqa: S108 - the container's
    environment = os.environ | {
        "JAVA_HOME": str(ensure_java(print).home),
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    processes = Processes(tmp_path / "run", tmp_path / "logs", tmp_path)
    try:
        for name, page in (("spark-master", master_page), ("spark-worker", worker_page)):
            service = SERVICES[name]
            places = names | {"8080": page}
            program, *command = (on_loopback(part, places) for part in service["command"])
            host_option = [] if "--host" in command else ["--host", "127.0.0.1"]
            started = [str(interpreter_bin() / program), command[0], *host_option, *command[1:]]
            processes.start(Spec(name, started, environment))
            kind, interpreter, *check = (on_loopback(part, places) for part in service["healthcheck"]["test"])
            assert (kind, interpreter) == ("CMD", "python")

            def is_healthy(check: list[str] = check) -> bool:
                return subprocess.run([sys.executable, *check], capture_output=True, check=False).returncode == 0

            processes.wait_ready(name, name, is_healthy, 120, [])
        registered = partial(_is_registered, processes.log("spark-worker"))
        processes.wait_ready("spark-worker", "spark-worker", registered, 120, [])
    finally:
        processes.stop(("spark-worker", 15.0), ("spark-master", 15.0))
