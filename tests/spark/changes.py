"""A table of customers that changes are merged into, and batches of changes for it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa
from pyspark.sql import SparkSession

from frazil.batch.changes import OP, PLACE, Coordinates, Merge
from frazil.batch.facts import StagedFile
from frazil.batch.manifest import Operation
from frazil.batch.position import BatchMark
from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.catalog.table import TABLE_PROPERTIES, TableMetadata, branch_name, staging_table
from frazil.iceberg.commit.commit import Change, Refused, fit_of
from frazil.iceberg.commit.summary_state import BATCH_KEY, landed_snapshot, mark_of, read_summary
from frazil.iceberg.files.data_files import RowFileWriter
from frazil.iceberg.schema.schema import declared_schema, declared_spec
from frazil.pipeline.models.pipeline_file import Destination
from frazil.pipeline.settings.catalogs import CatalogSettings
from frazil.spark.submit.configuration import open_catalog
from frazil.spark.writes.apply import SparkApply

TABLE = "shop.customers"
KEY = BATCH_KEY.format("customers")
MERGE = Merge(
    ("id",), Coordinates("_kafka_topic", "_kafka_partition", "_kafka_offset", "_frazil_batch"), "_kafka_timestamp"
)

_STAGED = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("version", pa.int64()),
        ("_kafka_topic", pa.string()),
        ("_kafka_partition", pa.int32()),
        ("_kafka_offset", pa.int64()),
        ("_kafka_timestamp", pa.timestamp("us", "UTC")),
        ("_frazil_batch", pa.int64()),
        (OP, pa.string()),
        (PLACE, pa.int32()),
    ]
)

_FIRST = datetime(2026, 5, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Changed:
    """One staged row. Its record's time is so many seconds behind the first one's."""

    offset: int
    op: str
    id: int | None = None
    name: str | None = None
    version: int | None = None
    partition: int = 0
    place: int = 0
    topic: str = "c's"
    time: int | None = 0


def upsert(
    offset: int, key: int, name: str | None, version: int | None = None, partition: int = 0, time: int | None = 0
) -> Changed:
    """A row as it is from there on."""
    return Changed(offset, "upsert", key, name, version, partition, time=time)


def delete(offset: int, key: int, version: int | None = None, partition: int = 0, time: int | None = 0) -> Changed:
    """A row that goes."""
    return Changed(offset, "delete", key, None, version, partition, time=time)


def truncate(offset: int, version: int | None = None, partition: int = 0, time: int | None = 0) -> Changed:
    """All rows go."""
    return Changed(offset, "truncate", version=version, partition=partition, time=time)


class Customers:
    """A catalog with one merged table, and batches of changes for it."""

    def __init__(
        self,
        spark: SparkSession,
        lake: Lake,
        *,
        soft: bool = False,
        version: str = "2",
        partition_by: Sequence[str] = (),
        mode: str = "merge-on-read",
    ) -> None:
        columns = {"id": {"type": "long", "required": True}, "name": "string", "version": "long"}
        self.destination = Destination.model_validate(
            {"table": TABLE, "columns": columns, "write": "upsert", "identifier": ["id"], "partition_by": partition_by}
            | ({"deletes": "soft"} if soft else {})
        )
        schema = declared_schema(self.destination)
        modes = {f"write.{operation}.mode": mode for operation in ("merge", "update", "delete")}
        self.lake = lake
        lake.create_table(
            TABLE,
            schema,
            declared_spec(self.destination, schema),
            TABLE_PROPERTIES | modes | {"format-version": version},
        )
        open_catalog(spark, lake.name, CatalogSettings(type=lake.kind, uri=lake.uri, warehouse=lake.warehouse))
        spark.conf.set("spark.sql.shuffle.partitions", "2")
        self.spark, self.apply = spark, SparkApply(spark)

    def change(self, n: int, changes: Iterable[Changed], after: int | None = None) -> Change:
        """Batch `n`, after another one."""
        mark = BatchMark(n, f"id-{n}", 0)
        after = after if after is not None else n - 1

        def check(metadata: TableMetadata) -> None:
            last = mark_of(read_summary(metadata, KEY, TABLE))
            if (last.n if last else 0) != after:
                raise Refused(f"holds {last}")

        return Change(
            step="follow",
            table=TABLE,
            files=self.staged(n, list(changes)),
            summary={"frazil.pipeline": "customers", KEY: mark.to_json()},
            mirrored=(KEY,),
            fit=fit_of(self.metadata),
            landed=lambda metadata: landed_snapshot(metadata, KEY, mark, TABLE),
            check=check,
        )

    def staged(self, n: int, changes: Sequence[Changed]) -> tuple[StagedFile, ...]:
        """Staged rows."""
        writer = RowFileWriter(staging_table(TABLE, self.lake.load_table(TABLE)))
        columns = {"topic": "_kafka_topic", "partition": "_kafka_partition", "offset": "_kafka_offset"}
        columns |= {"op": OP, "place": PLACE}
        rows = [
            {columns.get(name, name): value for name, value in asdict(changed).items()}
            | {
                "_kafka_timestamp": None if changed.time is None else _FIRST + timedelta(seconds=changed.time),
                "_frazil_batch": n,
            }
            for changed in changes
        ]
        writer.write(pa.RecordBatch.from_pylist(rows, schema=_STAGED))
        return writer.close()

    def land(self, change: Change, merge: Merge = MERGE) -> int:
        """Give the table its part."""
        n = BatchMark.from_json(change.summary[KEY]).n
        return self.apply(self.lake, change, Operation("merge", merge=merge), branch_name("customers", n))

    def rows(self, *columns: str) -> list[tuple[object, ...]]:
        """What the table holds, as Spark reads it, by id."""
        frame = self.spark.table(f"`{self.lake.name}`.{TABLE}").orderBy("id").select(*(columns or ("id", "name")))
        return [tuple(row) for row in frame.collect()]

    @property
    def rival(self) -> Customers:
        """Another process, as far as a test can have it: with an apply port of its own."""
        second_table = copy(self)
        second_table.apply = SparkApply(self.spark)
        return second_table

    @property
    def metadata(self) -> TableMetadata:
        """The table as it is now."""
        return self.lake.load_table(TABLE).metadata

    @property
    def property(self) -> dict[str, object]:
        """What the property says of the last batch."""
        summary: dict[str, object] = json.loads(self.metadata.properties[KEY])
        return summary
