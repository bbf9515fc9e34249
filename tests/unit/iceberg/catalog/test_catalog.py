"""Catalog, schemas and ledger."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField, StringType, TimeType

from frazil.errors import Retryable, Terminal
from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.catalog.table import TABLE_PROPERTIES
from frazil.iceberg.ledger.ledger import UNPARTITIONED
from frazil.iceberg.schema.comparison import check_destination
from frazil.iceberg.schema.schema import arrow_columns, declared_schema, declared_spec
from frazil.pipeline.models.pipeline_file import Destination
from tests.unit.iceberg.orders import TABLE, commit_batches, destination, elsewhere


def make(lake: Lake, declared: Destination, name: str = TABLE) -> None:
    schema = declared_schema(declared)
    lake.create_table(name, schema, declared_spec(declared, schema), TABLE_PROPERTIES)


def test_second_creation_gets_the_existing_table(orders: Lake) -> None:
    """Who comes second gets the table of who came first, with its rows."""
    commit_batches(orders, 1)
    first = orders.load_table(TABLE)

    again = elsewhere(orders).create_table(TABLE, Schema(NestedField(1, "other", StringType())), UNPARTITIONED, {})

    assert again.metadata.table_uuid == first.metadata.table_uuid
    assert again.metadata.current_snapshot_id == first.metadata.current_snapshot_id


@pytest.fixture
def crowd(lake: Lake) -> Iterator[list[Lake]]:
    """Four who open the same catalog."""
    lakes = [elsewhere(lake) for _ in range(4)]
    yield lakes
    for each in lakes:
        each._catalog.close()


OPEN = [
    ({"columns": {"id": "int"}, "evolve": "add"}, None),
    ({"columns": {"id": "int"}, "evolve": "add", "partition_by": ["id"]}, None),
    ({}, None),
    ({"columns": {"id": "long"}, "evolve": "add"}, "column id: declared long, the table has int"),
    ({"columns": {"other": "long"}, "evolve": "full"}, None),
    (
        {"columns": {"other": {"type": "long", "required": True}}, "evolve": "full", "identifier": ["other"]},
        "column other: declared long, the table has no such column",
    ),
]


@pytest.mark.parametrize(("options", "problem"), OPEN)
def test_table_that_grew_is_accepted(lake: Lake, options: dict[str, Any], problem: str | None) -> None:
    """Of a table that follows its records, more and wider columns fit than are declared, also required ones."""
    schema = Schema(NestedField(1, "id", IntegerType()), NestedField(2, "more", LongType(), required=True))
    lake.create_table(TABLE, schema, UNPARTITIONED, TABLE_PROPERTIES)
    destination = Destination.model_validate({"table": TABLE, "kafka_columns": False, **options})

    if problem is None:
        check_destination(lake.load_table(TABLE), destination)
    else:
        with pytest.raises(Terminal, match=problem):
            check_destination(lake.load_table(TABLE), destination)


def test_rows_have_every_column_of_the_table(lake: Lake) -> None:
    """Rows have all columns that the table has, and nothing of Kafka's; what the file requires stays required."""
    schema = Schema(
        NestedField(1, "id", LongType()),
        NestedField(2, "_kafka_offset", LongType()),
        NestedField(3, "more", LongType(), required=True),
    )
    lake.create_table(TABLE, schema, UNPARTITIONED, TABLE_PROPERTIES)
    table, declared = lake.load_table(TABLE), {"id": {"type": "int", "required": True}}

    def rows(**options: Any) -> list[tuple[str, str, bool]]:
        destination = Destination.model_validate({"table": TABLE, **options})
        return [(field.name, str(field.type), field.nullable) for field in arrow_columns(table, destination)]

    assert rows() == [("id", "int64", True), ("more", "int64", False)]
    assert rows(columns=declared, evolve="add") == [("id", "int64", False), ("more", "int64", False)]
    assert rows(columns=declared, evolve="full") == [("id", "int64", True), ("more", "int64", False)]
    assert rows(columns=declared) == [("id", "int64", False)]


def test_table_without_any_column_is_not_created() -> None:
    """Without columns, and with records that may bring none, there is no table to be made."""
    nothing = Destination.model_validate({"table": TABLE, "evolve": "none"})

    with pytest.raises(Terminal, match="nothing declares its columns"):
        declared_spec(nothing, declared_schema(nothing))


