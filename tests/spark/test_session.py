"""A session of the Spark engine: one job, one JVM, a batch at every tick that finds records."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from frazil.batch.plan import RunPlan, session_order
from frazil.batch.position import RunRequest
from frazil.kafka.client.cluster import Cluster, OutgoingRecord
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.project import Project
from frazil.run.batches.plan import run_result
from frazil.run.batches.session import Session, run_session
from frazil.spark.jobs import driver
from frazil.spark.jobs.ingest import land
from frazil.spark.submit.configuration import LOCAL_VARIABLE
from tests.produce import produce
from tests.spark.conftest import MARKED

FILE = """
name: orders
source: {{topics: [{topic}]}}
interval: 1s
session_for: 10m
destinations: [{{table: shop.orders, columns: {{id: long}}}}]
"""


def test_ticks_of_session_share_one_spark_application(
    tmp_path: Path,
    cluster: Cluster,
    topic: Callable[..., str],
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two lots, the second sent once the first is in, land in two batches of one session, with one Spark application."""
    name, applications, now = topic(partitions=2), list[str](), datetime.now(UTC)
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "orders.yaml").write_text(FILE.format(topic=name))
    port = cluster.bootstrap_servers.rpartition(":")[2]
    env = {
        "FRAZIL_HOME": str(tmp_path / "home"),
        "FRAZIL_PIPELINES": str(tmp_path / "pipelines"),
        "FRAZIL_KAFKA_PORT": port,
    }
    ahead = [timedelta()]

    def load() -> tuple[Project, Pipeline]:
        project = Project.load(env)
        return project, project.pipeline("orders")

    def send(first: int) -> None:
        produce(cluster, name, [OutgoingRecord(None, json.dumps({"id": n}).encode()) for n in range(first, first + 20)])

    def landed(project: Project, pipeline: Pipeline, plan: RunPlan) -> bool:
        done = land(spark, project, pipeline, plan)
        applications.append(spark.sparkContext.applicationId)
        if len(applications) == 1:
            send(20)
        else:
            ahead[0] = timedelta(hours=1)
        return done

    send(0)
    order = session_order("orders", RunRequest("stays"), now, now + timedelta(minutes=10))
    session = Session(order, load, print, lambda: datetime.now(UTC) + ahead[0], in_job=True)
    assert run_session(session, landed) is None

    result = run_result(session.project, session.pipeline, "stays")
    assert (result.batches, result.written) == (2, 40)
    assert len(set(applications)) == 1


def test_session_of_a_job_substitutes_no_variables(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its engine's configuration says: text that a record or a file has a part in means itself."""
    own = spark.newSession()
    own.conf.set("spark.sql.variable.substitute", "true")
    query = f"SELECT '${{env:{MARKED[0]}}}' AS found"
    assert own.sql(query).head().found == MARKED[1]
    monkeypatch.setattr(driver, "started_session", lambda: own)
    monkeypatch.setenv(LOCAL_VARIABLE, "1")  # it is not stopped at the end

    with driver.session(Project.load({})) as session:
        assert session.sql(query).head().found == f"${{env:{MARKED[0]}}}"
