"""The `spark` engine: Spark reads the ranges, its Python workers decode and write the data files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from frazil.batch.facts import Range, Staged
from frazil.batch.plan import split
from frazil.run.stage import StageOrder, stage_records

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_READER: Mapping[str, str] = {
    "failOnDataLoss": "true",
    "includeHeaders": "true",
    "kafka.isolation.level": "read_committed",
    # Spark asks for the log's bounds after every poll; Kafka's default of 500 records a poll halves the rate.
    "kafka.max.poll.records": "100000",
    "kafka.max.partition.fetch.bytes": str(16 * 2**20),
    "kafka.fetch.max.bytes": str(64 * 2**20),
    # Spark would set 64 KiB; -1 leaves it to the operating system.
    "kafka.receive.buffer.bytes": "-1",
    # How long a poll may stay without records before the task fails. Default: spark.network.timeout, two minutes.
    "kafkaConsumer.pollTimeoutMs": "60000",
}


class SparkStage:
    """Stages batches with one Spark session. A `frazil.run.stage.Stage`."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def __call__(self, order: StageOrder) -> Staged:
        """Stage one batch; one task per range of the split, each writing its own files."""
        records = read_ranges(self._spark, order)

        def stage_task(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
            staged = stage_records(order, batches)
            yield pa.RecordBatch.from_pydict({"staged": [staged.to_json()]})

        parts = records.mapInArrow(stage_task, "staged string").collect()
        return Staged.merged(Staged.from_json(row.staged) for row in parts)


def read_ranges(spark: SparkSession, order: StageOrder) -> DataFrame:
    """The records of the ranges, in the columns of `frazil.records.kafka.KAFKA_SCHEMA`."""
    options = (
        dict(_READER)
        | {f"kafka.{key}": value for key, value in order.cluster.properties.items()}
        | {
            "assign": json.dumps(_assignment(order.ranges)),
            "startingOffsets": json.dumps(_offsets(order.ranges, "start")),
            "endingOffsets": json.dumps(_offsets(order.ranges, "end")),
            "maxRecordsPerPartition": str(order.records_per_task),
            "minPartitions": str(len(split(order.ranges, order.records_per_task))),
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
