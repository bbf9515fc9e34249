"""What a compaction costs the batches beside it: seconds from the decision's begin to the ledger's row.

    python -m tests.bench.beside_compaction [--files 60] [--rows 100000]

Lands small batches with the inline engine: some alone, then as many as fit beside a real maintenance job that compacts the
same table. Prints median and largest of `decide` and `forward` for both, and how long the compaction took.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa

from frazil.batch.position import RunRequest
from frazil.kafka.admin.topics import create_topic
from frazil.kafka.client.cluster import Cluster, OutgoingRecord
from frazil.kafka.write.produce import produce
from frazil.maintain.need import Order
from frazil.maintain.run import MaintenanceResult
from frazil.project import Project
from frazil.report.history import history
from frazil.run.batches.plan import plan_run
from frazil.run.batches.session import ingest
from frazil.run.staging.stage import stage_inline
from frazil.runtime.home import bootstrap_servers, private_folder
from frazil.runtime.process import until
from frazil.spark.submit.submission import maintenance_run, run_maintenance
from tests.bench.stack import project, running_broker

NAME, TABLE, ALONE = "orders", "shop.orders", 40
SECONDS = 600.0

PIPELINE = """
name: orders
source: {topics: [orders]}
engine: inline
destinations: [{table: shop.orders, columns: {id: long, text: string}}]
"""


def land(project: Project, cluster: Cluster, number: int) -> None:
    """Send ten orders and land them."""
    body = json.dumps({"id": number, "text": "x"}).encode()
    produce(cluster, NAME, [OutgoingRecord(key=None, value=body)] * 10)
    planned = plan_run(project, project.pipeline(NAME), RunRequest(f"run-{number}"))
    assert planned.plan is not None
    ingest(project, project.pipeline(NAME), planned.plan, stage_inline, lambda _: None)


def filled(project: Project, files: int, rows: int) -> None:
    """Somebody else's rows, in small files: what a compaction has to do."""
    for number in range(files):
        table = project.lake("lake").load_table(TABLE)
        ids = range(number * rows, (number + 1) * rows)
        table.append(pa.table({"id": pa.array(ids, pa.int64()), "text": [f"order {of * 7919}" for of in ids]}))


def figures_of(seconds: list[float]) -> str:
    """Median and largest."""
    return f"median {statistics.median(seconds):.3f} s, largest {max(seconds):.3f} s, {len(seconds)} batches"


def measured(project: Project, cluster: Cluster, files: int, rows: int) -> None:
    """Land alone, then beside a compaction, and print."""
    land(project, cluster, 0)
    filled(project, files, rows)
    for number in range(1, ALONE + 1):
        land(project, cluster, number)
    private_folder(project.home.logs)
    lines: list[tuple[str, float]] = []
    order = Order(TABLE, ("compaction",), force=True).to_json()
    with ThreadPoolExecutor(1) as pool:
        job: Future[str | None] = pool.submit(
            run_maintenance,
            project,
            project.pipeline(NAME),
            maintenance_run("bench"),
            order,
            lambda line: lines.append((line, time.time())),
        )
        until(lambda: bool(lines) or job.done(), SECONDS)
        number = ALONE
        while not job.done():
            number += 1
            land(project, cluster, number)
        text = job.result()
    assert text is not None
    (table,) = MaintenanceResult.from_json(text).tables
    (step,) = table.steps
    began = lines[0][1]
    batches = [batch for batch in history(project, project.pipeline(NAME)) if batch.n > 1]
    took = {batch.n: batch.phases["decide"] + batch.phases["forward"] for batch in batches}
    ended = began + step.seconds
    overlapping = [took[batch.n] for batch in batches if began <= batch.committed_at.timestamp() <= ended]
    alone = [took[batch.n] for batch in batches if batch.n <= ALONE]
    print(f"compaction: {step.line}; {table.before.files} -> {table.after.files} files")  # noqa: T201
    print(f"alone:  {figures_of(alone)}\nbeside: {figures_of(overlapping)}")  # noqa: T201


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=60)
    parser.add_argument("--rows", type=int, default=100_000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, running_broker(Path(folder) / "broker") as home:
        cluster = Cluster("local", {"bootstrap.servers": bootstrap_servers(home)})
        create_topic(cluster, NAME, 1)
        measured(project(Path(folder), home, NAME, PIPELINE), cluster, args.files, args.rows)


if __name__ == "__main__":
    main()
