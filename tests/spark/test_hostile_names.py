"""Names and values that mean something in SQL land as they are, wherever Spark writes: a producer chooses both."""

from __future__ import annotations

import json
import logging
import textwrap
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from frazil.batch.position import EARLIEST, RunRequest
from frazil.kafka.admin.topics import create_topic
from frazil.kafka.client.cluster import Cluster, OutgoingRecord
from frazil.maintain.need import Order
from frazil.maintain.run import maintain
from frazil.project import Project
from frazil.run.batches.plan import plan_run
from frazil.run.batches.session import ingest
from frazil.run.staging.stage import stage_inline
from frazil.run.state.context import RunContext
from frazil.spark.jobs.maintenance import SparkProcedures
from frazil.spark.jobs.stage import SparkStage
from frazil.spark.submit.configuration import open_catalog
from frazil.spark.writes.apply import SparkApply
from tests.produce import produce
from tests.spark.conftest import MARKED

VARIABLE, SECRET = MARKED

NAMES = (
    f"${{env:{VARIABLE}}}",
    f"${{{VARIABLE}}}",
    "user-id",
    "1st",
    "a b",
    "back`tick",
    "`quoted`",
    "ap'os",
    'dou"ble',
    "back\\slash",
    "semi;colon",
    "-- comment",
    "/* comment */",
    "a<b>: (c, d)",
    "naïve 😀 名",
    "select",
    "s",
    "l",
    "u",
    "Case",
    "case",
    "%s {0}",
)
"""Names that a column may have."""

RESCUED = (
    "new\nline",
    "dotted.name",
    "${system:user.home}",
    "${spark:spark.app.name}",
    "tab\t",
    "",
    "_frazil_op",
    "_frazil_place",
    "_kafka_offset",
    "_frazil_deleted",
)
"""Names that stay in the column for rescued fields, or beside the table."""

LAYOUTS = {
    "append": "{evolve: widen}",
    "orc": "{evolve: widen, properties: {write.format.default: orc}}",
    "v3": "{evolve: widen, properties: {format-version: '3'}}",
    "upsert": "{write: upsert, identifier: [i-d], evolve: widen, order_by: or`der}",
    "cdc": "{write: cdc, identifier: [i-d], evolve: widen, order_by: or`der, changes: {format: debezium}}",
}

FILE = """
    name: odd
    source: {{topics: [{topic}]}}
    dead_letters: {{tolerance: all}}
    destinations: [{destination}]
    maintenance:
      compaction: {{min_files: 2, min_deletes: 1}}
      expiry: {{older_than: 1h, keep: 1, min_snapshots: 1}}
"""


def document(key: str, order: int, mark: str) -> dict[str, Any]:
    """A record whose fields have all names, at every depth; the names are its values, too."""
    deep = {name: [{name: name}] for name in NAMES}
    return {"i-d": key, "or`der": order, "mark": mark, "deep": deep} | {name: name for name in NAMES}


@dataclass
class Place:
    """A pipeline, and a session of its own."""

    project: Project
    cluster: Cluster
    topic: str
    spark: SparkSession
    is_cdc: bool
    words: list[str] = field(default_factory=list)
    sent: int = 0

    def send(self, *documents: dict[str, Any] | None) -> None:
        """Send documents, in the words of Debezium if the pipeline hears these; None is a truncate."""
        self.sent += 1
        change = {"before": None, "source": {}, "ts_ms": self.sent}
        events = [change | {"op": "t" if document is None else "c", "after": document} for document in documents]
        values = events if self.is_cdc else documents
        produce(self.cluster, self.topic, [OutgoingRecord(None, json.dumps(value).encode()) for value in values])

    def run(self, request: RunRequest | None = None, *, by_spark: bool = False) -> None:
        """Land what is new, or what is asked for."""
        pipeline = self.project.pipeline("odd")
        planned = plan_run(self.project, pipeline, request or RunRequest(str(uuid.uuid4())))
        assert planned.plan is not None
        stage = SparkStage(self.spark) if by_spark else stage_inline
        ingest(self.project, pipeline, planned.plan, stage, self.words.append, apply=SparkApply(self.spark))

    def maintain(self) -> None:
        """Do every step."""
        scope = RunContext.open(self.project, self.project.pipeline("odd"), self.words.append)
        result = maintain(scope, Order("shop.odd", (), force=True), SparkProcedures(self.spark))
        self.words.append(result.to_json())
        assert not result.with_status("failed"), result

    def rows(self) -> list[dict[str, Any]]:
        """The table as Spark reads it, by key."""
        self.spark.catalog.refreshTable("lake.shop.odd")
        rows_read = self.spark.table("lake.shop.odd").toArrow().to_pylist()
        return sorted(rows_read, key=lambda row: row["i-d"])

    def metadata(self) -> str:
        """What the catalog holds of every table, as text."""
        lake = self.project.lake("lake")
        return "".join(repr(lake.load_table(name).metadata) for name in lake.tables())


