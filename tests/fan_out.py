"""A pipeline of several destinations, for tests with a shop."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

from frazil.iceberg.commit.summary_state import CLOSING_KEY
from tests.operations import LEDGER, lake, send

TABLES = ("shop.orders", "shop.refunds", "shop.audit")

_COLUMNS = {
    "shop.orders": "{id: {type: long, required: true}, name: string}",
    "shop.refunds": "{id: {type: long, required: true}}",
    "shop.audit": "{id: {type: string, required: true}, kind: string}",
}

ROUTE = """
    route:
      static:
        field: kind
        tables: {shop.orders: order, shop.refunds: refund, shop.audit: "order|refund|note"}
"""


def file_of(shop: Any, tables: Sequence[str] = TABLES, route: str = ROUTE) -> str:
    """The pipeline file with these destinations."""
    destinations = "".join(f"  - {{table: {table}, columns: {_COLUMNS[table]}}}\n" for table in tables)
    head = f"name: orders\nsource: {{topics: [{shop.topic}]}}\nengine: inline\nvalue: {{casts: text}}\n"
    return f"{head}dead_letters: {{tolerance: all}}\ndestinations:\n{destinations}{textwrap.dedent(route)}"


def fanned_out(shop: Callable[..., Any], partitions: int = 1) -> Any:
    """A shop of three destinations; nothing is landed."""
    orders = shop(partitions=partitions)
    return orders.with_pipeline(file_of(orders))


def record(number: int) -> bytes:
    """By its number: orders, refunds, notes, and every fifth one is bad for its own table, every seventh for none."""
    kind = "nothing" if number % 7 == 6 else ("order", "refund", "note")[number % 3]
    amount: object = f"x{number}" if number % 5 == 4 else number
    return json.dumps({"id": amount, "name": f"n{number}", "kind": kind}).encode()


def fill(shop: Any, numbers: range) -> None:
    """Send the records of these numbers."""
    send(shop, {0: [record(number) for number in numbers]})


def closing(shop: Any) -> str:
    """Name of the table whose commit decides."""
    closing: str = lake(shop).load_table(LEDGER).metadata.properties[CLOSING_KEY.format("orders")]
    return closing


def expected(numbers: Sequence[int]) -> tuple[dict[str, list[int]], list[tuple[int, str | None]]]:
    """Offsets of the rows per table, and of the letters with their tables, of records sent in this order."""
    rows: dict[str, list[int]] = {table: [] for table in TABLES}
    letters: list[tuple[int, str | None]] = []
    for offset, number in enumerate(numbers):
        if number % 7 == 6:
            letters.append((offset, None))
            continue
        rows["shop.audit"].append(offset)
        table = ("shop.orders", "shop.refunds", None)[number % 3]
        if table is not None and number % 5 == 4:
            letters.append((offset, table))
        elif table is not None:
            rows[table].append(offset)
    return rows, sorted(letters, key=str)


def outcomes(shop: Any) -> tuple[dict[str, list[int]], list[tuple[int, str | None]]]:
    """What the tables hold, in the form of `expected`."""
    rows = {
        table: sorted(row["_kafka_offset"] for row in shop.rows(table))
        for table in TABLES
        if lake(shop).find_table(table)
    }
    places = ((row["offset"], row["destination"]) for row in shop.rows("shop.orders__dead_letters"))
    return rows, sorted(places, key=str)
