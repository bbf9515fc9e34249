"""Keys that no file can hold are told by bounds, and none is told so that one holds."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DateType, DecimalType, IcebergType, IntegerType, LongType, NestedField, StringType

from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.ledger.inspection import may_hold

NAME = "shop.orders"


def filled(folder: Path, iceberg_type: IcebergType, *files: list[Any], **properties: str) -> Table:
    """A bucketed table with files of these keys."""
    lake = Lake("lake", f"sqlite:///{folder}/catalog.db", f"file://{folder}/warehouse", {})
    spec = PartitionSpec(PartitionField(1, 1000, BucketTransform(4), "shard"))
    table = lake.create_table(NAME, Schema(NestedField(1, "id", iceberg_type, required=True)), spec, properties)
    for keys in files:
        schema = table.schema().as_arrow()
        table.append(pa.table({"id": pa.array(keys, schema.field("id").type)}, schema))
    return table


def held(table: Table, least: object, most: object) -> bool:
    snapshot = table.metadata.current_snapshot_id
    return may_hold(table, NAME, snapshot, {"id": (str(least), str(most))})


@pytest.mark.parametrize("iceberg_type", [LongType(), IntegerType()])
def test_growing_numbers_are_beyond_all_key_ranges(tmp_path: Path, iceberg_type: IcebergType) -> None:
    """New ids are beyond all files, bucketed or not; between two files, and at their ends, they are not."""
    table = filled(tmp_path, iceberg_type, list(range(100)), list(range(200, 300)))
    assert not held(table, 300, 10**6)
    assert not held(table, 120, 180)
    assert not held(table, -5, -1)
    assert held(table, 299, 400)
    assert held(table, -5, 0)
    assert held(table, 50, 250)


def test_cut_bounds_still_cover_their_rows(tmp_path: Path) -> None:
    """Texts that differ behind the 16th character: what may be there is looked for; with whole bounds, beyond them nothing is."""
    keys = [f"order-0000000000{n:06}" for n in range(100)]
    cut = filled(tmp_path / "cut", StringType(), keys)
    whole = filled(tmp_path / "whole", StringType(), keys, **{"write.metadata.metrics.column.id": "full"})
    for table in (cut, whole):
        assert all(held(table, key, key) for key in keys)
        assert held(table, keys[-1], "z")
        assert not held(table, "p", "q")
        assert not held(table, "a", "n")
    assert held(cut, "order-0000000000000100", "order-0000000000000200")
    assert not held(whole, "order-0000000000000100", "order-0000000000000200")


def test_largest_characters_leave_a_bound_open(tmp_path: Path) -> None:
    """There is no text after it to cut to: then the file counts as holding whatever comes."""
    keys = ["\U0010ffff" * 20, "\U0010ffff" * 20 + "b"]
    table = filled(tmp_path, StringType(), keys)
    assert all(held(table, key, key) for key in keys)
    assert held(table, "\U0010ffff" * 20 + "c", "\U0010ffff" * 21)


def test_dates_and_decimals_are_compared_as_values(tmp_path: Path) -> None:
    """They come as texts; one that Python does not have counts as held."""
    days = filled(tmp_path / "days", DateType(), [date(2026, 1, 1), date(2026, 2, 1)])
    assert held(days, date(2026, 1, 15), date(2027, 1, 1))
    assert not held(days, date(2026, 2, 2), date(2027, 1, 1))
    assert held(days, date(2026, 2, 2), "+12026-01-01")
    amounts = filled(tmp_path / "amounts", DecimalType(9, 2), [Decimal("1.50"), Decimal("7.00")])
    assert held(amounts, "7.00", "9.00")
    assert not held(amounts, "7.01", "9.00")


def test_unknown_ranges_prove_nothing(tmp_path: Path) -> None:
    """Without a snapshot, or a range, nothing is proven."""
    table = filled(tmp_path, LongType(), [1])
    assert may_hold(table, NAME, None, {"id": ("5", "6")})
    assert may_hold(table, NAME, table.metadata.current_snapshot_id, {})


def test_equality_deletes_of_another_engine_leave_the_merge_working(tmp_path: Path) -> None:
    """Deletes hold no rows, so that PyIceberg need not understand them: Flink writes such ones."""
    table = filled(tmp_path, LongType(), list(range(100)))
    bound = to_bytes(LongType(), 250)
    deletes = DataFile.from_args(
        content=DataFileContent.EQUALITY_DELETES,
        file_path=f"{table.location()}/data/deletes.parquet",
        file_format=FileFormat.PARQUET,
        partition=Record(1),
        record_count=1,
        file_size_in_bytes=1000,
        lower_bounds={1: bound},
        upper_bounds={1: bound},
        equality_ids=[1],
    )
    deletes.spec_id = table.spec().spec_id
    with table.transaction() as change, change.update_snapshot().fast_append() as append:
        append.append_data_file(deletes)
    assert held(table, 0, 50)
    assert not held(table, 200, 300)


def test_first_file_that_may_hold_a_key_ends_the_search(tmp_path: Path) -> None:
    """The first that may hold a key ends the search: what comes behind it need not even be there."""
    table = filled(tmp_path, LongType(), [1], [2])
    head = table.current_snapshot()
    assert head is not None
    first, *rest = head.manifests(table.io)
    assert rest
    for manifest in rest:
        Path(manifest.manifest_path.removeprefix("file://")).unlink()
    assert first.existing_files_count == 0
    assert held(table, 0, 9)
