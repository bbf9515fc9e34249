"""Kafka Connect 4.1 with the Iceberg sink 1.12, in a JVM of its own: what Frazil is measured against, tuned as its users tune it.

The worker's start is not counted, and before a drain it has landed records of the same kind. Its heap is fixed and its collector the
one for throughput; consumers may fetch as much as those of Frazil's engines; files are Parquet with zstd, as Frazil's.

A task answers a request to commit between two polls, and a poll without records ends when offsets are due. Kafka Connect's
minute would make the last records of a burst wait that long, so while records come they are due every second. (The sink keeps
its offsets itself: nothing is sent then.) Where nothing comes it has Kafka Connect's own minute, which costs it least.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import httpx

from frazil.kafka.admin.topics import create_topic
from frazil.kafka.client.cluster import Cluster
from frazil.runtime.home import LOOPBACK, Home, bootstrap_servers, inherited_environment
from frazil.runtime.jars import fetch, jar_paths
from frazil.runtime.java import ensure_java
from frazil.runtime.process import Processes, Spec, until
from tests.bench.side_by_side.tables_made import FILES

NAME: Final = "kafka-connect"
_PLUGINS: Final = "kafka-connect-avro"
CATALOG: Final = "lake"
CONTROL_TOPIC: Final = "control-iceberg"
_START_SECONDS: Final = 120.0
_ANSWER_SECONDS: Final = 60.0

_JVM: Final = ("-Xms2g", "-Xmx2g", "-XX:+UseParallelGC", "-Djava.awt.headless=true")

_WORKER: Final = {
    "group.id": "bench-connect",
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
    "offset.storage.topic": "connect-offsets",
    "config.storage.topic": "connect-configs",
    "status.storage.topic": "connect-status",
    "offset.storage.replication.factor": "1",
    "config.storage.replication.factor": "1",
    "status.storage.replication.factor": "1",
    "scheduled.rebalance.max.delay.ms": "0",
}

_TUNED: Final = {
    "consumer.override.auto.offset.reset": "earliest",
    "consumer.override.max.poll.records": "50000",
    "consumer.override.max.partition.fetch.bytes": str(16 * 2**20),
    "consumer.override.fetch.max.bytes": str(64 * 2**20),
    "consumer.override.receive.buffer.bytes": "-1",
    **{f"iceberg.tables.write-props.{key}": value for key, value in FILES.items()},
}

_AVRO: Final = {
    "value.converter": "io.apicurio.registry.utils.converter.AvroConverter",
    "value.converter.apicurio.registry.as-confluent": "true",
    "value.converter.apicurio.registry.use-id": "contentId",
}


@dataclass(frozen=True)
class SinkWorker:
    """A worker that answers.

    Attributes:
        url: Root of its REST API.
        processes: Where its log is.
        catalog: Address of the SQLite catalog's file.
        warehouse: Folder of the tables.
    """

    url: str
    processes: Processes
    catalog: Path
    warehouse: Path

    def begin(
        self, name: str, topic: str, table: str, *, tasks: int, commit_seconds: float, registry: str = ""
    ) -> None:
        """Have a connector land a topic into a table that is there.

        Args:
            name: Of the connector.
            topic: What it reads.
            table: What it lands into.
            tasks: How many tasks it may have.
            commit_seconds: Commit interval.
            registry: Address of the registry whose schemas the values name, in Apicurio's own API; empty for JSON.
        """
        config = {
            "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
            "tasks.max": str(tasks),
            "topics": topic,
            "iceberg.tables": table,
            "iceberg.catalog": CATALOG,
            "iceberg.catalog.type": "jdbc",
            "iceberg.catalog.uri": f"jdbc:sqlite:{self.catalog}",
            "iceberg.catalog.jdbc.schema-version": "V1",
            "iceberg.catalog.warehouse": f"file://{self.warehouse}",
            "iceberg.control.topic": f"{CONTROL_TOPIC}-{name}",
            "iceberg.control.commit.interval-ms": str(round(commit_seconds * 1000)),
            **_TUNED,
        }
        if registry:
            config |= _AVRO | {"value.converter.apicurio.registry.url": registry}
        answer = httpx.put(f"{self.url}/connectors/{name}/config", json=config, timeout=_ANSWER_SECONDS)
        assert answer.is_success, answer.text

    def failure(self, name: str) -> str | None:
        """Why a connector or a task of it failed; None while it works."""
        response = httpx.get(f"{self.url}/connectors/{name}/status", timeout=_ANSWER_SECONDS)
        if response.status_code == httpx.codes.NOT_FOUND:
            return None
        status = response.json()
        failed = [task for task in (status["connector"], *status["tasks"]) if task["state"] == "FAILED"]
        return json.dumps(failed[0])[:2_000] if failed else None

    def is_ready(self, name: str) -> bool:
        """Whether all tasks of a connector run."""
        response = httpx.get(f"{self.url}/connectors/{name}/status", timeout=_ANSWER_SECONDS)
        tasks = response.json()["tasks"] if response.is_success else []
        return bool(tasks) and all(task["state"] == "RUNNING" for task in tasks)

    def end(self, name: str) -> None:
        """Delete a connector, and wait until its tasks are gone."""
        httpx.delete(f"{self.url}/connectors/{name}", timeout=_ANSWER_SECONDS)
        is_deleted = until(lambda: name not in httpx.get(f"{self.url}/connectors", timeout=_ANSWER_SECONDS).json(), 60)
        assert is_deleted, f"connector {name} is not gone"


def control_topic(cluster: Cluster, name: str) -> None:
    """Make the topic through which a connector's tasks agree on commits: one partition, as its documentation asks."""
    create_topic(cluster, f"{CONTROL_TOPIC}-{name}", 1)


@contextmanager
def sink_worker(
    root: Path, broker: Home, port: int, marks: Mapping[str, str], *, poll_seconds: float
) -> Iterator[SinkWorker]:
    """Start a worker in a folder of its own, wait until it answers, stop it in the end.

    Args:
        root: Its folder.
        broker: The stack whose broker it uses.
        port: Of its REST API.
        marks: Environment variables by which its process is known.
        poll_seconds: How long a task waits for records before it looks for a request to commit.
    """
    home = replace(Home.resolve(), root=root)
    fetch(home, NAME, _PLUGINS, report=print)
    url = f"http://{LOOPBACK}:{port}"
    properties = _WORKER | {
        "bootstrap.servers": bootstrap_servers(broker),
        "listeners": url,
        "plugin.path": str(root / "plugins"),
        "offset.flush.interval.ms": str(round(poll_seconds * 1000)),
    }
    (root / "plugins").mkdir(parents=True)
    (root / "plugins" / _PLUGINS).symlink_to(home.jars / _PLUGINS)
    file = root / "worker.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    processes = Processes(home.run, home.logs, home.root)
    try:
        processes.start(Spec(NAME, _command(home, file), inherited_environment() | os.environ | marks, url))
        until(lambda: _answers(url) or processes.running(NAME) is None, _START_SECONDS)
        assert _answers(url), f"Kafka Connect did not start:\n{processes.last_lines(NAME)}"
        (root / "warehouse").mkdir()
        yield SinkWorker(url, processes, root / "catalog.db", root / "warehouse")
    finally:
        processes.stop((NAME, 20.0))


def _command(home: Home, properties: Path) -> list[str]:
    classpath = ":".join(map(str, jar_paths(home, NAME)))
    main = "org.apache.kafka.connect.cli.ConnectDistributed"
    return [str(ensure_java().command), *_JVM, "-cp", classpath, main, str(properties)]


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/connectors", timeout=5).is_success
    except httpx.HTTPError:
        return False
