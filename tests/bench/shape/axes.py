"""The axes along which a pipeline can grow, and what is landed at each point of them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final

from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from frazil.batch.facts import Staged
from frazil.batch.position import RunRequest
from frazil.error_codes import STOP_REQUESTED
from frazil.errors import Retryable, Stopped
from frazil.kafka.admin.topics import create_topic
from frazil.kafka.client.cluster import Cluster
from frazil.project import Project
from frazil.run.batches.plan import plan_run, run_result
from frazil.run.batches.session import ingest
from frazil.run.staging.stage import StageOrder, stage_inline
from frazil.runtime.home import Home, bootstrap_servers
from tests.bench.plan_step import grow_old
from tests.bench.shape.cost import Cost, costing
from tests.bench.side_by_side.topics import fill
from tests.bench.side_by_side.workloads import WORKLOADS, Records
from tests.bench.stack import project

COLUMNS: Final = {"id": {"type": "long", "required": True}, "kind": "string", "name": "string", "price": "double"}
ORDERS: Final = WORKLOADS["orders"]
_LIMIT: Final = 50_000_000


@dataclass(frozen=True)
class Ground:
    """Where axes are measured.

    Attributes:
        root: Folder of the bench.
        broker: The stack whose broker it is.
    """

    root: Path
    broker: Home

    @property
    def cluster(self) -> Cluster:
        """The broker."""
        return Cluster("local", {"bootstrap.servers": bootstrap_servers(self.broker)})

    def pipeline(self, name: str, **parts: Any) -> Project:
        """A project of one pipeline that reads the topic of its name, and has its tables and its start position."""
        body = {"name": name, "source": {"topics": [name]}, "start": "earliest", "engine": "inline"}
        body |= {"dead_letters": {"tolerance": "all"}}
        body |= {"limits": {"max_records": _LIMIT, "records_per_task": _LIMIT}} | parts
        of = project(self.root, self.broker, name, json.dumps(body))
        # A broker needs a moment to lead a thousand new partitions.
        patient = Retrying(retry=retry_if_exception_type(Retryable), stop=stop_after_delay(60), wait=wait_fixed(0.5))
        patient(plan_run, of, of.pipeline(name), RunRequest("begin"))
        return of

    def fill(self, topic: str, records: Records, count: int, partitions: int) -> None:
        """Send records to a topic, evenly."""
        fill(self.cluster, topic, partitions, records, count)

    def landed(self, project: Project, name: str, size: int, records: int, run: str = "run") -> Cost:
        """Plan and land what waits, which must be so many records."""
        pipeline = project.pipeline(name)
        with costing(size, records) as cost:
            planned = plan_run(project, pipeline, RunRequest(run))
            assert planned.plan is not None
            ingest(project, pipeline, planned.plan, stage_inline, lambda _: None)
        done = run_result(project, pipeline, run)
        assert done.read == records == done.written + done.dead, f"{name}: {done} of {records} records"
        return cost


def _pool(columns: int = 4, kinds: int = 1, dead: float = 0.0) -> Records:
    chance, values = random.Random(1), []
    for n in range(10_000):
        one: dict[str, Any] = {"id": n, "kind": f"k{n % kinds:03}", "name": f"order {n}", "price": n / 4}
        one |= {f"c{number:03}": f"text {number}" if number % 2 else n + number for number in range(4, columns)}
        if chance.random() < dead:
            one["id"] = f"no {n}"
        values.append(json.dumps(one).encode())
    return lambda n: values[n % len(values)]


def _one(ground: Ground, name: str, columns: dict[str, Any] | None = None, **parts: Any) -> Project:
    return ground.pipeline(name, destinations=[{"table": f"shop.{name}", "columns": columns or COLUMNS}], **parts)


def batch(ground: Ground, size: int) -> Cost:
    """Nested JSON orders in one batch."""
    name = f"batch{size}"
    create_topic(ground.cluster, name, 4)
    pipeline = _one(ground, name, ORDERS.columns)
    ground.fill(name, ORDERS.records(), size, 4)
    return ground.landed(pipeline, name, size, size)


def partitions(ground: Ground, size: int, records: int) -> Cost:
    """The same records in more partitions."""
    name = f"partitions{size}"
    create_topic(ground.cluster, name, size)
    pipeline = _one(ground, name)
    ground.fill(name, _pool(), records, size)
    return ground.landed(pipeline, name, size, records)


def idle(ground: Ground, size: int, records: int) -> Cost:
    """The same records in four partitions, beside those of a topic without any."""
    name = f"idle{size}"
    create_topic(ground.cluster, name, 4)
    create_topic(ground.cluster, f"{name}.idle", size)
    pipeline = _one(ground, name, source={"topics": [name, f"{name}.idle"]})
    ground.fill(name, _pool(), records, 4)
    return ground.landed(pipeline, name, size, records)


def columns(ground: Ground, size: int, values: int) -> Cost:
    """As many values in wider records: the table's cost per record grows with its columns, that per value should not."""
    name, records = f"columns{size}", values // size
    create_topic(ground.cluster, name, 4)
    pipeline = _one(
        ground, name, COLUMNS | {f"c{number:03}": "string" if number % 2 else "long" for number in range(4, size)}
    )
    ground.fill(name, _pool(size), records, 4)
    return ground.landed(pipeline, name, size, records)


