"""Draining a backlog, by Frazil and by Kafka Connect's Iceberg sink, on one broker, one after the other, several times.

    python -m tests.bench.side_by_side.drain [--workload orders] [--records 5000000] [--rounds 3]

Both land the same topic, each into a table of its own in a SQLite catalog, from the beginning. Measured from the start of the
command (`frazil run`; the request that starts a connector, on a worker that is warm) until the last record is in a snapshot.
Then both tables are read, and every column is compared. Exits with 1 if they differ, and only then.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from frazil.iceberg.schema import declared_schema
from frazil.kafka.cluster import Cluster
from frazil.local.home import Home, bootstrap_servers
from frazil.local.port import is_free
from frazil.local.waiting import until
from frazil.project import Project
from tests.bench.side_by_side import meter
from tests.bench.side_by_side.contents import Contents, contents, rows_of
from tests.bench.side_by_side.sink import CATALOG, SinkWorker, control_topic, sink_worker
from tests.bench.side_by_side.topics import fill
from tests.bench.side_by_side.workloads import WORKLOADS, Workload
from tests.bench.stack import environment, project, running_broker

MARK: Final = "FRAZIL_BENCH"
"""Environment variable by which the processes of a side are known."""

COMMIT_SECONDS: Final = 10.0
LANDED_SECONDS: Final = 1_800.0

SETTINGS: Final = """
clusters: {local: {bootstrap_servers: "${local:kafka}"}}
catalogs:
  lake: {type: jdbc, uri: "sqlite:///${local:home}/catalog.db", warehouse: "file://${local:home}/warehouse"}
