"""Times that ORC files don't give back are dead letters, and all others come back from files that Spark wrote."""

from __future__ import annotations

import json
import textwrap
import uuid
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import SparkSession

from frazil.batch.position import RunRequest
from frazil.kafka.admin.topics import create_topic
from frazil.kafka.client.cluster import Cluster, OutgoingRecord
from frazil.project import Project
from frazil.run.batches.plan import plan_run
from frazil.run.batches.session import ingest
from frazil.run.staging.stage import stage_inline
from frazil.spark.submit.configuration import open_catalog
from frazil.spark.writes.apply import SparkApply
from frazil.verify.check import verify
from tests.produce import produce

FILE = """
    name: visits
    source: {{topics: [{topic}]}}
    destinations:
      - table: shop.visits
        columns: {{id: long, at: timestamptz, stops: "list<struct<at: timestamptz>>"}}
        properties: {{write.format.default: orc}}
"""
LOST = ["1969-12-31T23:59:59.000001Z", "1969-12-31T23:59:59.999999Z", "1600-01-01T00:00:00Z", "2300-01-01T00:00:00Z"]
INSIDE = ["1969-12-31T23:59:59Z", "1969-12-31T23:59:58.999999Z", "1677-09-22T00:00:00Z", "2262-04-11T00:00:00Z"]


def test_no_time_of_a_record_ends_the_run_of_a_table_of_orc_files(
    tmp_path: Path, cluster: Cluster, spark: SparkSession
) -> None:
    """Of columns and of lists of structs; verify, which reads the files without Spark, finds nothing wrong."""
    topic, folder = f"visits-{uuid.uuid4().hex[:8]}", tmp_path / "pipelines"
    create_topic(cluster, topic, 1)
    folder.mkdir()
    (folder / "visits.yaml").write_text(textwrap.dedent(FILE.format(topic=topic)))
    port = cluster.bootstrap_servers.rpartition(":")[2]
    env = {"FRAZIL_HOME": str(tmp_path / "home"), "FRAZIL_PIPELINES": str(folder), "FRAZIL_KAFKA_PORT": port}
    project = Project.load(env)
    pipeline = project.pipeline("visits")
    session = spark.newSession()
    open_catalog(session, "lake", project.settings.catalogs["lake"])

    values = [{"id": n, "at": text} for n, text in enumerate([*LOST, *INSIDE])]
    values += [{"id": n + 10, "stops": [None, {"at": text}]} for n, text in enumerate([LOST[0], INSIDE[0]])]
    produce(cluster, topic, [OutgoingRecord(None, json.dumps(value).encode()) for value in values])
    planned = plan_run(project, pipeline, RunRequest("run"))
    assert planned.plan is not None
    ingest(project, pipeline, planned.plan, stage_inline, lambda _: None, apply=SparkApply(session))

    rows = project.lake("lake").load_table("shop.visits").scan().to_arrow().sort_by("id").to_pylist()
    instants = [datetime.fromisoformat(text) for text in INSIDE]
    assert [(row["id"], row["at"]) for row in rows[:-1]] == list(enumerate(instants, len(LOST)))
    assert rows[-1]["stops"] == [None, {"at": instants[0]}]
    session.catalog.refreshTable("lake.shop.visits")
    micros = session.table("lake.shop.visits").where("at IS NOT NULL").orderBy("id").selectExpr("unix_micros(at) AS at")
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    assert [row.at for row in micros.collect()] == [
        (instant - epoch).days * 86_400_000_000 + (instant - epoch).seconds * 1_000_000 + (instant - epoch).microseconds
        for instant in instants
    ]
    letters = project.lake("lake").load_table("shop.visits__dead_letters").scan().to_arrow()
    assert letters["code"].to_pylist() == ["OUT_OF_RANGE"] * 5
    checked = verify(project, pipeline)
    assert (checked.differences, checked.is_clean) == ((), True)
