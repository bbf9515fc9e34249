"""A table of documents that only Spark can write, and batches for it."""

from __future__ import annotations

import json
import secrets
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from frazil.batch.changes import Coordinates, Removal
from frazil.batch.facts import StagedFile
from frazil.batch.manifest import Operation
from frazil.batch.position import BatchMark
from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.catalog.table import TABLE_PROPERTIES, TableMetadata, branch_name, staging_table
from frazil.iceberg.commit.commit import Change, Refused, fit_of
from frazil.iceberg.commit.summary_state import BATCH_KEY, landed_snapshot, mark_of, read_summary
from frazil.iceberg.files.data_files import RowFileWriter
from frazil.iceberg.schema.schema import arrow_columns, declared_order, declared_schema, declared_spec
from frazil.pipeline.models.pipeline_file import Destination
from frazil.pipeline.settings.catalogs import CatalogSettings
from frazil.records.model.spec import KafkaColumns
from frazil.spark.submit.configuration import open_catalog
from frazil.spark.writes.apply import SparkApply

TABLE = "shop.docs"
KEY = BATCH_KEY.format("docs")
DESTINATION = Destination.model_validate(
    {
        "table": TABLE,
        "columns": {"doc": {"type": "variant", "from": []}, "kind": "string", "price": "decimal(10,2)"},
        "partition_by": ["kind"],
    }
)
COLUMNS = Coordinates("_kafka_topic", "_kafka_partition", "_kafka_offset", "_frazil_batch")


class Docs:
    """A catalog of one table of documents, and batches for it."""

    def __init__(self, spark: SparkSession, lake: Lake, destination: Destination = DESTINATION) -> None:
        self.lake = lake
        schema = declared_schema(destination)
        properties = TABLE_PROPERTIES | destination.properties | {"format-version": destination.format_version}
        order = declared_order(destination, schema)
        self.lake.create_table(TABLE, schema, declared_spec(destination, schema), properties, order)
        open_catalog(spark, lake.name, CatalogSettings(type=lake.kind, uri=lake.uri, warehouse=lake.warehouse))
        self.spark, self.apply = spark, SparkApply(spark)

    def change(self, n: int, offsets: range, after: int | None, removal: Removal | None = None) -> Change:
        """Batch `n` with documents at these offsets, after another batch."""
        mark = BatchMark(n, f"id-{n}", 0)
        metadata = self.lake.load_table(TABLE).metadata

        def check(metadata: TableMetadata) -> None:
            last = mark_of(read_summary(metadata, KEY, TABLE))
            if (last.n if last else None) != after:
                raise Refused(f"holds {last}")

        return Change(
            step="follow",
            table=TABLE,
            files=self.staged(n, offsets) if offsets else (),
            summary={"frazil.pipeline": "docs", KEY: mark.to_json()},
            mirrored=(KEY,),
            fit=fit_of(metadata),
            landed=lambda metadata: landed_snapshot(metadata, KEY, mark, TABLE),
            check=check,
            removal=removal,
        )

    def staged(self, n: int, offsets: range) -> tuple[StagedFile, ...]:
        """Staged rows."""
        table = self.lake.load_table(TABLE)
        schema = pa.schema([*arrow_columns(table, DESTINATION), *KafkaColumns().fields])
        rows = [
            {
                "doc": json.dumps({"at": offset, "n": n}),
                "kind": f"k{offset % 2}",
                "price": None,
                "_kafka_topic": "docs's",
                "_kafka_partition": 0,
                "_kafka_offset": offset,
                "_frazil_batch": n,
            }
            for offset in offsets
        ]
        writer = RowFileWriter(staging_table(TABLE, table))
        writer.write(pa.RecordBatch.from_pylist(rows, schema=schema))
        return writer.close()

    def land(self, change: Change) -> int:
        """Give the table its part."""
        return self.apply(self.lake, change, Operation(variants=("doc",)), branch_name("docs", self.number(change)))

    @staticmethod
    def number(change: Change) -> int:
        """The number of a change's batch."""
        return BatchMark.from_json(change.summary[KEY]).n

    def rows(self) -> list[tuple[int, str]]:
        """Offsets and documents, as Spark reads them."""
        frame = self.spark.table(f"`{self.lake.name}`.{TABLE}").selectExpr(
            "_kafka_offset", "CAST(doc AS STRING) AS doc"
        )
        return [(row[0], row[1]) for row in frame.orderBy("_kafka_offset").collect()]

    @property
    def metadata(self) -> TableMetadata:
        """The table as it is now."""
        return self.lake.load_table(TABLE).metadata


def sqlite(folder: Path) -> Lake:
    """A new catalog; a session keeps one that it has opened, so each has its own name."""
    return Lake(f"lake_{secrets.token_hex(4)}", f"sqlite:///{folder}/catalog.db", f"file://{folder}/warehouse", {})
