"""A trickle of records, or none: how soon each is visible, and what landing it costs, of Frazil and of Kafka Connect.

Freshness of a record is the instant of the commit that made it visible less the instant at which it was made, which it carries
in its column `at`. Those of the first two intervals are left out: sides are starting. Frazil is one run that stays and lands at
every interval; what runs that end take can't be told from outside of them. CPU time is that of the side's processes
while records come; kept beside it is the machine's, less that of the measuring process, which makes them, of the broker, and
what the machine takes for itself when only the broker runs.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from pyiceberg.table import Table

from frazil.kafka.admin.topics import create_topic
from frazil.kafka.client.cluster import OutgoingRecord
from frazil.kafka.write.produce import produce
from frazil.project import Project
from tests.bench.side_by_side import frazil_side, meter, sink_side
from tests.bench.side_by_side.bench import MARK, Bench, bench, server_ended
from tests.bench.side_by_side.contents import landed, rows_of
from tests.bench.side_by_side.sides import wait
from tests.bench.side_by_side.sink import control_topic
from tests.bench.side_by_side.workloads import WORKLOADS

COLUMN: Final = "at"
FRAZIL, SINK = "frazil", "sink"
"""Folders of the sides, and marks of their processes."""
_BASE_SECONDS: Final = 10.0
_START_SECONDS: Final = 20.0
_BUSY_POLL_SECONDS: Final = 1.0
_IDLE_POLL_SECONDS: Final = 60.0
"""Kafka Connect's own default: see `tests.bench.side_by_side.sink`."""
_LANDED_SECONDS: Final = 300.0
_STAYS: Final = "1h"
"""More than a trickle takes."""
_FIGURES: Final = {"p50": 0.50, "p95": 0.95, "p99": 0.99, "max": 1.0}


@dataclass(frozen=True)
class TrickleOrder:
    """What is to be measured.

    Attributes:
        rate: Records per second; 0 for none.
        interval_seconds: Commit interval.
        minutes: How long.
        engine: Frazil's.
    """

    rate: int
    interval_seconds: float
    minutes: float
    engine: str

    @property
    def seconds(self) -> float:
        """How long."""
        return self.minutes * 60


def trickle(root: Path, order: TrickleOrder, results: dict[str, Any], report: Callable[[str], None]) -> None:
    """Measure both sides, one after the other, each with a topic of its own.

    Args:
        root: Folder of the bench.
        order: What is to be measured.
        results: Gets what goes into the results file, each side as it comes; `wrong` is empty if all that was sent is visible.
        report: Told of each side.
    """
    results |= {"rate": order.rate, "interval_seconds": order.interval_seconds, "minutes": order.minutes}
    results |= {"engine": order.engine, "stays": True, "sides": {}, "wrong": []}
    for name, side, mark in ((f"Frazil, {order.engine}, stays", frazil, FRAZIL), ("Kafka Connect", sink, SINK)):
        with bench(root.with_name(name.replace(", ", "-").replace(" ", "-")), WORKLOADS["orders"]) as ground:
            create_topic(ground.cluster, ground.workload.name, ground.workload.partitions)
            base = base_load(ground)
            with side(ground, order) as landing:
                records_sent, reading = sending(ground, order, mark)
                if order.rate:
                    wait(lambda: rows_of(landing.table()) >= records_sent, landing.failure, _LANDED_SECONDS)  # noqa: B023
            results["sides"][name] = figures(landing, order, reading, base)
            visible = rows_of(landing.table()) if order.rate else 0
        results["wrong"] += (
            [f"trickle, {name}: {visible:,} rows of {records_sent:,} records"] if visible != records_sent else []
        )
        report(f"{order.rate} records/s, {order.interval_seconds:g} s: {name} {json.dumps(results['sides'][name])}")


@dataclass(frozen=True)
class Landing:
    """A side at work.

    Attributes:
        table: Its table.
        failure: Why it stopped; None while it works.
    """

    table: Callable[[], Table]
    failure: Callable[[], str | None]


