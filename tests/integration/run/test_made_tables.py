"""Tables that the pipeline file does not list, and that records name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests import made as shops
from tests.made import fill, ids, letters, told
from tests.operations import assert_clean, lake, ledger


def test_a_table_of_a_name_that_nobody_listed(shop: Callable[..., Any]) -> None:
    """It is made with the template's columns, gets its rows in the batch that names it, and is the pipeline's from then on."""
    orders = shops.made(shop)
    fill(orders, (1, "shop.a"), (2, "shop.b"), (3, "shop.a"))
    orders.run()
    assert ids(orders, ("shop.a", "shop.b")) == {"shop.a": [1, 3], "shop.b": [2]}
    assert told(orders) == ("shop.a", "shop.b")
    fill(orders, (4, "shop.b"), (5, "shop.c"))
    orders.run()
    assert ids(orders, ("shop.b", "shop.c")) == {"shop.b": [2, 4], "shop.c": [5]}
    assert {row["table"] for row in ledger(orders) if row["role"] == "destination"} == {"shop.a", "shop.b", "shop.c"}
    assert orders.run().batches == 0
    assert_clean(orders)
