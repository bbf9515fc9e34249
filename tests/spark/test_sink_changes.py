"""Upsert and CDC as Tabular's Iceberg sink for Kafka Connect tests them: merged by Spark, killed between any two publishes."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from frazil.batch.position import RunRequest
from frazil.kafka.admin.topics import create_topic
from frazil.kafka.client.cluster import Cluster
from frazil.project import Project
from frazil.run.batches.plan import RunResult, plan_run, run_result
from frazil.run.batches.session import ingest
from frazil.run.staging.stage import stage_inline
from frazil.spark.submit.configuration import open_catalog
from frazil.spark.writes.apply import SparkApply
from tests.connectors import DOCUMENTED
from tests.integration.conftest import Shop
from tests.integration.sink_scenarios.conftest import HEAD, Place, killed_between_publishes
from tests.integration.sink_scenarios.ending import assert_ends
from tests.integration.sink_scenarios.scenario import FIRST, SECOND, Scenario, TableContents, event, row, sink_records

KEYED = "{id: {type: long, required: true}, type: string, ts: {type: timestamptz, unit: ms}, payload: string}"
KEYED_COLUMNS = {"id": "long!", "type": "string", "ts": "timestamptz", "payload": "string"}


OPS = "changes: {format: op_column, op: op, values: {insert: [I], update: [U], delete: [D]}}"


def change(op: str | None, number: int, kind: str | None = None, instant: Any = FIRST) -> dict[str, Any]:
    """An event with what happened to its row."""
    return event(number, kind, instant) | {"op": op}


KILLED = Scenario(
    "inserts, updates and deletes in one commit",
    "IntegrationCdcTest.testIcebergSinkPartitionedTable, testIcebergSinkUnpartitionedTable",
    f"""
destinations:
  - {{table: shop.by_day, columns: {KEYED}, write: cdc, identifier: [id], {OPS}, partition_by: [day(ts)]}}
  - {{table: shop.whole, columns: {KEYED}, write: cdc, identifier: [id], {OPS}}}
""",
    (
        sink_records(
            change("I", 1, "type1"),
            change("I", 2, "type2"),
            change("I", 3, "type3"),
            change("D", 3, "type3"),
            change("U", 1, "new"),
        ),
        # A row that goes to another day, an insert of a key that is there, and changes of keys that are not.
        sink_records(
            change("U", 1, "newer", SECOND),
            change("I", 2, "again"),
            change("D", 4),
            change("U", 5, "unknown"),
            change("?", 6),
            change("I", 3, "back"),
        ),
    ),
    {
        name: TableContents(
            KEYED_COLUMNS, (row(1, "newer", SECOND), row(2, "again"), row(5, "unknown"), row(3, "back")), partition
        )
        for name, partition in (("shop.by_day", ("ts_day day",)), ("shop.whole", ()))
    },
    letters=((9, "shop.by_day", "TRANSFORM_FAILED"), (9, "shop.whole", "TRANSFORM_FAILED")),
)

CHANGES = (
    Scenario(
        "records as rows",
        "IntegrationTest.testIcebergSinkPartitionedUpsert, testIcebergSinkUnpartitionedUpsert",
        f"""
value: {{null_value: filter, fields: {{id: long, type: string, ts: long, payload: string}}}}
destinations:
  - {{table: shop.by_day, columns: {KEYED}, write: upsert, identifier: [id], partition_by: [day(ts)]}}
  - {{table: shop.log, columns: {{id: long, type: string}}}}
""",
        (
            sink_records(event(1, "type1"), event(2, "type2")),
            sink_records(event(1, "newer", SECOND), None, event(3, "a"), event(3, "b")),
        ),
        {
            "shop.by_day": TableContents(
                KEYED_COLUMNS, (row(2, "type2"), row(1, "newer", SECOND), row(3, "b")), ("ts_day day",)
            ),
            "shop.log": TableContents(
                {"id": "long", "type": "string"}, ((1, "type1"), (2, "type2"), (1, "newer"), (3, "a"), (3, "b"))
            ),
        },
        filtered=1,
    ),
    Scenario(
        "envelopes that say in their field's name what happened",
        "no test: the sink reads an op from a field only (iceberg.tables.cdc-field)",
        """
destinations:
  - table: shop.whole
    columns: {id: {type: long, required: true}, name: string}
    write: cdc
    identifier: [id]
    changes: {format: envelope, values: {insert: [insert], delete: [delete]}}
""",
        (
            sink_records({"insert": {"id": 1, "name": "a"}}, {"insert": {"id": 2, "name": "b"}}),
            sink_records(
                {"delete": {"id": 1}}, {"insert": {"id": 2, "name": "bb"}}, {"update": {"id": 2}}, {"delete": {"id": 9}}
            ),
        ),
        {"shop.whole": TableContents({"id": "long!", "name": "string"}, ((2, "bb"),))},
        letters=((4, None, "TRANSFORM_FAILED"),),
    ),
)


@dataclass
class MergingShop(Shop):
    """A shop whose changes are merged by a Spark session; records are decoded in this process."""

    spark: SparkSession = field(kw_only=True)

    def run(self, *_: Any) -> RunResult:
        """One run."""
        planned = plan_run(self.project, self.pipeline, RunRequest(str(uuid.uuid4())))
        if planned.plan is None:
            return run_result(self.project, self.pipeline, "none")
        apply = SparkApply(self.spark)
        ingest(self.project, self.pipeline, planned.plan, stage_inline, lambda _: None, apply=apply)
        return run_result(self.project, self.pipeline, planned.plan.run)


@pytest.fixture
def place(tmp_path: Path, cluster: Cluster, spark: SparkSession) -> Callable[[Scenario], Place]:
    """Make the place of a scenario."""

    def make(scenario: Scenario) -> Place:
        topic = f"changes-{uuid.uuid4().hex[:8]}"
        create_topic(cluster, topic, 1)
        folder = tmp_path / "pipelines"
        folder.mkdir()
        head = HEAD.format(topics=topic).replace("engine: inline", "engine: spark")
        (folder / "orders.yaml").write_text(head + scenario.file)
        port = cluster.bootstrap_servers.rpartition(":")[2]
        env = {"FRAZIL_HOME": str(tmp_path / "home"), "FRAZIL_PIPELINES": str(folder), "FRAZIL_KAFKA_PORT": port}
        project = Project.load(env)
        session = spark.newSession()  # a session keeps a catalog that it has opened
        open_catalog(session, "lake", project.settings.catalogs["lake"])
        session.conf.set("spark.sql.shuffle.partitions", "2")
        return Place(MergingShop(project, cluster, topic, spark=session), scenario)

    return make


MakePlace = Callable[[Scenario], Place]


MERGED = tuple(connector.scenario() for connector in DOCUMENTED if connector.is_merged)
"""Connectors that change rows, imported."""


@pytest.mark.parametrize("scenario", [*CHANGES, *MERGED], ids=str)
def test_changes_end_as_scenario_says(place: MakePlace, scenario: Scenario) -> None:
    """Of each key the table has the last row, or none."""
    new_place = place(scenario)
    for records in scenario.rounds:
        new_place.send(records)
        new_place.run()

    assert_ends(new_place)


@pytest.mark.timeout(600)
def test_kill_between_two_merges_neither_loses_nor_doubles_changes(
    place: MakePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed behind the decision, and again behind each table that got its part: changes are there once, and no key twice."""
    new_place = place(KILLED)

    states = killed_between_publishes(new_place, monkeypatch)

    assert states == [0, 1, 2, 3, 4]
    assert_ends(new_place)
