"""A running stack as the tests of this folder use it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pytest

from frazil.devstack import stack
from frazil.errors import FrazilError
from frazil.generators import GENERATORS
from frazil.kafka.client.cluster import Cluster, OutgoingRecord
from frazil.project import Project
from frazil.runtime.airflow_api import AirflowApi, DagRun
from frazil.runtime.home import Home
from frazil.runtime.process import until
from tests.produce import produce

PIZZAS = "ingest__pizzas"
PAYMENTS = "ingest__payments"
TOPICS = {PIZZAS: "completed-pizzas", PAYMENTS: "payments"}

WEB_TOKEN = "t0ken-of-the-webhook"
"""In the address of the web server that alerts go to."""

MARKS = {place: f"marked-{place}-9f3c" for place in ("catalog", "registry", "conf")}
"""Secrets of the settings, by their keys in a file beside the home."""

UNPAUSED_SECONDS = 240
"""Bounds the wait until Airflow has read the DAGs, and until it has made the first run of one."""

REFRESH_SECONDS = 15
"""How often Airflow reads the DAG files, six imports of a second each: every 5 s, as a person wants it, that is half of a core."""

RUN_SECONDS = 240
"""Bounds a run; about 30 s with two idle cores, most of it the start of Spark."""


@dataclass(frozen=True)
class Embedded:
    """A running stack, and connections to it.

    Attributes:
        project: Its project.
        api: Its Airflow.
        env: Variables that its processes inherit.
        statsd: Metrics that its Airflow sent, which grow.
    """

    project: Project
    api: AirflowApi
    env: Mapping[str, str]
    statsd: list[str] = field(default_factory=list)

    @property
    def cluster(self) -> Cluster:
        """The stack's Kafka."""
        return self.project.cluster("local")

    def start(self) -> None:
        """Start again what does not run of it."""
        start_stack(self.project.home, self.env)

    def produce(self, dag_id: str, count: int, seed: int, broken_per_thousand: int = 0) -> None:
        """Send generated records to the topic of a DAG."""
        generate = GENERATORS[dag_id.removeprefix("ingest__")]
        records = generate(count, seed=seed, broken_per_thousand=broken_per_thousand)
        assert produce(self.cluster, TOPICS[dag_id], records).count == count

    def send(self, topic: str, ids: Iterable[int], instant: datetime | None = None) -> None:
        """Send `{"id": …}` to a topic, as of now or of another time."""
        stamp = None if instant is None else int(instant.timestamp() * 1000)
        records = [OutgoingRecord(None, json.dumps({"id": number}).encode(), timestamp_ms=stamp) for number in ids]
        assert produce(self.cluster, topic, records).count == len(records)

    def ids(self, pipeline: str) -> list[int]:
        """What landed in the table of a small pipeline, sorted."""
        return sorted(row["id"] for row in self.rows(f"own.{pipeline}"))

    def landed(self, pipeline: str, count: int) -> bool:
        """Whether the table of a small pipeline is there by now, and has so many rows."""
        table = self.project.lake("lake").find_table(f"own.{pipeline}")
        return table is not None and table.scan().to_arrow().num_rows == count

    def unpause(self, dag_id: str) -> DagRun:
        """Switch the schedule on; its first run, for the last interval, comes at once."""
        assert until(lambda: dag_id in self.api.dag_ids(), UNPAUSED_SECONDS, 0.5), self.api.import_errors()
        self.api.unpause(dag_id)
        assert until(lambda: bool(self.api.runs(dag_id)), UNPAUSED_SECONDS, 0.5)
        return self.finished(dag_id, self.api.runs(dag_id)[0].run_id)

    def is_paused(self, dag_id: str) -> bool:
        """Whether the schedule of a DAG is off."""
        return self.api.paused(dag_id)[dag_id]

    def run(self, dag_id: str, run_id: str, note: str | None = None, **conf: Any) -> DagRun:
        """Start a run over REST with fields of the form filled in, and wait until it succeeds."""
        self.api.trigger(dag_id, run_id=run_id, conf=conf, note=note)
        return self.finished(dag_id, run_id)

    def backfill(self, dag_id: str, begin: str, end: str, **conf: Any) -> list[DagRun]:
        """Start a backfill over REST, also of intervals that have a run, and wait until its runs succeed."""
        body = {
            "dag_id": dag_id,
            "from_date": begin,
            "to_date": end,
            "dag_run_conf": conf,
            "reprocess_behavior": "completed",
        }
        return self.backfilled(dag_id, lambda: self.api._request("POST", "/backfills", json=body))

    def backfilled(self, dag_id: str, create: Callable[[], Any]) -> list[DagRun]:
        """The runs of a backfill, finished. One that SQLite stopped half-way is cancelled, and made anew.

        The DAG is paused until it is made: Airflow takes the runs of one that it could not finish back, and a scheduler that
        has begun one of them ends.
        """
        problems: list[str] = []

        def created() -> bool:
            try:
                create()
            except FrazilError as problem:
                problems.append(problem.message)
                for backfill in self.api._request("GET", "/backfills", params={"dag_id": dag_id})["backfills"]:
                    if backfill["completed_at"] is None:
                        self.api._request("PUT", f"/backfills/{backfill['id']}/cancel")
                return False
            return True

        self.api.pause(dag_id)
        assert until(created, RUN_SECONDS, 1), problems[-1]
        self.start()  # the scheduler, if it ended all the same
        self.api.unpause(dag_id)
        runs = [run.run_id for run in self.api.runs(dag_id) if run.run_type == "backfill"]
        return [self.finished(dag_id, run_id) for run_id in runs]

    def finished(self, dag_id: str, run_id: str) -> DagRun:
        """Wait until a run succeeds; one that fails shows the logs of its failed tasks."""
        done = self.api.wait(dag_id, run_id, RUN_SECONDS)
        failed = [task_id for task_id, state in self.states(dag_id, run_id).items() if state == "failed"]
        assert done.state == "success", "\n".join(self.api.log(dag_id, run_id, task_id) for task_id in failed)
        return done

    def states(self, dag_id: str, run_id: str) -> dict[str, str | None]:
        """Task -> state, of a run."""
        return {task.task_id: task.state for task in self.api.task_instances(dag_id, run_id)}

    def event(self, run_id: str) -> Mapping[str, Any]:
        """The one asset event of a run's data; that of how far the pipeline is complete has no rows."""
        events = self.api._pages("/assets/events", "asset_events", order_by="-timestamp")
        (event,) = (each for each in events if each["source_run_id"] == run_id and "rows" in each["extra"])
        return event

    def events(self, asset: str) -> list[dict[str, Any]]:
        """Extras of the events of an asset, the oldest first."""
        answer = self.api._request("GET", "/assets/events", params={"name_pattern": asset, "order_by": "timestamp"})
        return [event["extra"] for event in answer["asset_events"]]

    def failure_note(self, place: str) -> dict[str, Any]:
        """What the last failed run of a DAG left for the monitor, as Airflow keeps it; nothing if it is forgotten."""
        variables = self.api._pages("/variables", "variables")
        notes = (
            json.loads(variable["value"]) for variable in variables if variable["key"] == f"frazil_failure__{place}"
        )
        note: dict[str, Any] = next(notes, {})
        return note

    def rows(self, table: str) -> list[dict[str, Any]]:
        """All rows of a table."""
        rows: list[dict[str, Any]] = self.project.lake("lake").load_table(table).scan().to_arrow().to_pylist()
        return rows

    def snapshot_ids(self, table: str) -> list[int]:
        """Every snapshot of a table."""
        return [each.snapshot_id for each in self.project.lake("lake").load_table(table).metadata.snapshots]


def start_stack(home: Home, env: Mapping[str, str]) -> None:
    """Start what does not run of a stack, with these variables, which no other test has."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in env.items():
            patch.setenv(name, value)
        patch.setattr("frazil.devstack.airflow.REFRESH_SECONDS", REFRESH_SECONDS)
        stack.up(home, report=print)
