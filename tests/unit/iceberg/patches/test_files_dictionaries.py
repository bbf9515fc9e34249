"""Which columns of a data file have a dictionary, and that rows come back from it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow

from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.catalog.table import staging_table
from frazil.iceberg.files.data_files import data_file, write_rows
from frazil.iceberg.ledger.ledger import UNPARTITIONED
from frazil.iceberg.schema.schema import declared_schema
from frazil.pipeline.models.pipeline_file import Destination

ROWS = 40_000
COLUMNS = {
    "id": "long",
    "at": "timestamptz",
    "offset": "long",
    "measure": "double",
    "amount": "double",
    "device": "long",
    "seldom": "long",
    "state": "string",
    "inner": "struct<b: long>",
    "items": "list<struct<sku: string>>",
    "tags": "map<string, long>",
}
PLAIN = {"id", "at", "offset", "measure"}


def _rows(count: int, schema: pa.Schema) -> pa.Table:
    """Ids, instants and measures that come once, offsets that two partitions share, and columns of values that come again, of
    which devices come in turn.
    """
    chance = np.random.default_rng(1)
    columns = {
        "id": chance.permutation(count) + 10**10,
        "at": chance.permutation(count),
        "offset": np.arange(count) % (count // 2),
        "measure": chance.random(count),
        "amount": chance.integers(0, count // 4, count) / 100,
        "device": np.arange(count) % 1_000,
        "seldom": [None] * (count - 2) + [1, 2],
        "state": ["placed"] * count,
        "inner": [{"b": number % 5} for number in range(count)],
        "items": [[{"sku": "a"}]] * count,
        "tags": [[("a", 1)]] * count,
    }
    return pa.table([pa.array(columns[field.name], field.type) for field in schema], schema=schema)


def _landed(tmp_path: Path, count: int) -> tuple[pa.Table, pa.Table, set[str]]:
    """Rows, what a scan of the table returns, and which leaves of the file have no dictionary."""
    schema = declared_schema(Destination.model_validate({"table": "a.b", "columns": COLUMNS, "kafka_columns": False}))
    lake = Lake("lake", f"sqlite:///{tmp_path}/catalog.db", f"file://{tmp_path}/warehouse", {})
    table = lake.create_table("a.b", schema, UNPARTITIONED, {})
    rows = _rows(count, schema_to_pyarrow(schema, include_field_ids=False))

    (file,) = write_rows(staging_table("a.b", table), rows)

    assert data_file(file, table.metadata).record_count == count
    row_group = pq.ParquetFile(file.path.removeprefix("file://")).metadata.row_group(0)
    leaves = [row_group.column(number) for number in range(row_group.num_columns)]
    table.add_files([file.path])
    plain = {leaf.path_in_schema for leaf in leaves if not leaf.has_dictionary_page}
    return rows, table.scan().to_arrow(), plain


def test_only_columns_whose_values_hardly_repeat_go_without_dictionary(tmp_path: Path) -> None:
    """Ids, instants, offsets and measures are plain; whatever repeats, is nested or mostly null has its dictionary."""
    rows, landed, plain = _landed(tmp_path, ROWS)

    assert plain == PLAIN
    assert landed.cast(rows.schema).equals(rows)


def test_small_file_has_a_dictionary_of_each_column(tmp_path: Path) -> None:
    """A sample of few rows would tell nothing, and there is nothing to spare."""
    rows, landed, plain = _landed(tmp_path, 100)

    assert plain == set()
    assert landed.cast(rows.schema).equals(rows)
