"""Columns that records added, in the check."""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka import Message
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestamptzType,
)

from frazil.iceberg.patches.metadata import VariantType
from frazil.pipeline.models.pipeline_file import Destination, Pipeline
from frazil.pipeline.models.value import Value
from frazil.verify.rules import rules_of
from frazil.verify.values.canonical import null_empty_values
from frazil.verify.values.column_readers import Bad, ColumnChanges, Expectation, compared_columns, earlier_schemas

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "price", DecimalType(9, 2)),
    NestedField(3, "code", FixedType(4)),
    NestedField(4, "at", StructType(NestedField(5, "the place", ListType(6, StringType(), element_required=False)))),
    NestedField(7, "when", TimestampNanoType()),
    NestedField(8, "whole", VariantType()),
    NestedField(9, "_rescued", StringType()),
    NestedField(10, "_kafka_offset", LongType()),
    NestedField(11, "seen", TimestamptzType()),
    NestedField(12, "count", IntegerType()),
)


def columns(**options: Any) -> dict[str, tuple[str, bool]]:
    destination = Destination.model_validate({"table": "a.b", **options})
    return {
        name: (str(column_type.parsed), column_type.required)
        for name, column_type in compared_columns(destination, SCHEMA, Value()).items()
    }


def test_undeclared_columns_are_checked() -> None:
    """All columns are compared but Kafka's, the one for rescued fields, and those of unreadable types."""
    assert columns() == {
        "id": ("long", True),
        "price": ("decimal(9,2)", False),
        "code": ("fixed[4]", False),
        "at": ("struct<`the place`: list<string>>", False),
        "seen": ("timestamptz", False),
        "count": ("int", False),
    }


def test_widened_column_is_read_by_the_type_of_the_table() -> None:
    """The table's type counts, with the file's options; a required column stays required."""
    declared = {"count": {"type": "int", "required": True}, "seen": {"type": "timestamptz", "unit": "ms"}}
    destination = Destination.model_validate({"table": "a.b", "columns": declared, "evolve": "add"})
    wider = Schema(NestedField(1, "count", LongType()), NestedField(2, "seen", TimestamptzType()))

    columns_now = compared_columns(destination, wider, Value())

    assert (str(columns_now["count"].parsed), columns_now["count"].required, columns_now["seen"].unit) == (
        "long",
        True,
        "ms",
    )
    assert columns(columns=declared) == {"count": ("int", True), "seen": ("timestamptz", False)}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ((), None),
        (((), None), None),
        ((None, 1), (None, 1)),
        ((("a", None),), (("a", None),)),
        (((), (0,)), (None, (0,))),
        ("", ""),
    ],
)
def test_value_without_a_type_counts_as_null(value: Any, expected: Any) -> None:
    """Empty lists, maps and structs count as null, at any level; those with a value stay."""
    assert null_empty_values(value) == expected


def test_lost_value_of_an_inferred_column_is_noticed() -> None:
    """Every value of a record must be in its row; only an empty one may be null."""
    destination = Destination.model_validate({"table": "a.b", "on_incompatible": "dead_letter"})
    schema = Schema(
        NestedField(1, "a", LongType()), NestedField(2, "b", ListType(3, StringType(), element_required=False))
    )
    grown = Expectation(compared_columns(destination, schema, Value()), is_evolving=True)

    assert grown.row(json.dumps({"a": 1, "b": [], "c": 2}).encode()) == (1, None)
    assert grown.row(json.dumps({"a": 1, "b": ["x"]}).encode()) == (1, ("x",))
    assert isinstance(grown.row(json.dumps({"a": "x"}).encode()), Bad)


