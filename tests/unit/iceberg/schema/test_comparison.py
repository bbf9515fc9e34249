"""What a pipeline file declares against a table that is there, on a real SQLite catalog."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.transforms import parse_transform
from pyiceberg.types import (
    DecimalType,
    IntegerType,
    ListType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from frazil.batch.schema_change import SchemaChange
from frazil.errors import Terminal
from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.catalog.table import TABLE_PROPERTIES, Table
from frazil.iceberg.schema.column_changes import alter_statements
from frazil.iceberg.schema.comparison import Comparison, check_destination, compare
from frazil.iceberg.schema.evolution import TableChanges, evolve
from frazil.iceberg.schema.schema import identifier_columns
from frazil.pipeline.models.pipeline_file import Destination

TABLE = "shop.events"
SCHEMA = Schema(
    NestedField(1, "id", IntegerType(), required=True, doc="Number"),
    NestedField(2, "at", TimestamptzType()),
    NestedField(3, "amount", DecimalType(9, 2)),
    NestedField(4, "place", StructType(NestedField(5, "city", StringType()))),
    NestedField(6, "lines", ListType(7, StructType(NestedField(8, "n", IntegerType())), element_required=False)),
    NestedField(9, "tags", MapType(10, StringType(), 11, IntegerType(), value_required=False)),
)
SPEC = PartitionSpec(PartitionField(2, 1000, parse_transform("day"), "at_day"))
DECLARED: dict[str, Any] = {
    "id": {"type": "int", "required": True},
    "at": "timestamptz",
    "amount": "decimal(9,2)",
    "place": "struct<city: string>",
    "lines": "list<struct<n: int>>",
    "tags": "map<string, int>",
}


@pytest.fixture
def events(lake: Lake) -> Lake:
    """The catalog with an empty table by day."""
    lake.create_table(TABLE, SCHEMA, SPEC, TABLE_PROPERTIES)
    return lake


def declared(columns: dict[str, Any] | None = None, **options: Any) -> Destination:
    """A destination with the columns of the table, those that are given in place of its own or beside them."""
    return Destination.model_validate(
        {"table": TABLE, "kafka_columns": False, "columns": {**DECLARED, **(columns or {})}, **options}
    )


def apply(lake: Lake, destination: Destination) -> Table:
    """Make all changes; the table as it is then."""
    evolve(lake, TableChanges(destination, compare(lake.load_table(TABLE), destination).changes))
    return lake.load_table(TABLE)


CHANGES = [
    ({"columns": {"town": "string"}}, ["ADD COLUMN town string"]),
    (
        {"columns": {"a-b": {"type": "long", "doc": "it's"}}},
        ["ADD COLUMN `a-b` bigint", "ALTER COLUMN `a-b` COMMENT 'it\\'s'"],
    ),
    ({"columns": {"town": {"type": "long", "required": True, "default": 0}}}, ["ADD COLUMN town bigint"]),
    ({"columns": {"id": {"type": "long", "required": True}}}, ["ALTER COLUMN id TYPE bigint"]),
    ({"columns": {"amount": "decimal(12,2)"}}, ["ALTER COLUMN amount TYPE decimal(12,2)"]),
    ({"columns": {"place": "struct<zip: string, city: string>"}}, ["ADD COLUMN place.zip string"]),
    ({"columns": {"lines": "list<struct<n: long>>"}}, ["ALTER COLUMN lines.element.n TYPE bigint"]),
    ({"columns": {"tags": "map<string, long>"}}, ["ALTER COLUMN tags.value TYPE bigint"]),
    ({"columns": {"id": "int"}}, ["ALTER COLUMN id DROP NOT NULL"]),
    ({"columns": {"id": {"type": "int", "required": True, "doc": "Key"}}}, ["ALTER COLUMN id COMMENT 'Key'"]),
    ({"identifier": ["id"]}, ["SET IDENTIFIER FIELDS id"]),
    (
        {"partition_by": ["hour(at)", "bucket(4, id) as shard"]},
        ["DROP PARTITION FIELD at_day", "ADD PARTITION FIELD hour(at)", "ADD PARTITION FIELD bucket(4, id) as shard"],
    ),
    ({"partition_by": []}, ["DROP PARTITION FIELD at_day"]),
    ({"partition_by": ["day(at)"]}, []),
    ({"sort_by": ["id desc", "at"]}, ["WRITE LOCALLY ORDERED BY id desc, at"]),
    (
        {"columns": {"town": "string"}, "partition_by": ["day(at)", "town"], "sort_by": ["town"]},
        ["ADD COLUMN town string", "ADD PARTITION FIELD town", "WRITE LOCALLY ORDERED BY town"],
    ),
    (
        {"properties": {"write.parquet.compression-codec": "snappy", "commit.manifest-merge.enabled": True}},
        ["SET TBLPROPERTIES ('write.parquet.compression-codec' = 'snappy')"],
    ),
    ({"properties": {"s3.endpoint": "hidden"}}, ["SET TBLPROPERTIES ('s3.endpoint' = '…')"]),
    ({"kafka_columns": {}}, [f"ADD COLUMN {name}" for name in ("_kafka_topic", "_kafka_partition", "_kafka_offset")]),
    ({}, []),
]


@pytest.mark.parametrize(("options", "statements"), CHANGES, ids=lambda case: str(case)[:60])
def test_changes_make_table_what_file_declares(events: Lake, options: dict[str, Any], statements: list[str]) -> None:
    """Each difference is one statement; once all are made there is none, runs take the table, and files are untouched."""
    destination = declared(**options)

    shown = list(alter_statements(destination, compare(events.load_table(TABLE), destination).changes))
    after = apply(events, destination)

    prefix = f"ALTER TABLE {TABLE} "
    if "kafka_columns" not in options:
        assert shown == [prefix + statement for statement in statements]
    assert all(any(text.startswith(prefix + statement) for text in shown) for statement in statements)
    assert compare(after, destination) == Comparison((), (), (), ())
    check_destination(after, destination)
    assert apply(events, destination).metadata_location == after.metadata_location


def test_statements_show_references_whatever_quotes_their_values_have() -> None:
    """A value is taken out before it is quoted: behind that nobody would know it."""
    destination = declared(properties={"comment": "it's \\ secret"})

    (statement,) = alter_statements(
        destination,
        [SchemaChange(("comment",), "property")],
        lambda text: text.replace("it's \\ secret", "${env:TOLD}"),
    )

    assert statement.endswith("SET TBLPROPERTIES ('comment' = '${env:TOLD}')")


REFUSED = [
    ({"columns": {"id": {"type": "string", "required": True}}}, "column id: declared string, the table has int"),
    (
        {"columns": {"amount": "decimal(9,3)"}},
        r"column amount: declared decimal\(9, 3\), the table has decimal\(9, 2\)",
    ),
    ({"columns": {"amount": "decimal(5,2)"}}, "a column only gets a wider type"),
    ({"columns": {"place": "struct<zip: string>"}}, "column place"),
    ({"columns": {"tags": "map<int, int>"}}, "column tags"),
    (
        {"columns": {"town": {"type": "string", "required": True}}},
        "existing rows have no value for a required column",
    ),
    ({"columns": {"k": {"type": "int", "required": True}}, "identifier": ["k"]}, "it identifies rows"),
    ({"properties": {"frazil.batch.p": "1"}}, "it holds the state of a pipeline"),
]


@pytest.mark.parametrize(("options", "reason"), REFUSED, ids=lambda case: str(case)[:60])
def test_difference_that_needs_new_files_is_refused_with_its_reason(
    events: Lake, options: dict[str, Any], reason: str
) -> None:
    """No change of metadata makes a column narrower, or fills it for rows that are there."""
    comparison = compare(events.load_table(TABLE), declared(**options))

    assert any(re.search(reason, line) for line in comparison.refused), comparison.refused
    assert not any(change.path in {("id",), ("amount",)} for change in comparison.changes)


def test_key_of_a_log_never_comes_later(events: Lake) -> None:
    """The changes that are there have none, so they would be those of one row without a key."""
    key = {"k": {"type": "int", "required": True}}

    comparison = compare(events.load_table(TABLE), declared(key, identifier=["k"], write="history", kafka_columns={}))

    assert any("it identifies rows" in line for line in comparison.refused)
    assert all(change.path != ("k",) for change in comparison.changes)


@pytest.mark.parametrize(
    ("evolve_by", "changes_allowed"),
    [("none", []), ("add", ["town", "place"]), ("widen", ["id", "town", "place"]), ("full", ["id", "town", "place"])],
)
def test_next_run_makes_what_evolve_allows(events: Lake, evolve_by: str, changes_allowed: list[str]) -> None:
    """What it does not, `frazil apply` does; a run goes on without layout and properties, and not without columns."""
    columns = {"id": {"type": "long", "required": True}, "town": "string", "place": "struct<city: string, zip: string>"}
    destination = declared(columns, evolve=evolve_by, sort_by=["id"], properties={"write.parquet.row-group-limit": "9"})

    comparison = compare(events.load_table(TABLE), destination)

    assert sorted(change.path[0] for change in comparison.by_run) == sorted(changes_allowed)
    assert {change.kind for change in {*comparison.changes} - {*comparison.by_run}} >= {"sort", "property"}
    if len(changes_allowed) == 3:
        check_destination(events.load_table(TABLE), destination)
    else:
        with pytest.raises(Terminal, match="column id: declared long, the table has int") as refusal:
            check_destination(events.load_table(TABLE), destination)
        assert "frazil apply PIPELINE" in str(refusal.value.next_step)


def test_what_file_does_not_declare_stays(events: Lake) -> None:
    """Partitions, order, key, properties, comments and columns that the file says nothing of are their owner's."""
    with events.load_table(TABLE).transaction() as change:
        change.set_properties({"owner": "ann"})
    with events.load_table(TABLE).update_schema() as update:
        update.add_column("note", StringType(), "by hand")

    comparison = compare(events.load_table(TABLE), declared())

    assert (comparison.changes, comparison.unfit, comparison.refused) == ((), (), ())


