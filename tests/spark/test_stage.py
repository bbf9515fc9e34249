"""The Spark engine against the in-process one: the same records, the same outcome."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import threading
import uuid
from pathlib import Path
from typing import Any, ClassVar

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pyspark.util
import pytest
from confluent_kafka import Producer
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from frazil.batch.audit import Tolerance, audit
from frazil.batch.facts import Range, Staged
from frazil.errors import Retryable, Terminal
from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.catalog.table import staging_table
from frazil.iceberg.ledger.ledger import DEAD_LETTER_SCHEMA, UNPARTITIONED
from frazil.iceberg.schema.schema import arrow_columns, declared_schema, declared_spec
from frazil.kafka.admin.topics import create_topic
from frazil.kafka.client.cluster import Cluster, OutgoingRecord
from frazil.pipeline.models.pipeline_file import Destination
from frazil.records.decoder.route import NewTables, Route, TopicRoute
from frazil.records.evolution.schema_requests import merge_changes
from frazil.records.model.spec import Evolution, RecordSpec
from frazil.records.transforms.kinds.field_values import Cast
from frazil.records.transforms.kinds.sql import Sql
from frazil.run.staging.stage import StageOrder, stage_inline
from frazil.spark.jobs import stage
from frazil.spark.jobs.stage import SparkStage
from tests.produce import produce

DESTINATION = Destination.model_validate(
    {
        "table": "shop.orders",
        "columns": {
            "id": {"type": "long", "required": True},
            "name": "string",
            "at": "timestamptz",
            "price": "decimal(10,2)",
        },
        "partition_by": ["name", "day(at)"],
    }
)


@pytest.fixture
def order(tmp_path: Path, cluster: Cluster) -> StageOrder:
    """An order over two partitions of a fresh topic, with good, bad and null values."""
    topic = f"orders-{uuid.uuid4().hex[:8]}"
    create_topic(cluster, topic, 2)
    good = [
        json.dumps({"id": n, "name": f"n{n % 3}", "at": f"2026-01-0{1 + n % 2} 00:00:00", "price": n / 4})
        for n in range(600)
    ]
    values = [*(value.encode() for value in good), b"broken", b"", None, b'{"id": 1.5}']
    produce(cluster, topic, [OutgoingRecord(key=b"k" if i % 2 else None, value=v) for i, v in enumerate(values)])
    lake = Lake("lake", f"sqlite:///{tmp_path}/catalog.db", f"file://{tmp_path}/warehouse", {})
    schema = declared_schema(DESTINATION)
    table = lake.create_table("shop.orders", schema, declared_spec(DESTINATION, schema), {})
    letters = lake.create_table("shop.letters", DEAD_LETTER_SCHEMA, UNPARTITIONED, {})
    from frazil.kafka.admin.observe import observe

    facts = observe(cluster, [topic]).topics[topic].partitions
    ranges = tuple(
        Range(topic, number, 0, partition.stable_end) for number, partition in enumerate(facts) if partition.stable_end
    )
    spec = RecordSpec(columns=arrow_columns(table, DESTINATION))
    return StageOrder(
        "orders",
        7,
        cluster,
        ranges,
        100,
        {"shop.orders": spec},
        {"shop.orders": staging_table("shop.orders", table)},
        staging_table("shop.letters", letters),
    )


def contents(staged: Staged, table: str) -> list[str]:
    """Rows of the staged files, in one order."""
    tables = [pq.ParquetFile(file.path.removeprefix("file://")).read() for file in staged.files[table]]
    rows = pa.concat_tables(tables, promote_options="default").to_pylist()
    return sorted(str(sorted(row.items())) for row in rows)


def writers(staged: Staged) -> int:
    """How many tasks wrote files: each has an id of its own, at the end of the names."""
    return len({file.path.removesuffix(".parquet")[-36:] for file in staged.files["shop.orders"]})


def test_spark_and_inline_stage_the_same(spark: SparkSession, order: StageOrder) -> None:
    """Counts, codes and every row and dead letter are the same, whoever reads; split ranges lose nothing."""
    by_spark, inline = SparkStage(spark)(order), stage_inline(order)

    assert by_spark.counts == inline.counts
    assert by_spark.dead_codes == inline.dead_codes == {"INVALID_JSON": 1, "EMPTY_VALUE": 1, "LOSSY_CAST": 1}
    for table in ("shop.orders", "shop.letters"):
        assert contents(by_spark, table) == contents(inline, table)


class Listener:
    """A listener of Spark's queries: what was observed of each, as text, by name."""

    class Java:
        """The interface that Spark calls."""

        implements: ClassVar = ["org.apache.spark.sql.util.QueryExecutionListener"]

    def __init__(self) -> None:
        self.observed: dict[str, str] = {}
        self.heard = threading.Event()

    def onSuccess(self, _: str, execution: Any, __: int) -> None:  # noqa: N802 - Spark's name
        """Keep what was observed."""
        names = execution.observedMetrics().keys().iterator()
        while names.hasNext():
            name = names.next()
            self.observed[name] = execution.observedMetrics().apply(name).json()
        self.heard.set()


