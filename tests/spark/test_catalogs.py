"""One table of one catalog, seen by PyIceberg and by Spark through the same entry of the settings."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession
from sqlalchemy.engine import make_url

from frazil.kafka.admin.topics import create_topic
from frazil.kafka.client.cluster import Cluster
from frazil.project import Project
from tests.integration.conftest import Shop
from tests.operations import assert_clean, send
from tests.spark.test_merge_repaired import BATCHES, FILE, ROWS, engine, run

Make = Callable[..., Any]


@pytest.mark.parametrize(
    "kind", ["postgres", *(pytest.param(kind, marks=pytest.mark.full) for kind in ("rest", "hive"))]
)
def test_spark_sees_same_table_as_pyiceberg(
    kind: str, tmp_path: Path, cluster: Cluster, spark: SparkSession, request: pytest.FixtureRequest
) -> None:
    """Changes that PyIceberg decides and Spark merges on a branch are the table's rows, whoever reads them."""
    shop = shop_on(entry(kind, tmp_path, request), tmp_path, cluster)
    apply = engine(shop, spark)
    session = apply._spark
    for values in BATCHES:
        send(shop, {0: values})
        assert run(shop, apply) == 1

    read = session.table("lake.shop.orders").orderBy("id").select("id", "name").collect()

    assert [tuple(row) for row in read] == ROWS == sorted((row["id"], row["name"]) for row in shop.rows())
    assert_clean(shop)
    session.sql("CALL lake.system.rewrite_data_files(table => 'shop.orders', options => map('rewrite-all', 'true'))")
    assert run(shop, apply) == 0
    assert_clean(shop)


def entry(kind: str, folder: Path, request: pytest.FixtureRequest) -> dict[str, Any]:
    """An entry of the settings file; of PostgreSQL as a person would write it, without a driver."""
    if kind == "rest":
        server = request.getfixturevalue("rest_server")
        server.empty()
        return {"type": "rest", "uri": server.uri}
    if kind == "hive":
        return {**request.getfixturevalue("metastore"), "warehouse": f"file://{folder}/warehouse"}
    url = make_url(request.getfixturevalue("postgres").make(f"lake_{uuid4().hex}")).set(drivername="postgresql")
    return {"uri": url.render_as_string(hide_password=False), "warehouse": f"file://{folder}/warehouse"}


def shop_on(lake: dict[str, Any], folder: Path, cluster: Cluster) -> Shop:
    """A pipeline of changes over a fresh topic, in that catalog."""
    topic = f"orders-{uuid4().hex[:8]}"
    create_topic(cluster, topic, 1)
    (folder / "pipelines").mkdir()
    (folder / "pipelines" / "orders.yaml").write_text(FILE.format(topic=topic))
    settings = {"clusters": {"local": {"bootstrap_servers": "${local:kafka}"}}, "catalogs": {"lake": lake}}
    (folder / "settings.yaml").write_text(json.dumps(settings))
    env = {
        "FRAZIL_HOME": str(folder / "home"),
        "FRAZIL_PIPELINES": str(folder / "pipelines"),
        "FRAZIL_SETTINGS": str(folder / "settings.yaml"),
        "FRAZIL_KAFKA_PORT": cluster.bootstrap_servers.rpartition(":")[2],
    }
    return Shop(Project.load(env), cluster, topic)
