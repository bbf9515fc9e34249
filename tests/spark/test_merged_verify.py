"""Merged tables of any format, written by Spark, as `frazil verify` sees them; and tombstones of a compacted topic."""

from __future__ import annotations

import json
import textwrap
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, topic_subject_name_strategy
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql import SparkSession

from frazil.batch.position import RunRequest
from frazil.kafka.admin.topics import create_topic
from frazil.kafka.client.cluster import Cluster, OutgoingRecord
from frazil.project import SETTINGS_VARIABLE, Project
from frazil.run.batches.plan import plan_run
from frazil.run.batches.session import ingest
from frazil.run.staging.stage import stage_inline
from frazil.spark.submit.configuration import open_catalog
from frazil.spark.writes.apply import SparkApply
from frazil.verify.check import verify
from frazil.verify.facts.result import Verification
from tests.integration.conftest import environment
from tests.produce import produce
from tests.registry_server import RegistryServer
from tests.tampering.pipelines import CIRCUMSTANCES, Landed
from tests.tampering.suite import MISSED, missed

FILE = """
name: {name}
source: {{topics: [{topic}]}}
dead_letters: {{tolerance: all}}
"""
UPSERT = """
key: {format: long}
destinations:
  - table: shop.NAME
    write: upsert
    append_history: shop.NAME_log
    identifier: [id]
    columns: {id: {type: long, required: true, part: key, from: value}, name: string}
"""
FOLDERS = """
destinations:
  - table: shop.NAME
    write: upsert
    identifier: [id, name]
    columns: {id: {type: long, required: true}, name: {type: string, required: true}}
    partition_by: [name]
    properties: {write.object-storage.enabled: "false"}
"""
AVRO = """
value: {format: avro, schema: '{"type":"record","name":"r","fields":[{"name":"id","type":"long"},{"name":"op","type":"string"}]}'}
destinations:
  - table: shop.NAME
    write: cdc
    identifier: [id]
    columns: {id: {type: long, required: true}}
    changes: {format: op_column, op: op, values: {insert: [I], delete: [D]}}
"""
DEBEZIUM = """
value: {format: avro, registry: main}
destinations:
  - table: shop.NAME
    write: cdc
    identifier: [id]
    columns: {id: {type: long, required: true}, name: string, happened: {type: timestamptz, from: [_cdc, ts]}}
    changes: {format: debezium}
"""
IMAGE = {
    "type": "record",
    "name": "Value",
    "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"]}],
}
ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {"name": "before", "type": ["null", IMAGE]},
        {"name": "after", "type": ["null", "Value"]},
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"]},
    ],
}
HEADERS = """
destinations:
  - table: shop.NAME
    write: upsert
    append_history: shop.NAME_log
    identifier: [id]
    order_by: at
    columns:
      id: {type: long, required: true}
      name: string
      at: {type: long, part: header, required: true}
      trace: {type: binary, part: header}
"""
CDC_HEADERS = """
destinations:
  - table: shop.NAME
    write: cdc
    deletes: DELETES
    append_history: shop.NAME_log
    identifier: [id]
    columns: {id: {type: long, required: true}, name: string, trace: {type: string, part: header}}
    changes: {format: op_column, op: op, values: {insert: [I], delete: [D]}}
"""

Sent = Sequence[tuple[bytes | None, bytes | None]]


@dataclass
class Lab:
    """Pipelines over fresh topics, and a session that knows their catalog."""

    project: Project
    cluster: Cluster
    spark: SparkSession

    def pipeline(self, name: str, text: str) -> str:
        """A pipeline; returns its topic."""
        topic = f"{name}-{uuid.uuid4().hex[:8]}"
        create_topic(self.cluster, topic, 1)
        whole = textwrap.dedent(FILE).format(name=name, topic=topic) + text.replace("NAME", name)
        (self.project.pipelines_folder / f"{name}.yaml").write_text(whole)
        return topic

    def run(self, name: str, topic: str, messages: Sent) -> None:
        """Send records and land them."""
        produce(self.cluster, topic, [OutgoingRecord(key=key, value=value) for key, value in messages])
        pipeline = self.project.pipeline(name)
        planned = plan_run(self.project, pipeline, RunRequest(str(uuid.uuid4())))
        assert planned.plan is not None
        ingest(self.project, pipeline, planned.plan, stage_inline, lambda _: None, apply=SparkApply(self.spark))

    def ids(self, table: str) -> list[int]:
        """Keys that a table holds, as Spark reads it."""
        self.spark.sql(f"REFRESH TABLE lake.shop.{table}")
        return [row.id for row in self.spark.table(f"lake.shop.{table}").orderBy("id").select("id").collect()]

    def verified(self, name: str) -> Verification:
        """What verify finds."""
        return verify(self.project, self.project.pipeline(name))