"""


@dataclass(frozen=True)
class Drained:
    """One drain of one side.

    Attributes:
        side: Who.
        seconds: From the start of the command to the last snapshot.
        cpu_seconds: Of the machine, in that time.
        peak_bytes: Memory of the side's processes.
        held: What the table holds.
    """

    side: str
    seconds: float
    cpu_seconds: float
    peak_bytes: int
    held: Contents


@dataclass(frozen=True)
class Bench:
    """What all drains share.

    Attributes:
        root: Folder of the bench.
        broker: The stack whose broker it is.
        workload: What is landed.
        count: Records in the topic.
    """

    root: Path
    broker: Home
    workload: Workload
    count: int

    @property
    def cluster(self) -> Cluster:
        """The broker."""
        return Cluster("local", {"bootstrap.servers": bootstrap_servers(self.broker)})


def by_frazil(bench: Bench, number: int) -> Drained:
    """Land the topic with `frazil run`, in a home of its own."""
    root = bench.root / f"frazil-{number}"
    root.mkdir()
    project_env = environment(root, bench.broker, bench.workload.name, bench.workload.pipeline, SETTINGS)
    of, env = Project.load(project_env), os.environ | project_env | {MARK: root.name}
    command = [sys.executable, "-m", "frazil.cli", "run", bench.workload.name, "--json"]
    with meter.measured(lambda: meter.processes_with(MARK, root.name)) as reading:
        ran = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["written"] == bench.count, ran.stdout
    table = of.lake_of(of.pipeline(bench.workload.name)).load_table(bench.workload.table)
    held = contents(table, list(bench.workload.columns))
    shutil.rmtree(root)
    return Drained("frazil", reading.seconds, reading.cpu_seconds, reading.peak_bytes, held)


def sink_table(of: Project, worker: SinkWorker, workload: Workload, number: int) -> Table:
    """The table of a connector, with the columns that the records have."""
    (destination,) = of.pipeline(workload.name).destinations
    schema = declared_schema(destination.model_copy(update={"kafka_columns": False}))
    catalog = SqlCatalog(CATALOG, uri=f"sqlite:///{worker.catalog}", warehouse=f"file://{worker.warehouse}")
    catalog.create_namespace_if_not_exists("bench")
    return catalog.create_table(f"bench.{workload.name}_{number}", schema, properties={"format-version": "2"})


def by_sink(bench: Bench, worker: SinkWorker, of: Project, number: int) -> Drained:
    """Land the topic with a connector of its own on a warm worker."""
    name, table = f"{bench.workload.name}-{number}", sink_table(of, worker, bench.workload, number)
    control_topic(bench.cluster, name)
    with meter.measured(lambda: meter.processes_with(MARK, "sink")) as reading:
        worker.begin(
            name,
            bench.workload.name,
            ".".join(table.name()),
            tasks=os.cpu_count() or 1,
            commit_seconds=COMMIT_SECONDS,
            more={},
        )
        _wait(lambda: rows_of(table) >= bench.count, lambda: worker.failure(name))
    worker.end(name)
    held = contents(table, list(bench.workload.columns))
    return Drained("kafka connect", reading.seconds, reading.cpu_seconds, reading.peak_bytes, held)


def _wait(landed: Callable[[], bool], failure: Callable[[], str | None]) -> None:
    deadline = time.monotonic() + LANDED_SECONDS
    while not until(landed, 5.0, 0.5):
        said = failure()
        assert said is None, said
        assert time.monotonic() < deadline, f"not landed within {LANDED_SECONDS:.0f} s"


def differences(of: list[Drained], count: int) -> list[str]:
    """In what the tables differ from each other, or from the topic; empty if they hold the same."""
    said = [f"{each.side}: {each.held.rows:,} rows of {count:,} records" for each in of if each.held.rows != count]
    first = of[0].held.digests
    for each in of[1:]:
        other = [name for name, digest in each.held.digests.items() if digest != first[name]]
        said += [f"{each.side}: column {name} is not that of {of[0].side}" for name in other]
    return said


def report(bench: Bench, size: int, drained: Mapping[str, list[Drained]]) -> list[str]:
    """The table of the report: medians of each side, and the ratios."""
    lines = [
        "| side | records/s | MB/s per core | CPU s per million | peak memory MB | files | MB written | seconds of each |"
    ]
    lines.append("|---|---|---|---|---|---|---|---|")
    medians = {}
    for side, rounds in drained.items():
        seconds = statistics.median(of.seconds for of in rounds)
        cpu = statistics.median(of.cpu_seconds for of in rounds) * 1e6 / bench.count
        medians[side] = bench.count / seconds, cpu
        held, cores = rounds[-1].held, os.cpu_count() or 1
        peak = max(of.peak_bytes for of in rounds) / 1e6
        lines.append(
            f"| {side} | {bench.count / seconds:,.0f} | {size / seconds / cores / 1e6:.1f} | {cpu:.1f} | {peak:,.0f} |"
            f" {held.files} | {held.bytes / 1e6:,.0f} | {', '.join(f'{of.seconds:.1f}' for of in rounds)} |"
        )
    (rate, cpu), (other_rate, other_cpu) = medians.values()
    return [*lines, "", f"throughput ratio: {rate / other_rate:.2f}", f"CPU ratio: {cpu / other_cpu:.2f}"]


def drain(bench: Bench, rounds: int) -> int:
    """Fill the topic, drain it by turns, and print. Returns 1 if the tables differ."""
    size = fill(bench.cluster, bench.workload.name, bench.workload.partitions, bench.workload.pool(), bench.count)
    said = f"{bench.workload.said}, {bench.count:,} records of {size / bench.count:.0f} bytes, {bench.workload.partitions} partitions"
    print(said, flush=True)  # noqa: T201
    port = next(port for port in range(23_000, 24_000) if is_free(port))
    drained: dict[str, list[Drained]] = {"frazil": [], "kafka connect": []}
    (bench.root / "files").mkdir()
    of = project(bench.root / "files", bench.broker, bench.workload.name, bench.workload.pipeline, SETTINGS)
    for number in range(rounds):
        drained["frazil"].append(by_frazil(bench, number))
        # A worker of each round, so that none runs beside Frazil.
        with sink_worker(bench.root / f"sink-{number}", bench.broker, port, {MARK: "sink"}) as worker:
            drained["kafka connect"].append(by_sink(bench, worker, of, number))
    print("\n".join(report(bench, size, drained)), flush=True)  # noqa: T201
    wrong = differences([each for side in drained.values() for each in side], bench.count)
    print("\n".join(wrong) or "both hold the same", flush=True)  # noqa: T201
    return 1 if wrong else 0


def main() -> int:
    """Measure, print, and return whether the results were wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", choices=list(WORKLOADS), default="orders")
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, running_broker(Path(folder) / "broker") as broker:
        return drain(Bench(Path(folder), broker, WORKLOADS[given.workload], given.records), given.rounds)


if __name__ == "__main__":
    sys.exit(main())
