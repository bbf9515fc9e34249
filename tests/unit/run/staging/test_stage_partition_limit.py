"""Partition values of one task: each table gets so many, records of further ones become dead letters."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from frazil.batch.facts import Staged
from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.catalog.table import PARTITIONED_LAYOUT, TABLE_PROPERTIES, Table, staging_table
from frazil.iceberg.files.partition_limit import PartitionLimit
from frazil.iceberg.schema.schema import arrow_columns, declared_schema, declared_spec
from frazil.kafka.client.cluster import Cluster
from frazil.pipeline.models.pipeline_file import Destination, Pipeline
from frazil.records.model.spec import RecordSpec
from frazil.run.commit.audit import hard_delete_tables
from frazil.run.staging.stage import StageOrder, stage_records
from tests.unit.records.kafka_batches import kafka_batch

COLUMNS = {"id": "long", "town": "string", "day": "date", "at": "timestamptz", "price": "decimal(10,2)"}
TABLE = "shop.orders"


def record(number: int) -> dict[str, Any]:
    """A record whose values all differ from those of other numbers; of each 13th two are null."""
    day = date(1960, 1, 1).toordinal() + number
    return {
        "id": number * 1_000,
        "town": None if number % 13 == 0 else f"{number:04} town",
        "day": None if number % 13 == 0 else date.fromordinal(day).isoformat(),
        "at": f"{date.fromordinal(day)}T01:02:03.5Z",
        "price": number + 0.5,
    }


def table_of(path: Path, partition_by: Iterable[str], name: str = TABLE, **options: Any) -> Table:
    lake = Lake("lake", f"sqlite:///{path}/catalog.db", f"file://{path}/warehouse", {})
    declared = {"table": name, "columns": COLUMNS, "partition_by": list(partition_by)} | options
    destination = Destination.model_validate(declared)
    schema = declared_schema(destination)
    return lake.create_table(
        name, schema, declared_spec(destination, schema), TABLE_PROPERTIES | destination.properties
    )


def staged(
    limit: int,
    tables: Mapping[str, Table],
    *batches: Iterable[int],
    record: Callable[[int], dict[str, Any]] = record,
    columns: Mapping[str, Any] = COLUMNS,
    by_engine: bool = False,
) -> Staged:
    destination = Destination.model_validate({"table": TABLE, "columns": columns})
    metadata = {name: table.metadata for name, table in tables.items()}
    order = StageOrder(
        "p",
        1,
        Cluster("c", {}),
        (),
        100,
        {name: RecordSpec(arrow_columns(table, destination)) for name, table in tables.items()},
        {name: staging_table(name, table) for name, table in tables.items()},
        None,
        partitions=PartitionLimit.of_tables(limit, metadata, {*metadata} if by_engine else set()),
    )
    return stage_records(
        order, [kafka_batch([json.dumps(record(number)).encode() for number in batch]) for batch in batches]
    )


PARTITIONS: dict[str, tuple[str, Callable[[dict[str, Any]], object]]] = {
    "identity": ("town", lambda row: row["town"]),
    "date": ("day", lambda row: row["day"]),
    "day": ("day(at)", lambda row: row["at"][:10]),
    "hour": ("hour(at)", lambda row: row["at"][:13]),
    "month": ("month(day)", lambda row: row["day"] and row["day"][:7]),
    "truncate": ("truncate(3, town)", lambda row: row["town"] and row["town"][:3]),
    "decimal": ("truncate(1000, price)", lambda row: row["price"] // 10),
    "Kafka's": ("_kafka_offset", lambda row: row["id"] // 1_000 % 30),
}


@pytest.mark.parametrize(("field", "key"), PARTITIONS.values(), ids=PARTITIONS.keys())
def test_each_table_gets_a_bounded_number_of_partition_values(
    tmp_path: Path, field: str, key: Callable[[dict[str, Any]], object]
) -> None:
    """The first values get their files, in whichever batch they come again; of all others each record is a letter."""
    batches = (range(30), range(30, 60), range(30))
    values: list[object] = []
    for number in (of for batch in batches for of in batch):
        value = key(record(number))
        values += [value] if value not in values and len(values) < 7 else []
    rows = sum(key(record(number)) in values for batch in batches for number in batch)

    staging = staged(7, {TABLE: table_of(tmp_path, [field])}, *batches)

    assert (staging.total.read, staging.total.written) == (90, rows)
    assert len(staging.files[TABLE]) == len(values)
    assert staging.dead_codes == ({"TOO_MANY_PARTITIONS": 90 - rows} if rows < 90 else {})
    assert staging.rows(TABLE) == rows


def test_values_of_several_fields_count_together(tmp_path: Path) -> None:
    """A bucket and a town: as many pairs as the limit; the buckets alone would never reach it."""
    staging = staged(
        20, {TABLE: table_of(tmp_path, ["bucket(4, id)", "town"])}, range(1, 13), range(14, 26), range(1, 13)
    )
    assert (len(staging.files[TABLE]), staging.total.written, staging.total.dead) == (20, 32, 4)
    buckets = staged(20, {TABLE: table_of(tmp_path, ["bucket(4, id)"], "shop.buckets")}, range(200))
    assert (buckets.total.written, buckets.dead_codes) == (200, {})


SPARK = {
    "orc": {"properties": {"write.format.default": "orc"}},
    "v3": {"properties": {"format-version": "3"}},
    "merged": {
        "write": "upsert",
        "identifier": ["id"],
        "columns": COLUMNS | {"id": {"type": "long", "required": True}},
    },
}


@pytest.mark.parametrize("options", SPARK.values(), ids=SPARK.keys())
def test_tables_that_spark_writes_are_bounded_alike(tmp_path: Path, options: dict[str, Any]) -> None:
    """Their files are Spark's, and as many."""
    staging = staged(7, {TABLE: table_of(tmp_path, ["day(at)"], **options)}, range(30))
    assert len(staging.files[TABLE]) == 1 or "write" in options
    assert (staging.total.written, staging.dead_codes) == (7, {"TOO_MANY_PARTITIONS": 23})