@pytest.fixture
def lab(tmp_path: Path, cluster: Cluster, spark: SparkSession) -> Lab:
    """No pipeline yet."""
    folder = tmp_path / "pipelines"
    folder.mkdir()
    port = cluster.bootstrap_servers.rpartition(":")[2]
    env = {"FRAZIL_HOME": str(tmp_path / "home"), "FRAZIL_PIPELINES": str(folder), "FRAZIL_KAFKA_PORT": port}
    project = Project.load(env)
    session = spark.newSession()
    open_catalog(session, "lake", project.settings.catalogs["lake"])
    return Lab(project, cluster, session)


def _key(number: int) -> bytes:
    return number.to_bytes(8, "big")


def _avro(number: int, op: str) -> bytes:
    return bytes([2 * number, 2 * len(op)]) + op.encode()


def test_tombstone_deletes_its_row_and_verify_reports_remaining_row(lab: Lab) -> None:
    """In the batch of its row, in a later one, and for a row that nobody knows; beside, the log has all changes."""
    topic = lab.pipeline("people", UPSERT)
    named: Callable[[str], bytes] = lambda text: json.dumps({"name": text}).encode()  # noqa: E731
    lab.run("people", topic, [(_key(1), named("a")), (_key(2), named("b")), (_key(3), named("c")), (_key(3), None)])
    assert lab.ids("people") == [1, 2]
    lab.run("people", topic, [(_key(2), None), (_key(9), None), (None, None), (_key(4), named("d"))])
    assert lab.ids("people") == [1, 4]
    assert lab.ids("people_log") == [1, 2, 2, 3, 3, 4, 9]
    report = lab.verified("people")
    assert report.is_clean, report.differences
    assert report.columns_not_compared["shop.people"] == ("id", "name")
    assert [partition.letters for partition in report.partitions if partition.table == "shop.people"] == [1]

    lab.spark.sql(
        "INSERT INTO lake.shop.people (id, name, _kafka_topic, _kafka_partition, _kafka_offset, _kafka_timestamp, _frazil_batch)"
        " SELECT id, name, _kafka_topic, _kafka_partition, _kafka_offset, _kafka_timestamp, _frazil_batch"
        " FROM lake.shop.people_log WHERE id = 2 AND name = 'b'"
    )
    [stays] = [difference for difference in lab.verified("people").differences if difference.table == "shop.people"]
    assert (stays.kind, stays.offset) == ("changed", 1)
    assert "as offset 4 left it" in stays.expected


def test_header_orders_changes_and_fills_columns_of_a_merged_table(lab: Lab) -> None:
    topic = lab.pipeline("ordered", HEADERS)
    changes = [(1, "a", b"5"), (1, "late", b"4"), (2, "b", b"1"), (2, "c", b"10"), (3, "d", None)]
    values = [(json.dumps({"id": key, "name": name}).encode(), instant) for key, name, instant in changes]
    headers = [((("at", instant), ("trace", b"\xff"), ("trace", instant)) if instant else ()) for _, instant in values]
    produce(
        lab.cluster,
        topic,
        [OutgoingRecord(None, value, more) for (value, _), more in zip(values, headers, strict=True)],
    )

    lab.run("ordered", topic, [])

    rows = lab.spark.table("lake.shop.ordered").orderBy("id").collect()
    assert [(row.id, row.name, row.at, bytes(row.trace)) for row in rows] == [(1, "a", 5, b"5"), (2, "c", 10, b"10")]
    report = lab.verified("ordered")
    assert report.is_clean, list(map(str, report.differences))
    assert report.values_compared


@pytest.mark.parametrize("deletes", ["hard", "soft"])
def test_headers_of_changes_are_verified(lab: Lab, deletes: str) -> None:
    topic = lab.pipeline(f"told_{deletes}", CDC_HEADERS.replace("DELETES", deletes))
    changes = [("I", 1, b"t1"), ("I", 2, b"t2"), ("I", 1, b"t3"), ("D", 2, b"t4"), ("I", 3, b"\xff"), ("D", 4, b"t5")]
    records = [
        OutgoingRecord(None, json.dumps({"op": op, "id": key, "name": f"n{key}"}).encode(), (("trace", trace),))
        for op, key, trace in changes
    ]
    for part in (records[:3], records[3:]):
        produce(lab.cluster, topic, part)
        lab.run(f"told_{deletes}", topic, [])

    row = lab.spark.table(f"lake.shop.told_{deletes}").where("id = 1").collect()[0]
    assert (row.name, row.trace) == ("n1", "t3")
    report = lab.verified(f"told_{deletes}")
    assert report.is_clean, list(map(str, report.differences))
    assert report.values_compared


