"""Columns that records brought, as the check knows them."""

from __future__ import annotations

import json
from typing import Any

import pytest
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
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestamptzType,
)

from frazil.iceberg.variant import VariantType
from frazil.pipeline.model import Destination
from frazil.pipeline.value import Value
from frazil.verify.expected import Bad, Expectation
from frazil.verify.grown import Grown, columns_of, earlier_schemas, without_empties

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


def columns(**given: Any) -> dict[str, tuple[str, bool]]:
    destination = Destination.model_validate({"table": "a.b", **given})
    return {name: (str(of.parsed), of.required) for name, of in columns_of(destination, SCHEMA, Value()).items()}


def test_columns_that_nobody_declared_are_left_unchecked() -> None:
    """All that the table has is compared: but for Kafka's columns, rescued fields, and types that can't be read here."""
    assert columns() == {
        "id": ("long", True),
        "price": ("decimal(9,2)", False),
        "code": ("fixed[4]", False),
        "at": ("struct<`the place`: list<string>>", False),
        "seen": ("timestamptz", False),
        "count": ("int", False),
    }


def test_declared_column_that_was_widened_is_read_as_it_was_declared() -> None:
    """The table's type counts, with the file's options; a declared column that must be there must be."""
    declared = {"count": {"type": "int", "required": True}, "seen": {"type": "timestamptz", "unit": "ms"}}
    destination = Destination.model_validate({"table": "a.b", "columns": declared, "evolve": "add"})
    wider = Schema(NestedField(1, "count", LongType()), NestedField(2, "seen", TimestamptzType()))

    found = columns_of(destination, wider, Value())

    assert (str(found["count"].parsed), found["count"].required, found["seen"].unit) == ("long", True, "ms")
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
def test_value_that_tells_no_type_is_taken_for_a_lost_one(value: Any, expected: Any) -> None:
    """Empty lists, maps and structs count as null, at any level; what holds a value stays."""
    assert without_empties(value) == expected


def test_lost_value_of_an_inferred_column_is_overlooked() -> None:
    """What a record has must be in its row; only what holds nothing may be null."""
    destination = Destination.model_validate({"table": "a.b"})
    schema = Schema(
        NestedField(1, "a", LongType()), NestedField(2, "b", ListType(3, StringType(), element_required=False))
    )
    grown = Grown(Expectation(columns_of(destination, schema, Value())))

    assert grown.row(json.dumps({"a": 1, "b": [], "c": 2}).encode()) == (1, None)
    assert grown.row(json.dumps({"a": 1, "b": ["x"]}).encode()) == (1, ("x",))
    assert isinstance(grown.row(json.dumps({"a": "x"}).encode()), Bad)


def test_batches_before_a_new_column_may_say_anything() -> None:
    """Of an earlier batch only columns that were others then may be null: its snapshot says which, or any of all schemas."""
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
        Snapshot(snapshot_id=of, sequence_number=of, timestamp_ms=of, manifest_list="", schema_id=of - 1, summary=None)
        for of in (1, 2, 3)
    ]
    metadata = new_table_metadata(schemas[2], UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, "file:///t", {})
    metadata = metadata.model_copy(update={"schemas": schemas, "current_schema_id": 2, "snapshots": snapshots})
    rows = [{"n": n, "table": "a.b", "snapshot_id": snapshot} for n, snapshot in enumerate((1, 2, 3, 99), 1)]

    found = earlier_schemas([*rows, {"n": 3, "table": "a.letters", "snapshot_id": 7}], "a.b", metadata)

    assert found == {1: {"price", "note"}, 2: {"note"}, 4: {"price", "note"}}
