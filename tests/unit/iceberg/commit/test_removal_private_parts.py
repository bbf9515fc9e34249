"""What removals and branch decisions rest on in PyIceberg 0.12: a new version is looked at before it is pinned."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions.visitors import expression_evaluator
from pyiceberg.io.pyarrow import ArrowScan, _read_all_delete_files
from pyiceberg.schema import Schema
from pyiceberg.table import DataScan, Table, Transaction
from pyiceberg.table.update.snapshot import _OverwriteFiles, _SnapshotProducer
from pyiceberg.typedef import Record
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from frazil.batch.changes import Removal, RemovedRange
from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.commit.commit import commit
from frazil.iceberg.commit.removal import row_filter
from tests.unit.iceberg.coordinates import COLUMNS, change, create, everything, foreign, numbered, removing
from tests.unit.iceberg.orders import TABLE, mark

PARAMETERS: list[tuple[Callable[..., Any], list[str]]] = [
    (
        _SnapshotProducer.__init__,
        ["self", "operation", "transaction", "io", "commit_uuid", "snapshot_properties", "branch"],
    ),
    (_OverwriteFiles._commit, ["self"]),
    (_OverwriteFiles._validate_concurrency, ["self"]),
    (_OverwriteFiles._cleanup_uncommitted, ["self"]),
    (_OverwriteFiles._clean_all_uncommitted, ["self"]),
    (_OverwriteFiles._build_delete_files_partition_predicate, ["self"]),
    (_OverwriteFiles.delete_by_predicate, ["self", "predicate", "case_sensitive"]),
    (_OverwriteFiles.delete_data_file, ["self", "data_file"]),
    (_read_all_delete_files, ["io", "tasks"]),
    (ArrowScan._record_batches_from_scan_tasks_and_deletes, ["self", "tasks", "deletes_per_file"]),
    (Table._do_commit, ["self", "updates", "requirements"]),
    (Transaction.commit_transaction, ["self"]),
    (Catalog.commit_table, ["self", "table", "requirements", "updates"]),
    (SqlCatalog._convert_orm_to_iceberg, ["self", "orm_table"]),
    (SqlCatalog.commit_table, ["self", "table", "requirements", "updates"]),
    (RestCatalog.commit_table, ["self", "table", "requirements", "updates"]),
]


@pytest.mark.parametrize(("function", "parameters"), PARAMETERS, ids=lambda value: getattr(value, "__qualname__", ""))
def test_private_names_of_pyiceberg_are_unchanged(function: Callable[..., Any], parameters: list[str]) -> None:
    """Names and parameters, public ones included where the way they are called matters."""
    assert list(inspect.signature(function).parameters) == parameters


def test_scan_is_planned_without_a_server() -> None:
    """A scan that was given no catalog reads manifests itself."""
    parameters = inspect.signature(DataScan.__init__).parameters

    assert list(parameters)[1:4] == ["table_metadata", "io", "row_filter"]
    assert parameters["catalog"].default is None


def test_manifests_that_hold_nothing_to_drop_are_kept(lake: Lake) -> None:
    """Manifests that the filter rules out by their partitions are kept as they are."""
    create(lake, ["_kafka_topic"], **{"commit.manifest-merge.enabled": "false"})
    foreign(lake, numbered(range(5)))
    foreign(lake, numbered(range(5, 9), topic="returns"))
    head = lake.load_table(TABLE).current_snapshot()
    assert head is not None
    before = {manifest.manifest_path for manifest in head.manifests(lake.load_table(TABLE).io)}

    commit(lake, change(lake, mark(1), None, [], removing(0, 3)))

    table = lake.load_table(TABLE)
    head = table.current_snapshot()
    assert head is not None
    after = {manifest.manifest_path: manifest for manifest in head.manifests(table.io)}
    assert len(before & after.keys()) == 1
    assert [row.id for row in everything(lake)] == [3, 4, 5, 6, 7, 8]


def test_filter_matches_exactly_the_range() -> None:
    """The planner's filter, held against rows one by one."""
    schema = Schema(
        NestedField(1, COLUMNS.topic, StringType()),
        NestedField(2, COLUMNS.partition, IntegerType()),
        NestedField(3, COLUMNS.offset, LongType()),
        NestedField(4, COLUMNS.batch, LongType()),
    )
    ranges = (RemovedRange("a", 0, 5, 9, 2), RemovedRange("b", None, 3, None, 0))
    asks = expression_evaluator(schema, row_filter(Removal(COLUMNS, ranges)), case_sensitive=True)
    cases: dict[tuple[Any, ...], bool] = {
        ("a", 0, 5, 2): True,
        ("a", 0, 8, 7): True,
        ("a", 0, 4, 2): False,
        ("a", 0, 9, 2): False,
        ("a", 0, 5, 1): False,
        ("a", 1, 5, 2): False,
        ("b", 7, 3, 0): True,
        ("b", 7, 2, 0): False,
        ("b", None, 3, 0): False,
        ("c", 0, 5, 2): False,
    }

    assert {case: asks(Record(*case)) for case in cases} == cases
