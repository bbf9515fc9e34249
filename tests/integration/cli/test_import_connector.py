"""A stopped connector is taken over where it stopped: from its real control events, group offsets and snapshots."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
import yaml
from confluent_kafka import Consumer
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from frazil.errors import Retryable, Terminal
from frazil.iceberg.catalog.catalog import Lake
from frazil.kafka.admin.consumer_group import mirror_offsets
from frazil.kafka.admin.observe import observe
from frazil.kafka.admin.topics import create_topic
from frazil.kafka.client.cluster import Cluster
from frazil.runtime.process import until
from tests.integration.cli.conftest import Place
from tests.sink_events import sink_events
from tests.transactions import transactions

GROUP = "connect-orders-sink"
"""The group in the kept events."""

_LANDED, _ALL = 6, 10
"""Records that the connector landed, and all that are in the topic."""


@dataclass(frozen=True)
class Stopped:
    """A connector that stopped after six of ten records, in one table of the place's catalog."""

    place: Place
    cluster: Cluster
    control: str
    config: Path

    @property
    def lake(self) -> Lake:
        """The place's catalog."""
        home = self.place.root / "home"
        return Lake("lake", f"sqlite:///{home}/catalog.db", f"file://{home}/warehouse", {})

    def commit_to_table(self, offsets: dict[int, int]) -> None:
        """What the connector wrote, with the summary of its commit."""
        rows = pa.table({"id": pa.array(range(_LANDED), pa.int64())})
        summary = {f"kafka.connect.offsets.{self.control}.{GROUP}": json.dumps(offsets)}
        self.lake.load_table("shop.orders").append(rows, snapshot_properties=summary)

    def take_over(self, *options: str) -> tuple[int, dict[str, Any], str]:
        """Import with positions; exit code, report, and what was said of a failure."""
        names = ("--cluster", "local", "--catalog", "lake", "--positions", "connect", "--json")
        ended = self.place.frazil("import-connector", str(self.config), *names, "--out", str(self.out), *options)
        return ended.returncode, json.loads(ended.stdout or "{}"), ended.stderr

    @property
    def out(self) -> Path:
        """Where files go."""
        return self.place.root / "imported"

    def reasons(self) -> str:
        """Why it is refused; nothing may be written."""
        code, report, output = self.take_over()
        assert code == Terminal.exit_code, output
        assert not self.out.exists()
        return "\n".join(
            finding["message"] for finding in report["connectors"][0]["findings"] if finding["outcome"] == "refused"
        )


@pytest.fixture
def stopped(place: Place, broker: str) -> Stopped:
    cluster, control = Cluster("local", {"bootstrap.servers": broker}), f"control-{uuid4().hex}"
    create_topic(cluster, place.topic, 2)
    create_topic(cluster, control, 1)
    config = place.root / "orders-sink.json"
    written = {
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "topics": place.topic,
        "iceberg.tables": "shop.orders",
        "iceberg.control.topic": control,
        "iceberg.catalog.type": "rest",
        "iceberg.catalog.uri": "https://catalog.example.org",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
    }
    config.write_text(json.dumps({"name": "orders-sink", "config": written}), encoding="utf-8")
    stopped_connector = Stopped(place, cluster, control, config)
    stopped_connector.lake.create_table(
        "shop.orders", Schema(NestedField(1, "id", LongType(), required=False)), PartitionSpec(), {}
    )
    with transactions(cluster, place.topic) as orders:
        for partition in (0, 1):
            orders.commit([b'{"id": %d}' % number for number in range(partition, _LANDED, 2)], partition)
        mirror_offsets(
            cluster, GROUP, {(place.topic, partition): end for partition, end in ends(cluster, place.topic).items()}
        )
        for partition in (0, 1):
            orders.commit([b'{"id": %d}' % number for number in range(_LANDED + partition, _ALL, 2)], partition)
    return stopped_connector


def ends(cluster: Cluster, topic: str) -> dict[int, int]:
    partitions = observe(cluster, [topic]).topics[topic].partitions
    return {number: partition.high_watermark for number, partition in enumerate(partitions)}


def announce(stopped: Stopped, which: str) -> int:
    """Write the kept events into the control topic; the offset behind the last one."""
    with transactions(stopped.cluster, stopped.control) as control:
        control.commit([value for _, value in sink_events(which)])
    return ends(stopped.cluster, stopped.control)[0]


