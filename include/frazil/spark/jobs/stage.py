"""The `spark` engine: Spark runs the tasks of a batch; its Python workers read Kafka, decode, and write the data files.

Not Spark's own Kafka source: its JVM reads records and carries them to Python in four times the CPU time that reading them
there takes (`python -m tests.bench.readers`), and its client has properties of its own. Nor a Python data source, which Spark plans
in further Python processes of the driver: see docs/decisions/arrow-data-files.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from frazil import shutdown
from frazil.batch.facts import Range, Staged
from frazil.batch.plan import shared_out
from frazil.errors import Retryable, Terminal, error_from_json, error_to_json
from frazil.kafka.read.read import read_ranges
from frazil.records.decoder.decode import Decoder
from frazil.run.staging.stage import StageOrder, stage_records
from frazil.spark.errors import SPARK_FAILED, fetch_rows
from frazil.spark.submit.configuration import cores

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_SMALLEST_TASK = 50_000
"""Offsets below which another task costs more than the core it occupies saves."""


class SparkStage:
    """Stages batches with one Spark session. A `frazil.run.staging.stage.Stage`."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def __call__(self, order: StageOrder) -> Staged:
        """Stage one batch, in tasks of the same length, each of which writes files of its own."""
        from pyspark.sql import functions

        Decoder(order.specs, order.route, order.n)  # a shape that can't be met is refused here, not in every task

        tasks = shared_out(order.ranges, order.records_per_task, tasks_of(self._spark, order.ranges))
        name = f"pipeline {order.pipeline} batch {order.n}"
        describe_jobs(self._spark, name, f"{sum(r.span for r in order.ranges):,} offsets")
        order = replace(order, ranges=())

        def stage_task(numbers: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
            for number in (number for batch in numbers for number in batch.column(0).to_pylist()):
                yield _stage_task(replace(order, ranges=tasks[number]))

        # A row for each task, with its number: what it reads is in the closure, with the properties of the cluster.
        rows = self._spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(stage_task, _TASK_COLUMNS)
        # By name, without an `Observation`: to wait for one's result may take for ever, and the numbers are in the rows.
        rows = rows.observe(name, *(functions.sum(column).alias(column) for column in ("records", "bytes")))
        with shutdown.cancelling(cancel_of(self._spark)):
            try:
                parts = fetch_rows(rows, f"batch {order.n}").to_pylist()
            except (*SPARK_FAILED, Retryable) as error:
                if shutdown.requester():
                    raise shutdown.stopped(f"batch {order.n} was not staged to its end, and is discarded") from error
                raise
        for part in parts:
            if part["failure"] is not None:
                raise error_from_json(part["failure"])
        return Staged.merged(Staged.from_json(part["staged"]) for part in parts)


def cancel_of(spark: SparkSession) -> Callable[[], object]:
    """A function that cancels the running jobs of a session."""
    if hasattr(spark, "cloneSession"):  # spark connect
        return spark.interruptAll
    # The context is this process's own, so all of its jobs are. (interruptAll finds them by the tag of their session, which
    # Spark 4.1 takes off some while it plans them.)
    return spark.sparkContext.cancelAllJobs


def describe_jobs(spark: SparkSession, name: str, work: str) -> None:
    """Name the jobs that this thread starts from now on, as Spark's pages and event log show them."""
    if hasattr(spark, "cloneSession"):  # spark connect, where the description is the server's
        spark.clearTags()
        spark.addTag(name)
    else:
        spark.sparkContext.setJobDescription(f"{name}: {work}")


def _stage_task(order: StageOrder) -> pa.RecordBatch:
    """The work of one task, in a Python worker of an executor."""
    try:
        staged = stage_records(order, read_ranges(order.cluster, order.ranges, limits=order.limits))
        result = {"staged": staged.to_json(), "records": staged.total.read, "bytes": staged.bytes}
    except (Retryable, Terminal) as error:
        result = {"failure": error_to_json(error)}
    return pa.RecordBatch.from_pylist([result], schema=_TASK_RESULT)


_TASK_RESULT: Final = pa.schema(
    [("staged", pa.string()), ("failure", pa.string()), ("records", pa.int64()), ("bytes", pa.int64())]
)
"""What a task tells the driver: what it staged, or why it could not; and the figures that Spark itself shows."""

_TASK_COLUMNS: Final = "staged string, failure string, records long, bytes long"
"""The same in Spark's words."""


def tasks_of(spark: SparkSession, ranges: tuple[Range, ...]) -> int:
    """How many tasks a batch is worth: one per core, as far as there is work for them."""
    total = sum(r.span for r in ranges)
    return max(1, min(cores(lambda key: spark.conf.get(key, "") or ""), total // _SMALLEST_TASK))
