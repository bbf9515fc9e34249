"""What a table consists of is counted from its manifests, partition by partition, on the branch that is meant."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import VoidTransform

from frazil.errors import Terminal
from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.commit.expiry import Tag
from frazil.iceberg.ledger.inspection import Inspection, TimeField, inspect
from frazil.iceberg.schema.schema import declared_order, declared_schema, declared_spec
from frazil.pipeline.models.pipeline_file import Destination

TABLE = "shop.visits"


def make_table(lake: Lake, **columns: object) -> None:
    """An empty table of visits."""
    declared = Destination.model_validate(
        {"table": TABLE, "columns": {"at": "timestamptz", "day": "date", "id": "long"}, "kafka_columns": False}
        | columns
    )
    schema = declared_schema(declared)
    properties = {"format-version": "2", "write.target-file-size-bytes": "1000000"}
    lake.create_table(TABLE, schema, declared_spec(declared, schema), properties, declared_order(declared, schema))


def visit(lake: Lake, *days: int, rows: int = 1, branch: str = "main") -> None:
    """One commit with rows of some days of May."""
    instants = [datetime(2026, 5, day, 12, tzinfo=UTC) for day in days for _ in range(rows)]
    data = pa.table(
        {
            "at": pa.array(instants, pa.timestamp("us", tz="UTC")),
            "day": pa.array([instant.date() for instant in instants], pa.date32()),
            "id": pa.array(range(len(instants)), pa.int64()),
        }
    )
    lake.load_table(TABLE).append(data, branch=branch)


def inspected(lake: Lake, most_files: int = 1_000) -> Inspection:
    table = lake.load_table(TABLE)
    return inspect(TABLE, table, table.metadata, most_files)


def test_empty_table_can_be_inspected(lake: Lake) -> None:
    """A table without a snapshot has nothing."""
    make_table(lake)
    inspection = inspected(lake)
    assert (inspection.files, inspection.bytes, inspection.manifests, inspection.snapshots, inspection.is_sample) == (
        0,
        0,
        0,
        (),
        False,
    )


@pytest.mark.parametrize("key", ["write.target-file-size-bytes", "commit.manifest.target-size-bytes"])
def test_size_that_is_no_number_is_named(lake: Lake, key: str) -> None:
    """A person wrote a unit: maintenance tells which property it is, and ends with no stack trace."""
    make_table(lake)
    lake.load_table(TABLE).transaction().set_properties({key: "512MB"}).commit_transaction()
    with pytest.raises(Terminal, match=f"table {TABLE}: property {key} is '512MB', expected a number"):
        inspected(lake)


@pytest.mark.parametrize(
    ("field", "time"),
    [
        ("day(at)", TimeField(("at",), "timestamptz", "day")),
        ("day", TimeField(("day",), "date", "day")),
        ("day(day)", TimeField(("day",), "date", "day")),
    ],
)
def test_age_of_a_partition_is_known(lake: Lake, field: str, time: TimeField) -> None:
    """Files are counted by day, however the table is partitioned by days; 2026-05-01 is day 20574."""
    make_table(lake, partition_by=["bucket(1, id)", field])
    visit(lake, 1, 2)
    visit(lake, 2)
    inspection = inspected(lake)
    assert inspection.time_field == time
    assert sorted((p.period, p.files, p.small_files) for p in inspection.partitions) == [(20574, 1, 1), (20575, 2, 2)]
    assert inspection.bytes == sum(p.small_bytes for p in inspection.partitions) > 0


def test_file_from_three_quarters_of_the_target_size_is_not_small(lake: Lake) -> None:
    """From three quarters of the table's target size on, a file is as it should be."""
    make_table(lake)
    visit(lake, 1)
    with lake.load_table(TABLE).transaction() as change:
        change.set_properties({"write.target-file-size-bytes": str(inspected(lake).bytes)})
    assert (inspected(lake).files, inspected(lake).small_files) == (1, 0)


def test_inspection_of_a_very_large_table_is_a_sample(lake: Lake) -> None:
    """Of more files than are read about, the newest count, and the figures say that they are a sample."""
    make_table(lake, partition_by=["day"])
    for day in (1, 2, 3):
        visit(lake, day)
    inspection = inspected(lake, most_files=2)
    assert ([p.period for p in inspection.partitions], inspection.is_sample) == ([20576, 20575], True)
    assert not inspected(lake).is_sample


def test_history_and_branches_are_in_the_inspection(lake: Lake) -> None:
    """Snapshots, branches and tags are told as the table has them."""
    make_table(lake)
    visit(lake, 1)
    visit(lake, 2)
    first, second = (snapshot.snapshot_id for snapshot in lake.load_table(TABLE).metadata.snapshots)
    lake.load_table(TABLE).manage_snapshots().create_tag(first, "kept").create_branch(
        first, "audit", min_snapshots_to_keep=7
    ).commit()
    inspection = inspected(lake)
    assert [(s.id, s.parent) for s in inspection.snapshots] == [(first, None), (second, first)]
    assert (inspection.branches["main"].head, inspection.branches["audit"].head, inspection.branches["audit"].keep) == (
        second,
        first,
        7,
    )
    assert (inspection.tags, inspection.manifests, inspection.manifests_needed) == ({"kept": Tag(first)}, 2, 1)


def test_only_columns_of_type_time_are_reported_as_time(lake: Lake) -> None:
    """A column of type time keeps Spark from the table, wherever it is; timestamps, and fields that are called so, don't."""
    make_table(
        lake, columns={"at": "timestamptz", "log": "struct<event_time: string>", "parts": "list<struct<opens: time>>"}
    )
    assert inspected(lake).unreadable == "parts"


def test_table_with_fields_named_time_is_maintained(lake: Lake) -> None:
    """What a nested field is called says nothing about its type."""
    make_table(lake, columns={"at": "timestamptz", "log": "struct<event_time: string>"})
    assert inspected(lake).unreadable is None


def test_dropped_partition_column_leaves_maintenance_working(lake: Lake) -> None:
    """Tables of format version 1 keep a void field of a column that is gone; the age is told by the next field."""
    make_table(lake, partition_by=["id", "day"])
    visit(lake, 1)
    table = lake.load_table(TABLE)
    fields = [
        field if field.name != "id" else field.model_copy(update={"transform": VoidTransform()})
        for field in table.spec().fields
    ]
    schema = Schema(*(field for field in table.schema().fields if field.name != "id"))
    metadata = table.metadata.model_copy(
        update={
            "schemas": [schema],
            "current_schema_id": schema.schema_id,
            "partition_specs": [PartitionSpec(*fields, spec_id=table.spec().spec_id)],
        }
    )
    inspection = inspect(TABLE, table, metadata, 10)
    assert inspection.time_field == TimeField(("day",), "date", "day")
    assert [p.period for p in inspection.partitions] == [20574]


def test_sort_order_is_in_the_inspection(lake: Lake) -> None:
    """Whether a table is sorted decides how it is compacted."""
    make_table(lake, sort_by=["id"])
    assert inspected(lake).is_sorted