def test_concurrent_creation_makes_one_table(crowd: list[Lake]) -> None:
    """All who create at the same moment hold the same table."""
    schema = declared_schema(destination())
    crowd[0].create_table("shop.other", schema, UNPARTITIONED, {})  # the namespace is there

    with ThreadPoolExecutor(len(crowd)) as threads:
        tables = list(threads.map(lambda lake: lake.create_table(TABLE, schema, UNPARTITIONED, {}), crowd))

    assert len({table.metadata.table_uuid for table in tables}) == 1
    assert len({table.metadata_location for table in tables}) == 1


def test_missing_table_is_an_error_only_where_it_is_needed(lake: Lake) -> None:
    """Looking for a table is no error, needing it is one that names what there is."""
    assert lake.find_table(TABLE) is None
    assert lake.tables() == []
    with pytest.raises(Terminal, match=f"no table {TABLE} in catalog lake") as caught:
        lake.load_table(TABLE)
    assert "none yet" in str(caught.value)

    make(lake, destination(), "shop.pizzas")
    with pytest.raises(Terminal) as caught:
        lake.load_table(TABLE)
    assert "shop.pizzas" in str(caught.value)


def test_tables_of_nested_namespaces_are_listed(lake: Lake) -> None:
    """A namespace within a namespace is made and listed like any other."""
    make(lake, destination(), "shop.eu.orders")
    make(lake, destination(), "shop.orders")

    assert lake.tables() == ["shop.eu.orders", "shop.orders"]


def test_unreachable_catalog_is_a_retryable_error(tmp_path: Path) -> None:
    """A database that can't be opened is trouble that may pass, not a missing table."""
    (tmp_path / "catalog.db").mkdir()
    lake = Lake("lake", f"sqlite:///{tmp_path}/catalog.db", f"file://{tmp_path}/w", {})

    with pytest.raises(Retryable, match="opening catalog lake"):
        lake.find_table(TABLE)


def test_error_about_settings_does_not_show_their_password(tmp_path: Path) -> None:
    """An address that can't be understood is the settings' fault, and is not repeated."""
    with pytest.raises(Terminal, match="opening catalog lake") as caught:
        Lake("lake", "nonsense hunter2", f"file://{tmp_path}/w", {}).tables()

    assert "hunter2" not in str(caught.value)


def test_declared_columns_keep_their_place(lake: Lake) -> None:
    """Order, ids, comments and nullability are the declared ones; Kafka columns come last."""
    declared = Destination.model_validate(
        {
            "table": TABLE,
            "columns": {
                "id": {"type": "long", "required": True, "doc": "Number"},
                "items": "list<struct<sku: string, price: decimal(10,2)>>",
                "tags": "map<string, int>",
            },
            "partition_by": ["bucket(16, id)", "day(_kafka_timestamp)"],
        }
    )
    make(lake, declared)
    table = lake.load_table(TABLE)

    assert [(f.name, f.required, f.doc) for f in table.schema().fields[:2]] == [
        ("id", True, "Number"),
        ("items", False, None),
    ]
    assert [f.name for f in table.schema().fields[3:]] == list(declared.added_columns)
    assert [(f.name, str(f.transform)) for f in table.spec().fields] == [
        ("id_bucket", "bucket[16]"),
        ("_kafka_timestamp_day", "day"),
    ]
    assert arrow_columns(table, declared).names == ["id", "items", "tags"]
    assert not arrow_columns(table, declared).field("id").nullable
    check_destination(table, declared)


@pytest.mark.parametrize("write", ["append", "upsert"])
def test_foreign_column_named_like_the_change_column_takes_no_field(lake: Lake, write: str) -> None:
    """Staged rows have a column of that name: a field of the record was null there, and counted nowhere."""
    declared = Destination.model_validate(
        {"table": TABLE, "evolve": "widen", "write": write, "columns": {"id": {"type": "long", "required": True}}}
        | ({} if write == "append" else {"identifier": ["id"]})
    )
    make(lake, declared)
    table = lake.load_table(TABLE)
    with table.update_schema() as update:
        update.add_column("_frazil_op", StringType())
        update.add_column("note", StringType())
    assert arrow_columns(table, declared).names == ["id", "note"]