@contextmanager
def sink(ground: Bench, order: TrickleOrder) -> Iterator[Landing]:
    """A connector that runs all the time."""
    name = SINK
    project = ground.project("table", engine="inline")
    with sink_side.worker_of(ground, name, _BUSY_POLL_SECONDS if order.rate else _IDLE_POLL_SECONDS) as worker:
        table = sink_side.sink_table(project, worker, ground, 1)
        control_topic(ground.cluster, name)
        sink_side.begin(worker, ground, name, table, order.interval_seconds)
        wait(lambda: worker.is_ready(name), lambda: worker.failure(name), _LANDED_SECONDS)
        yield Landing(lambda: table, lambda: worker.failure(name))
        worker.end(name)


@contextmanager
def frazil(ground: Bench, order: TrickleOrder) -> Iterator[Landing]:
    """A run that stays until it is stopped."""
    named = ground.environment(FRAZIL, engine=order.engine, interval=f"{order.interval_seconds:g}s", session_for=_STAYS)
    env, project = os.environ | named | {MARK: FRAZIL}, Project.load(named)
    pipeline = project.pipeline(ground.workload.name)
    lake, log = project.lake_of(pipeline), ground.root / FRAZIL / "stay.log"
    with server_ended(named):
        frazil_side.run(pipeline.name, order.engine, env)  # the first run makes the tables
        command = frazil_side.command(pipeline.name, order.engine, "--stay", _STAYS)
        with log.open("w") as output, subprocess.Popen(command, env=env, stdout=output, stderr=output) as run:
            try:
                yield Landing(
                    lambda: lake.load_table(ground.workload.table),
                    lambda: (
                        None if run.poll() is None else f"frazil run ended with {run.returncode}:\n{log.read_text()}"
                    ),
                )
            finally:
                run.terminate()


def sending(ground: Bench, order: TrickleOrder, mark: str) -> tuple[int, meter.Reading]:
    """Send for so long, or only wait; how many were sent, and what the machine did meanwhile.

    The side has an interval before that, or so many seconds as its start takes.
    """
    time.sleep(max(order.interval_seconds, _START_SECONDS))
    with meter.measured(ground.broker_pid, lambda: meter.processes_with(MARK, mark)) as reading:
        if not order.rate:
            time.sleep(order.seconds)
            return 0, reading
        total = round(order.rate * order.seconds)
        produce(ground.cluster, ground.workload.name, _records(ground, total), rate=order.rate)
    return total, reading


def _records(ground: Bench, total: int) -> Iterator[OutgoingRecord]:
    chance = random.Random(1)
    for _ in range(total):
        record = ground.workload.make(chance)
        record[COLUMN] = datetime.now(UTC).isoformat(timespec="milliseconds")
        yield OutgoingRecord(key=None, value=json.dumps(record, separators=(",", ":")).encode())


def base_load(ground: Bench) -> float:
    """CPU seconds per second that the machine takes with the broker alone, the broker's left out."""
    with meter.measured(ground.broker_pid) as reading:
        time.sleep(_BASE_SECONDS)
    return reading.side_cpu_seconds / reading.seconds


def figures(landing: Landing, order: TrickleOrder, reading: meter.Reading, base: float) -> dict[str, Any]:
    """What goes into the results file of one side."""
    table = landing.table()
    results: dict[str, Any] = {
        "seconds": reading.seconds,
        "process_cpu_seconds": reading.process_cpu_seconds,
        "side_cpu_seconds": max(0.0, reading.side_cpu_seconds - base * reading.seconds),
        "broker_cpu_seconds": reading.broker_cpu_seconds,
        "base_load": base,
    }
    if order.rate:
        commits = [(instant, instants) for instant, instants in landed(table, COLUMN) if instants]
        steady = reading.began + 2 * order.interval_seconds
        ages = sorted(instant - one for instant, instants in commits for one in instants if one >= steady)
        assert ages, f"a trickle lasts longer than the two intervals of {order.interval_seconds:g} s that are left out"
        results["freshness"] = {
            key: ages[min(len(ages) - 1, int(share * len(ages)))] for key, share in _FIGURES.items()
        }
        results |= {"commits": len(commits), "files": len(list(table.refresh().scan().plan_files()))}
    return results
