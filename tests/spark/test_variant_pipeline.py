"""Documents of any shape, from a broker to a table of variants and to a plain one beside it: the ledger decides."""

from __future__ import annotations

import json
import textwrap
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.expressions import EqualTo
from pyspark.sql import SparkSession

from frazil import failpoints
from frazil.batch.position import RunRequest, parse_target
from frazil.errors import Terminal
from frazil.failpoints import Failpoint
from frazil.iceberg.commit.summary_state import CLOSING_KEY
from frazil.kafka.admin.topics import create_topic
from frazil.kafka.client.cluster import Cluster, OutgoingRecord
from frazil.project import Project
from frazil.run.batches.plan import PlannedRun, RunResult, plan_run, run_result
from frazil.run.batches.session import ingest
from frazil.run.commit.commit_batch import recover
from frazil.run.repair import repair as repairs
from frazil.run.repair import reset as resets
from frazil.run.repair.reset_batch import ResetOrder
from frazil.run.state.context import EngineNeeded, RunContext
from frazil.spark.jobs.stage import SparkStage
from frazil.spark.submit.configuration import open_catalog
from frazil.spark.writes.apply import SparkApply
from frazil.verify.check import verify
from tests.produce import produce

FILE = """
    name: docs
    source: {{topics: [{topic}]}}
    dead_letters: {{tolerance: all}}
    destinations:
      - {{table: shop.docs, columns: {{doc: {{type: variant, from: []}}, id: long}}, partition_by: ["truncate(10, id)"]}}
      - {{table: shop.ids, columns: {{id: long}}}}
"""

GOOD = [
    {"id": 1},
    {"id": 2, "deep": {"a": [{"b": None}, [], {}, "é😀\u2028"]}, "": -0.5},
    {"id": 3, "big": 12345678901234567890123456789012345678, "exact": 0.1},
    {"other": [True, False, "1e400"]},
]
BAD = [b'{"id":9,"a":1e400}', b'{"id":9,"a":"\\ud800"}', b"no json", b'{"id":"x"}']


class Killed(BaseException):
    """The end of the process, as far as a test can have it."""


@dataclass
class Place:
    """The pipeline, and a session that knows its catalog."""

    project: Project
    cluster: Cluster
    topic: str
    spark: SparkSession
    starts: list[str] = field(default_factory=list)
    """Runs that an engine was started for."""

    def send(self, *values: bytes) -> None:
        """Send records."""
        produce(self.cluster, self.topic, [OutgoingRecord(key=None, value=value) for value in values])

    def plan(self, request: RunRequest | None = None) -> PlannedRun:
        """Plan a run, without an engine."""
        return plan_run(self.project, self.project.pipeline("docs"), request or RunRequest(str(uuid.uuid4())))

    def run(self, request: RunRequest | None = None) -> RunResult:
        """Plan a run, and start the engine if there is work."""
        planned, pipeline = self.plan(request), self.project.pipeline("docs")
        if planned.plan is None:
            return run_result(self.project, pipeline, "none")
        self.starts.append(planned.plan.run)
        apply = SparkApply(self.spark)
        ingest(self.project, pipeline, planned.plan, SparkStage(self.spark), lambda _: None, apply=apply)
        return run_result(self.project, pipeline, planned.plan.run)

    def documents(self) -> list[Any]:
        """All documents, in the order of their offsets."""
        frame = self.spark.table("lake.shop.docs").selectExpr("_kafka_offset", "to_json(doc) AS doc")
        return [json.loads(row.doc) for row in frame.orderBy("_kafka_offset").collect()]

    def ids(self) -> list[int | None]:
        """All rows of the plain table."""
        arrow_table = self.project.lake("lake").load_table("shop.ids").scan().to_arrow().sort_by("_kafka_offset")
        ids: list[int | None] = arrow_table.column("id").to_pylist()
        return ids