def test_a_stopped_connector_goes_on_exactly_where_it_stopped(stopped: Stopped) -> None:
    """Imported, run once: the connector's rows and the rest, each record once."""
    stopped.commit_to_table({0: announce(stopped, "committed")})

    code, report, output = stopped.take_over()

    assert code == 0, output
    assert report["settings"] is None
    file = Path(report["connectors"][0]["pipeline"])
    file.write_text(file.read_text(encoding="utf-8") + "engine: inline\n", encoding="utf-8")
    env = {"FRAZIL_PIPELINES": str(file.parent)}
    assert "all usable" in stopped.place.succeed("validate", **env).stdout
    stopped.place.succeed("run", "orders_sink", **env)
    landed = stopped.lake.load_table("shop.orders").scan().to_arrow()
    assert sorted(landed["id"].to_pylist()) == list(range(_ALL))


def test_upsert_connector_takes_its_columns_from_the_table(stopped: Stopped) -> None:
    """The key is required, as rows are told apart by it, and what is written validates."""
    written = json.loads(stopped.config.read_text(encoding="utf-8"))
    written["config"] |= {"iceberg.tables.upsert-mode-enabled": "true", "iceberg.tables.default-id-columns": "id"}
    stopped.config.write_text(json.dumps(written), encoding="utf-8")
    names = ("--cluster", "local", "--catalog", "lake", "--out", str(stopped.out))

    report = stopped.place.json("import-connector", str(stopped.config), *names)

    file = report["connectors"][0]["pipeline"]
    (destination,) = yaml.safe_load(Path(file).read_text(encoding="utf-8"))["destinations"]
    expected = {"columns": {"id": {"type": "long", "required": True}}, "write": "upsert", "identifier": ["id"]}
    assert destination == {"table": "shop.orders", **expected}
    assert "all usable" in stopped.place.succeed("validate", FRAZIL_PIPELINES=str(Path(file).parent)).stdout


def test_announced_but_uncommitted_files_are_refused(stopped: Stopped) -> None:
    """The group is ahead of the table; starting there would lose what the files hold."""
    stopped.commit_to_table({0: announce(stopped, "committed")})
    announce(stopped, "pending")

    assert "2 files were announced and never committed" in stopped.reasons()


def test_table_without_offsets_is_refused(stopped: Stopped) -> None:
    """Nothing tells that the announced files are in."""
    announce(stopped, "committed")

    assert "no offset of it is recorded" in stopped.reasons()


def test_running_connector_is_refused(stopped: Stopped) -> None:
    """Its offsets move on while they are read."""
    stopped.commit_to_table({0: announce(stopped, "committed")})

    with _member(stopped):
        assert "is running" in stopped.reasons()


def test_group_that_kafka_forgot_is_refused(stopped: Stopped) -> None:
    """To begin anew would land everything twice."""
    stopped.commit_to_table({0: announce(stopped, "committed")})
    config = json.loads(stopped.config.read_text(encoding="utf-8"))
    config["config"]["iceberg.connect.group-id"] = f"gone-{uuid4().hex}"
    stopped.config.write_text(json.dumps(config), encoding="utf-8")

    assert "no offsets of these topics" in stopped.reasons()


def test_open_transaction_in_control_topic_is_retryable(stopped: Stopped) -> None:
    """A task that was killed may have announced files that are not decided yet."""
    stopped.commit_to_table({0: announce(stopped, "committed")})

    with transactions(stopped.cluster, stopped.control) as control:
        control.open([value for _, value in sink_events("pending")])
        code, _, output = stopped.take_over()

    assert code == Retryable.exit_code
    assert "a transaction is open" in output


def test_foreign_record_in_control_topic_is_refused(stopped: Stopped) -> None:
    """A topic that is not the connector's says nothing about it."""
    with transactions(stopped.cluster, stopped.control) as control:
        control.commit([b"{}"])

    code, _, output = stopped.take_over()

    assert code == Terminal.exit_code
    assert "not an event of the Iceberg sink" in output


@contextmanager
def _member(stopped: Stopped) -> Iterator[None]:
    """Somebody who reads as the connector's group."""
    client = Consumer({"bootstrap.servers": stopped.cluster.bootstrap_servers, "group.id": GROUP})
    try:
        client.subscribe([stopped.place.topic])
        assert until(lambda: client.poll(0.1) is not None or bool(client.assignment()), 60)
        yield
    finally:
        client.close()
