"""What a batch of changes costs by the size of the table: merge-on-read and copy-on-write, of a table bucketed by its key.

    python -m tests.bench.merge [--rows 2500000 10000000] [--changes 100000] [--rounds 3]

Prints, for each size and, on the same table, each mode in turn, the median seconds and the CPU seconds of Spark's process that
one batch took, after the very first one to warm up: nine changes in ten are of rows that are there, spread over all of them, one in twenty
is a new row and as many are deleted. At last, of batches with new rows only, whose keys are beyond all others. Staging is not
counted. Needs some 4 GB of memory and, for 10 million rows, 2 GB of storage.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median

from pyspark.sql import SparkSession

from frazil.runtime.home import Home
from frazil.runtime.jars import fetch, jar_paths
from frazil.runtime.java import ensure_java
from frazil.spark.submit.configuration import EXTENSIONS
from tests.spark.changes import TABLE, Changed, Customers, delete, upsert
from tests.spark.documents import sqlite

BUCKETS = "bucket(16, id)"
FILES = 2
"""Of each bucket."""


@contextmanager
def session(memory: str, *sets: str) -> Iterator[SparkSession]:
    """Spark on two cores of this machine, with the jars of Frazil's engines and of further sets."""
    home, sets = Home.resolve(), ("spark", *sets)
    fetch(home, *sets, report=print)
    os.environ["JAVA_HOME"] = str(ensure_java().home)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("frazil-bench")
    conf = {
        "spark.jars": ",".join(str(path) for name in sets for path in jar_paths(home, name)),
        "spark.driver.memory": memory,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.extensions": EXTENSIONS,
        "spark.log.level": "ERROR",
    }
    for key, value in conf.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


def filled(spark: SparkSession, folder: Path, rows: int) -> Customers:
    """A table with so many rows, in files of all buckets."""
    customers = Customers(spark, sqlite(folder), partition_by=[BUCKETS])
    spark.conf.set("spark.sql.shuffle.partitions", "16")
    every = (
        spark.range(rows)
        .repartition(16 * FILES, "id")
        .selectExpr(
            "id",
            "concat('customer ', id, ' ', md5(CAST(id AS STRING))) AS name",
            "id * 7 AS version",
            '"c\'s" AS _kafka_topic',
            "0 AS _kafka_partition",
            "0L AS _kafka_offset",
            "timestamp_seconds(id) AS _kafka_timestamp",
            "0L AS _frazil_batch",
        )
    )
    every.writeTo(f"`{customers.lake.name}`.{TABLE}").append()
    return customers


def new_rows(rows: int, count: int, n: int) -> list[Changed]:
    """Changes of a batch that brings rows only."""
    return [upsert(n * count + number + 1, (1 + n) * rows + number, f"new {number}") for number in range(count)]


def changes(rows: int, count: int, n: int) -> list[Changed]:
    """Changes of a batch."""
    chosen = random.Random(n).sample(range(rows), count)
    first = n * count + 1
    new, deleted = count // 20, count // 20
    changes = [upsert(first + number, rows + n * count + number, f"new {number}") for number in range(new)]
    changes += [delete(first + new + index, key) for index, key in enumerate(chosen[:deleted])]
    start = first + new + deleted
    return changes + [
        upsert(start + index, key, f"changed {n}") for index, key in enumerate(chosen[deleted : count - new])
    ]


KINDS = (
    ("copy-on-write", "copy-on-write", changes),
    ("merge-on-read", "merge-on-read", changes),
    ("merge-on-read, new rows only", "merge-on-read", new_rows),
)


def cpu_seconds(pid: int) -> float:
    """CPU time of a process so far, of all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def switch(customers: Customers, mode: str) -> None:
    """Let Spark write changed rows in another way from here on."""
    pairs = ", ".join(f"'write.{operation}.mode' = '{mode}'" for operation in ("merge", "update", "delete"))
    customers.spark.sql(f"ALTER TABLE `{customers.lake.name}`.{TABLE} SET TBLPROPERTIES ({pairs})").collect()


def measured(customers: Customers, numbers: range, make_changes: Callable[[int], list[Changed]]) -> tuple[float, float]:
    """Seconds, and CPU seconds, that a batch takes: medians."""
    pid = int(customers.spark._jvm.java.lang.ProcessHandle.current().pid())
    took: list[tuple[float, float]] = []
    for n in numbers:
        change = customers.change(n, make_changes(n))
        began, used = time.monotonic(), cpu_seconds(pid)
        customers.land(change)
        took.append((time.monotonic() - began, cpu_seconds(pid) - used))
        print(f"  batch {n}: {took[-1][0]:.1f} s, {took[-1][1]:.1f} CPU s", flush=True)  # noqa: T201
    return median(seconds for seconds, _ in took), median(cpu for _, cpu in took)


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[2_500_000, 10_000_000])
    parser.add_argument("--changes", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory", default="3g")
    arguments = parser.parse_args()
    lines = ["| rows | batch | s | CPU s |", "|---|---|---|---|"]
    with session(arguments.memory) as spark:
        for rows in arguments.rows:
            with tempfile.TemporaryDirectory() as folder:
                customers, batches, first = filled(spark, Path(folder), rows), arguments.rounds, 1
                if rows == arguments.rows[0]:
                    measured(customers, range(1, 2), partial(changes, rows, arguments.changes))
                    first = 2
                for index, (title, mode, make_changes) in enumerate(KINDS):
                    switch(customers, mode)
                    numbers = range(first + index * batches, first + (index + 1) * batches)
                    seconds, cpu = measured(customers, numbers, partial(make_changes, rows, arguments.changes))
                    lines.append(f"| {rows:,} | {title} | {seconds:.1f} | {cpu:.1f} |")
                    print(lines[-1], flush=True)  # noqa: T201
    print("\n".join(lines))  # noqa: T201


if __name__ == "__main__":
    main()
