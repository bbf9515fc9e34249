"""What many small commits cost a table, what maintenance makes of it, and how long a commit takes beside a compaction.

    python -m tests.bench.maintain [--commits 500] [--partitions 100]

Commits one row each time, into one of the partitions in turn. Prints the median and the longest commit, then the figures of each
step; beside the compaction further commits land, which are timed as well. Needs 2 GB of memory.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from statistics import median
from threading import Event, Thread
from typing import Any

from frazil.iceberg.catalog import Lake
from frazil.iceberg.commit import commit
from frazil.iceberg.inspection import inspect
from frazil.iceberg.ledger import PARTITIONED_LAYOUT, TABLE_PROPERTIES
from frazil.iceberg.schema import declared_schema, declared_spec
from frazil.maintain.ages import expirable
from frazil.maintain.health import health
from frazil.maintain.steps import compaction_arguments
from frazil.pipeline.maintenance import Compaction, Expiry
from frazil.pipeline.settings import CatalogSettings
from frazil.spark.catalog import open_catalog
from frazil.spark.procedures import SparkProcedures
from tests.bench.merge import session
from tests.unit.iceberg.orders import TABLE, batch, destination, mark, rows

NOW_RULES = Expiry(older_than="1m", keep=20, min_snapshots=1)


def show(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def timed(lake: Lake, n: int, partitions: int) -> float:
    """Seconds of the commit of batch `n`; writing its file is not counted."""
    staged = batch(lake, mark(n), mark(n - 1) if n > 1 else None, rows(n, day=f"p{n % partitions}"))
    began = time.perf_counter()
    commit(lake, staged)
    return time.perf_counter() - began


def told(lake: Lake, what: str) -> None:
    """Print the figures of the table, and how long planning a scan takes."""
    table = lake.load_table(TABLE)
    began = time.perf_counter()
    planned = len(list(table.scan().plan_files()))
    seconds = time.perf_counter() - began
    found = inspect(TABLE, table, table.metadata)
    score = health(found, len(expirable(found, NOW_RULES, datetime.now(UTC) + timedelta(minutes=2))))
    show(
        f"{what}: {planned:,} files, {found.bytes:,} bytes, {found.manifests} manifests, {len(found.snapshots)} snapshots,"
        f" health {score}, a scan is planned in {seconds * 1000:.0f} ms"
    )


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commits", type=int, default=500)
    parser.add_argument("--partitions", type=int, default=100)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, session("1g") as spark:
        lake = Lake("lake", f"sqlite:///{folder}/catalog.db", f"file://{Path(folder)}/warehouse", {})
        schema = declared_schema(destination())
        properties = TABLE_PROPERTIES | PARTITIONED_LAYOUT
        lake.create_table(TABLE, schema, declared_spec(destination(), schema), properties)
        open_catalog(spark, "lake", CatalogSettings(type="jdbc", uri=lake.uri, warehouse=lake.warehouse))
        engine, numbers = SparkProcedures(spark), count(1)
        engine.call("lake", "rewrite_manifests", {"table": TABLE})  # the first call starts what Spark starts lazily
        alone = [timed(lake, next(numbers), asked.partitions) for _ in range(asked.commits)]
        show(f"commits alone: median {median(alone[-100:]) * 1000:.0f} ms, longest {max(alone) * 1000:.0f} ms")
        told(lake, "before")
        beside = compacted(lake, engine, numbers, asked.partitions)
        show(
            f"{len(beside)} commits beside: median {median(beside) * 1000:.0f} ms, longest {max(beside) * 1000:.0f} ms"
        )
        told(lake, "compacted")
        old = {"older_than": datetime.now(UTC) + timedelta(minutes=1), "retain_last": 20}
        for procedure, arguments in (("rewrite_manifests", {}), ("expire_snapshots", old)):
            called(engine, procedure, arguments)
            told(lake, procedure)


def called(engine: SparkProcedures, procedure: str, arguments: Mapping[str, Any]) -> None:
    """Call a procedure, and print how long it took and what it counted."""
    began = time.perf_counter()
    (found,) = engine.call("lake", procedure, {"table": TABLE, **arguments})
    show(f"{procedure}: {time.perf_counter() - began:.1f} s, {found}")


def compacted(lake: Lake, engine: SparkProcedures, numbers: count[int], partitions: int) -> list[float]:
    """Compact the table, and commit as long as that takes; the seconds of those commits."""
    table, ended = lake.load_table(TABLE), Event()
    (arguments,) = compaction_arguments(inspect(TABLE, table, table.metadata), Compaction(), datetime.now(UTC))

    def compact() -> None:
        try:
            called(engine, "rewrite_data_files", arguments)
        finally:
            ended.set()

    thread = Thread(target=compact)
    thread.start()
    beside = []
    while not ended.is_set():
        beside.append(timed(lake, next(numbers), partitions))
    thread.join()
    return beside


if __name__ == "__main__":
    main()