@pytest.fixture
def place(
    tmp_path: Path,
    cluster: Cluster,
    spark: SparkSession,
    request: pytest.FixtureRequest,
    rest_settings: Callable[..., Path],
) -> Iterator[Place]:
    """A pipeline over a fresh topic; PyIceberg changes tables of version 3 by a server only."""
    topic, folder, layout = f"odd-{uuid.uuid4().hex[:8]}", tmp_path / "pipelines", request.param
    create_topic(cluster, topic, 1)
    folder.mkdir()
    order = "{type: timestamptz, from: [_cdc, ts]}" if layout == "cdc" else "long"
    columns = f"columns: {{i-d: {{type: string, required: true}}, 'or`der': {order}, _rescued: string}}"
    destination = f"{{table: shop.odd, {columns}, {LAYOUTS[layout][1:]}"
    (folder / "odd.yaml").write_text(textwrap.dedent(FILE.format(topic=topic, destination=destination)))
    port = cluster.bootstrap_servers.rpartition(":")[2]
    env = {"FRAZIL_HOME": str(tmp_path / "home"), "FRAZIL_PIPELINES": str(folder), "FRAZIL_KAFKA_PORT": port}
    if layout == "v3":
        env["FRAZIL_SETTINGS"] = str(rest_settings())
    project = Project.load(env)
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "2")
    open_catalog(session, "lake", project.settings.catalogs["lake"])
    return Place(project, cluster, topic, session, layout == "cdc")


def assert_landed(rows: Sequence[dict[str, Any]], marks: dict[str, str]) -> None:
    """Each row has every field under its own name, and the name as its value."""
    assert {row["i-d"]: row["mark"] for row in rows} == marks
    for row in rows:
        assert {name: row[name] for name in NAMES} == {name: name for name in NAMES}
        assert row["deep"] == {name: [{name: name}] for name in NAMES}


@pytest.mark.short("orc", "v3", "cdc")
@pytest.mark.parametrize("place", LAYOUTS, indirect=True)
def test_field_called_like_a_variable_lands_and_nothing_is_substituted(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """Two batches with the same keys, a replay or a truncate, and every step of maintenance."""
    caplog.set_level(logging.DEBUG)
    first, second = f"${{env:{VARIABLE}}}", "it's `b` -- ; \\ ${x}"
    rescued = {name: {"in": name} for name in RESCUED}
    place.send(document(first, 1, "a"), document(second, 2, "a"))
    place.run(by_spark=True)
    assert_landed(place.rows(), {first: "a", second: "a"})

    place.send(document(first, 3, "b") | rescued)
    place.run()
    layout = place.project.pipeline("odd").destinations[0].write
    if layout == "append":
        assert sorted(row["mark"] for row in place.rows()) == ["a", "a", "b"]
        place.run(RunRequest("again", mode="replay", start=EARLIEST, reason="a test"))
        assert sorted(row["mark"] for row in place.rows()) == ["a", "a", "b"]
    else:
        assert_landed(place.rows(), {first: "b", second: "a"})
    if layout == "cdc":
        place.send(None)
        place.run()
        assert place.rows() == []
        place.send(document(second, 9, "c"))
        place.run()
        assert_landed(place.rows(), {second: "c"})
    place.maintain()

    texts = [*place.words, caplog.text, place.metadata(), str(place.rows())]
    letters = place.project.lake("lake").find_table("shop.odd__dead_letters")
    texts.append("" if letters is None else str(letters.scan().to_arrow().to_pylist()))
    assert SECRET not in "".join(texts)
