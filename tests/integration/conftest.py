"""A project of its own for every test: fresh home, fresh topic, one pipeline file, the in-process engine."""

from __future__ import annotations

import json
import textwrap
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from frazil.batch.position import RunRequest
from frazil.kafka.admin.topics import create_topic
from frazil.kafka.client.cluster import Cluster, OutgoingRecord
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.project import Project
from frazil.report.history import BatchHistory, history
from frazil.run.batches.plan import RunResult, plan_run, run_result
from frazil.run.batches.session import ingest
from frazil.run.staging.stage import Stage, stage_inline
from tests.produce import produce

ORDERS = """
name: orders
start: {start}
source: {{topics: [{topic}]}}
engine: inline
destinations:
  - table: shop.orders
    columns:
      id: {{type: long, required: true}}
      name: string
limits: {{max_records: {max_records}}}
dead_letters: {{tolerance: {{max_rate: 0.5, min_records: 10}}}}
"""


@dataclass
class Shop:
    """A pipeline over a fresh topic."""

    project: Project
    cluster: Cluster
    topic: str
    name: str = "orders"

    def __post_init__(self) -> None:
        _ = self.project.pipelines.usable  # its file as it is now: a test may make another shop in the same folder

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline as its file says now."""
        return self.project.pipeline(self.name)

    def produce(self, values: Iterable[bytes | None]) -> None:
        """Send values without keys."""
        produce(self.cluster, self.topic, (OutgoingRecord(key=None, value=value) for value in values))

    def produce_orders(self, ids: Iterable[int]) -> None:
        """Send good orders of these ids."""
        self.produce(json.dumps({"id": number, "name": f"order {number}"}).encode() for number in ids)

    def run(self, stage: Stage = stage_inline, report: Callable[[str], None] = lambda _: None) -> RunResult:
        """One run: plan, then batches to the plan's ends, in this process."""
        run_id = str(uuid.uuid4())
        planned = plan_run(self.project, self.pipeline, RunRequest(run_id))
        if planned.plan is not None:
            ingest(self.project, self.pipeline, planned.plan, stage, report)
        return run_result(self.project, self.pipeline, run_id)

    def rows(self, table: str = "shop.orders") -> list[dict[str, Any]]:
        """All rows of a table, in one order."""
        rows = self.project.lake_of(self.pipeline).load_table(table).scan().to_arrow().to_pylist()
        return sorted(rows, key=lambda row: tuple(str(value) for value in row.values()))

    def ids(self) -> list[int]:
        """Ids of all landed orders, sorted."""
        return sorted(row["id"] for row in self.rows())

    def snapshots(self, table: str = "shop.orders") -> int:
        """How many snapshots a table has."""
        return len(self.project.lake_of(self.pipeline).load_table(table).metadata.snapshots)

    def history(self) -> list[BatchHistory]:
        """Batches that landed records."""
        return [batch for batch in history(self.project, self.pipeline) if batch.kind == "ingest"]

    def with_pipeline(self, text: str) -> Shop:
        """The same shop under another pipeline file."""
        (self.project.pipelines_folder / "orders.yaml").write_text(textwrap.dedent(text))
        return Shop(Project.load(environment(self.project)), self.cluster, self.topic)


def environment(project: Project) -> dict[str, str]:
    return project.environment() | {"FRAZIL_KAFKA_PORT": str(project.home.ports.kafka)}


@pytest.fixture
def shop(tmp_path: Path, cluster: Cluster, home_at: Callable[[Path], Path]) -> Callable[..., Shop]:
    """Make a shop: `shop(partitions=2, start="earliest", max_records=1000)`."""

    def make(partitions: int = 2, start: str = "earliest", max_records: int = 1_000_000) -> Shop:
        topic = f"orders-{uuid.uuid4().hex[:8]}"
        create_topic(cluster, topic, partitions)
        folder = tmp_path / "pipelines"
        folder.mkdir()
        (folder / "orders.yaml").write_text(ORDERS.format(topic=topic, start=start, max_records=max_records))
        port = cluster.bootstrap_servers.rpartition(":")[2]
        home = home_at(tmp_path / "home")
        env = {"FRAZIL_HOME": str(home), "FRAZIL_PIPELINES": str(folder), "FRAZIL_KAFKA_PORT": port}
        return Shop(Project.load(env), cluster, topic)

    return make
