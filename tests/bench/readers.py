"""Who reads Kafka best for a Python worker of Spark: Spark's own source in the JVM, or the worker itself.

    python -m tests.bench.readers [--records 1000000] [--rounds 3]

Reads the same records of four partitions on two cores, in a session that is warm, and counts them; nothing is decoded. By
Spark's source: `spark.read.format("kafka")`, whose rows go to the workers as Arrow batches (`mapInArrow`), with Frazil's columns
and the consumer's limits raised. By the workers: what `frazil.kafka.read.read` gives. Prints records/s and CPU seconds of the machine
per million, medians; so nothing else may run. The broker's are in them, and told beside: it works for both alike.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession

from frazil.batch.facts import Range
from frazil.batch.plan import split_into_tasks
from frazil.gc_tuning import collecting_rarely
from frazil.kafka.admin.observe import observe
from frazil.kafka.client.cluster import Cluster
from frazil.kafka.read.read import read_ranges
from frazil.runtime.home import bootstrap_servers
from tests.bench.merge import session
from tests.bench.side_by_side.meter import Reading, measured
from tests.bench.side_by_side.topics import fill
from tests.bench.side_by_side.workloads import WORKLOADS
from tests.bench.stack import broker_pid, running_broker

TOPIC: Final = "orders"

OPTIONS: Final = {
    "failOnDataLoss": "true",
    "includeHeaders": "true",
    "kafka.isolation.level": "read_committed",
    "kafka.max.poll.records": "100000",
    "kafka.max.partition.fetch.bytes": str(16 * 2**20),
    "kafka.fetch.max.bytes": str(64 * 2**20),
    "kafka.receive.buffer.bytes": "-1",
}
"""Of Spark's source: exact, and with limits raised as far as they help."""

_COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers")


def by_source(spark: SparkSession, cluster: Cluster, ranges: tuple[Range, ...]) -> int:
    """Read by Spark's source, and count in the workers."""
    ends = {bound: {TOPIC: {str(r.partition): getattr(r, bound) for r in ranges}} for bound in ("start", "end")}
    options = OPTIONS | {
        "kafka.bootstrap.servers": cluster.bootstrap_servers,
        "assign": json.dumps({TOPIC: [r.partition for r in ranges]}),
        "startingOffsets": json.dumps(ends["start"]),
        "endingOffsets": json.dumps(ends["end"]),
    }
    records = spark.read.format("kafka").options(**options).load().select(*_COLUMNS)

    def count(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"records": [sum(batch.num_rows for batch in batches)]})

    return sum(row.records for row in records.mapInArrow(count, "records long").collect())


def by_workers(
    spark: SparkSession, cluster: Cluster, ranges: tuple[Range, ...], collecting: Callable[[], Any] = collecting_rarely
) -> int:
    """Read in the workers, and count there."""
    tasks = split_into_tasks(ranges, sum(r.span for r in ranges), os.cpu_count() or 1)

    def count(numbers: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        for number in (number for array in numbers for number in array.column(0).to_pylist()):
            with collecting():
                counted = sum(batch.num_rows for batch in read_ranges(cluster, tasks[number]))
            yield pa.RecordBatch.from_pydict({"records": [counted]})

    rows = spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(count, "records long")
    return sum(row.records for row in rows.collect())


WAYS: Final[dict[str, Callable[[SparkSession, Cluster, tuple[Range, ...]], int]]] = {
    "Spark's Kafka source": by_source,
    "the workers, which collect cycles as often as Python does": partial(by_workers, collecting=nullcontext),
    "the workers": by_workers,
}


def main() -> int:
    """Measure in turn, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    workload = WORKLOADS[TOPIC]
    readings_by_way: dict[str, list[Reading]] = {way: [] for way in WAYS}
    with (
        tempfile.TemporaryDirectory() as folder,
        running_broker(Path(folder)) as home,
        session("1g", "spark-kafka") as spark,
    ):
        cluster = Cluster("local", {"bootstrap.servers": bootstrap_servers(home)})
        fill(cluster, TOPIC, workload.partitions, workload.records(), args.records)
        partitions = observe(cluster, [TOPIC]).topics[TOPIC].partitions
        ranges = tuple(Range(TOPIC, number, 0, partition.stable_end) for number, partition in enumerate(partitions))
        for _ in range(args.rounds + 1):
            for way, read in WAYS.items():
                with measured(broker_pid(home)) as reading:
                    count = read(spark, cluster, ranges)
                assert count == args.records, f"{way}: {count} of {args.records}"
                readings_by_way[way].append(reading)
    print("| read by | records/s | CPU s per million | of these the broker |\n|---|---|---|---|")  # noqa: T201
    for way, readings in readings_by_way.items():
        seconds = median(run.seconds for run in readings[1:])
        cpu = [median(getattr(run, name) for run in readings[1:]) for name in ("cpu_seconds", "broker_cpu_seconds")]
        figures = [
            f"{args.records / seconds:,.0f}",
            *(f"{seconds_used * 1e6 / args.records:.1f}" for seconds_used in cpu),
        ]
        print(f"| {way} | {' | '.join(figures)} |")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
