"""Values of nested columns reach the file, nulls among them, and come back from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import ArrowProjectionVisitor, schema_to_pyarrow
from pyiceberg.table import Table

from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.catalog.table import staging_table
from frazil.iceberg.files.data_files import data_file, write_rows
from frazil.iceberg.ledger.ledger import UNPARTITIONED
from frazil.iceberg.schema.schema import declared_schema
from frazil.pipeline.models.pipeline_file import Destination

CASES: list[tuple[str, list[Any]]] = [
    ("list<long>", [None, [], [1, None]]),
    ("list<struct<b: long>>", [None, [], [{"b": None}], [{"b": 1}, None]]),
    ("list<struct<b: list<long>>>", [[{"b": None}], None, [{"b": []}], []]),
    ("struct<b: list<struct<c: date>>>", [{"b": None}, None, {"b": []}, {"b": [{"c": None}]}]),
    ("list<list<struct<b: long>>>", [[None], None, [[]], [[{"b": 1}]]]),
    ("map<string, long>", [None, [], [("a", None)]]),
    ("map<string, struct<b: long>>", [None, [], [("a", None)], [("a", {"b": 1})]]),
    ("map<string, list<struct<b: long>>>", [None, [("a", None)], [("a", [])]]),
]

NAMED: list[tuple[str, list[Any]]] = [
    ("list<list<struct<`b-c`: long>>>", [[[{"b-c": 1}]], None, [None], [[None]]]),
    ("list<struct<`a-b`: list<list<struct<`b-c`: int>>>>>", [[{"a-b": [[{"b-c": 1}], []]}], None]),
    ("map<string, list<struct<`b-c`: long>>>", [[("a", [{"b-c": 1}])], None, [("a", None)]]),
    ("list<map<string, struct<`b-c`: long>>>", [[[("a", {"b-c": 1})]], None, [None]]),
    ("map<string, map<string, struct<`b-c`: long>>>", [[("a", [("b", {"b-c": 1})])], None]),
]
"""Columns with fields whose names are other ones in files."""


def _table_and_rows(tmp_path: Path, type_name: str, values: list[Any]) -> tuple[Table, pa.Table]:
    destination = Destination.model_validate({"table": "a.b", "columns": {"r": type_name}, "kafka_columns": False})
    schema = declared_schema(destination)
    lake = Lake("lake", f"sqlite:///{tmp_path}/catalog.db", f"file://{tmp_path}/warehouse", {})
    table = lake.create_table("a.b", schema, UNPARTITIONED, {})
    arrow = schema_to_pyarrow(schema, include_field_ids=False)
    return table, pa.table([pa.array([*values, *values], arrow.field("r").type).slice(len(values))], schema=arrow)


@pytest.mark.parametrize(("type_name", "values"), CASES, ids=[type_name for type_name, _ in CASES])
def test_null_list_stays_apart_from_an_empty_one(tmp_path: Path, type_name: str, values: list[Any]) -> None:
    """Null, empty and full stay apart in the file and in a scan, at every level, also in a slice of a longer array."""
    table, rows = _table_and_rows(tmp_path, type_name, values)

    (file,) = write_rows(staging_table("a.b", table), rows)

    assert pq.ParquetFile(file.path.removeprefix("file://")).read()["r"].to_pylist() == values
    table.add_files([file.path])
    assert table.scan().to_arrow()["r"].to_pylist() == values


@pytest.mark.parametrize(
    ("type_name", "values"), [*CASES, *NAMED], ids=[type_name for type_name, _ in [*CASES, *NAMED]]
)
def test_field_in_any_list_or_map_lands_under_its_id(tmp_path: Path, type_name: str, values: list[Any]) -> None:
    """Each level of the file has the id of its field, so that every engine finds it, and its value, whatever its name."""
    table, rows = _table_and_rows(tmp_path, type_name, values)

    files = write_rows(staging_table("a.b", table), rows)

    for file in files:
        groups = str(pq.ParquetFile(file.path.removeprefix("file://")).schema).splitlines()[2:]
        unnamed = [line.strip() for line in groups if "field_id=-1" in line]
        assert [line for line in unnamed if not line.startswith("repeated group")] == []
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        for file in files:
            append.append_data_file(data_file(file, table.metadata))
    assert table.scan().to_arrow()["r"].to_pylist() == values


def test_patch_of_nested_nulls_is_still_needed() -> None:
    """As long as PyIceberg's own projection loses the null, `frazil.iceberg.patches.files` is needed."""
    destination = Destination.model_validate(
        {"table": "a.b", "columns": {"r": "list<struct<b: long>>"}, "kafka_columns": False}
    )
    schema = declared_schema(destination)
    arrow = schema_to_pyarrow(schema, include_field_ids=False)
    array = pa.array([None, []], arrow.field("r").type)
    field = schema.fields[0].field_type
    projection = (
        ArrowProjectionVisitor.__mro__[1]
        if ArrowProjectionVisitor.__name__ != "ArrowProjectionVisitor"
        else (ArrowProjectionVisitor)
    )

    projected = projection(schema).list(field, array, array.values)

    assert projected.null_count == 0, "mended in PyIceberg: remove frazil.iceberg.patches.files"
