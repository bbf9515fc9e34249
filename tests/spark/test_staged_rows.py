"""Staged rows, read by Spark and by its Python workers."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from pyspark.sql import SparkSession

from frazil.batch.facts import StagedFile
from frazil.spark.writes import rows as staged
from tests.spark.documents import sqlite

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)
SHAPE = pa.schema(
    {
        "id": pa.int64(),
        "small": pa.int32(),
        "at": pa.timestamp("us", "UTC"),
        "local": pa.timestamp("us"),
        "day": pa.date32(),
        "price": pa.decimal128(20, 4),
        "text": pa.large_string(),
        "raw": pa.large_binary(),
        "flag": pa.bool_(),
        "ratio": pa.float64(),
        "tags": pa.large_list(pa.large_string()),
        "home": pa.struct({"city": pa.string(), "numbers": pa.list_(pa.int64())}),
        "marks": pa.map_(pa.string(), pa.int64()),
    }
)
ROWS = [
    {
        "id": 2**62, "small": 1, "at": NOW, "local": NOW.replace(tzinfo=None), "day": date(1969, 12, 31),
        "price": Decimal("-1.2300"), "text": "größer", "raw": b"\x00\xff", "flag": True, "ratio": 0.1,
        "tags": ["a", None], "home": {"city": None, "numbers": [1, 2]}, "marks": [("a", 1)],
    },
    dict.fromkeys(SHAPE.names),
]  # fmt: skip


def test_rows_in_object_store_are_the_same_rows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of every type and null, in several files: whoever reads them, they are the same, by name and type."""
    lake = sqlite(tmp_path)
    schema = Schema(NestedField(1, "id", LongType(), required=False))
    lake.create_table("shop.orders", schema, UNPARTITIONED_PARTITION_SPEC, {})
    files = []
    for number in range(2):
        path = tmp_path / f"{number}.parquet"
        pq.write_table(pa.Table.from_pylist(ROWS, SHAPE), path)
        files.append(StagedFile(f"file://{path}", len(ROWS), path.stat().st_size, ""))
    native = staged.staged_rows(spark, lake, "shop.orders", files)

    monkeypatch.setattr(staged, "OBJECT_STORES", ("file",))
    read = staged.staged_rows(spark, lake, "shop.orders", files)

    assert read.schema.simpleString() == native.schema.simpleString()
    assert sorted(map(str, read.collect())) == sorted(map(str, native.collect()))
    assert len(read.collect()) == 4