def test_undeclared_column_is_refused_by_the_policy(events: Lake) -> None:
    """What the file declares and nothing else: such a column stops runs and apply, and nobody drops it."""
    with events.load_table(TABLE).update_schema() as update:
        update.add_column("note", StringType())

    comparison = compare(events.load_table(TABLE), declared(undeclared_columns="refuse"))

    assert comparison.unfit == comparison.refused
    assert [line.partition(": the table has it")[0] for line in comparison.refused] == ["column note"]
    assert compare(events.load_table(TABLE), declared({"note": "string"}, undeclared_columns="refuse")).refused == ()


def test_layout_that_the_table_had_before_is_taken_up_again(events: Lake) -> None:
    """A server adds no spec, order or schema twice: there and back ends with the very ones, and their numbers."""
    declared_here = declared(
        {"id": {"type": "int", "required": True, "doc": "Number"}}, partition_by=["day(at)"], sort_by=[]
    )
    declared_there = declared(
        {"id": {"type": "int", "required": True, "doc": "Key"}}, partition_by=["bucket(4, id)"], sort_by=["id"]
    )
    apply(events, declared_there)

    back = apply(events, declared_here)

    assert (back.spec().spec_id, back.schema().schema_id) == (0, 0)
    assert back.sort_order() == UNSORTED_SORT_ORDER
    again = apply(events, declared_there)
    assert (again.spec().spec_id, len(again.metadata.specs()), len(again.metadata.schemas)) == (1, 2, 2)
    hourly = apply(events, declared(partition_by=["bucket(4, id)", "hour(at)"]))
    assert [field.field_id for field in hourly.spec().fields] == [1001, 1002]


