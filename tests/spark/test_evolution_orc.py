"""A table that Spark writes follows its records, too: what it lacks is there before the rows."""

from __future__ import annotations

import json
import textwrap
import uuid
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from frazil.batch.position import RunRequest
from frazil.kafka.admin.topics import create_topic
from frazil.kafka.client.cluster import Cluster, OutgoingRecord
from frazil.project import Project
from frazil.run.batches.plan import plan_run
from frazil.run.batches.session import ingest
from frazil.spark.jobs.stage import SparkStage
from frazil.spark.submit.configuration import open_catalog
from frazil.spark.writes.apply import SparkApply
from frazil.verify.check import verify
from tests.produce import produce

FILE = """
    name: shop
    source: {{topics: [{topic}]}}
    destinations:
      - table: shop.customers
        columns: {{id: int}}
        evolve: widen
        properties: {{write.format.default: orc}}
"""


@pytest.fixture
def project(tmp_path: Path, cluster: Cluster) -> Project:
    """A pipeline of customers over a fresh topic of two partitions."""
    topic = f"customers-{uuid.uuid4().hex[:8]}"
    create_topic(cluster, topic, 2)
    folder = tmp_path / "pipelines"
    folder.mkdir()
    (folder / "shop.yaml").write_text(textwrap.dedent(FILE.format(topic=topic)))
    port = cluster.bootstrap_servers.rpartition(":")[2]
    return Project.load(
        {"FRAZIL_HOME": str(tmp_path / "home"), "FRAZIL_PIPELINES": str(folder), "FRAZIL_KAFKA_PORT": port}
    )


def run(project: Project, cluster: Cluster, spark: SparkSession, *customers: dict[str, Any]) -> None:
    """Send customers, each with its id as the key, and land them."""
    pipeline = project.pipeline("shop")
    (topic,) = pipeline.source.topics
    records = [OutgoingRecord(str(customer["id"]).encode(), json.dumps(customer).encode()) for customer in customers]
    produce(cluster, topic, records)
    planned = plan_run(project, pipeline, RunRequest(str(uuid.uuid4())))
    assert planned.plan is not None
    ingest(project, pipeline, planned.plan, SparkStage(spark), lambda _: None, apply=SparkApply(spark))


def test_columns_of_some_files_only_are_kept(project: Project, cluster: Cluster, spark: SparkSession) -> None:
    """Rows staged with and without a column, in one batch: an engine reads their files as one, and no value is lost."""
    session = spark.newSession()
    open_catalog(session, "lake", project.settings.catalogs["lake"])
    run(project, cluster, session, *({"id": n} for n in range(10)))

    run(
        project,
        cluster,
        session,
        *({"id": n} for n in range(10, 20)),
        {"id": 20, "mail": {"at": "here"}},
        {"id": 2**40},
    )

    table = project.lake("lake").load_table("shop.customers")
    mails = {row["id"]: row["mail"] for row in table.scan().to_arrow().to_pylist()}
    assert mails == dict.fromkeys((*range(20), 2**40)) | {20: {"at": "here"}}
    assert str(table.schema().find_field("id").field_type) == "long"
    assert verify(project, project.pipeline("shop")).is_clean
