"""A destination that asks for everything a new table can have, and what must be true of the table: for both catalogs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import PyArrowFileIO, schema_to_pyarrow

from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.catalog.table import TABLE_PROPERTIES, Table, staging_table
from frazil.iceberg.commit.commit import Change, commit, fit_of
from frazil.iceberg.files.data_files import write_rows
from frazil.iceberg.schema.comparison import check_destination
from frazil.iceberg.schema.schema import declared_order, declared_schema, declared_spec
from frazil.pipeline.models.pipeline_file import Destination

NAME = "shop.europe.north.orders"

DECLARED: dict[str, Any] = {
    "table": NAME,
    "columns": {
        "id": {"type": "long", "required": True},
        "town": {"type": "string", "required": True},
        "at": "timestamptz",
        "day": "date",
        "paid": "timestamp",
        "sent": "timestamptz",
        "price": "decimal(10,2)",
        "name": "string",
    },
    "partition_by": [
        "town",
        "year(paid)",
        "month(day)",
        "day(sent)",
        "hour(at) as at_h",
        "bucket(4, id)",
        "bucket(2, name) as shard",
        "truncate(2, name)",
        "truncate(10, price) as price_level",
        "identity(day)",
    ],
    "sort_by": ["day(at) desc nulls last", "name", "id asc nulls last"],
    "identifier": ["id", "town"],
    "properties": {"write.parquet.compression-codec": "gzip", "commit.retry.num-retries": 7},
}
LAYOUT = Destination.model_validate(DECLARED)


def created(lake: Lake, destination: Destination = LAYOUT) -> Table:
    """Make the table of a destination, as a first run does."""
    schema = declared_schema(destination)
    return lake.create_table(
        destination.table,
        schema,
        declared_spec(destination, schema),
        TABLE_PROPERTIES | destination.properties,
        declared_order(destination, schema),
    )


def described(table: Table) -> dict[str, object]:
    """What the file asked for, as the table's metadata has it."""
    schema = table.schema()
    return {
        "partition": [(field.name, str(field.transform)) for field in table.spec().fields],
        "order": [
            (
                schema.find_column_name(field.source_id),
                str(field.transform),
                field.direction.value,
                field.null_order.value,
            )
            for field in table.sort_order().fields
        ],
        "identifier": schema.identifier_field_names(),
        "codec": table.properties["write.parquet.compression-codec"],
        "version": table.format_version,
    }


EXPECTED: dict[str, object] = {
    "partition": [
        ("town", "identity"),
        ("paid_year", "year"),
        ("day_month", "month"),
        ("sent_day", "day"),
        ("at_h", "hour"),
        ("id_bucket", "bucket[4]"),
        ("shard", "bucket[2]"),
        ("name_truncate", "truncate[2]"),
        ("price_level", "truncate[10]"),
        ("day", "identity"),
    ],
    "order": [
        ("at", "day", "desc", "nulls-last"),
        ("name", "identity", "asc", "nulls-first"),
        ("id", "identity", "asc", "nulls-last"),
    ],
    "identifier": {"id", "town"},
    "codec": "gzip",
    "version": 2,
}


def land(lake: Lake, rows: list[dict[str, object]], name: str = NAME) -> list[pa.Table]:
    """Write rows with Frazil's writer, commit them, and return the files as they lie there."""
    table = lake.load_table(name)
    check_destination(table, LAYOUT.model_copy(update={"table": name}))
    arrow_schema = schema_to_pyarrow(table.schema(), include_field_ids=False)
    full = [{field.name: row.get(field.name) for field in arrow_schema} for row in rows]
    files = write_rows(staging_table(name, table), pa.Table.from_pylist(full, arrow_schema))
    change = Change(
        name, files, {}, (), fit_of(table.metadata), landed=lambda _: None, check=lambda _: None, step="decide"
    )
    commit(lake, change)
    io = PyArrowFileIO(dict(table.io.properties))
    messages = []
    for file in files:
        with io.new_input(file.path).open() as stream:
            messages.append(pq.read_table(stream))
    return messages


def orders() -> list[dict[str, object]]:
    """Orders of one town and many hours, in no order."""
    begin = datetime(2024, 2, 28, 23, 30, tzinfo=UTC)
    return [
        {
            "id": n * 7 % 40,
            "town": "Oslo",
            "at": None if n % 9 == 0 else begin + timedelta(minutes=n),
            "day": None if n % 5 == 0 else begin.date(),
            "name": None if n % 4 == 0 else f"n{n % 3}",
        }
        for n in range(40)
    ]
