"""Columns that are declared for a table that is there, on a real SQLite catalog."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import parse_transform
from pyiceberg.types import LongType, NestedField, StringType

from frazil.batch.schema_change import SchemaChange
from frazil.errors import Terminal
from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.catalog.table import TABLE_PROPERTIES
from frazil.iceberg.ledger.ledger import UNPARTITIONED
from frazil.iceberg.schema.comparison import check_destination, compare
from frazil.iceberg.schema.evolution import TableChanges, evolve, plan_changes
from frazil.iceberg.schema.schema import declared_schema
from frazil.pipeline.models.pipeline_file import Destination, Pipeline

TABLE = "shop.events"
SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "price", LongType()))


def destination(**options: Any) -> Destination:
    """A destination that follows its records."""
    return Destination.model_validate({"table": TABLE, "kafka_columns": False, "evolve": "widen", **options})


@pytest.mark.parametrize("declared", [{"Price": "long"}, {"id": "long", "PRICE": "double"}])
def test_column_declared_in_another_case_is_refused(lake: Lake, declared: dict[str, str]) -> None:
    """Where case means nothing it would be the same column twice, which no record fills: named before the table gets it."""
    lake.create_table(TABLE, SCHEMA, UNPARTITIONED, TABLE_PROPERTIES)
    table, destination_now = lake.load_table(TABLE), destination(columns=declared)

    with pytest.raises(Terminal, match=r"the table has price, with field_names: case_insensitive the same column"):
        check_destination(table, destination_now, fold=True)
    assert compare(table, destination_now, fold=True).by_run == ()

    check_destination(table, destination_now)
    assert len(compare(table, destination_now).by_run) == 1


def test_log_of_a_merged_table_gets_its_declared_columns(lake: Lake) -> None:
    """A column that comes to a merged table comes to its log: both are told of it by the one list of columns."""
    definition = {
        "table": TABLE,
        "write": "upsert",
        "identifier": ["id"],
        "append_history": f"{TABLE}_log",
        "evolve": "widen",
    }
    columns = {"id": {"type": "long", "required": True}, "name": "string"}
    body = {
        "name": "p",
        "source": {"topics": ["t"]},
        "engine": "spark",
        "destinations": [{**definition, "columns": columns}],
    }
    table, log = Pipeline.model_validate(body).destinations
    for destination in (table, log):
        old = destination.model_copy(update={"columns": {"id": destination.columns["id"]}})
        lake.create_table(destination.table, declared_schema(old), UNPARTITIONED, TABLE_PROPERTIES)

        check_destination(lake.load_table(destination.table), destination)
        evolve(lake, TableChanges(destination, compare(lake.load_table(destination.table), destination).by_run))

        assert lake.load_table(destination.table).schema().fields[-1].name == "name"
        check_destination(lake.load_table(destination.table), destination)


@pytest.mark.parametrize("options", [{"columns": {"id": "long", "town": "string"}}, {}], ids=["declared", "brought"])
@pytest.mark.parametrize(
    ("field", "transform", "partition_by", "way_out"),
    [
        ("town", "identity", ["town"], ["city"]),
        ("town_bucket", "bucket[4]", ["bucket(4, town)"], ["bucket(4, city)"]),
        ("town", "truncate[2]", [], []),
    ],
)
def test_partition_field_name_that_a_renamed_column_still_has_is_refused(
    lake: Lake, field: str, transform: str, partition_by: list[str], way_out: list[str], options: dict[str, Any]
) -> None:
    """No engine reads a table with a name twice in its spec: refused before the column is there, and the way out goes."""
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "city", StringType()))
    spec = PartitionSpec(PartitionField(2, 1000, parse_transform(transform), field))
    lake.create_table(TABLE, schema, spec, TABLE_PROPERTIES)
    before = lake.load_table(TABLE)
    partitioned = destination(partition_by=partition_by, **options)
    changes = compare(before, partitioned).by_run or (SchemaChange(("town",), "add", "string"),)

    for look in (
        lambda: plan_changes(before, TableChanges(partitioned, changes)),
        lambda: evolve(lake, TableChanges(partitioned, changes)),
    ):
        with pytest.raises(Terminal, match=f"{field} is the name of a partition field of column city") as refusal:
            look()
        assert "columns: {city: {type: …, from: town}}" in str(refusal.value.next_step)
    assert lake.load_table(TABLE).metadata_location == before.metadata_location

    mended = destination(columns={"city": {"type": "string", "from": "town"}, "kind": "string"}, partition_by=way_out)
    evolve(lake, TableChanges(mended, compare(before, mended).by_run))
    after = lake.load_table(TABLE)
    assert [(of.source_id, of.name) for of in after.spec().fields] == [(2, field)]
    assert [of.name for of in after.schema().fields] == ["id", "city", "kind"]
