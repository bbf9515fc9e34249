"""A table that changes are merged into follows its records: beside kills, compaction, and somebody who alters it."""

from __future__ import annotations

import json
import textwrap
import uuid
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from frazil.batch.position import RunRequest
from frazil.failpoints import Failpoint
from frazil.iceberg.schema import evolution
from frazil.kafka.admin.topics import create_topic
from frazil.kafka.client.cluster import Cluster, OutgoingRecord
from frazil.pipeline.models.layout import ENGINE_COLUMNS
from frazil.project import Project
from frazil.run.batches.plan import plan_run
from frazil.run.batches.session import ingest
from frazil.run.commit import audit
from frazil.run.staging import stage as auto_create
from frazil.run.staging.record_problems import record_problems
from frazil.run.staging.stage import Stage, stage_inline
from frazil.spark.jobs.stage import SparkStage
from frazil.spark.submit.configuration import open_catalog
from frazil.spark.writes.apply import SparkApply
from frazil.verify.check import verify
from tests.produce import produce
from tests.spark.kills import Killed, at_failpoint, kill

TABLE = "lake.shop.customers"
FILE = """
    name: customers
    source: {{topics: [{topic}]}}
    destinations:
      - table: shop.customers
        write: cdc
        identifier: [id]
        columns: {{id: {{type: int, required: true}}}}
        evolve: widen
        partition_by: ["bucket(2, id)"]
        changes: {{format: debezium}}
"""


def event(op: str, before: dict[str, Any] | None, after: dict[str, Any] | None) -> dict[str, Any]:
    """A change, as Debezium tells it."""
    return {"op": op, "before": before, "after": after, "source": {"table": "customers"}}


@dataclass
class Place:
    """The pipeline, and a session that knows its catalog."""

    project: Project
    cluster: Cluster
    topic: str
    spark: SparkSession

    def run(self, *changes: dict[str, Any], stage: Stage = stage_inline) -> None:
        """Send changes and land them."""
        pipeline = self.project.pipeline("customers")
        produce(
            self.cluster,
            self.topic,
            [OutgoingRecord(key=None, value=json.dumps(change).encode()) for change in changes],
        )
        planned = plan_run(self.project, pipeline, RunRequest(str(uuid.uuid4())))
        assert planned.plan is not None
        ingest(self.project, pipeline, planned.plan, stage, lambda _: None, apply=SparkApply(self.spark))

    def sql(self, statement: str) -> None:
        """Somebody else, with an engine of its own."""
        self.spark.sql(statement).collect()

    def compact(self) -> None:
        """Write all files anew, deletes taken in."""
        options = "map('rewrite-all', 'true')"
        self.sql(f"CALL lake.system.rewrite_data_files(table => 'shop.customers', options => {options})")

    def rows(self, *names: str) -> list[tuple[Any, ...]]:
        """What the table holds, as Spark reads it."""
        self.sql(f"REFRESH TABLE {TABLE}")
        return [tuple(row) for row in self.spark.table(TABLE).orderBy("id").select("id", *names).collect()]

    def is_clean(self) -> bool:
        """Whether every change is in the table as its record tells it."""
        verification = verify(self.project, self.project.pipeline("customers"))
        assert verification.is_clean, verification.differences
        return verification.values_not_compared_because is None


@pytest.fixture
def place(tmp_path: Path, cluster: Cluster, spark: SparkSession) -> Place:
    """A pipeline of changes over a fresh topic."""
    topic = f"customers-{uuid.uuid4().hex[:8]}"
    create_topic(cluster, topic, 1)
    folder = tmp_path / "pipelines"
    folder.mkdir()
    (folder / "customers.yaml").write_text(textwrap.dedent(FILE.format(topic=topic)))
    port = cluster.bootstrap_servers.rpartition(":")[2]
    env = {"FRAZIL_HOME": str(tmp_path / "home"), "FRAZIL_PIPELINES": str(folder), "FRAZIL_KAFKA_PORT": port}
    project = Project.load(env)
    session = spark.newSession()
    open_catalog(session, "lake", project.settings.catalogs["lake"])
    return Place(project, cluster, topic, session)


