"""Keys whose changes are in two partitions, from Kafka to the table: timestamps decide, and verify agrees."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Producer
from pyspark.sql import SparkSession

from frazil.batch.position import RunRequest
from frazil.kafka.admin.topics import create_topic
from frazil.kafka.client.cluster import Cluster
from frazil.project import Project
from frazil.run.batches.plan import plan_run
from frazil.run.batches.session import ingest
from frazil.run.staging.stage import stage_inline
from frazil.spark.submit.configuration import open_catalog
from frazil.spark.writes.apply import SparkApply
from tests.integration.conftest import Shop
from tests.operations import assert_clean

TABLE = "shop.orders"
UPSERT = """
name: orders
source: {{topics: [{topic}]}}
key: {{format: json, fields: {{id: long}}}}
destinations:
  - table: shop.orders
    columns: {{id: {{type: long, required: true}}, name: string}}
    write: upsert
    identifier: [id]
"""
CDC = """
name: orders
source: {{topics: [{topic}]}}
destinations:
  - table: shop.orders
    columns: {{id: {{type: long, required: true}}, name: string}}
    write: cdc
    append_history: shop.orders_log
    identifier: [id]
    changes: {{format: op_column, op: op, values: {{insert: [I], delete: [D], truncate: [T]}}}}
"""
FIRST = 1_700_000_000_000
"""Milliseconds, the time of the first record."""


@dataclass
class Orders:
    """A merged table over a topic of two partitions, and Spark."""

    shop: Shop
    spark: SparkSession

    def send(self, partition: int, second: int, value: Mapping[str, object] | None, key: int | None = None) -> None:
        """Send a record with a time."""
        producer = Producer(dict(self.shop.cluster.properties))
        body = None if value is None else json.dumps(value).encode()
        key_bytes = None if key is None else json.dumps({"id": key}).encode()
        producer.produce(self.shop.topic, body, key_bytes, partition, timestamp=FIRST + 1_000 * second)
        producer.flush()

    def run(self) -> None:
        """Land what is new."""
        session = self.spark.newSession()
        session.conf.set("spark.sql.shuffle.partitions", "2")
        open_catalog(session, "lake", self.shop.project.settings.catalogs["lake"])
        planned = plan_run(self.shop.project, self.shop.pipeline, RunRequest(str(uuid.uuid4())))
        assert planned.plan is not None
        apply = SparkApply(session)
        ingest(self.shop.project, self.shop.pipeline, planned.plan, stage_inline, lambda _: None, apply=apply)

    @property
    def rows(self) -> list[tuple[object, ...]]:
        """What the table holds."""
        return sorted((row["id"], row["name"]) for row in self.shop.rows(TABLE))


def _orders(folder: Path, cluster: Cluster, spark: SparkSession, file: str) -> Orders:
    topic = f"orders-{uuid.uuid4().hex[:8]}"
    create_topic(cluster, topic, 2)
    pipelines = folder / "pipelines"
    pipelines.mkdir()
    (pipelines / "orders.yaml").write_text(file.format(topic=topic))
    port = cluster.bootstrap_servers.rpartition(":")[2]
    env = {"FRAZIL_HOME": str(folder / "home"), "FRAZIL_PIPELINES": str(pipelines), "FRAZIL_KAFKA_PORT": port}
    return Orders(Shop(Project.load(env), cluster, topic), spark)


def test_tombstone_of_another_partition_deletes_its_row(tmp_path: Path, cluster: Cluster, spark: SparkSession) -> None:
    """Where it is the later record; the run goes on, whoever sends what where."""
    orders = _orders(tmp_path, cluster, spark, UPSERT)
    for key in (1, 2):
        orders.send(0, 10, {"id": key, "name": "a"}, key)
    orders.run()
    orders.send(1, 5, None, 2)
    orders.send(1, 20, None, 1)
    orders.send(0, 30, {"id": 3, "name": "a"}, 3)
    orders.send(1, 30, {"id": 3, "name": "b"}, 3)
    orders.run()
    assert orders.rows == [(2, "a"), (3, "b")]
    assert_clean(orders.shop)


def test_truncate_without_a_column_to_order_by_goes_by_timestamps(
    tmp_path: Path, cluster: Cluster, spark: SparkSession
) -> None:
    """Rows of both partitions that are older go, in the table and in its batch; verify's model says the same."""
    orders = _orders(tmp_path, cluster, spark, CDC)
    for key, (partition, second) in enumerate([(0, 10), (1, 11), (1, 30)]):
        orders.send(partition, second, {"op": "I", "id": key, "name": "a"})
    orders.run()
    for partition, second, key in ((0, 12, 3), (1, 31, 4), (1, 32, 2)):
        orders.send(partition, second, {"op": "I", "id": key, "name": "b"})
    orders.send(0, 20, {"op": "T"})
    orders.send(0, 40, {"op": "D", "id": 4})
    orders.send(0, 41, {"op": "I", "id": 5, "name": "b"})
    orders.run()
    assert orders.rows == [(2, "b"), (5, "b")]
    assert len(orders.shop.rows("shop.orders_log")) == 9
    assert_clean(orders.shop)