def test_changes_of_another_format_are_verified_without_their_values(lab: Lab) -> None:
    """Rows are held against the records that they name; which columns were not compared, and why, is said."""
    topic = lab.pipeline("meters", AVRO)
    lab.run("meters", topic, [(None, _avro(1, "I")), (None, _avro(2, "I")), (None, _avro(2, "D")), (None, b"\xff")])
    assert lab.ids("meters") == [1]
    report = lab.verified("meters")
    assert report.is_clean, report.differences
    assert report.records == 4
    assert report.values_not_compared_because == "shop.meters: changes of records that are avro"
    assert report.columns_not_compared == {"shop.meters": ("id",)}
    assert [(partition.rows, partition.letters) for partition in report.partitions] == [(1, 1)]


UNREAD_SCHEMA = b"\xc3\x01" + bytes(8)
"""A record of Avro's own framing, whose schema nobody has."""


def test_debezium_in_avro_through_a_registry_is_verified_by_value(
    lab: Lab, registry: RegistryServer, tmp_path: Path
) -> None:
    """Clean after updates, a moved key and a delete; a value that somebody changed is found, whatever dead letters there are."""
    uri, warehouse = f"sqlite:///{tmp_path}/home/catalog.db", f"file://{tmp_path}/home/warehouse"
    keys = {
        "clusters": {"local": {"bootstrap_servers": "${local:kafka}"}},
        "catalogs": {"lake": {"uri": uri, "warehouse": warehouse}},
        "registries": {"main": {"url": registry.url}},
    }
    (tmp_path / "settings.yaml").write_text(json.dumps(keys))
    env = environment(lab.project) | {SETTINGS_VARIABLE: str(tmp_path / "settings.yaml")}
    lab = Lab(Project.load(env), lab.cluster, lab.spark)
    topic = lab.pipeline("customers", DEBEZIUM)
    with SchemaRegistryClient({"url": registry.url, "timeout": 30}) as client:
        naming = {"subject.name.strategy": topic_subject_name_strategy}
        serialise = AvroSerializer(client, json.dumps(ENVELOPE), conf=naming)
        context = SerializationContext(topic, MessageField.VALUE)
        rows = [{"id": number, "name": f"n{number}"} for number in range(5)]
        changes = [
            *(("c", None, row) for row in rows[:4]),
            ("u", rows[0], {"id": 0, "name": "new"}),
            ("u", rows[1], {"id": 9, "name": "moved"}),
            ("d", rows[2], None),
            ("u", None, None),
        ]
        sent = [
            serialise({"op": op, "before": before, "after": after, "ts_ms": 5}, context)
            for op, before, after in changes
        ]

    lab.run("customers", topic, [(None, value) for value in sent[:4]])
    lab.run("customers", topic, [(None, value) for value in (*sent[4:], None, b"\0", UNREAD_SCHEMA)])

    assert lab.ids("customers") == [0, 3, 9]
    report = lab.verified("customers")
    assert report.is_clean, list(map(str, report.differences))
    assert report.values_compared
    assert [partition.letters for partition in report.partitions] == [3]

    lab.spark.sql("UPDATE lake.shop.customers SET name = 'x' WHERE id = 3")
    assert [difference.kind for difference in lab.verified("customers").differences] == ["changed"]


def test_value_that_names_no_folder_is_a_dead_letter_and_the_longest_that_does_lands(lab: Lab) -> None:
    """`name=` and 250 bytes make a folder of 255: Spark writes there, as the table's properties say."""
    topic = lab.pipeline("towns", FOLDERS)
    values = ["x" * 251, "x" * 250, "é" * 41 + "~x", "é" * 41 + "~xx", "*.-_" * 62 + "*.", "ok"]
    messages = [(None, json.dumps({"id": index, "name": value}).encode()) for index, value in enumerate(values)]
    lab.run("towns", topic, messages)
    assert lab.ids("towns") == [1, 2, 4, 5]
    report = lab.verified("towns")
    assert report.is_clean, report.differences
    assert [partition.letters for partition in report.partitions] == [2]


@pytest.mark.filterwarnings(
    "ignore:Merge on read is not yet supported:UserWarning"
)  # PyIceberg's, which edits the table
@pytest.mark.full
@pytest.mark.parametrize("is_edited", [False, True], ids=["as_landed", "edited_since"])
def test_each_tampering_with_a_merged_table_is_named(
    tmp_path: Path, cluster: Cluster, spark: SparkSession, is_edited: bool
) -> None:
    """What verify says is what docs/reliability.md says that it says."""
    landed, session = Landed(tmp_path, cluster, CIRCUMSTANCES["merged"]), spark.newSession()
    open_catalog(session, "lake", landed.project.settings.catalogs["lake"])
    landed.land(is_edited=is_edited, apply=SparkApply(session))
    assert [str(difference) for difference in landed.verified().differences] == []

    assert missed(landed, "merged", is_edited=is_edited) == MISSED.get("merged_edited" if is_edited else "merged", {})
