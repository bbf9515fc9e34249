"""Times of day and UUIDs of databases land in tables that Spark writes, though Spark has neither type."""

from __future__ import annotations

import json
import textwrap
import uuid
from collections.abc import Mapping
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
from frazil.run.staging.stage import stage_inline
from frazil.spark.submit.configuration import open_catalog
from frazil.spark.writes.apply import SparkApply
from tests.produce import produce

FILE = """
    name: shifts
    source: {{topics: [{topic}]}}
    value: {{format: json-envelope}}
    destinations: [{destination}]
"""
LAYOUTS = {
    "upsert": "columns: {ref: {type: uuid, required: true}}, write: upsert, identifier: [ref]",
    "cdc": "columns: {id: {type: long, required: true}}, write: cdc, identifier: [id], changes: {format: debezium}",
    "orc": "columns: {id: long}, properties: {write.format.default: orc}",
}

FIRST, SECOND = str(uuid.UUID(int=2**127 + 1)), str(uuid.UUID(int=7))

ROW = {
    "type": "struct",
    "optional": True,
    "fields": [
        {"field": "id", "type": "int64"},
        {"field": "ref", "type": "string", "name": "io.debezium.data.Uuid"},
        {"field": "opens", "type": "int64", "name": "io.debezium.time.MicroTime", "optional": True},
        {
            "field": "pauses",
            "type": "array",
            "optional": True,
            "items": {
                "type": "struct",
                "fields": [{"field": "at", "type": "int32", "name": "io.debezium.time.Time"}],
            },
        },
    ],
}
CHANGE = {
    "type": "struct",
    "fields": [{"field": "before", **ROW}, {"field": "after", **ROW}, {"field": "op", "type": "string"}],
}


def record(row: Mapping[str, Any], *, is_change: bool) -> OutgoingRecord:
    """A row as Kafka Connect's JSON converter writes it, or the change that brought it."""
    payload = {"before": None, "after": row, "op": "c"} if is_change else row
    schema = CHANGE if is_change else ROW | {"optional": False}
    return OutgoingRecord(None, json.dumps({"schema": schema, "payload": payload}).encode())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_times_and_uuids_of_a_database_land_where_spark_writes(
    layout: str, tmp_path: Path, cluster: Cluster, spark: SparkSession
) -> None:
    """Times as their texts, which sort as they do; UUIDs as UUIDs, also as a key that is merged by, but in ORC files."""
    topic, folder = f"shifts-{uuid.uuid4().hex[:8]}", tmp_path / "pipelines"
    create_topic(cluster, topic, 1)
    folder.mkdir()
    destination = f"{{table: shop.shifts, evolve: widen, {LAYOUTS[layout]}}}"
    (folder / "shifts.yaml").write_text(textwrap.dedent(FILE.format(topic=topic, destination=destination)))
    port = cluster.bootstrap_servers.rpartition(":")[2]
    env = {"FRAZIL_HOME": str(tmp_path / "home"), "FRAZIL_PIPELINES": str(folder), "FRAZIL_KAFKA_PORT": port}
    project = Project.load(env)
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "2")
    open_catalog(session, "lake", project.settings.catalogs["lake"])

    def land(*rows: dict[str, Any]) -> None:
        produce(cluster, topic, [record(row, is_change=layout == "cdc") for row in rows])
        pipeline = project.pipeline("shifts")
        planned = plan_run(project, pipeline, RunRequest(str(uuid.uuid4())))
        assert planned.plan is not None
        ingest(project, pipeline, planned.plan, stage_inline, lambda _: None, apply=SparkApply(session))

    noon, half = 12 * 3600 * 1_000_000, 45_000_500_000
    land(
        {"id": 1, "ref": FIRST, "opens": noon, "pauses": [{"at": 45_000_000}]},
        {"id": 2, "ref": SECOND, "opens": None, "pauses": None},
    )
    if layout != "orc":
        land({"id": 2, "ref": SECOND, "opens": half, "pauses": []})

    table = project.lake("lake").load_table("shop.shifts")
    assert {name: str(table.schema().find_type(name)) for name in ("ref", "opens", "pauses.element.at")} == {
        "ref": "string" if layout == "orc" else "uuid",
        "opens": "string",
        "pauses.element.at": "string",
    }
    session.catalog.refreshTable("lake.shop.shifts")
    by_id = {row.id: row for row in session.table("lake.shop.shifts").collect()}
    assert {n: row.ref for n, row in by_id.items()} == {1: FIRST, 2: SECOND}
    assert {n: row.opens for n, row in by_id.items()} == {1: "12:00:00", 2: None if layout == "orc" else "12:30:00.5"}
    assert [row.at for row in by_id[1].pauses] == ["12:30:00"]