def test_batches_before_a_new_column_may_lack_only_that_column() -> None:
    """In earlier batches only columns that changed since may be null, by the snapshot's schema, or by any former one."""
    columns = [
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "price", DoubleType()),
        NestedField(3, "note", StringType()),
    ]
    schemas = [
        Schema(columns[0], NestedField(2, "price", FloatType()), schema_id=0),
        Schema(*columns[:2], schema_id=1),
        Schema(*columns, schema_id=2),
    ]
    snapshots = [
        Snapshot(
            snapshot_id=number,
            sequence_number=number,
            timestamp_ms=number,
            manifest_list="",
            schema_id=number - 1,
            summary=None,
        )
        for number in (1, 2, 3)
    ]
    metadata = new_table_metadata(schemas[2], UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, "file:///t", {})
    metadata = metadata.model_copy(update={"schemas": schemas, "current_schema_id": 2, "snapshots": snapshots})
    rows = [{"n": n, "table": "a.b", "snapshot_id": snapshot} for n, snapshot in enumerate((1, 2, 3, 99), 1)]

    found = earlier_schemas([*rows, {"n": 3, "table": "a.letters", "snapshot_id": 7}], "a.b", metadata)

    both_names, one = frozenset({"price", "note"}), frozenset({"note"})
    assert found == {
        1: ColumnChanges(both_names, both_names),
        2: ColumnChanges(one, one),
        4: ColumnChanges(both_names, both_names),
    }


def _placed(*types: IcebergType, **more: Any) -> Schema:
    return Schema(*(NestedField(index, f"c{index}", data_type, **more) for index, data_type in enumerate(types)))


def _struct(*fields: NestedField) -> StructType:
    return StructType(NestedField(10, "a", LongType()), *fields)


@pytest.mark.parametrize(
    ("schema_then", "now", "changed", "added"),
    [
        pytest.param(_placed(LongType()), _placed(LongType(), doc="the key"), False, False, id="comment"),
        pytest.param(_placed(LongType(), required=True), _placed(LongType()), True, False, id="may be null now"),
        pytest.param(_placed(IntegerType()), _placed(LongType()), True, False, id="int"),
        pytest.param(_placed(DecimalType(9, 2)), _placed(DecimalType(12, 2)), True, False, id="decimal"),
        pytest.param(_placed(FloatType()), _placed(DoubleType()), True, True, id="float"),
        pytest.param(
            _placed(_struct()), _placed(_struct(NestedField(11, "b", LongType()))), True, True, id="struct that grew"
        ),
        pytest.param(
            _placed(ListType(9, IntegerType())), _placed(ListType(9, LongType())), True, False, id="items of a list"
        ),
        pytest.param(_placed(LongType()), Schema(NestedField(0, "other", LongType())), True, True, id="another name"),
    ],
)
def test_lost_value_in_an_old_column_is_noticed(schema_then: Schema, now: Schema, changed: bool, added: bool) -> None:
    """A new comment, a wider type or a dropped `required` does not excuse a missing value of an earlier batch."""
    schemas = [schema_then.model_copy(update={"schema_id": 0}), now.model_copy(update={"schema_id": 1})]
    metadata = new_table_metadata(now, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, "file:///t", {})
    metadata = metadata.model_copy(update={"schemas": schemas, "current_schema_id": 1, "snapshots": []})

    found = earlier_schemas([{"n": 1, "table": "a.b", "snapshot_id": 7}], "a.b", metadata).get(1, ColumnChanges())

    assert (bool(found.changed), bool(found.added)) == (changed, added)
    assert found.renamed == {"other"}.intersection(now.column_names)


def test_lost_value_of_a_widened_column_is_noticed() -> None:
    """Records of such a batch may have been dead letters, but its rows must have their values."""
    pipeline = Pipeline.model_validate(
        {"name": "p", "source": {"topics": ["t"]}, "destinations": [{"table": "a.b", "evolve": "add"}]}
    )
    columns = compared_columns(pipeline.destinations[0], Schema(NestedField(1, "price", LongType())), Value())
    widened = rules_of(pipeline, [], "a.b", columns, {1: ColumnChanges(frozenset({"price"}))})

    assert widened.lenient == {1}
    assert widened.cells(b'{"price": 5}', "t", Message(), 1) == ((5,), (False,))
    assert widened.always_present == (0,)
