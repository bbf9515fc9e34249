"""Settling one of several destinations: what it lands again is what it lost, no more and no less, or it says so."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from frazil.batch.letters import LetterChoice
from frazil.run.dead_letters import bring_home
from tests.fan_out import expected, fanned_out, fill, outcomes
from tests.operations import (
    assert_clean,
    drop,
    lake,
    request,
    roll_back,
    scope,
    send,
    settle,
)

MakeShop = Callable[..., Any]
ID = "{id: {type: long, required: true}}"


def pipeline(shop: Any, columns: Mapping[str, str], route: str = "") -> Any:
    """The shop with these destinations instead."""
    tables = "".join(f"  - {{table: {table}, columns: {of}}}\n" for table, of in columns.items())
    head = f"name: orders\nsource: {{topics: [{shop.topic}]}}\nengine: inline\ndead_letters: {{tolerance: all}}\n"
    return shop.with_pipeline(f"{head}destinations:\n{tables}{route}")


def value(**fields: object) -> bytes:
    return json.dumps(fields).encode()


def ids(shop: Any, table: str) -> list[int]:
    return sorted(row["id"] for row in shop.rows(table))


def test_a_follower_that_is_settled_twice_gets_nothing(shop: MakeShop) -> None:
    """What the first settle took out were its own rows: they are owed again."""
    orders = fanned_out(shop)
    for first in (0, 10):
        fill(orders, range(first, first + 10))
        orders.run()
    for _ in range(2):
        drop(orders, "shop.audit")
        settle(orders, "shop.audit")

    assert outcomes(orders) == expected(range(20))
    assert orders.run().batches == 0
    assert_clean(orders)


def test_a_letter_of_one_table_that_came_home_moves_the_rows_of_another(shop: MakeShop) -> None:
    """What came home for one table is that table's: the other one's rows of that record stay with their batch."""
    columns = {
        "shop.orders": "{id: {type: long, required: true}, m: {type: long, required: true}}",
        "shop.refunds": "{id: {type: long, required: true}, n: {type: long, required: true}}",
    }
    before = pipeline(shop(partitions=1), columns)
    send(before, {0: [value(id=1, n=1, m=1), value(id=2, n="y", m="x"), value(id=3, n=3, m=3)]})
    before.run()
    with lake(before).load_table("shop.orders").update_schema() as update:
        update.make_column_optional("m")
    after = pipeline(before, {**columns, "shop.orders": ID})
    bring_home(scope(after), LetterChoice(), request())
    roll_back(after, "shop.orders")

    done = settle(after, "shop.orders")

    assert done is not None
    assert (done.restaged, done.abandoned, done.remarks) == (1, 0, ())
    assert (ids(after, "shop.orders"), ids(after, "shop.refunds")) == ([1, 2, 3], [1, 3])
    assert after.run().batches == 0
    assert_clean(after)
