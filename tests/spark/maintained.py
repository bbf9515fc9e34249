"""A pipeline whose tables are maintained: landed in this process, maintained by the session of the tests."""

from __future__ import annotations

import json
import textwrap
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from frazil.batch.position import Position, RunRequest
from frazil.iceberg.catalog.table import Table, TableMetadata
from frazil.iceberg.commit.summary_state import lookup_position, remaining_value
from frazil.kafka.client.cluster import Cluster, OutgoingRecord
from frazil.maintain.need import Order, Step
from frazil.maintain.procedures import Argument
from frazil.maintain.run import MaintenanceResult, StepOutcome, maintain, preview
from frazil.project import Project
from frazil.run.batches.plan import plan_run
from frazil.run.batches.session import ingest
from frazil.run.repair.reset import plan_reset, reset
from frazil.run.repair.reset_batch import ResetOrder
from frazil.run.staging.stage import stage_inline
from frazil.run.state.context import RunContext, utc_now
from frazil.spark.jobs.maintenance import SparkProcedures
from frazil.spark.submit.configuration import open_catalog
from frazil.spark.writes.apply import SparkApply
from frazil.verify.check import verify
from tests.produce import produce
from tests.spark.kills import Killed

ORDERS, LETTERS, LEDGER = "shop.orders", "shop.orders__dead_letters", "shop.orders__ledger"

FILE = """
name: orders
source: {{topics: [{topic}]}}
engine: {engine}
dead_letters: {{tolerance: all}}
destinations:
  - table: shop.orders
    columns: {{id: {{type: long, required: true}}, at: timestamptz}}
    {layout}
maintenance:
  compaction: {{min_files: 2, min_deletes: 1}}
  expiry: {{older_than: 1h, keep: 1, min_snapshots: 1}}
  manifests: {{min_files: 2}}
  {more}
"""


@dataclass
class Engine(SparkProcedures):
    """Spark's procedures, and a death before or behind the next call of one."""

    spark: SparkSession
    dies: Mapping[str, str] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    meanwhile: Callable[[], object] | None = None

    def __post_init__(self) -> None:
        super().__init__(self.spark)

    def call(self, catalog: str, procedure: str, arguments: Mapping[str, Argument]) -> Iterator[dict[str, Any]]:
        """Call a procedure, unless the process dies before."""
        self.calls.append(procedure)
        if self.dies.get(procedure) == "before":
            raise Killed
        if self.meanwhile is not None:
            self.meanwhile()
        result = super().call(catalog, procedure, arguments)
        if self.dies.get(procedure) == "behind":
            raise Killed
        return result


@dataclass
class Maintained:
    """A pipeline `orders` over a fresh topic."""

    project: Project
    cluster: Cluster
    topic: str
    engine: Engine
    ahead: timedelta = timedelta()
    """How far the clock of maintenance is ahead: snapshots are as much older."""

    def __post_init__(self) -> None:
        self.sent = 0
        self.said: list[str] = []

    def send(self, count: int, instant: str = "2026-05-01T10:00:00Z") -> None:
        """Send orders, one of them bad."""
        values = [{"id": self.sent + n, "at": instant} for n in range(count)]
        self.sent += count
        texts = [json.dumps(value).encode() for value in values[1:]] + [b"bad"]
        produce(self.cluster, self.topic, [OutgoingRecord(key=None, value=text) for text in texts])

    def run(self, request: RunRequest | None = None) -> None:
        """Land what is new, or what is asked for."""
        request = request or RunRequest(str(uuid.uuid4()))
        planned = plan_run(self.project, self.project.pipeline("orders"), request)
        if planned.plan is not None:
            apply = SparkApply(self.engine.spark)
            ingest(
                self.project, self.project.pipeline("orders"), planned.plan, stage_inline, self.said.append, apply=apply
            )

    def land(self, batches: int, count: int = 3, **keys: str) -> None:
        """Land some batches."""
        for _ in range(batches):
            self.send(count, **keys)
            self.run()

    @property
    def scope(self) -> RunContext:
        """Its connections, and its clock."""
        return RunContext.open(self.project, self.project.pipeline("orders"), self.said.append, self.clock)

    def clock(self) -> datetime:
        """The clock of maintenance."""
        return utc_now() + self.ahead

    def look(self, *names: Step) -> MaintenanceResult:
        """What is due."""
        return preview(self.scope, Order(steps=names))

    def maintain(self, *names: Step, table: str | None = ORDERS, force: bool = False) -> MaintenanceResult:
        """Do what is due."""
        return maintain(self.scope, Order(table, names, force), self.engine)

    def step(self, name: Step, *, force: bool = False) -> StepOutcome:
        """Do one step on the destination."""
        (table,) = self.maintain(name, force=force).tables
        (step,) = table.steps
        return step

    def table(self, name: str = ORDERS) -> Table:
        """A table as it is now."""
        return self.project.lake_of(self.project.pipeline("orders")).load_table(name)

    def metadata(self, name: str = ORDERS) -> TableMetadata:
        """Its metadata."""
        return self.table(name).metadata

    def folder(self, name: str = ORDERS) -> Path:
        """Where a table lies."""
        return Path(self.metadata(name).location.removeprefix("file://"))

    def ids(self) -> list[int]:
        """Ids of all rows."""
        return sorted(self.table().scan().to_arrow()["id"].to_pylist())

    def files(self) -> list[dict[str, Any]]:
        """Data files of the destination."""
        return self.table().inspect.files().to_pylist()

    @property
    def position(self) -> Position:
        """The position."""
        position = remaining_value(lookup_position(self.table(), "orders", ORDERS))
        assert position is not None
        return Position.from_json(position.value)

    def to_table(self) -> None:
        """Reset to what the closing table holds."""
        planned = plan_reset(self.scope, ResetOrder(None))
        reset(self.scope, planned, RunRequest(str(uuid.uuid4()), reason="a test"))

    def assert_clean(self) -> None:
        """Everything that was sent is there, once."""
        verification = verify(self.project, self.project.pipeline("orders"))
        assert verification.is_clean, verification


def maintained(
    folder: Path, cluster: Cluster, topic: str, spark: SparkSession, *, layout: str = "", more: str = ""
) -> Maintained:
    """Make a pipeline, with a session of its own: all of them call their catalog `lake`."""
    engine = "spark" if "write:" in layout else "inline"
    pipelines = folder / "pipelines"
    pipelines.mkdir()
    (pipelines / "orders.yaml").write_text(
        textwrap.dedent(FILE.format(topic=topic, engine=engine, layout=layout, more=more))
    )
    port = cluster.bootstrap_servers.rpartition(":")[2]
    env = {"FRAZIL_HOME": str(folder / "home"), "FRAZIL_PIPELINES": str(pipelines), "FRAZIL_KAFKA_PORT": port}
    project = Project.load(env)
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "2")
    open_catalog(session, "lake", project.settings.catalogs["lake"])
    return Maintained(project, cluster, topic, Engine(session))


def put_old(folder: Path, names: Iterable[str]) -> list[Path]:
    """Files that nobody wrote for weeks."""
    import os

    paths = [folder / name for name in names]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("left behind")
        os.utime(path, (1e9, 1e9))
    return paths