def test_changed_rows_keep_values_when_columns_are_added(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed between the change of the table and its rows, the next run lands them, once; a key may become wider."""
    place.run(event("c", None, {"id": 1, "name": "a"}), event("c", None, {"id": 2, "name": "b"}))
    news = [
        event("u", {"id": 1, "name": "a"}, {"id": 1, "name": "a", "price": 2}),
        event("d", {"id": 2, "name": "b", "gone": True}, None),
        event("c", None, {"id": 2**40, "price": 1.5, "home": {"city": "Ulm"}}),
    ]
    with monkeypatch.context() as patch:
        at_failpoint(patch, Failpoint.EVOLVED, kill, evolution)
        with pytest.raises(Killed):
            place.run(*news)
    assert place.rows("name", "price") == [(1, "a", None), (2, "b", None)]

    place.run()

    assert place.rows("name", "price") == [(1, "a", 2.0), (2**40, None, 1.5)]
    assert "gone" not in place.spark.table(TABLE).columns
    assert place.is_clean()


def test_field_with_the_name_of_a_fact_about_rows_is_kept_beside_the_columns(place: Place) -> None:
    """Spark takes such a column for the fact about a row, which is never null: the table would take no change any more."""
    facts = dict.fromkeys(sorted(ENGINE_COLUMNS), 7)
    place.run(event("c", None, {"id": 1, "name": "a"} | facts))
    place.run(event("u", None, {"id": 1, "name": "b"}), event("c", None, {"id": 2, "__row_id": "x"}))
    assert place.rows("name", "_rescued") == [(1, "b", None), (2, None, '{"__row_id":"x"}')]
    assert place.is_clean()


def test_merge_survives_compaction_and_foreign_columns(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files written anew, a column added and one widened, before the decision and behind it: all changes are there, once."""
    place.run(*(event("c", None, {"id": number, "name": "a"}) for number in range(4)))
    place.sql(f"ALTER TABLE {TABLE} ADD COLUMN seen int")

    def before() -> None:
        place.compact()
        place.sql(f"ALTER TABLE {TABLE} ADD COLUMN note string")
        place.sql(f"ALTER TABLE {TABLE} ALTER COLUMN seen TYPE bigint")

    def behind() -> None:
        place.compact()
        place.sql(f"UPDATE {TABLE} SET note = 'kept' WHERE id = 3")  # noqa: S608
        place.sql(f"ALTER TABLE {TABLE} ADD COLUMN more string")

    at_failpoint(monkeypatch, Failpoint.AUDITED, before, audit)
    at_failpoint(monkeypatch, Failpoint.BRANCH_STAGED, behind)
    place.run(
        event("u", None, {"id": 0, "name": "b", "seen": 7, "price": 1}),
        event("d", {"id": 1}, None),
        event("u", {"id": 2}, {"id": 9, "name": "c", "seen": 2}),
    )

    columns = ("name", "seen", "price", "note", "more")
    assert place.rows(*columns) == [
        (0, "b", 7, 1, None, None),
        (3, "a", None, None, "kept", None),
        (9, "c", 2, None, None, None),
    ]
    assert {name: type_name for name, type_name in place.spark.table(TABLE).dtypes if name in {"id", "seen"}} == {
        "id": "int",
        "seen": "bigint",
    }
    assert place.is_clean()


def test_merge_finds_rows_of_files_without_field_ids(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that Spark's `add_files` took from Hive change as all others, also by columns that came after a kill."""
    file = tmp_path / "pipelines" / "customers.yaml"
    file.write_text(file.read_text().replace('partition_by: ["bucket(2, id)"]', ""))
    place.run(event("c", None, {"id": 1, "name": "a"}))

    def add(folder: Path, columns: dict[str, Any]) -> None:
        folder.mkdir()
        pq.write_table(pa.table(columns), folder / "part-0.parquet")
        place.sql(f"CALL lake.system.add_files(table => 'shop.customers', source_table => '`parquet`.`{folder}`')")

    add(tmp_path / "hive", {"id": pa.array([7, 8], pa.int32()), "name": ["g", "h"], "colour": ["red", "blue"]})
    with monkeypatch.context() as patch:
        at_failpoint(patch, Failpoint.EVOLVED, kill, evolution)
        with pytest.raises(Killed):
            place.run(event("u", {"id": 7}, {"id": 7, "name": "G", "price": 2.5}))
    add(tmp_path / "later", {"id": pa.array([9], pa.int32()), "name": ["i"], "price": [0.5]})
    place.run(event("u", {"id": 9}, {"id": 9, "name": "I", "price": 1.5}), event("d", {"id": 1}, None))

    expected = [(7, "G", 2.5), (8, "h", None), (9, "I", 1.5)]
    assert place.rows("name", "price") == expected
    place.compact()
    assert place.rows("name", "price") == expected
    assert place.is_clean()


BY_KEY = """
    name: customers
    source: {{topics: [{topic}]}}
    key: {{format: string}}
    destinations: []
    route:
      field: {{name: source.table, table: "shop.{{value}}", allow: ['shop\\..*']}}
      create:
        namespace: shop
        write: cdc
        changes: {{format: debezium}}
        identifier: [_key]
        columns: {{_key: {{type: string, required: true, part: key, from: value}}}}
        evolve: widen
"""


def test_tables_with_other_keys_merge_rows_by_the_text_of_the_key(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One pipeline, a table per source, each with a key of its own fields: rows change and go, also after kills."""
    file = tmp_path / "pipelines" / "customers.yaml"
    file.write_text(textwrap.dedent(BY_KEY.format(topic=place.topic)))

    def killed(
        failpoint: Failpoint, room: ModuleType, *changes: tuple[str, dict[str, int], dict[str, Any] | None]
    ) -> None:
        """Send changes, and end the run that lands them."""
        for table, key, row in changes:
            value = event("u" if row else "d", None, row and key | row) | {"source": {"table": table}}
            record = OutgoingRecord(key=json.dumps(key).encode(), value=json.dumps(value).encode())
            produce(place.cluster, place.topic, [record])
        with monkeypatch.context() as patch:
            at_failpoint(patch, failpoint, kill, room)
            with pytest.raises(Killed):
                place.run()

    first, second = {"order": 1, "line": 1}, {"order": 1, "line": 2}
    users = ("users", {"id": 1}, {"name": "a"}), ("users", {"id": 2}, {"name": "b"})
    killed(Failpoint.CREATED, auto_create, *users, ("lines", first, {"sku": "x"}), ("lines", second, {"sku": "y"}))
    place.run()
    changed = ("users", {"id": 1}, {"name": "A"}), ("users", {"id": 2}, None)
    killed(Failpoint.EVOLVED, evolution, *changed, ("lines", second, {"sku": "z", "price": 2}))
    place.run()

    def rows(table: str, *names: str) -> list[tuple[Any, ...]]:
        place.sql(f"REFRESH TABLE lake.shop.{table}")
        return [tuple(row) for row in place.spark.table(f"lake.shop.{table}").orderBy("_key").select(*names).collect()]

    assert rows("users", "_key", "id", "name") == [('{"id": 1}', 1, "A")]
    assert rows("lines", "order", "line", "sku", "price") == [(1, 1, "x", None), (1, 2, "z", 2)]
    assert record_problems(place.project.pipeline("customers")) == ()
    verification = verify(place.project, place.project.pipeline("customers"))
    assert verification.differences == ()
    assert [(part.table, part.rows) for part in verification.partitions] == [("shop.lines", 2), ("shop.users", 1)]


def test_docs_of_schemas_are_comments_for_engines(place: Place, tmp_path: Path) -> None:
    """What a schema says of a field comes from the executor that met it to the table, and Spark shows it."""
    file = tmp_path / "pipelines" / "customers.yaml"
    text = file.read_text().replace("write: cdc", "write: upsert").replace("changes: {format: debezium}", "")
    file.write_text(f"{text}\nvalue: {{format: json-envelope}}\n")
    number = {"type": "int32", "field": "id"}
    name = {"type": "string", "optional": True, "field": "name", "doc": "what people call it"}

    place.run(
        {"schema": {"type": "struct", "fields": [number, name]}, "payload": {"id": 1, "name": "a"}},
        stage=SparkStage(place.spark),
    )

    described = {row["col_name"]: row["comment"] for row in place.spark.sql(f"DESCRIBE {TABLE}").collect()}
    assert described["name"] == "what people call it"
    assert place.rows("name") == [(1, "a")]