@pytest.fixture
def place(tmp_path: Path, cluster: Cluster, spark: SparkSession) -> Place:
    """A pipeline of documents over a fresh topic."""
    topic = f"docs-{uuid.uuid4().hex[:8]}"
    create_topic(cluster, topic, 1)
    folder = tmp_path / "pipelines"
    folder.mkdir()
    (folder / "docs.yaml").write_text(textwrap.dedent(FILE.format(topic=topic)))
    port = cluster.bootstrap_servers.rpartition(":")[2]
    env = {"FRAZIL_HOME": str(tmp_path / "home"), "FRAZIL_PIPELINES": str(folder), "FRAZIL_KAFKA_PORT": port}
    project = Project.load(env)
    session = spark.newSession()  # a session keeps a catalog that it has opened
    open_catalog(session, "lake", project.settings.catalogs["lake"])
    return Place(project, cluster, topic, session)


def kill_at(monkeypatch: pytest.MonkeyPatch, place: Failpoint) -> None:
    """End the process when it gets to a place."""

    def reached(point: Failpoint) -> None:
        if point is place:
            raise Killed

    monkeypatch.setattr(failpoints, "hit", reached)


def encoded(*documents: object) -> list[bytes]:
    """Documents as they are sent."""
    return [json.dumps(document).encode() for document in documents]


def test_documents_land_unchanged_and_once(place: Place) -> None:
    """Each good one lands as it was sent, the others are dead letters of the table that can't hold them."""
    place.send(*encoded(*GOOD), *BAD)
    result = place.run()

    assert place.documents() == [*GOOD]
    assert place.ids() == [1, 2, 3, None, 9, 9]
    assert (result.batches, result.read, result.dead) == (1, 8, 4)
    letters = place.project.lake("lake").load_table("shop.docs__dead_letters").scan().to_arrow().to_pylist()
    assert {(letter["code"], letter["destination"]) for letter in letters} == {
        ("LOSSY_CAST", "shop.docs"),
        ("LONE_SURROGATE", "shop.docs"),
        ("INVALID_JSON", None),
        ("WRONG_TYPE", "shop.docs"),
        ("WRONG_TYPE", "shop.ids"),
    }
    ledger = place.project.lake("lake").load_table("shop.docs__ledger")
    assert ledger.properties[CLOSING_KEY.format("docs")] == "shop.docs__ledger"
    verification = verify(place.project, place.project.pipeline("docs"))
    assert verification.is_clean, verification.differences
    assert verification.values_not_compared_because == "shop.docs.doc is a variant, which only an engine can read"


def test_idle_run_does_not_start_spark(place: Place) -> None:
    """With nothing new no engine is started, and nothing is committed."""
    place.send(*encoded(*GOOD))
    place.run()
    lake = place.project.lake("lake")
    before = lake.load_table("shop.docs").metadata_location
    assert place.plan().plan is None
    assert place.run().batches == 0
    assert len(place.starts) == 1
    assert lake.load_table("shop.docs").metadata_location == before


@pytest.mark.short("branch.staged")
@pytest.mark.parametrize(
    "point",
    [Failpoint.DECIDE_COMMITTED, Failpoint.BRANCH_STAGED, Failpoint.FOLLOW_COMMITTED, Failpoint.RECORD_COMMITTING],
)
def test_batch_killed_after_decision_is_finished_by_next_run(
    place: Place, monkeypatch: pytest.MonkeyPatch, point: Failpoint
) -> None:
    """Who has no engine says so and leaves it; planning says that there is work; the next run finishes it once."""
    place.send(*encoded(*GOOD))
    place.run()
    place.send(*encoded({"id": 10}, {"id": 11}))
    with monkeypatch.context() as patch:
        kill_at(patch, point)
        with pytest.raises(Killed):
            place.run()
    is_there = point in (Failpoint.FOLLOW_COMMITTED, Failpoint.RECORD_COMMITTING)
    if not is_there:
        with pytest.raises(EngineNeeded, match=r"shop\.docs needs Spark for its part"):
            recover(RunContext.open(place.project, place.project.pipeline("docs")))
        planned = place.plan()
        assert planned.plan is not None
        assert planned.plan.records == 0
        assert place.ids() == [1, 2, 3, None, 10, 11]

    place.run()

    assert place.documents() == [*GOOD, {"id": 10}, {"id": 11}]
    assert place.ids() == [1, 2, 3, None, 10, 11]
    assert place.plan().plan is None
    assert verify(place.project, place.project.pipeline("docs")).is_clean


