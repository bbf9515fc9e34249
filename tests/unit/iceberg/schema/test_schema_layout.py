"""How a new table is laid out, as the pipeline file asks, and that rows are written accordingly."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table.sorting import NullOrder, SortDirection
from pyiceberg.transforms import IdentityTransform

from frazil.errors import Terminal
from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.catalog.table import Table, staging_table
from frazil.iceberg.files.data_files import data_file, sorted_rows, write_rows
from frazil.iceberg.schema.comparison import check_destination
from frazil.iceberg.schema.schema import declared_order, declared_schema
from frazil.pipeline.models.pipeline_file import Destination
from tests.layouts import EXPECTED, LAYOUT, created, described, land, orders


def test_table_has_the_layout_of_its_file(lake: Lake) -> None:
    """Ten partition fields at once, the sort order, identifier fields, properties and nested namespaces."""
    created(lake)

    assert described(lake.load_table(LAYOUT.table)) == EXPECTED
    landed = [number for file in land(lake, orders()) for number in file["id"].to_pylist()]
    assert sorted(landed) == sorted(order["id"] for order in orders())
    read = lake.load_table(LAYOUT.table).scan().to_arrow().sort_by("id")["id"].to_pylist()
    assert read == list(range(40))


def sorted_table(lake: Lake, *fields: str) -> None:
    created(lake, LAYOUT.model_copy(update={"table": "shop.sorted", "partition_by": (), "sort_by": fields}))


@pytest.mark.parametrize(
    ("fields", "key", "reverse"),
    [
        (("id",), lambda row: row["id"], False),
        (("id desc",), lambda row: row["id"], True),
        (("name", "id desc"), lambda row: (row["name"] is not None, row["name"] or "", -row["id"]), False),
        (("name nulls last", "id"), lambda row: (row["name"] is None, row["name"] or "", row["id"]), False),
        (("truncate(1, name)", "id"), lambda row: (row["name"] is not None, row["id"]), False),
        (
            ("hour(at)", "id"),
            lambda row: (row["at"] is not None, row["at"] and row["at"].timestamp() // 3600, row["id"]),
            False,
        ),
    ],
)
def test_rows_of_a_file_are_sorted(lake: Lake, fields: tuple[str, ...], key: Any, reverse: bool) -> None:
    """In the table's sort order, with nulls where it says, and none is lost."""
    sorted_table(lake, *fields)

    (file,) = land(lake, orders(), "shop.sorted")

    rows = file.to_pylist()
    assert len(rows) == len(orders())
    order = [(key(row)) for row in rows]
    assert order == sorted(order, reverse=reverse)


def test_order_that_cannot_be_computed_keeps_rows(lake: Lake) -> None:
    """Somebody sorts the table by a nested field or by UUIDs: rows land all the same, sorted as far as it goes."""
    declared = Destination.model_validate(
        {"table": "shop.odd", "columns": {"id": "long", "key": "uuid", "at": "struct<place: string>"}}
    )
    table = created(lake, declared)
    with table.update_sort_order() as update:
        for name in ("id", "at.place", "key"):
            update.asc(name, IdentityTransform())
    rows = pa.table({"id": [3, 1, 2], "at": [{"place": "b"}, {"place": "a"}, None]})

    ordered = sorted_rows(rows, lake.load_table("shop.odd").metadata)

    assert ordered["id"].to_pylist() == [1, 2, 3]
    assert sorted_rows(rows.select(["at"]), lake.load_table("shop.odd").metadata) == rows.select(["at"])


def test_order_of_a_type_without_one_is_refused_at_creation() -> None:
    """Days of a number are refused before anything is made."""
    declared = LAYOUT.model_copy(update={"sort_by": ("day(id)",)})

    with pytest.raises(Terminal, match=r"shop.europe.north.orders: day\(id\) can't sort a column of type long"):
        declared_order(declared, declared_schema(declared))


def test_identifier_that_differs_from_the_table_is_refused(lake: Lake) -> None:
    """The table says what a row is about, and the file says something else: one of them is wrong."""
    table: Table = created(lake)

    check_destination(table, LAYOUT.model_copy(update={"identifier": ()}))
    with pytest.raises(Terminal, match="identifier: declared id, the table has id, town"):
        check_destination(table, LAYOUT.model_copy(update={"identifier": ("id",)}))