def test_table_that_forgets_deletes_takes_any_number_of_values(tmp_path: Path) -> None:
    """A change that became a dead letter could never come back to it, so none becomes one."""
    counters = PartitionLimit.of_tables(
        7, {TABLE: table_of(tmp_path, ["day(at)"]).metadata}, unlimited={TABLE}
    ).counters()
    days = [date.fromordinal(700_000 + number) for number in range(30)]
    instants = pa.array(days, pa.date32()).cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC"))
    assert len(counters[TABLE].beyond(pa.RecordBatch.from_pydict({"at": instants}))) == 0

    columns = COLUMNS | {"id": {"type": "long", "required": True}}
    changes = {"format": "op_column", "op": "op", "values": {"insert": ["I"], "delete": ["D"]}}
    merged = {"table": TABLE, "write": "cdc", "identifier": ["id"], "columns": columns, "changes": changes}
    for deletes, unlimited in (("hard", {TABLE}), ("soft", set[str]())):
        file = {"name": "p", "source": {"topics": ["t"]}, "destinations": [merged | {"deletes": deletes}]}
        assert hard_delete_tables(Pipeline.model_validate(file)) == unlimited


def test_record_beyond_the_limit_of_one_table_lands_in_others(tmp_path: Path) -> None:
    """Each table counts for itself; one without partitions takes every record."""
    names = {"shop.days": ["day(at)"], "shop.months": ["month(at)"], "shop.plain": []}
    tables = {name: table_of(tmp_path, fields, name) for name, fields in names.items()}

    staging = staged(10, tables, range(30))

    assert {name: (table_outcome.written, table_outcome.dead) for name, table_outcome in staging.tables.items()} == {
        "shop.days": (10, 20),
        "shop.months": (30, 0),
        "shop.plain": (30, 0),
    }
    assert {name: staging.rows(name) for name in tables} == {"shop.days": 10, "shop.months": 30, "shop.plain": 30}


def test_message_names_the_remedy_and_quotes_no_value(tmp_path: Path) -> None:
    staging = staged(2, {TABLE: table_of(tmp_path, ["town"])}, range(1, 4))
    sample = staging.samples["TOO_MANY_PARTITIONS"]
    assert (sample.topic, sample.partition, sample.offset) == ("orders", 0, 102)
    assert "limits.max_partitions" in sample.message
    assert "town" not in sample.message


def test_tables_without_partitions_are_not_counted(tmp_path: Path) -> None:
    assert PartitionLimit.of_tables(1, {TABLE: table_of(tmp_path, []).metadata}).counters() == {}


FOLDERS = {"properties": {"write.object-storage.enabled": "false"}}
PATHS = {"properties": {"write.object-storage.partitioned-paths": "true"}}
TEXT, BINARY = COLUMNS["town"], "binary"

LONG_VALUES: dict[str, tuple[str, str, str, str]] = {
    "identity": ("town", TEXT, "x" * 250, "x" * 251),
    "escaped": ("town", TEXT, "é" * 41 + "~x", "é" * 41 + "~xx*.-_ "),
    "truncated": ("truncate(41, town)", TEXT, "x" * 1_000, "é" * 42),
    "binary": ("town", BINARY, b64encode(b"x" * 186).decode(), b64encode(b"x" * 187).decode()),
}


@pytest.mark.parametrize(("field", "kind", "short", "long"), LONG_VALUES.values(), ids=LONG_VALUES.keys())
@pytest.mark.parametrize("options", [FOLDERS, PATHS], ids=["folders", "paths"])
def test_value_too_long_for_a_folder_is_a_dead_letter_under_spark(
    tmp_path: Path, field: str, kind: str, short: str, long: str, options: dict[str, Any]
) -> None:
    """`town=` and the value as Java escapes it have 255 bytes at most; a refused value takes no room from others."""
    columns = COLUMNS | {"town": kind}
    table = table_of(tmp_path, [field], columns=columns, **options)
    values = [long, short, None, long]

    staging = staged(
        2,
        {TABLE: table},
        range(4),
        record=lambda number: {"id": number, "town": values[number]},
        columns=columns,
        by_engine=True,
    )

    assert (staging.total.written, staging.dead_codes) == (2, {"PARTITION_TOO_LONG": 2})
    message = staging.samples["PARTITION_TOO_LONG"].message
    assert "write.object-storage.enabled=true" in message
    assert "truncate(N, column)" in message


@pytest.mark.parametrize(("options", "by_engine"), [(FOLDERS, False), ({}, True)], ids=["PyIceberg", "own layout"])
def test_long_value_lands_where_it_names_no_folder(tmp_path: Path, options: dict[str, Any], by_engine: bool) -> None:
    """PyIceberg's folders get bounded names here, and tables that Frazil makes have none."""
    layout = PARTITIONED_LAYOUT | options.get("properties", {})
    table = table_of(tmp_path, ["town"], properties=layout)
    staging = staged(
        9, {TABLE: table}, range(1), record=lambda number: {"id": number, "town": "x" * 300}, by_engine=by_engine
    )
    assert (staging.total.written, staging.dead_codes) == (1, {})
