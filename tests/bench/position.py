"""What a plan and a batch of one record cost: by partitions, by tables, and by batches before them.

    python -m tests.bench.position [--catalog sqlite|rest] [--partitions 1 1000] [--tables 1 300] [--batches 10 7200]

Prints CPU and wall seconds, best of three, and the bytes of metadata that each commit of the two tables writes. Each round
opens the project anew, as a task of a run does. Histories are written straight into the metadata of the closing table and of
the ledger: what default maintenance lists after so many batches a minute apart, each snapshot like the last batch's.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from frazil.batch.position import RunRequest
from frazil.errors import Retryable
from frazil.iceberg.commit.expiry import BranchRules, History, Retention, SnapshotAge, plan_expiry
from frazil.kafka.admin.observe import observe
from frazil.kafka.admin.topics import create_topic
from frazil.kafka.client.cluster import Cluster, OutgoingRecord
from frazil.kafka.write.produce import produce
from frazil.project import Project
from frazil.run.batches.plan import plan_run
from frazil.run.batches.session import ingest
from frazil.run.staging.stage import stage_inline
from frazil.runtime.home import Home, bootstrap_servers, is_free
from tests.bench.stack import project, running_broker
from tests.rest_catalog import rest_catalog_server

ROUNDS = 3
FIRST_SNAPSHOT = 1_000
"""Ids of snapshots that never were: PyIceberg draws its own from 63 bits."""


@dataclass(frozen=True)
class Case:
    """One point of the grid."""

    partitions: int
    tables: int
    batches: int

    @property
    def name(self) -> str:
        """Name of pipeline and topic."""
        return f"p{self.partitions}_t{self.tables}_b{self.batches}"


@dataclass
class Cost:
    """Least seconds of all rounds, and bytes of metadata."""

    plan: float = float("inf")
    batch: float = float("inf")
    wall: float = float("inf")
    listed: int = 0
    closing: int = 0
    ledger: int = 0


def pipeline_file(case: Case) -> str:
    """A pipeline of so many tables; every record goes to the first one."""
    names = [f"shop.{case.name}_{number:03}" for number in range(case.tables)]
    body: dict[str, Any] = {"name": case.name, "source": {"topics": [case.name]}, "engine": "inline"}
    body |= {
        "start": "earliest",
        "destinations": [{"table": table, "columns": {"id": "long", "kind": "string"}} for table in names],
    }
    if case.tables > 1:
        static = {"field": "kind", "tables": {table: f"k{number:03}" for number, table in enumerate(names)}}
        body["route"] = {"static": static}
    return json.dumps(body)


def grow_old(project: Project, name: str, table: str, batches: int) -> None:
    """Put snapshots before the oldest one, each like the newest."""
    lake = project.lake_of(project.pipeline(name))
    loaded = lake.load_table(table)
    body: dict[str, Any] = json.loads(loaded.io.new_input(loaded.metadata_location).open().read())
    newest, first, oldest = body["snapshots"][-1], body["snapshots"][0], FIRST_SNAPSHOT
    count = batches - len(body["snapshots"])
    if count <= 0:
        return
    instants = [first["timestamp-ms"] - 60_000 * (count - number) for number in range(count)]
    line = [SnapshotAge(number, instants[number], number - 1 if number else None) for number in range(count)]
    line.append(SnapshotAge(count, first["timestamp-ms"], count - 1))
    properties = loaded.metadata.properties
    history = History(snapshots=line, branches={"main": BranchRules(count)}, properties=properties)
    old = plan_expiry(history, Retention(), line[-1].made_ms)
    old_ids = set(old.ids)
    past = [
        {
            **newest,
            "snapshot-id": oldest + number,
            "sequence-number": 0,
            "timestamp-ms": instants[number],
            "parent-snapshot-id": oldest + number - 1,
        }
        for number in range(count)
        if number not in old_ids
    ]
    body["snapshots"] = [*past, {**first, "parent-snapshot-id": oldest + count - 1}, *body["snapshots"][1:]]
    for hour, tag in old.tagged.items():
        body["refs"][hour] = {"snapshot-id": oldest + tag.head, "type": "tag", "max-ref-age-ms": tag.max_age_ms}
    heads = [one for one in past if one["snapshot-id"] - oldest > max(old_ids, default=-1)]
    log = [{"snapshot-id": one["snapshot-id"], "timestamp-ms": one["timestamp-ms"]} for one in heads]
    body["snapshot-log"] = [*log, *body["snapshot-log"]]
    path = loaded.metadata_location.replace(".metadata.json", "-old.metadata.json")
    with loaded.io.new_output(path).create(overwrite=True) as stream:
        stream.write(json.dumps(body).encode())
    catalog = lake.catalog_of(table)._catalog
    catalog.drop_table(table)
    catalog.register_table(table, path)


def metadata_bytes(project: Project, name: str, table: str) -> int:
    """Length of the newest metadata file."""
    loaded = project.lake_of(project.pipeline(name)).load_table(table)
    return len(loaded.io.new_input(loaded.metadata_location))


def led(cluster: Cluster, topic: str) -> None:
    """Wait until the broker leads all partitions of a new topic: of a thousand that takes a moment."""
    patient = Retrying(retry=retry_if_exception_type(Retryable), stop=stop_after_delay(60), wait=wait_fixed(0.5))
    patient(observe, cluster, [topic])


def measured(case: Case, project: Project, cluster: Cluster) -> Cost:
    """Land once, grow old, then plan and land a record per round."""
    record = OutgoingRecord(key=None, value=b'{"id": 1, "kind": "k000"}')
    cost = Cost()
    tables = (f"shop.{case.name}__ledger", *([f"shop.{case.name}_000"] if case.tables == 1 else []))
    for number in range(ROUNDS + 1):
        produce(cluster, case.name, [record])
        project = replace(project)  # a lake of its own, which has read no metadata yet
        begun, begun_cpu = time.perf_counter(), time.process_time()
        planned = plan_run(project, project.pipeline(case.name), RunRequest(f"run-{number}")).plan
        planned_cpu = time.process_time()
        assert planned is not None, "there is a record"
        ingest(project, project.pipeline(case.name), planned, stage_inline, lambda _: None)
        if number == 0:
            for table in tables:
                grow_old(project, case.name, table, case.batches)
            continue
        cost.plan = min(cost.plan, planned_cpu - begun_cpu)
        cost.batch = min(cost.batch, time.process_time() - planned_cpu)
        cost.wall = min(cost.wall, time.perf_counter() - begun)
    cost.ledger, cost.closing = (metadata_bytes(project, case.name, table) for table in (tables[0], tables[-1]))
    cost.listed = len(project.lake_of(project.pipeline(case.name)).load_table(tables[-1]).metadata.snapshots)
    return cost


@contextmanager
def settings_of(catalog: str, root: Path, home: Home) -> Iterator[str | None]:
    """The settings file of a catalog; the embedded one needs none."""
    if catalog == "sqlite":
        yield None
        return
    port = next(port for port in range(22_000, 23_000) if is_free(port))
    (root / "rest").mkdir()
    with rest_catalog_server(root / "rest", port) as server:
        clusters = {"local": {"bootstrap_servers": bootstrap_servers(home)}}
        yield json.dumps({"clusters": clusters, "catalogs": {"lake": {"type": "rest", "uri": server.uri}}})


def main() -> None:
    """Measure the grid and print a row of a table per point."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--catalog", choices=("sqlite", "rest"), default="sqlite")
    for name, sizes in (("partitions", (1, 200, 1_000)), ("tables", (1, 300)), ("batches", (10, 1_440, 43_200))):
        parser.add_argument(f"--{name}", type=int, nargs="+", default=sizes)
    args = parser.parse_args()
    columns = "batches | listed | plan, CPU s | batch, CPU s | both, s | closing table, KB | ledger, KB"
    print(f"| partitions | tables | {columns} |")  # noqa: T201
    with tempfile.TemporaryDirectory() as folder, running_broker(Path(folder) / "broker") as home:
        root, cluster = Path(folder), Cluster("local", {"bootstrap.servers": bootstrap_servers(home)})
        with settings_of(args.catalog, root, home) as settings:
            for case in (Case(*sizes) for sizes in product(args.partitions, args.tables, args.batches)):
                create_topic(cluster, case.name, case.partitions)
                led(cluster, case.name)
                of = project(root, home, case.name, pipeline_file(case), settings)
                cost = measured(case, of, cluster)
                figures = (cost.plan, cost.batch, cost.wall)
                sizes = (cost.closing // 1000, cost.ledger // 1000)
                row = [
                    case.partitions,
                    case.tables,
                    case.batches,
                    cost.listed,
                    *(f"{figure:.2f}" for figure in figures),
                    *sizes,
                ]
                print("| " + " | ".join(map(str, row)) + " |", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
