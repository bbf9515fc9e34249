"""What fan-out costs: the same records into one table, and routed into fifty.

    python -m tests.bench.fan_out [--records 500000] [--tables 50] [--rounds 3]

Prints seconds of a whole run (plan, stage, decide, give every table its part) by the `inline` engine, the best of the
rounds, of pipelines that ran before, so that their tables are there; and the ratio.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from frazil.batch.position import RunRequest
from frazil.kafka.admin.topics import create_topic
from frazil.kafka.client.cluster import Cluster, OutgoingRecord
from frazil.kafka.write.produce import produce
from frazil.project import Project
from frazil.run.batches.plan import plan_run
from frazil.run.batches.session import ingest
from frazil.run.staging.stage import stage_inline
from frazil.runtime.home import bootstrap_servers
from tests.bench.stack import project, running_broker

PARTITIONS = 4
LIMIT = 2.5
"""Of the time of one table, for fifty."""

PIPELINE = """
name: {name}
source: {{topics: [events]}}
engine: inline
limits: {{records_per_task: 5000000}}
destinations:
{destinations}
"""


def pipeline(name: str, tables: int) -> str:
    """A pipeline file with so many destinations of the same columns."""
    columns = "{id: {type: long, required: true}, kind: string, name: string, amount: double, city: string}"
    names = [f"{name}.t{number:02}" for number in range(tables)]
    text = PIPELINE.format(
        name=name, destinations="\n".join(f"  - {{table: {table}, columns: {columns}}}" for table in names)
    )
    if tables == 1:
        return text
    kinds = ", ".join(f"{table}: k{number:02}" for number, table in enumerate(names))
    return text + f"route: {{static: {{field: kind, tables: {{{kinds}}}}}}}\n"


def fill(cluster: Cluster, first: int, count: int, tables: int) -> None:
    """Send records whose field `kind` says the table."""
    values = (
        {"id": n, "kind": f"k{n % tables:02}", "name": f"order {n}", "amount": n / 4, "city": f"city {n % 1000}"}
        for n in range(first, first + count)
    )
    produce(
        cluster,
        "events",
        (OutgoingRecord(key=b"%d" % value["id"], value=json.dumps(value).encode()) for value in values),
    )


def seconds_of_run(project: Project, name: str, run: str) -> float:
    """Land what is there, and return how long it took."""
    began = time.perf_counter()
    planned = plan_run(project, project.pipeline(name), RunRequest(run))
    if planned.plan is None:
        sys.exit(f"pipeline {name}: nothing to land")
    ingest(project, project.pipeline(name), planned.plan, stage_inline, lambda _: None)
    return time.perf_counter() - began


def main() -> int:
    """Measure, print, and return 1 if many tables take more than the limit."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, default=500_000)
    parser.add_argument("--tables", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, running_broker(Path(folder) / "broker") as home:
        cluster = Cluster("local", {"bootstrap.servers": bootstrap_servers(home)})
        create_topic(cluster, "events", PARTITIONS)
        fill(cluster, 0, 1_000, args.tables)
        tables_of_kinds = {
            name: project(Path(folder), home, name, pipeline(name, tables))
            for name, tables in (("one", 1), ("many", args.tables))
        }
        for name, one in tables_of_kinds.items():
            seconds_of_run(one, name, "first")
        best = dict.fromkeys(tables_of_kinds, float("inf"))
        for number in range(args.rounds):
            fill(cluster, 1_000 + number * args.records, args.records, args.tables)
            for name, one in tables_of_kinds.items():
                best[name] = min(best[name], seconds_of_run(one, name, f"round-{number}"))
    ratio = best["many"] / best["one"]
    print(  # noqa: T201
        f"{args.records:,} records into 1 table: {best['one']:.2f} s, into {args.tables}: {best['many']:.2f} s,"
        f" ratio {ratio:.2f}"
    )
    return 1 if ratio > LIMIT else 0


if __name__ == "__main__":
    sys.exit(main())
