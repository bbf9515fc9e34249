"""Flink's Iceberg sink as a side: a job of SQL, Kafka to Iceberg, on Flink's local cluster in a JVM that has landed records already.

Its heap and collector are those of Kafka Connect's worker, its files those of all sides, its checkpoints come as often as the
sink's commits: each makes visible what came before. The job ends by itself behind the records that are there when it starts.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pyiceberg.catalog.sql import SqlCatalog

from frazil.runtime.home import Home, bootstrap_servers
from frazil.runtime.jars import fetch, jar_paths
from frazil.runtime.java import ensure_java
from tests.bench.side_by_side import meter
from tests.bench.side_by_side.bench import MARK, Bench
from tests.bench.side_by_side.sides import Drained, drained
from tests.bench.side_by_side.sink_side import COMMIT_SECONDS, tasks
from tests.bench.side_by_side.tables_made import made_table

JOBS: Final = Path(__file__).with_name("FlinkJobs.java")
_JARS: Final = "flink"
_OPEN: Final = ("java.io", "java.lang", "java.nio", "java.text", "java.time", "java.util", "java.util.concurrent")
"""Packages of Java that Flink's serializer reaches into, from its own configuration."""

_JVM: Final = (
    *("-Xms2g", "-Xmx2g", "-XX:+UseParallelGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"),
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPEN),
)

_TYPES: Final = {
    "long": "BIGINT",
    "timestamptz": "TIMESTAMP_LTZ(3)",
    "struct<id: long, country: string>": "ROW<id BIGINT, country STRING>",
    "list<struct<sku: string, n: int>>": "ARRAY<ROW<sku STRING, n INT>>",
}
"""Types of the pipeline file whose names SQL does not share."""

_INSTANT: Final = "TIMESTAMP_LTZ(6)"

_SQL: Final = """\
SET table.local-time-zone = UTC;
SET parallelism.default = {tasks};
SET execution.checkpointing.interval = {commit_seconds} s;
SET pipeline.object-reuse = true;
SET restart-strategy.type = none;
CREATE TEMPORARY TABLE source ({columns}) WITH (
  'connector' = 'kafka', 'topic' = '{topic}', 'properties.bootstrap.servers' = '{servers}',
  'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset', {format});
CREATE CATALOG lake WITH (
  'type' = 'iceberg', 'catalog-impl' = 'org.apache.iceberg.jdbc.JdbcCatalog', 'uri' = 'jdbc:sqlite:{folder}/catalog.db',
  'jdbc.schema-version' = 'V1', 'warehouse' = 'file://{folder}/warehouse');
INSERT INTO lake.{table} SELECT {values} FROM source;
"""


@dataclass(frozen=True)
class Jobs:
    """A JVM that runs jobs.

    Attributes:
        process: It.
        log: Where it says what is wrong.
        folder: Of catalog, tables and jobs.
    """

    process: subprocess.Popen[str]
    log: Path
    folder: Path

    def land(self, bench: Bench, table: str) -> None:
        """Land a topic into a table that is there; ends with the job."""
        workload = bench.workload
        columns = {name: _TYPES.get(type_name, type_name.upper()) for name, type_name in workload.columns.items()}
        formats = {"format": "json", "json.timestamp-format.standard": "ISO-8601"}
        if workload.schema is not None:
            formats = {"format": "avro-confluent", "avro-confluent.url": bench.registry}
            formats |= {"avro-confluent.schema": json.dumps(workload.schema)}
            columns = {name: _of_avro(type_name) for name, type_name in columns.items()}
        file = self.folder / f"{table}.sql"
        file.write_text(
            _SQL.format(
                tasks=tasks(workload.partitions, os.cpu_count() or 1),
                commit_seconds=round(COMMIT_SECONDS),
                columns=", ".join(f"`{name}` {sql_type}" for name, sql_type in columns.items()),
                topic=workload.name,
                servers=bootstrap_servers(bench.broker),
                format=", ".join(f"'{key}' = '{value}'" for key, value in formats.items()),
                folder=self.folder,
                table=table,
                values=", ".join(f"CAST(`{name}` AS {_INSTANT})" if name == "at" else f"`{name}`" for name in columns),
            )
        )
        assert self.process.stdin is not None
        self.process.stdin.write(f"{file}\n")
        self.process.stdin.flush()
        self.expect("landed")

    def expect(self, line: str) -> None:
        """Wait for what the JVM says when something is done."""
        assert self.process.stdout is not None
        said = self.process.stdout.readline().strip()
        assert said == line, f"expected {line!r}, found {said!r}\n{self.log.read_text()[-4_000:]}"


class FlinkSide:
    """The job, with tasks as Kafka Connect's sink has them."""

    name = "Flink"

    def drain(self, bench: Bench, count: int, number: int) -> Drained:
        """Land the topic, from the moment at which the job is sent. The JVM is of this drain."""
        folder = f"flink-{number}"
        project = bench.project(f"{folder}-table", engine="submit")
        with _jobs(bench.root / folder, {MARK: folder}) as jobs:
            catalog = SqlCatalog(
                "lake", uri=f"sqlite:///{jobs.folder}/catalog.db", warehouse=f"file://{jobs.folder}/warehouse"
            )
            scratch = bench.scratch
            made_table(
                scratch.project(f"{folder}-scratch", engine="submit"), scratch.workload, "bench.scratch", catalog
            )
            jobs.land(scratch, "bench.scratch")
            table = made_table(project, bench.workload, bench.workload.table, catalog)
            with meter.measured(bench.broker_pid, lambda: meter.processes_with(MARK, folder)) as reading:
                jobs.land(bench, bench.workload.table)
        result = drained(reading, table, list(bench.workload.columns), count)
        shutil.rmtree(bench.root / folder)
        return result


def _of_avro(type_name: str) -> str:
    """A type as Flink's Avro format demands it: a schema's fields can't be null, and its instants have no zone."""
    return re.sub(r"(>|\b(?:BIGINT|INT|DOUBLE|STRING|TIMESTAMP\(3\)))", r"\1 NOT NULL", type_name.replace("_LTZ", ""))


@contextmanager
def _jobs(folder: Path, marks: dict[str, str]) -> Iterator[Jobs]:
    """Start a JVM that runs jobs, wait until it is ready, end it."""
    (folder / "warehouse").mkdir(parents=True)
    home = replace(Home.resolve(), root=folder)
    fetch(home, _JARS, report=print)
    classpath = ":".join(map(str, jar_paths(home, _JARS)))
    command = [str(ensure_java().command), *_JVM, "-cp", classpath, str(JOBS)]
    log = folder / "flink.log"
    with log.open("w") as errors:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=os.environ | marks, text=True
        )
    try:
        jobs = Jobs(process, log, folder)
        jobs.expect("ready")
        yield jobs
    finally:
        process.kill()
        process.wait()