def tables(ground: Ground, size: int, records: int) -> Cost:
    """The same records, routed to more tables."""
    name = f"tables{size}"
    create_topic(ground.cluster, name, 4)
    named = [f"shop.{name}_{number:03}" for number in range(size)]
    routed = {"static": {"field": "kind", "tables": {table: f"k{index:03}" for index, table in enumerate(named)}}}
    parts: dict[str, Any] = {"destinations": [{"table": table, "columns": COLUMNS} for table in named]}
    pipeline = ground.pipeline(name, **parts | ({"route": routed} if size > 1 else {}))
    ground.fill(name, _pool(kinds=size), records, 4)
    return ground.landed(pipeline, name, size, records)


def age(ground: Ground, size: int, records: int) -> Cost:
    """The same batch into a table, and beside a ledger, of more snapshots."""
    name = f"age{size}"
    create_topic(ground.cluster, name, 4)
    pipeline = _one(ground, name)
    ground.fill(name, _pool(), records, 4)
    ground.landed(pipeline, name, size, records, "first")
    for table in (f"shop.{name}", f"shop.{name}__ledger"):
        grow_old(pipeline, table, size)
    ground.fill(name, _pool(), records, 4)
    # As the task of a run finds them: a lake of its own, which has read none of them.
    return ground.landed(replace(pipeline), name, size, records)


def dead(ground: Ground, size: int, records: int) -> Cost:
    """The same records, more of them dead letters: so many in 1,000."""
    name = f"dead{size}"
    create_topic(ground.cluster, name, 4)
    pipeline = _one(ground, name)
    ground.fill(name, _pool(dead=size / 1000), records, 4)
    return ground.landed(pipeline, name, size, records)


def backlog(ground: Ground, size: int, records: int) -> Cost:
    """Planning and the first batch, with more records behind it."""
    name = f"backlog{size}"
    create_topic(ground.cluster, name, 4)
    pipeline = _one(ground, name, limits={"max_records": records, "records_per_task": records})
    ground.fill(name, _pool(), size, 4)
    batches = count()

    def first(order: StageOrder) -> Staged:
        if next(batches):
            raise Stopped("the first batch is landed", code=STOP_REQUESTED)
        return stage_inline(order)

    with costing(size, records) as cost:
        planned = plan_run(pipeline, pipeline.pipeline(name), RunRequest("run"))
        assert planned.plan is not None
        with suppress(Stopped):
            ingest(pipeline, pipeline.pipeline(name), planned.plan, first, lambda _: None)
    assert run_result(pipeline, pipeline.pipeline(name), "run").read == records
    return cost


@dataclass(frozen=True)
class Axis:
    """One thing that grows.

    Attributes:
        what: Head of its column.
        measure: Lands what a size means.
        sizes: All of them.
        quick: Those of a quick run.
    """

    what: str
    measure: Callable[[Ground, int], Cost]
    sizes: tuple[int, ...]
    quick: tuple[int, ...]


AXES: Final = {
    "batch": Axis(
        "records in the batch",
        batch,
        (10_000, 100_000, 500_000, 2_000_000, 5_000_000, 20_000_000),
        (10_000, 50_000, 200_000, 500_000),
    ),
    "partitions": Axis("partitions", partial(partitions, records=200_000), (1, 10, 100, 300, 1_000), (1, 10, 100, 300)),
    "idle": Axis("idle partitions", partial(idle, records=50_000), (1, 10, 100, 300, 1_000), (1, 100, 300)),
    "columns": Axis("columns", partial(columns, values=5_000_000), (5, 20, 50, 100, 200, 500), (5, 50, 200, 500)),
    "tables": Axis("tables", partial(tables, records=200_000), (1, 5, 20, 50, 100), (1, 10, 50)),
    "age": Axis("snapshots", partial(age, records=10_000), (10, 100, 1_000, 3_000, 10_000), (10, 1_000, 3_000)),
    "dead": Axis("dead in 1,000", partial(dead, records=200_000), (0, 1, 10, 100, 300, 500), (0, 10, 100, 500)),
    "backlog": Axis(
        "records that wait",
        partial(backlog, records=50_000),
        (100_000, 500_000, 2_000_000, 5_000_000, 20_000_000),
        (100_000, 500_000, 1_000_000),
    ),
}
"""By name."""