@pytest.mark.parametrize(
    ("columns", "partition"),
    [
        ({"v": "string"}, "day(v)"),
        ({"v": "date"}, "hour(v)"),
        ({"v": "double"}, "bucket(4, v)"),
        ({"v": "boolean"}, "truncate(4, v)"),
    ],
)
def test_transform_that_does_not_fit_its_column_is_refused(columns: dict[str, str], partition: str) -> None:
    """Refused with the declared text and the column's type, also where records brought the column."""
    declared = Destination(table=TABLE, partition_by=(partition,))

    with pytest.raises(Terminal, match="can't partition a column of type"):
        declared_spec(declared, declared_schema(destination(columns=columns, partition_by=[])))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, None),
        ({"columns": {"day": "string", "id": "int"}}, None),
        ({"columns": {"id": {"type": "int", "required": True}, "day": "string"}}, None),
        ({"columns": {"day": "string"}}, None),
        (
            {"columns": {"id": "int"}, "partition_by": []},
            "partition field day: the pipeline does not fill its column day",
        ),
        ({"columns": {"id": "long", "day": "string"}}, "column id: declared long, the table has int"),
        (
            {"columns": {"id": "int", "day": "string", "no": "date"}},
            "column no: declared date, the table has no such column",
        ),
        ({"kafka_columns": {}}, "column _kafka_topic: declared string, the table has no such column"),
        ({"columns": {"id": "int", "day": "list<string>"}, "partition_by": []}, "column day: declared list<string>"),
    ],
    ids=[
        "same",
        "other order",
        "stricter",
        "fewer",
        "partition column left out",
        "wider",
        "more",
        "kafka columns",
        "nested",
    ],
)
def test_table_that_does_not_fit_is_refused(orders: Lake, changes: dict[str, Any], message: str | None) -> None:
    """A table that exists takes the declared columns, or each difference is named."""
    table = orders.load_table(TABLE)

    if message is None:
        check_destination(table, destination(**changes))
    else:
        with pytest.raises(Terminal, match=message):
            check_destination(table, destination(**changes))


def test_column_that_the_table_requires_is_reported(lake: Lake) -> None:
    """Required in the table and optional, or missing, in the pipeline: both are named at once."""
    required = Schema(
        NestedField(1, "id", IntegerType(), required=True),
        NestedField(2, "day", StringType()),
        NestedField(3, "shop", LongType(), required=True),
    )
    lake.create_table(TABLE, required, UNPARTITIONED, {})

    with pytest.raises(Terminal, match="column id: the table requires a value") as caught:
        check_destination(lake.load_table(TABLE), destination())
    assert "column shop: the table requires a value" in str(caught.value)


def test_nested_types_are_compared_without_their_ids(lake: Lake) -> None:
    """Two structs with the same fields are the same type, whatever ids a table gave them; other fields are not."""
    columns = {"a": "int", "s": "struct<x: int, y: map<string, list<long>>>"}
    make(lake, destination(columns=columns, partition_by=[]))
    table = lake.load_table(TABLE)

    check_destination(table, destination(columns=dict(reversed(columns.items())), partition_by=[]))
    with pytest.raises(Terminal, match="column s"):
        check_destination(
            table, destination(columns={"s": "struct<x: int, z: map<string, list<long>>>"}, partition_by=[])
        )
    with pytest.raises(Terminal, match="column s"):
        check_destination(
            table, destination(columns={"s": "struct<x: int, y: map<string, list<int>>>"}, partition_by=[])
        )


def test_time_column_is_refused_where_spark_writes(lake: Lake) -> None:
    """Spark can't read such a table: decided rows would wait for ever. Without an engine it is a table like others."""
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "opens", TimeType()))
    lake.create_table(TABLE, schema, UNPARTITIONED, TABLE_PROPERTIES)
    definition = {"table": TABLE, "kafka_columns": False, "columns": {"id": "long"}, "evolve": "widen"}
    check_destination(lake.load_table(TABLE), Destination.model_validate(definition))

    by_spark = definition | {"properties": {"write.format.default": "orc"}}
    with pytest.raises(Terminal, match="column opens: it has the type time, and Spark, which writes the table"):
        check_destination(lake.load_table(TABLE), Destination.model_validate(by_spark))
