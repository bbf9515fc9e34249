"""A record without value whose key was changed in another partition: what the refusal says to do ends the wait."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from frazil.batch.request import RunRequest
from frazil.errors import Terminal
from frazil.kafka.cluster import Cluster
from frazil.kafka.topics import create_topic
from frazil.project import Project
from frazil.run import repair as repairs
from frazil.run.ingest import ingest
from frazil.run.inline import stage_inline
from frazil.run.plan import plan_run
from frazil.run.scope import Scope
from frazil.spark.apply import SparkApply
from frazil.spark.catalog import open_catalog
from tests.integration.conftest import Shop
from tests.operations import assert_clean

TABLE = "shop.orders"
FILE = """
name: orders
source: {{topics: [{topic}]}}
key: {{format: json, fields: {{id: long}}}}
value: {{null_value: {null_value}}}
destinations:
  - table: shop.orders
    columns: {{id: {{type: long, required: true}}, name: string}}
    write: upsert
    identifier: [id]
"""


@dataclass
class Orders:
    """A merged table over a topic of two partitions, and Spark."""

    folder: Path
    cluster: Cluster
    topic: str
    spark: SparkSession

    def shop(self, null_value: str) -> Shop:
        """The pipeline, with another word about records without value."""
        pipelines = self.folder / "pipelines"
        pipelines.mkdir(exist_ok=True)
        (pipelines / "orders.yaml").write_text(FILE.format(topic=self.topic, null_value=null_value))
        port = self.cluster.bootstrap_servers.rpartition(":")[2]
        home = str(self.folder / "home")
        env = {"FRAZIL_HOME": home, "FRAZIL_PIPELINES": str(pipelines), "FRAZIL_KAFKA_PORT": port}
        return Shop(Project.load(env), self.cluster, self.topic)

    def send(self, *records: tuple[int, str | None, int]) -> None:
        """Send rows, or tombstones, by id, name and partition."""
        producer = Producer(dict(self.cluster.properties))
        for of, name, partition in records:
            value = None if name is None else json.dumps({"id": of, "name": name}).encode()
            producer.produce(self.topic, value, json.dumps({"id": of}).encode(), partition)
        producer.flush()

    def apply(self, shop: Shop) -> SparkApply:
        """Spark, in a session that knows the catalog."""
        session = self.spark.newSession()
        session.conf.set("spark.sql.shuffle.partitions", "2")
        open_catalog(session, "lake", shop.project.settings.catalogs["lake"])
        return SparkApply(session)

    def run(self, shop: Shop) -> None:
        """Land what is new."""
        planned = plan_run(shop.project, shop.pipeline, RunRequest(str(uuid.uuid4())))
        if planned.plan is not None:
            ingest(shop.project, shop.pipeline, planned.plan, stage_inline, lambda _: None, apply=self.apply(shop))


def test_leaving_tombstones_out_ends_the_wait_for_one_of_another_partition(
    tmp_path: Path, cluster: Cluster, spark: SparkSession
) -> None:
    """To the letter: null_value: filter, then frazil repair; the next records land, and verify agrees."""
    orders = Orders(tmp_path, cluster, f"orders-{uuid.uuid4().hex[:8]}", spark)
    create_topic(cluster, orders.topic, 2)
    shop = orders.shop("delete")
    orders.send((1, "a", 0), (2, "a", 0))
    orders.run(shop)
    orders.send((1, None, 1), (2, "b", 0))
    with pytest.raises(
        Terminal, match=r"two partitions: .*partition 0, offset 0 and .*partition 1, offset 0"
    ) as refused:
        orders.run(shop)
    assert "value.null_value: filter" in str(refused.value)
    assert f"frazil repair PIPELINE {TABLE} --reason" in str(refused.value)

    shop = orders.shop("filter")
    scope = Scope.of(shop.project, shop.pipeline)
    planned = repairs.plan_repair(scope, TABLE)
    request = RunRequest("r", "cli:tester@here", reason="a test")
    repairs.repair(scope, planned, request)
    filling = planned.replay_request(request)
    assert filling is not None
    plan = plan_run(shop.project, shop.pipeline, filling).plan
    assert plan is not None
    ingest(shop.project, shop.pipeline, plan, stage_inline, lambda _: None, apply=orders.apply(shop))
    orders.send((3, "a", 1))
    orders.run(shop)

    assert [(row["id"], row["name"]) for row in shop.rows(TABLE)] == [(1, "a"), (2, "b"), (3, "a")]
    assert_clean(shop)