def test_partition_field_that_an_engine_named_is_the_declared_one(lake: Lake) -> None:
    """Spark calls `bucket(4, id)` id_bucket_4: without an alias only column and transform count."""
    lake.create_table(
        TABLE, SCHEMA, PartitionSpec(PartitionField(1, 1000, parse_transform("bucket[4]"), "id_bucket_4")), {}
    )

    assert compare(lake.load_table(TABLE), declared(partition_by=["bucket(4, id)"])).changes == ()
    renamed = compare(lake.load_table(TABLE), declared(partition_by=["bucket(4, id) as shard"])).changes
    assert [str(change) for change in renamed] == ["partition id_bucket_4", "partition shard bucket(4, id) as shard"]


def test_partition_field_over_an_unfilled_column_goes_where_the_file_says_so(events: Lake) -> None:
    """A run can't write the table; the declared layout, which has no such field, is the way out."""
    columns = {name: column for name, column in DECLARED.items() if name != "at"}
    definition = {"table": TABLE, "kafka_columns": False, "columns": columns}

    comparison = compare(events.load_table(TABLE), Destination.model_validate(definition))
    dropped = compare(events.load_table(TABLE), Destination.model_validate(definition | {"partition_by": ["id"]}))

    assert (
        comparison.refused == comparison.unfit == ("partition field at_day: the pipeline does not fill its column at",)
    )
    assert (dropped.refused, dropped.unfit) == ((), comparison.unfit)


def test_key_changes_where_no_row_was_merged_by_another(lake: Lake) -> None:
    """Of a merged table with rows the key stays: of the new one there may be several rows."""
    keyed = Schema(*SCHEMA.fields, NestedField(12, "town", StringType(), required=True), identifier_field_ids=[1])
    lake.create_table(TABLE, keyed, SPEC, TABLE_PROPERTIES)
    destination = declared({"town": {"type": "string", "required": True}}, identifier=["town"])

    assert compare(lake.load_table(TABLE), destination).unfit == ("identifier: declared town, the table has id",)
    after = apply(lake, destination)

    assert identifier_columns(after) == ("town",)
    check_destination(after, destination)
