"""A pipeline `orders` with somebody who watches over it: a web server is told, and a person types commands."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException
from pyiceberg.table import Table

from frazil.batch.position import RunRequest
from frazil.cli.app import invoke
from frazil.errors import FrazilError
from frazil.kafka.client.cluster import Cluster, OutgoingRecord
from frazil.monitor.condition import Runs
from frazil.monitor.reading import read
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.project import Project
from frazil.run.batches.plan import plan_run
from frazil.runtime.home import Home
from frazil.runtime.jars import jar_paths
from frazil.runtime.java import ensure_java
from frazil_airflow.alerts import callbacks
from frazil_airflow.dags import monitor
from frazil_airflow.project.secrets import terminal_is_final
from frazil_airflow.tasks import ingest_tasks
from tests.dags.desk import VariableStore
from tests.produce import produce
from tests.receivers import Posts
from tests.runbooks import Command

ORDERS, LETTERS = "shop.orders", "shop.orders__dead_letters"

FILE = """
name: orders
owner: kitchen
interval: 5m
engine: inline
source: {{topics: [{topic}]}}
destinations: [{{table: shop.orders, columns: {{id: {{type: long, required: true}}, name: string}}}}]
{more}
"""

_ASKING = {"reset", "repair", "replay"}
"""Commands that ask before they do it."""

_QUICK_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")

_SECONDS = 120
"""Bounds a command of Kafka's: a JVM that sends one request."""


@dataclass
class Desk:
    """Attributes:
    root: The project's folder.
    cluster: Its broker.
    topic: The pipeline's topic.
    hook: The web server that is told.
    variables: What the monitor and callbacks keep.
    capsys: Takes what commands write.
    looks_at: When the next look is; None: now.
    runs: What Airflow says of the pipeline's runs; None: nothing, the tables tell.
    """

    root: Path
    cluster: Cluster
    topic: str
    hook: Posts
    variables: VariableStore
    capsys: pytest.CaptureFixture[str]
    looks_at: datetime | None = None
    runs: Runs | None = None

    # --- the pipeline -------------------------------------------------------------------------------------------------
    @property
    def project(self) -> Project:
        """The project as its files say now."""
        return Project.load()

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline as its file says now."""
        return self.project.pipeline("orders")

    def configure(self, more: str = "") -> None:
        """Write the pipeline's file anew."""
        (self.root / "pipelines" / "orders.yaml").write_text(FILE.format(topic=self.topic, more=more))

    def produce(self, ids: Iterable[int], instant: datetime | None = None) -> None:
        """Send good orders, with a timestamp of one's own."""
        self.send((json.dumps({"id": number, "name": f"order {number}"}).encode() for number in ids), instant)

    def send(self, values: Iterable[bytes], instant: datetime | None = None) -> None:
        """Send values."""
        ms = None if instant is None else int(instant.timestamp() * 1000)
        produce(self.cluster, self.topic, (OutgoingRecord(None, value, timestamp_ms=ms) for value in values))

    def load(self, table: str = ORDERS) -> Table:
        """A table as it is now."""
        return self.project.lake_of(self.pipeline).load_table(table)

    # --- Airflow ------------------------------------------------------------------------------------------------------
    def ingest(self) -> None:
        """A run of the pipeline's DAG: its tasks, and what is noted when one of them fails."""
        self.failing("ingest__orders", self._ingest)

    def _ingest(self) -> None:
        with terminal_is_final():
            planned = plan_run(self.project, self.pipeline, RunRequest("scheduled__1"))
        assert planned.plan is not None
        ingest_tasks.ingest_inline("orders", planned.plan.to_json())

    def failing(self, dag: str, work: Callable[[], object], conf: Mapping[str, Any] | None = None) -> None:
        """A task that fails in the end, as Airflow tells its callback; its run may have been asked for by a form."""
        with pytest.raises((AirflowFailException, FrazilError)) as raised:
            work()
        about = {"dag": SimpleNamespace(dag_id=dag), "ti": SimpleNamespace(task_id="ingest"), "run_id": "scheduled__1"}
        about["dag_run"] = SimpleNamespace(conf=conf)
        callbacks.note_failed_task({**about, "exception": raised.value})

    def look(self) -> list[dict[str, Any]]:
        """The next look of the monitor: what people are told."""
        before = len(self.hook.got)
        now = self.looks_at
        if now is None:
            monitor.look()
        else:
            condition = read(self.project, self.pipeline, clock=lambda: now)
            assert monitor.send_notices(self.project, self.pipeline, condition, now, self.variables) == []
        return self.hook.bodies[before:]

    # --- a person -----------------------------------------------------------------------------------------------------
    def type(self, commands: Iterable[Command]) -> None:
        """Type commands, one that comes twice once; each must end as it says."""
        for line, codes in {self._own(command.line): command.codes for command in commands}.items():
            code, written = self._carried_out(line)
            assert code in codes, f"{line}: exit code {code}, not {sorted(codes)}\n{written}"

    def _own(self, line: str) -> str:
        """The line with this pipeline's names."""
        own = {"PIPELINE": "orders", "TOPIC": self.topic, "BROKER": self.cluster.bootstrap_servers}
        for name, value in own.items():
            line = line.replace(name, value)
        return line

    def _carried_out(self, line: str) -> tuple[int, str]:
        program, *arguments = shlex.split(line)
        if program == "kafka-configs.sh":
            return _kafka_configs(arguments)
        assert program == "frazil", line
        sure = ["--yes"] if _ASKING & set(arguments) and "--dry-run" not in arguments else []
        code = invoke([*arguments, *sure])
        written = self.capsys.readouterr()
        return code, written.out + written.err


def _kafka_configs(arguments: list[str]) -> tuple[int, str]:
    """What Kafka's script of that name does, with the broker's own jars."""
    jars = os.pathsep.join(map(str, jar_paths(Home.resolve(), "broker")))
    command = [str(ensure_java().command), *_QUICK_JVM, "-cp", jars, "kafka.admin.ConfigCommand", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS)
    return done.returncode, done.stdout + done.stderr
