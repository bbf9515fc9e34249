"""Tables of ORC files, and tables on a branch, get their part of a batch by Spark: values as they were staged, once."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from frazil import failpoints
from frazil.batch.changes import Removal, RemovedRange
from frazil.batch.manifest import Operation
from frazil.failpoints import Failpoint
from frazil.iceberg.catalog.table import branch_name, staging_table
from frazil.iceberg.commit.commit import Change
from frazil.iceberg.commit.pipeline_catalog import PipelineCatalog, TablePlace, branch_note
from frazil.iceberg.commit.removal import count_rows, offsets_held
from frazil.iceberg.files.data_files import RowFileWriter
from frazil.iceberg.ledger.inspection import current_files
from frazil.iceberg.schema.comparison import check_destination
from frazil.iceberg.schema.schema import arrow_columns
from frazil.pipeline.models.pipeline_file import Destination
from frazil.records.model.spec import KafkaColumns
from tests.spark.documents import COLUMNS, TABLE, Docs, sqlite

COLUMN_TYPES = {
    "flag": "boolean",
    "i": "int",
    "l": "long",
    "d": "double",
    "price": "decimal(10,2)",
    "day": "date",
    "at": "timestamptz",
    "wall": "timestamp",
    "name": "string",
    "raw": "binary",
    "tags": "list<string>",
    "inner": "struct<a: int, b: string>",
}
ORC = Destination.model_validate(
    {
        "table": TABLE,
        "columns": COLUMN_TYPES,
        "partition_by": ["name", "day(at)"],
        "sort_by": ["l desc"],
        "properties": {"write.format.default": "orc"},
    }
)

ROWS: list[dict[str, Any]] = [
    {
        "flag": True,
        "i": -1,
        "l": 2**62,
        "d": -0.0,
        "price": Decimal("12345678.90"),
        "day": date(1969, 12, 31),
        "at": datetime(1969, 12, 31, 23, 59, 58, 999_999, tzinfo=UTC),
        "wall": datetime(2024, 2, 29, 1, 2, 3, 4),
        "name": "ü/ %",
        "raw": b"\x00\xff",
        "tags": ["a", None, ""],
        "inner": {"a": None, "b": "x"},
    },
    dict.fromkeys(COLUMN_TYPES),
    {**dict.fromkeys(COLUMN_TYPES), "tags": [], "name": "", "l": 0},
]


class OrcDocs(Docs):
    """The table in ORC files."""

    def __init__(self, spark: SparkSession, lake: Any) -> None:
        super().__init__(spark, lake, ORC)

    def staged(self, n: int, offsets: range) -> Any:
        """The rows, as many as there are offsets."""
        table = self.lake.load_table(TABLE)
        check_destination(table, ORC)
        schema = pa.schema([*arrow_columns(table, ORC), *KafkaColumns().fields])
        place = {"_kafka_topic": "docs's", "_kafka_partition": 0, "_frazil_batch": n}
        rows = [{**row, **place, "_kafka_offset": offset} for row, offset in zip(ROWS, offsets, strict=True)]
        target = staging_table(TABLE, table)
        assert target.by_engine
        writer = RowFileWriter(target)
        writer.write(pa.RecordBatch.from_pylist(rows, schema=schema))
        return writer.close()

    def land(self, change: Change) -> int:
        """Give the table its part."""
        return self.apply(self.lake, change, Operation(), branch_name("docs", self.number(change)))

    def found(self) -> list[dict[str, Any]]:
        """Rows as PyIceberg reads them: without an engine, as repair, reset and verify do."""
        rows = self.lake.load_table(TABLE).scan().to_arrow().sort_by("_kafka_offset").to_pylist()
        return [{name: row[name] for name in COLUMN_TYPES} for row in rows]


@pytest.mark.parametrize("branch", [None, "night"])
def test_values_stay_equal_in_orc_files(tmp_path: Path, spark: SparkSession, branch: str | None) -> None:
    """Staged as Parquet, landed as ORC, on main or on a branch; a removal takes its rows out there, and main has none."""
    plain = sqlite(tmp_path)
    lake = PipelineCatalog("docs", plain, {TABLE: TablePlace(plain, branch)}, lambda _: plain)
    docs = OrcDocs(spark, lake)
    first = replace(docs.change(1, range(3), None), properties=branch_note(lake, "docs", TABLE))
    assert docs.land(first) == docs.land(first)

    assert docs.found() == ROWS
    table = lake.load_table(TABLE)
    assert {Path(file.path).suffix for file in current_files(table, ())} == {".orc"}
    assert (table.format_version, table.properties["write.format.default"]) == (2, "orc")
    everything = Removal(COLUMNS, (RemovedRange("docs's", None, 1, None, 0),))
    assert (count_rows(table, TABLE, everything), offsets_held(table, TABLE, everything).to_pylist()) == (2, [1, 2])

    docs.land(replace(docs.change(2, range(0), 1, everything), properties=branch_note(lake, "docs", TABLE)))

    assert docs.found() == ROWS[:1]
    assert (plain.load_table(TABLE).current_snapshot() is None) == (branch is not None)
    assert set(plain.load_table(TABLE).metadata.refs) == {branch or "main"}


def test_variants_on_branch_are_not_on_main(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Format version 3, where Spark moves branches: killed before the fast-forward, finished, followed; main has no row."""

    class Killed(BaseException):
        """The end of the process, as far as a test can have it."""

    def kill(point: Failpoint) -> None:
        if point is Failpoint.BRANCH_STAGED:
            raise Killed

    plain = sqlite(tmp_path)
    lake = PipelineCatalog("docs", plain, {TABLE: TablePlace(plain, "night")}, lambda _: plain)
    docs = Docs(spark, lake)
    assert lake.begin_branch(TABLE).current_snapshot() is None
    first = replace(docs.change(1, range(2), None), properties=branch_note(lake, "docs", TABLE))
    with monkeypatch.context() as patch:
        patch.setattr(failpoints, "hit", kill)
        with pytest.raises(Killed):
            docs.land(first)
    docs.land(first)
    docs.land(replace(docs.change(2, range(2, 3), 1), properties=branch_note(lake, "docs", TABLE)))

    offsets = lake.load_table(TABLE).scan(selected_fields=("_kafka_offset",)).to_arrow()["_kafka_offset"]
    assert sorted(offsets.to_pylist()) == [0, 1, 2]
    assert set(plain.load_table(TABLE).metadata.refs) == {"night"}
    assert docs.rows() == []
    assert plain.load_table(TABLE).properties["frazil.branch.docs"] == "night"