def without_an_engine(deed: Callable[[], object]) -> None:
    """Do what is decided here and finished by the next run."""
    with pytest.raises(EngineNeeded, match="is decided"):
        deed()


def test_replay_doubles_no_documents(place: Place) -> None:
    """Rows of a range are replaced, in both tables, and none is there twice."""
    place.send(*encoded(*GOOD))
    place.run()
    run_request = RunRequest("again", "cli:tester@here", "replay", parse_target("earliest"), None, reason="a test")
    planned, pipeline = (
        plan_run(place.project, place.project.pipeline("docs"), run_request),
        place.project.pipeline("docs"),
    )
    assert planned.plan is not None
    apply = SparkApply(place.spark)
    ingest(place.project, pipeline, planned.plan, SparkStage(place.spark), lambda _: None, apply=apply)

    assert place.documents() == [*GOOD]
    assert place.ids() == [1, 2, 3, None]
    batches = {row[0] for row in place.spark.table("lake.shop.docs").select("_frazil_batch").collect()}
    assert batches == {2}
    assert verify(place.project, pipeline).is_clean


def test_reset_without_engine_leaves_no_rows_behind(place: Place) -> None:
    """Decided by a command without Spark, brought in by the next run: what comes again is there once."""
    place.send(*encoded(*GOOD))
    place.run()
    scope = RunContext.open(place.project, place.project.pipeline("docs"))
    planned = resets.plan_reset(scope, ResetOrder(parse_target("earliest"), (), allow_duplicates=False))
    without_an_engine(lambda: resets.reset(scope, planned, RunRequest("reset", "cli:tester@here", reason="a test")))
    assert place.documents() == [*GOOD]
    assert place.ids() == []

    place.run()
    place.run()

    assert place.documents() == [*GOOD]
    assert place.ids() == [1, 2, 3, None]
    assert place.plan().plan is None
    assert verify(place.project, place.project.pipeline("docs")).is_clean


def test_rolled_back_documents_are_missed_and_replayed(place: Place) -> None:
    """A table that was rolled back is refused by name; repaired without an engine, the replay gives it its rows again."""
    place.send(*encoded(*GOOD[:2]))
    place.run()
    first = place.project.lake("lake").load_table("shop.docs").metadata.current_snapshot_id
    place.send(*encoded(*GOOD[2:]))
    place.run()
    place.spark.sql(f"CALL lake.system.rollback_to_snapshot('shop.docs', {first})").collect()
    with pytest.raises(Terminal, match=r"shop\.docs was rolled back"):
        place.plan()
    scope = RunContext.open(place.project, place.project.pipeline("docs"))
    planned = repairs.plan_repair(scope, "shop.docs")
    request = RunRequest("mend", "cli:tester@here", reason="a test")
    repairs.repair(scope, planned, request)
    filling = planned.replay_request(request)
    assert filling is not None
    place.run(filling)

    place.run()

    assert place.documents() == [*GOOD]
    assert place.plan().plan is None
    assert verify(place.project, place.project.pipeline("docs")).is_clean


def test_dead_letters_before_first_document_are_compared_for_every_table(place: Place) -> None:
    """Batches that bring a table no rows give it no mark; it is a destination all the same, and verify counts it in."""
    place.send(b"no json", b"nor this")
    place.run()
    place.send(*encoded(*GOOD))
    place.run()
    pipeline, letters = place.project.pipeline("docs"), place.project.lake("lake").load_table("shop.docs__dead_letters")

    whole = verify(place.project, pipeline)
    letters.delete(EqualTo("offset", 1))
    lost = verify(place.project, pipeline)

    assert whole.is_clean, whole.differences
    assert {
        partition.table: (partition.records, partition.rows, partition.letters) for partition in whole.partitions
    } == {
        "shop.docs": (6, 4, 2),
        "shop.ids": (6, 4, 2),
    }
    assert {difference.table for difference in lost.differences if difference.offset == 1} == {"shop.docs", "shop.ids"}