def test_listeners_of_spark_hear_records_and_bytes_of_batch(spark: SparkSession, order: StageOrder) -> None:
    """An observation called after pipeline and batch has the sums over all tasks, as the batch itself does."""
    ensure_callback_server_started(spark.sparkContext._gateway)
    listener, listeners = Listener(), spark._jsparkSession.listenerManager()
    listeners.register(listener)
    try:
        staged = SparkStage(spark)(order)
        assert listener.heard.wait(30)
    finally:
        listeners.unregister(listener)

    assert json.loads(listener.observed["pipeline orders batch 7"]) == {
        "records": staged.total.read,
        "bytes": staged.bytes,
    }


def test_small_batch_is_a_file_of_each_partition_value(spark: SparkSession, order: StageOrder) -> None:
    """However many partitions of the topic it is read from: one task writes all of its rows, with either engine."""
    small = dataclasses.replace(order, records_per_task=100_000)

    for engine in (SparkStage(spark), stage_inline):
        staged = engine(small)
        values = {tuple(json.loads(file.facts)["partition"]) for file in staged.files["shop.orders"]}
        assert len(small.ranges) == 2
        assert len(staged.files["shop.orders"]) == len(values) == 6


def test_truncated_answer_fails_batch(spark: SparkSession, order: StageOrder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A JVM that dies over its answer ends it early: that is a failure, not records that Kafka does not have."""
    connected = pyspark.util._create_local_socket

    def cut_off(sink: object) -> io.BytesIO:
        connected(sink).read()
        return io.BytesIO()

    monkeypatch.setattr(pyspark.util, "_create_local_socket", cut_off)
    with pytest.raises(Retryable, match="was cut off"):
        SparkStage(spark)(order)


def test_transforms_travel_to_workers(spark: SparkSession, order: StageOrder) -> None:
    """Formats and transforms travel to the workers as plain data: SQL and casts run there as they do here."""
    fields = pa.schema([("id", pa.int64()), ("name", pa.string()), ("at", pa.string()), ("price", pa.float64())])
    steps = (Cast({"name": "string"}), Sql(where="id % 2 = 0"))
    specs = {table: dataclasses.replace(spec, fields=fields, transforms=steps) for table, spec in order.specs.items()}
    shaped = dataclasses.replace(order, specs=specs)

    by_spark, inline = SparkStage(spark)(shaped), stage_inline(shaped)

    assert by_spark.counts == inline.counts
    assert (by_spark.total.written, by_spark.total.filtered) == (300, 301)
    assert contents(by_spark, "shop.orders") == contents(inline, "shop.orders")


def test_column_requests_of_all_tasks_are_merged(spark: SparkSession, order: StageOrder) -> None:
    """What records lack is told by every task, beside the rows of those that lack nothing; together it is the same."""
    spec = dataclasses.replace(order.specs["shop.orders"], evolution=Evolution(level="full"))
    columns = pa.schema([column for column in spec.columns if column.name != "price"])
    asking = dataclasses.replace(order, specs={"shop.orders": dataclasses.replace(spec, columns=columns)})

    by_spark, inline = SparkStage(spark)(asking), stage_inline(asking)

    wanted = asking.specs["shop.orders"]
    changes = merge_changes(by_spark.demands["shop.orders"], wanted)
    assert changes == merge_changes(inline.demands["shop.orders"], wanted)
    assert [(change.path, change.kind, change.type) for change in changes] == [(("price",), "add", "double")]
    read = sum(r.span for r in by_spark.again) + by_spark.total.read
    assert read == sum(r.span for r in inline.again) == sum(r.span for r in order.ranges)
    assert len(by_spark.again) > len(inline.again)


def test_table_requests_of_all_tasks_are_merged(spark: SparkSession, order: StageOrder) -> None:
    """Names of tables that are not there are told by every task that meets one, before there is any table at all."""
    new = NewTables(order.specs["shop.orders"])
    bare = dataclasses.replace(order, specs={}, destinations={}, route=Route(TopicRoute({"(.*)": r"shop.\1"}), new=new))

    by_spark, inline = SparkStage(spark)(bare), stage_inline(bare)

    assert by_spark.new_tables == inline.new_tables == (f"shop.{order.ranges[0].topic}",)
    assert sum(r.span for r in by_spark.again) == sum(r.span for r in inline.again) == sum(r.span for r in order.ranges)
    shut = dataclasses.replace(
        bare, route=Route(TopicRoute({"(.*)": r"shop.\1"}), new=NewTables(new.spec, rest="shut"))
    )
    refused = SparkStage(spark)(shut)
    assert refused.dead_codes == stage_inline(shut).dead_codes
    assert refused.dead_codes["TABLE_NOT_MADE"] == 603


def test_only_requested_range_is_read(spark: SparkSession, order: StageOrder) -> None:
    """Explicit ends hold: only offsets of the range come back."""
    first = order.ranges[0]
    part = dataclasses.replace(order, ranges=(dataclasses.replace(first, start=5, end=25),))

    staged = SparkStage(spark)(part)

    assert staged.total.read == 20


def test_big_partition_is_spread_over_cores(
    spark: SparkSession, order: StageOrder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch from one partition is spread over the cores, once it is worth a task for each: each writes its own file."""
    one = dataclasses.replace(order, ranges=(dataclasses.replace(order.ranges[0], start=0, end=60),))
    assert writers(SparkStage(spark)(one)) == 1

    monkeypatch.setattr(stage, "_SMALLEST_TASK", 10)
    staged = SparkStage(spark)(one)

    assert staged.total.read == 60
    assert writers(staged) == 2


@pytest.mark.parametrize(("most", "message"), [(0, "none is tolerated"), (1, "at most 1 are tolerated")])
def test_lost_records_stop_both_engines_at_same_record(
    spark: SparkSession, order: StageOrder, most: int, message: str
) -> None:
    """Both engines stop at the same record, with the same words, and the worker is good for the next batch."""
    topic = f"lost-{uuid.uuid4().hex[:8]}"
    create_topic(order.cluster, topic, 1)
    filler = b'{"id": 1, "pad": "%s"}' % (b"x" * 500)
    values = [filler, b"broken", b"broken", *[filler] * 60_000]
    produce(order.cluster, topic, [OutgoingRecord(key=None, value=value) for value in values])
    whole = Range(topic, 0, 0, len(values))
    tolerance = Tolerance(1, 0, most)
    strict = dataclasses.replace(order, ranges=(whole,), records_per_task=100_000, tolerance=tolerance)

    refused = []
    for engine in (SparkStage(spark), stage_inline):
        staged = engine(strict)
        assert staged.stopped
        assert staged.total.read < len(values)
        with pytest.raises(Terminal) as caught:
            audit(strict.ranges, staged, "shop.orders", "shop.letters", tolerance)
        refused.append(caught.value.message)

    assert refused[0] == refused[1]
    assert f"{message}, so reading stopped; the first is topic {topic}, partition 0, offset 1: INVALID" in refused[0]
    assert SparkStage(spark)(dataclasses.replace(strict, tolerance=None)).total.read == len(values)


@pytest.mark.parametrize("count", [pytest.param(8, id="8"), pytest.param(56, marks=pytest.mark.full, id="56")])
def test_records_of_100_mb_take_bounded_memory_of_a_worker(spark: SparkSession, order: StageOrder, count: int) -> None:
    """Each is a dead letter with its size; no Python process below this one ever had 1 GB."""
    topic = f"large-{uuid.uuid4().hex[:8]}"
    create_topic(order.cluster, topic, 1)
    bounds = {"message.max.bytes": 1_000_000_000, "queue.buffering.max.kbytes": 2_000_000, "compression.type": "zstd"}
    producer = Producer({**order.cluster.properties, **bounds})
    for _ in range(count):
        producer.produce(topic, bytes(100_000_000), partition=0)
        producer.flush()

    staged = SparkStage(spark)(dataclasses.replace(order, ranges=(Range(topic, 0, 0, count),)))

    assert staged.dead_codes == {"RECORD_TOO_LARGE": count}
    assert staged.rows("shop.letters") == count
    assert staged.samples["RECORD_TOO_LARGE"].message.startswith("100,000,000 bytes")
    peaks = worker_peaks()
    assert peaks
    assert max(peaks.values()) < 1_000_000, peaks


def worker_peaks() -> dict[str, int]:
    """The most memory (VmHWM, in kB) of each Python process below this one."""
    by_id = {}
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess, OSError):
            if "python" in process.name():
                status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
                by_id[str(process.pid)] = int(status.partition("VmHWM:")[2].split()[0])
    return by_id
