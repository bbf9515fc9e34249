"""Columns that are declared for a table that is there, on a real SQLite catalog."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from frazil.errors import Terminal
from frazil.iceberg.catalog import Lake
from frazil.iceberg.evolution import declared_changes
from frazil.iceberg.ledger import TABLE_PROPERTIES, UNPARTITIONED
from frazil.iceberg.schema import check_destination
from frazil.pipeline.model import Destination

TABLE = "shop.events"
SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "price", LongType()))


def destination(**given: Any) -> Destination:
    """A destination that follows its records."""
    return Destination.model_validate({"table": TABLE, "kafka_columns": False, "evolve": "widen", **given})


@pytest.mark.parametrize("declared", [{"Price": "long"}, {"id": "long", "PRICE": "double"}])
def test_column_is_declared_in_another_case(lake: Lake, declared: dict[str, str]) -> None:
    """Where case means nothing it would be the same column twice, which no record fills: named before the table gets it."""
    lake.create_table(TABLE, SCHEMA, UNPARTITIONED, TABLE_PROPERTIES)
    table, of = lake.load_table(TABLE), destination(columns=declared)

    with pytest.raises(Terminal, match=r"the table has price, with field_names: case_insensitive the same column"):
        check_destination(table, of, fold=True)
    assert declared_changes(table.schema(), of, fold=True) == ()

    check_destination(table, of)
    assert len(declared_changes(table.schema(), of)) == 1