def test_default_null_order_follows_the_direction() -> None:
    """Iceberg's defaults: nulls first where values rise, last where they fall."""
    declared = LAYOUT.model_copy(update={"sort_by": ("id", "town desc", "at asc nulls last", "name desc nulls first")})

    fields = declared_order(declared, declared_schema(declared)).fields

    assert [(field.direction, field.null_order) for field in fields] == [
        (SortDirection.ASC, NullOrder.NULLS_FIRST),
        (SortDirection.DESC, NullOrder.NULLS_LAST),
        (SortDirection.ASC, NullOrder.NULLS_LAST),
        (SortDirection.DESC, NullOrder.NULLS_FIRST),
    ]


def test_patch_of_partition_keys_is_still_needed() -> None:
    """As PyIceberg is, one column can't have two partition fields: without that, Frazil's own way can go."""
    code = (
        "from pyiceberg.partitioning import *; from pyiceberg.schema import Schema;"
        "from pyiceberg.transforms import *; from pyiceberg.types import *;"
        "schema = Schema(NestedField(1, 'id', LongType()));"
        "spec = PartitionSpec(PartitionField(1, 1000, BucketTransform(4), 'a'),"
        " PartitionField(1, 1001, TruncateTransform(4), 'b'));"
        "values = [PartitionFieldValue(field, 1) for field in spec.fields];"
        "print(PartitionKey(values, spec, schema).partition)"
    )

    as_it_is = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert "Cannot have redundant partitions" in as_it_is.stderr


TOWN = ["here"]
"""Of a row: that column is required."""


def test_times_beyond_year_9999_have_partitions(lake: Lake) -> None:
    """A number of milliseconds may say any instant; the name of the folder is then the number of the partition."""
    created(lake, LAYOUT.model_copy(update={"table": "shop.late", "partition_by": ("day(at)",), "sort_by": ()}))
    table = lake.load_table("shop.late")
    times = pa.array([9_000_000_000_000_000_000, 0], pa.int64()).cast(pa.timestamp("us", "UTC"))

    files = write_rows(
        staging_table("shop.late", table), pa.table({"id": pa.array([1, 2]), "town": TOWN * 2, "at": times})
    )

    assert [data_file(file, table.metadata).partition[0] for file in files] == [104_166_666, 0]
    assert ["at_day=104166666" in file.path for file in files] == [True, False]


def test_long_partition_values_have_short_folders(lake: Lake) -> None:
    """A text may be longer than a file system's names; texts that begin alike stay apart."""
    created(lake, LAYOUT.model_copy(update={"table": "shop.long", "partition_by": ("name",), "sort_by": ()}))
    table = lake.load_table("shop.long")
    names = ["é/" * 1_000 + "a", "é/" * 1_000 + "b", "short", None]

    rows = pa.table({"id": pa.array([1, 2, 3, 4]), "town": TOWN * 4, "name": pa.array(names)})
    files = write_rows(staging_table("shop.long", table), rows)

    assert [data_file(file, table.metadata).partition[0] for file in files] == names
    folders = [file.path.split("/")[-2] for file in files]
    assert len(set(folders)) == 4
    assert max(map(len, folders)) <= 100
    assert folders[2:] == ["name=short", "name=null"]


def test_rows_of_a_partition_keep_their_order(lake: Lake) -> None:
    """However its rows lie among the others'; each file has the rows of its partition, and all are there."""
    fields = ("name", "bucket(4, id)")
    created(lake, LAYOUT.model_copy(update={"table": "shop.parts", "partition_by": fields, "sort_by": ()}))
    ids = list(range(300))
    names = [None if n % 3 == 0 else f"n{n % 7}" for n in ids]
    table = lake.load_table("shop.parts")

    rows = pa.table({"id": pa.array(ids), "town": TOWN * 300, "name": pa.array(names)})
    files = write_rows(staging_table("shop.parts", table), rows)

    read = [pq.ParquetFile(file.path.removeprefix("file://")).read().select(["id", "name"]) for file in files]
    assert sorted(n for part in read for n in part["id"].to_pylist()) == ids
    for file, part in zip(files, read, strict=True):
        assert part["id"].to_pylist() == sorted(part["id"].to_pylist())
        assert set(part["name"].to_pylist()) == {data_file(file, table.metadata).partition[0]}
