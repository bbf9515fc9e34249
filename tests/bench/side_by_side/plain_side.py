"""Spark without Frazil as a side: what the obvious job costs, which has no position in the table, no ledger and no dead letters.

Both ways read the topic with Spark's Kafka source, parse values with `from_json`, and have Iceberg's own writer append the
rows: once as a batch, once as a stream with the trigger `availableNow`. Master, heap and options are those of Frazil's jobs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from frazil.project import Project
from frazil.runtime.home import interpreter_bin
from frazil.runtime.jars import fetch, jar_paths
from frazil.spark.submit import submission as submit
from tests.bench.side_by_side import meter
from tests.bench.side_by_side.bench import MARK, Bench
from tests.bench.side_by_side.sides import Drained, drained
from tests.bench.side_by_side.tables_made import made_table

JOB: Final = Path(__file__).with_name("plain_job.py")
_SOURCE: Final = "spark-kafka"
"""The set of jars that holds Spark's Kafka source."""


@dataclass(frozen=True)
class PlainSide:
    """A plain Spark job.

    Attributes:
        way: `batch` or `stream`.
    """

    way: str

    @property
    def name(self) -> str:
        """In words."""
        return {"batch": "plain Spark, batch", "stream": "plain Spark, availableNow"}[self.way]

    def drain(self, bench: Bench, count: int, number: int) -> Drained:
        """Land the topic with one job."""
        folder = f"{self.way}-{number}"
        project = bench.project(folder, engine="submit")
        table = made_table(project, bench.workload, bench.workload.table)
        command, env = self._command(project, bench, folder)
        with meter.measured(bench.broker_pid, lambda: meter.processes_with(MARK, folder)) as reading:
            ran = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr[-4_000:]
        result = drained(reading, table, list(bench.workload.columns), count)
        shutil.rmtree(bench.root / folder)
        return result

    def _command(self, project: Project, bench: Bench, folder: str) -> tuple[list[str], dict[str, str]]:
        engine = project.engine("submit")
        job = submit._submission(project, "submit", "ingest.py", f"plain {folder}", writes=True, on_server=False)
        command = [
            str(interpreter_bin() / "spark-submit"),
            "--master",
            engine.master,
            "--driver-memory",
            engine.driver_memory,
        ]
        fetch(project.home, _SOURCE, report=print)
        jars = [*job.jars, *(str(path) for path in jar_paths(project.home, _SOURCE))]
        command += ["--jars", ",".join(jars)]
        command += [part for key, value in {**job.conf, **job.private}.items() for part in ("--conf", f"{key}={value}")]
        servers = bench.cluster.properties["bootstrap.servers"]
        arguments = [
            self.way,
            servers,
            bench.workload.name,
            bench.workload.table,
            str(bench.root / folder / "checkpoint"),
        ]
        return [*command, str(JOB), *arguments], os.environ | dict(job.env) | {MARK: folder}
