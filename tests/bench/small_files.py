"""The small-file case: `payments` with 100 partitions, a commit per payment, and what maintenance makes of it.

    python -m tests.bench.small_files [--batches 500] [--partitions 100]

Lands one payment per batch with the inline engine, each into the next partition, lets the snapshots get older than the
minute after which they may go here, and maintains the tables with a real Spark job. Prints the tables before and after, the
seconds of each step, and the median batch at the beginning, at the end, and after the maintenance.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from frazil.batch.position import RunRequest
from frazil.kafka.admin.topics import create_topic
from frazil.kafka.client.cluster import Cluster, OutgoingRecord
from frazil.kafka.write.produce import produce
from frazil.maintain.need import Order
from frazil.maintain.run import MaintenanceResult
from frazil.project import Project
from frazil.run.batches.plan import plan_run
from frazil.run.batches.session import ingest
from frazil.run.staging.stage import stage_inline
from frazil.runtime.home import bootstrap_servers, private_folder, project_root
from frazil.spark.submit.submission import maintenance_run, run_maintenance
from frazil.verify.check import verify
from tests.bench.stack import project, running_broker

NAME, ROUNDS, SOME = "payments", 5, 50
AGE_SECONDS = 60.0

MAINTENANCE = """
engine: inline
maintenance:
  expiry: {older_than: 1m, keep: 1}
"""


@dataclass(frozen=True, slots=True)
class Scan:
    """What a reader meets: files and bytes in the table's folder, seconds of reading all rows, best of some."""

    stored_files: int
    stored_bytes: int
    seconds: float


def pay(project: Project, cluster: Cluster, number: int, partitions: int) -> float:
    """Send one payment and land it; how long the run took."""
    body = {"id": str(number), "type": "debit", "created_at": "2026-05-01T10:00:00Z", "payer": "p", "amount": number}
    body["document"] = f"{number % partitions:03}"
    produce(cluster, NAME, [OutgoingRecord(key=None, value=json.dumps(body).encode())])
    began = time.monotonic()
    planned = plan_run(project, project.pipeline(NAME), RunRequest(f"run-{number}"))
    assert planned.plan is not None
    ingest(project, project.pipeline(NAME), planned.plan, stage_inline, lambda _: None)
    return time.monotonic() - began


def scanned(project: Project, table: str) -> Scan:
    """Read a table as a reader without an engine does."""
    lake, seconds = project.lake_of(project.pipeline(NAME)), []
    for _ in range(ROUNDS):
        began = time.monotonic()
        lake.load_table(table).scan().to_arrow()
        seconds.append(time.monotonic() - began)
    folder = Path(lake.load_table(table).metadata.location.removeprefix("file://"))
    files = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    return Scan(len(files), sum(files), min(seconds))


def rows(result: MaintenanceResult, before: dict[str, Scan], after: dict[str, Scan]) -> list[str]:
    """The tables, before and after."""
    lines = ["| table | | health | data files | bytes | manifests | snapshots | files stored | bytes stored | scan s |"]
    lines.append("|---|---|---|---|---|---|---|---|---|---|")
    for table in result.tables:
        for when, facts, scan in (
            ("before", table.before, before[table.table]),
            ("after", table.after, after[table.table]),
        ):
            figures = f"{facts.score} | {facts.files:,} | {facts.bytes:,} | {facts.manifests} | {facts.snapshots:,}"
            stored = f"{scan.stored_files:,} | {scan.stored_bytes:,} | {scan.seconds:.2f}"
            lines.append(f"| {table.table} | {when} | {figures} | {stored} |")
    return lines


def measured(project: Project, cluster: Cluster, batches: int, partitions: int) -> None:
    """Land, maintain, and print."""
    took = [pay(project, cluster, number, partitions) for number in range(batches)]
    pipeline = project.pipeline(NAME)
    tables = (*pipeline.tables, pipeline.ledger_table)
    time.sleep(AGE_SECONDS)
    before = {table: scanned(project, table) for table in tables}
    private_folder(project.home.logs)
    began = time.monotonic()
    text = run_maintenance(project, pipeline, maintenance_run("bench"), Order().to_json(), print)
    seconds = time.monotonic() - began
    assert text is not None
    result = MaintenanceResult.from_json(text)
    after = {table: scanned(project, table) for table in tables}
    since = [pay(project, cluster, batches + number, partitions) for number in range(SOME)]
    result_of_tables = MaintenanceResult(NAME, tuple(each for each in result.tables if each.table in tables))
    lines = [*rows(result_of_tables, before, after), *(line for each in result.tables for line in each.lines)]
    lines.append(f"maintenance: {seconds:.1f} s with the start of Spark, {result.seconds:.1f} s without")
    medians = (statistics.median(part) for part in (took[:SOME], took[-SOME:], since))
    lines.append("median batch at first, at last, after: {:.3f} s, {:.3f} s, {:.3f} s".format(*medians))
    lines.append(f"clean: {verify(project, pipeline).is_clean}")
    print("\n".join(lines))  # noqa: T201


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=500)
    parser.add_argument("--partitions", type=int, default=100)
    args = parser.parse_args()
    delivered = (project_root() / "include" / "pipelines" / f"{NAME}.yaml").read_text()
    with tempfile.TemporaryDirectory() as folder, running_broker(Path(folder) / "broker") as home:
        cluster = Cluster("local", {"bootstrap.servers": bootstrap_servers(home)})
        create_topic(cluster, NAME, 1)
        measured(project(Path(folder), home, NAME, delivered + MAINTENANCE), cluster, args.batches, args.partitions)


if __name__ == "__main__":
    main()
