"""The `spark` engine: Spark runs the tasks of a batch; its Python workers read Kafka, decode, and write the data files.

Spark's own Kafka source is not used: to read in the JVM and hand records to Python takes four times the CPU time of reading in
Python (`python -m tests.bench.readers`), and its client has other properties. Nor a Python data source, for whose plans Spark
starts more Python processes in the driver: see docs/decisions/arrow-data-files.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from frazil import shutdown
from frazil.batch.facts import Range, Staged
from frazil.batch.plan import split_into_tasks
from frazil.errors import Retryable, Terminal, error_from_json, error_to_json
from frazil.kafka.read.read import read_ranges
from frazil.records.decoder.decode import Decoder
from frazil.run.staging.stage import StageOrder, stage_records
from frazil.spark.errors import SPARK_FAILED, fetch_rows
from frazil.spark.submit.configuration import cores

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_SMALLEST_TASK = 50_000
"""Offsets below which another task costs more than its core saves."""


class SparkStage:
    """A `frazil.run.staging.stage.Stage` that stages batches with one Spark session."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def __call__(self, order: StageOrder) -> Staged:
        """Stage one batch, in tasks of equal length, each of which writes its own files."""
        from pyspark.sql import functions

        Decoder(order.specs, order.route, order.n)  # an impossible order is refused here, not in each task

        tasks = split_into_tasks(order.ranges, order.records_per_task, tasks_of(self._spark, order.ranges))
        name = f"pipeline {order.pipeline} batch {order.n}"
        describe_jobs(self._spark, name, f"{sum(r.span for r in order.ranges):,} offsets")
        order = replace(order, ranges=())

        def stage_task(numbers: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
            for number in (number for batch in numbers for number in batch.column(0).to_pylist()):
                yield _stage_task(replace(order, ranges=tasks[number]))

        # One row per task, with the task's number: its ranges and the cluster's properties are in the closure.
        rows = self._spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(stage_task, _TASK_COLUMNS)
        # For Spark's pages only. Not by an `Observation`, whose result may never come: Frazil takes the numbers from the rows.
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
    # The context and all its jobs belong to this process. (interruptAll finds jobs by their session's tag, which Spark 4.1
    # removes from some jobs while it plans them.)
    return spark.sparkContext.cancelAllJobs


def describe_jobs(spark: SparkSession, name: str, work: str) -> None:
    """Name the jobs that this thread starts from now on, for Spark's pages and event log."""
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
"""Columns that a task returns to the driver: what it staged, or its error; and figures for Spark's pages."""

_TASK_COLUMNS: Final = "staged string, failure string, records long, bytes long"
"""The columns of `_TASK_RESULT` in Spark's types."""


def tasks_of(spark: SparkSession, ranges: tuple[Range, ...]) -> int:
    """Number of tasks for a batch: one per core, but none smaller than `_SMALLEST_TASK`."""
    total = sum(r.span for r in ranges)
    return max(1, min(cores(lambda key: spark.conf.get(key, "") or ""), total // _SMALLEST_TASK))
