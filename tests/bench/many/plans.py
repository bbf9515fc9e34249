"""What an idle plan costs: CPU, connections, requests to Kafka, tables loaded."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from frazil.batch.plan import Threshold
from frazil.batch.position import RunRequest
from frazil.kafka.client import client as kafka_client
from frazil.kafka.client.client import Admin
from frazil.kafka.client.cluster import Cluster
from frazil.project import Project
from frazil.report.lag import LagWatch
from frazil.run.batches.plan import plan_run
from frazil.runtime.home import Home, bootstrap_servers
from tests.bench.many.files import names, topics_of, write

PLANNED = 25
"""Pipelines that are planned, of all that there are: the others only have their files and topics."""

ROUNDS = 4
_ENOUGH = Threshold(1_000_000, None)
TOPICS_AT_ONCE = 200


def make_topics(home: Home, topics: list[str]) -> None:
    """Topics of one partition."""
    client = AdminClient({"bootstrap.servers": bootstrap_servers(home)})
    for begin in range(0, len(topics), TOPICS_AT_ONCE):
        some = [NewTopic(topic, 1, 1) for topic in topics[begin : begin + TOPICS_AT_ONCE]]
        futures = client.create_topics(some, request_timeout=120, operation_timeout=120)
        for future in futures.values():
            future.result()


def report(folder: Path, home: Home, count: int, each: int) -> Iterator[str]:
    """A line per measurement, over one broker with all topics."""
    env = {**write(folder, count, each), "FRAZIL_KAFKA_PORT": str(home.ports.kafka)}
    make_topics(home, [topic for name in names(count) for topic in topics_of(name, each)])
    chosen = names(count)[:PLANNED]
    project = Project.load(env)
    with _counted() as calls:
        yield f"first plans, which make three tables: {_plans(project, chosen)}"
        before = calls["tables"]
        yield f"idle plans: {_plans(project, chosen * ROUNDS)}"
    each_loads = (calls["tables"] - before) / len(chosen) / ROUNDS
    yield f"an idle plan loads {each_loads:.1f} tables; all plans opened {calls['clients']} connections to the cluster"
    yield f"looks of a trigger: {_looks(project, chosen)}"
    pattern = folder / "pipelines" / "pattern.yaml"
    text = (folder / "pipelines" / f"{chosen[0]}.yaml").read_text()
    pattern.write_text(text.replace(_topics(text), "{topics_pattern: 'p0001[.].*'}").replace(chosen[0], "pattern"))
    project = Project.load(env)
    _plans(project, ["pattern"])
    yield f"idle plans of a pattern, with {count * each} topics: {_plans(project, ['pattern'] * PLANNED)}"


@contextmanager
def _counted() -> Iterator[Counter[str]]:
    """Counts what a plan asks for: tables of the catalog, and clients of the cluster."""
    calls: Counter[str] = Counter()
    load, make = SqlCatalog.load_table, kafka_client._ADMINS.make

    def counting_load(self: SqlCatalog, identifier: str) -> Table:
        calls["tables"] += 1
        return load(self, identifier)

    def counting_make(cluster: Cluster) -> Admin:
        calls["clients"] += 1
        return make(cluster)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SqlCatalog, "load_table", counting_load)
        patch.setattr(kafka_client._ADMINS, "make", counting_make)
        yield calls


def _topics(text: str) -> str:
    """What stands behind `source:`."""
    return next(line.partition(": ")[2] for line in text.splitlines() if line.startswith("source:"))


def _looks(project: Project, names: list[str]) -> str:
    """What `trigger` costs: a look at Kafka, most of the time without the tables."""
    watches = [LagWatch(project, project.pipeline(name)) for name in names]
    for watch in watches:
        watch.measure(_ENOUGH)
    cpu, began = time.process_time(), time.perf_counter()
    for watch in watches * ROUNDS:
        watch.measure(_ENOUGH)
    return _each(cpu, began, len(watches) * ROUNDS)


def _plans(project: Project, names: list[str]) -> str:
    cpu, began = time.process_time(), time.perf_counter()
    for name in names:
        plan_run(project, project.pipeline(name), RunRequest("bench"))
    return _each(cpu, began, len(names))


def _each(cpu: float, began: float, count: int) -> str:
    """CPU and wall time of each, from what the clocks said before."""
    cpu, seconds = time.process_time() - cpu, time.perf_counter() - began
    return f"{1_000 * cpu / count:.1f} CPU ms, {1_000 * seconds / count:.1f} ms each"
