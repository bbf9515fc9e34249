"""Kafka Connect's Iceberg sink as a side: a connector of its own on a worker that has landed records already."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from frazil.project import Project
from tests.bench.side_by_side import meter
from tests.bench.side_by_side.bench import MARK, SCRATCH_RECORDS, Bench, free_port
from tests.bench.side_by_side.contents import rows_of
from tests.bench.side_by_side.sides import Drained, drained, wait
from tests.bench.side_by_side.sink import CATALOG, SinkWorker, control_topic, sink_worker
from tests.bench.side_by_side.tables_made import made_table

COMMIT_SECONDS: Final = 10.0
_SCRATCH_COMMIT_SECONDS: Final = 3.0
_LANDED_SECONDS: Final = 3_600.0
_BUSY_POLL_SECONDS: Final = 1.0


class SinkSide:
    """The connector, with tasks by `tasks`."""

    name = "Kafka Connect"

    def drain(self, bench: Bench, count: int, number: int) -> Drained:
        """Land the topic, from the request that starts the connector. The worker is of this drain: none runs beside others."""
        folder = f"sink-{number}"
        project = bench.project(f"{folder}-table", engine="submit")
        with worker_of(bench, folder, _BUSY_POLL_SECONDS) as worker:
            table = sink_table(project, worker, bench, number)
            control_topic(bench.cluster, folder)
            _warm_up(bench, worker, f"{folder}-scratch")
            with meter.measured(bench.broker_pid, lambda: meter.processes_with(MARK, folder)) as reading:
                begin(worker, bench, folder, table, COMMIT_SECONDS)
                wait(lambda: rows_of(table) >= count, lambda: worker.failure(folder), _LANDED_SECONDS)
            worker.end(folder)
        result = drained(reading, table, list(bench.workload.columns), count)
        shutil.rmtree(bench.root / folder)
        return result


def _warm_up(bench: Bench, worker: SinkWorker, name: str) -> None:
    """Have a worker land the scratch topic with a connector of its own."""
    scratch = bench.scratch
    table = sink_table(scratch.project(name, engine="submit"), worker, scratch, 1)
    control_topic(bench.cluster, name)
    begin(worker, scratch, name, table, _SCRATCH_COMMIT_SECONDS)
    wait(lambda: rows_of(table) >= SCRATCH_RECORDS, lambda: worker.failure(name), _LANDED_SECONDS)
    worker.end(name)


@contextmanager
def worker_of(bench: Bench, folder: str, poll_seconds: float) -> Iterator[SinkWorker]:
    """A worker in a folder of the bench."""
    port = free_port(23_000)
    with sink_worker(bench.root / folder, bench.broker, port, {MARK: folder}, poll_seconds=poll_seconds) as worker:
        yield worker


def sink_table(project: Project, worker: SinkWorker, bench: Bench, number: int) -> Table:
    """The table of a connector, in the worker's catalog, with the columns that the records have."""
    catalog = SqlCatalog(CATALOG, uri=f"sqlite:///{worker.catalog}", warehouse=f"file://{worker.warehouse}")
    return made_table(project, bench.workload, f"{bench.workload.table}_{number}", catalog)


def begin(worker: SinkWorker, bench: Bench, name: str, table: Table, commit_seconds: float) -> None:
    """Start a connector on the bench's topic."""
    worker.begin(
        name,
        bench.workload.name,
        ".".join(table.name()),
        tasks=tasks(bench.workload.partitions, os.cpu_count() or 1),
        commit_seconds=commit_seconds,
        registry=bench.registry.replace("/apis/ccompat/v7", "/apis/registry/v2"),
    )


def tasks(partitions: int, cores: int) -> int:
    """As many tasks as cores; as partitions where these don't divide evenly, or a core would rest at the end."""
    return partitions if partitions % cores else min(partitions, cores)
