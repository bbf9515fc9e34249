"""A pipeline whose records name tables that its file does not list, for tests with a shop."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from frazil.iceberg.commit.summary_state import made_tables
from tests.operations import LEDGER, lake, send

SCHEMA = Schema(NestedField(1, "id", LongType(), required=False))
"""Of a table that somebody else makes."""

LETTERS = "shop.orders__dead_letters"

FILE = """
name: orders
source: {{topics: [{topic}]}}
engine: inline
value: {{casts: text}}
limits: {{max_records: {max_records}}}
dead_letters: {{tolerance: all}}
destinations: [{listed}]
route:
  field: {{name: to, allow: ['shop\\..*'], deny: ['.*secret.*']}}
  otherwise: {otherwise}
  create:
    namespace: shop
    max_new_tables: {most}
    {template}
"""

COLUMNS = "columns: {id: {type: long, required: true}, name: string}"
"""A template with declared columns; `evolve: widen` is one without."""


def auto_creating(
    shop: Callable[..., Any],
    partitions: int = 1,
    **options: Any,
) -> Any:
    """A shop whose records name their tables; nothing is landed."""
    orders = shop(partitions=partitions)
    return orders.with_pipeline(file_of(orders, **options))


def file_of(
    shop: Any,
    most: int = 10,
    otherwise: str = "dead_letter",
    template: str = COLUMNS,
    listed: str = "",
    max_records: int = 1000,
) -> str:
    """The pipeline file."""
    options = {"most": most, "otherwise": otherwise, "template": template, "listed": listed}
    return FILE.format(topic=shop.topic, max_records=max_records, **options)


def record(number: int, destination: object, **more: Any) -> bytes:
    """A record that names its table."""
    return json.dumps({"id": number, "name": f"n{number}", "to": destination, **more}).encode()


def fill(shop: Any, *named: tuple[int, object], partition: int = 0) -> None:
    """Send records: number and table."""
    send(shop, {partition: [record(*values) for values in named]})


def ids(shop: Any, tables: Iterable[str]) -> dict[str, list[int]]:
    """Ids of the rows per table, sorted."""
    return {table: sorted(row["id"] for row in shop.rows(table)) for table in tables}


def letters(shop: Any) -> list[tuple[int, str]]:
    """Offset and code of every open letter, sorted."""
    return sorted((row["offset"], row["code"]) for row in shop.rows(LETTERS) if row["landed_batch"] is None)


def auto_created(shop: Any) -> tuple[str, ...]:
    """Tables that the ledger says were made."""
    return made_tables(lake(shop).load_table(LEDGER).metadata, "orders", LEDGER)
