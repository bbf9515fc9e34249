"""How long planning takes: for many partitions, and for a table of a great age.

    python -m tests.bench.plan_step

Prints seconds of `plan_run` with nothing new, best and median of ten: a pattern of 100 topics with 10 partitions each,
and a destination and a ledger of 5,000 snapshots each.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog

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

TOPICS, PARTITIONS, SNAPSHOTS, ROUNDS = 100, 10, 5_000, 10

PIPELINE = """
name: {name}
source: {source}
engine: inline
destinations: [{{table: shop.{name}, columns: {{id: long}}}}]
"""


def pipeline(name: str, source: str) -> str:
    """A pipeline file."""
    return PIPELINE.format(name=name, source=source)


def run_once(project: Project, name: str) -> None:
    """Land what is there."""
    planned = plan_run(project, project.pipeline(name), RunRequest("first"))
    if planned.plan is not None:
        ingest(project, project.pipeline(name), planned.plan, stage_inline, lambda _: None)


def timed(project: Project, name: str) -> str:
    """Best and median of planning with nothing new."""
    seconds = []
    for number in range(ROUNDS):
        began = time.perf_counter()
        planned = plan_run(project, project.pipeline(name), RunRequest(f"idle-{number}"))
        seconds.append(time.perf_counter() - began)
        if planned.plan is not None:
            sys.exit("the plan was meant to be idle")
    return f"best {min(seconds):.3f} s, median {statistics.median(seconds):.3f} s"


def grow_old(project: Project, table: str, snapshots: int = SNAPSHOTS) -> int:
    """Give a table a long past: its newest snapshots stay, thousands of older ones stand before them."""
    lake = project.lake("lake")
    loaded = lake.load_table(table)
    body: dict[str, Any] = json.loads(loaded.io.new_input(loaded.metadata_location).open().read())
    oldest = body["snapshots"][0]
    parent, past = None, []
    for number in range(snapshots - len(body["snapshots"])):
        snapshot = {**oldest, "snapshot-id": 1_000 + number, "sequence-number": 0}
        snapshot |= {"parent-snapshot-id": parent} if parent else {}
        past.append(snapshot)
        parent = snapshot["snapshot-id"]
    body["snapshots"] = [*past, {**oldest, "parent-snapshot-id": parent}, *body["snapshots"][1:]]
    path = loaded.metadata_location.replace(".metadata.json", "-old.metadata.json")
    with loaded.io.new_output(path).create() as stream:
        stream.write(json.dumps(body).encode())
    catalog = SqlCatalog(lake.name, uri=lake.uri, warehouse=lake.warehouse)
    catalog.drop_table(table)
    catalog.register_table(table, path)
    return len(lake.load_table(table).metadata.snapshots)


def main() -> None:
    """Measure both and print a line each."""
    with tempfile.TemporaryDirectory() as folder, running_broker(Path(folder) / "broker") as home:
        cluster = Cluster("local", {"bootstrap.servers": bootstrap_servers(home)})
        for number in range(TOPICS):
            create_topic(cluster, f"many.{number:03}", PARTITIONS)
        many = project(Path(folder), home, "many", pipeline("many", "{topics_pattern: 'many\\.\\d+'}"))
        run_once(many, "many")
        print(f"plan of {TOPICS} topics x {PARTITIONS} partitions: {timed(many, 'many')}")  # noqa: T201

        create_topic(cluster, "one", PARTITIONS)
        produce(cluster, "one", (OutgoingRecord(key=None, value=b'{"id": 1}') for _ in range(100)))
        old = project(Path(folder), home, "old", pipeline("old", "{topics: [one]}"))
        run_once(old, "old")
        ages = [grow_old(old, table) for table in ("shop.old", "shop.old__ledger")]
        print(f"plan with {ages} snapshots of destination and ledger: {timed(old, 'old')}")  # noqa: T201


if __name__ == "__main__":
    main()
