"""The `spark` engine: Spark reads the ranges, its Python workers decode and write the data files."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from frazil import stopping
from frazil.batch.cut import split
from frazil.batch.facts import Range, Staged
from frazil.errors import Retryable, Terminal
from frazil.kafka.cluster import Cluster
from frazil.records.fan_out import FanOut
from frazil.run.stage import StageOrder, stage_records
from frazil.spark.answer import answered
from frazil.spark.faults import SPARK_FAILED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_EXACT: Mapping[str, str] = {
    "failOnDataLoss": "true",
    "includeHeaders": "true",
    "kafka.isolation.level": "read_committed",
}
"""What correctness rests on: no setting overrides it."""

_TUNED: Mapping[str, str] = {
    # Spark asks for the log's bounds after every poll; Kafka's default of 500 records a poll halves the rate.
    "kafka.max.poll.records": "100000",
    "kafka.max.partition.fetch.bytes": str(16 * 2**20),
    "kafka.fetch.max.bytes": str(64 * 2**20),
    # Spark would set 64 KiB; -1 leaves it to the operating system.
    "kafka.receive.buffer.bytes": "-1",
    # How long a poll may stay without records before the task fails. Default: spark.network.timeout, two minutes.
    "kafkaConsumer.pollTimeoutMs": "60000",
}
"""Starting points; properties of the cluster override them."""

_SMALLEST_TASK = 50_000
"""Offsets below which another task costs more than the core it occupies saves."""

_LOCAL_MASTER = re.compile(r"local(?:\[(\d+|\*)(?:,\d+)?\])?")

_OTHER_IN_JAVA = ("sasl.", "ssl.", "enable.ssl")
"""Properties that librdkafka and the Java client name or read differently."""


class SparkStage:
    """Stages batches with one Spark session. A `frazil.run.stage.Stage`."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def __call__(self, order: StageOrder) -> Staged:
        """Stage one batch; one task per range of the split, each writing its own files.

        Raises:
            Retryable, Terminal: What the first failing task met, or what the record shape refuses.
            Stopped: The run was asked to stop.
            SPARK_FAILED: Spark itself failed.
        """
        FanOut(order.specs, order.route, order.n)  # a shape that can't be met is refused here, not in every task

        def stage_task(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
            try:
                told = {"staged": [stage_records(order, batches).to_json()], "failure": [None]}
            except (Retryable, Terminal) as error:
                told = {"staged": [None], "failure": [json.dumps([error.exit_code, error.message, error.next_step])]}
            yield pa.RecordBatch.from_pydict(told, schema=_TOLD)

        tasks = read_ranges(self._spark, order).mapInArrow(stage_task, "staged string, failure string")
        with stopping.cancelling(_cancel_of(self._spark)):
            try:
                parts = answered(tasks, f"batch {order.n}").to_pylist()
            except (*SPARK_FAILED, Retryable) as error:
                if stopping.asked():
                    raise stopping.stopped(f"batch {order.n} was not staged to its end, and is discarded") from error
                raise
        for part in parts:
            if part["failure"] is not None:
                raise _failure(part["failure"])
        return Staged.merged(Staged.from_json(part["staged"]) for part in parts)


def _cancel_of(spark: SparkSession) -> Callable[[], object]:
    """What ends the jobs of a session that are at work now."""
    if hasattr(spark, "cloneSession"):  # Spark Connect
        return spark.interruptAll
    # Not interruptAll: it finds jobs by the tag of their session, which Spark 4.1 takes off them while it plans to read
    # Kafka. The context is this process's own, so all of its jobs are.
    return spark.sparkContext.cancelAllJobs


_TOLD = pa.schema([pa.field("staged", pa.string()), pa.field("failure", pa.string())])
"""What a task tells the driver: what it staged, or why it could not."""


def _failure(text: str) -> Retryable | Terminal:
    exit_code, message, next_step = json.loads(text)
    kind = Terminal if exit_code == Terminal.exit_code else Retryable
    return kind(message, next_step=next_step)


def read_ranges(spark: SparkSession, order: StageOrder) -> DataFrame:
    """The records of the ranges, in the columns of `frazil.records.kafka.KAFKA_SCHEMA`."""
    pieces = split(order.ranges, order.records_per_task, _tasks(spark, order.ranges))
    options = (
        dict(_TUNED)
        | {f"kafka.{key}": value for key, value in _java_properties(order.cluster).items()}
        | dict(_EXACT)
        | {
            "assign": json.dumps(_assignment(order.ranges)),
            "startingOffsets": json.dumps(_offsets(order.ranges, "start")),
            "endingOffsets": json.dumps(_offsets(order.ranges, "end")),
            "maxRecordsPerPartition": str(max(piece.span for piece in pieces)),
            "minPartitions": str(len(pieces)),
            "groupIdPrefix": f"frazil-{order.pipeline}",
        }
    )
    records = spark.read.format("kafka").options(**options).load()
    return records.selectExpr(
        "topic",
        "partition",
        "offset",
        "timestamp",
        "timestampType AS timestamp_type",
        "key",
        "value",
        "headers",
    )


def _tasks(spark: SparkSession, ranges: tuple[Range, ...]) -> int:
    """How many tasks a batch is worth: one per core, as far as there is work for them."""
    total = sum(r.span for r in ranges)
    return max(1, min(_cores(spark), total // _SMALLEST_TASK))


def _cores(spark: SparkSession) -> int:
    """Cores of the executors, as far as the configuration tells. By configuration alone, for Spark Connect's sake."""
    local = _LOCAL_MASTER.fullmatch(spark.conf.get("spark.master", "") or "")
    if local is not None:
        return (os.cpu_count() or 1) if local[1] == "*" else int(local[1] or 1)
    instances, cores = (int(spark.conf.get(f"spark.executor.{key}", "1") or 1) for key in ("instances", "cores"))
    return instances * cores


def _java_properties(cluster: Cluster) -> Mapping[str, str]:
    """Properties of a cluster as Spark's Kafka client reads them.

    Raises:
        Terminal: One of them has another name or form in the Java client.
    """
    other = [key for key in cluster.properties if key.startswith(_OTHER_IN_JAVA)]
    if other:
        raise Terminal(
            f"cluster {cluster.name}: the spark engine can't take {', '.join(other)}: Java's Kafka client names or reads"
            " them differently",
            next_step="use engine: inline for this pipeline, or a listener that needs no such property",
        )
    return cluster.properties


def _assignment(ranges: tuple[Range, ...]) -> dict[str, list[int]]:
    assigned: dict[str, list[int]] = {}
    for r in ranges:
        assigned.setdefault(r.topic, []).append(r.partition)
    return assigned


def _offsets(ranges: tuple[Range, ...], end: Literal["start", "end"]) -> dict[str, dict[str, int]]:
    offsets: dict[str, dict[str, int]] = {}
    for r in ranges:
        offsets.setdefault(r.topic, {})[str(r.partition)] = r.start if end == "start" else r.end
    return offsets
