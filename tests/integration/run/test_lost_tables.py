"""A table of the pipeline is dropped, or dropped and made anew: refused by name, with a command that works."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from frazil.errors import Terminal
from tests.operations import (
    LEDGER,
    LETTERS,
    ORDERS,
    assert_clean,
    bad,
    drop,
    landed,
    letters,
    order,
    places,
    position,
    remake,
    repair,
    reset,
    send,
)

MakeShop = Callable[..., Any]


@pytest.mark.parametrize("damage", [drop, remake])
def test_lost_destination_is_not_recreated_silently(shop: MakeShop, damage: Callable[[Any, str], None]) -> None:
    """Refused; a reset lands everything that Kafka still holds into the new table, letters once."""
    orders = landed(shop, 2)
    damage(orders, ORDERS)
    with pytest.raises(Terminal) as refused:
        orders.run()
    assert "frazil reset orders --to earliest --reason" in str(refused.value)

    reset(orders, "earliest")

    assert orders.run().read == 8
    assert places(orders) == [(0, 0), (0, 2), (0, 4), (0, 6)]
    assert [(p, o) for p, o, _ in letters(orders)] == [(0, 1), (0, 3), (0, 5), (0, 7)]
    assert (position(orders).n, position(orders).epoch) == (4, 1)
    assert_clean(orders)


@pytest.mark.parametrize("table", [LETTERS, LEDGER])
@pytest.mark.parametrize("damage", [drop, remake])
def test_lost_follower_is_not_recreated_silently(
    shop: MakeShop, table: str, damage: Callable[[Any, str], None]
) -> None:
    """Refused by name with the repair command, which then works."""
    orders = landed(shop, 2)
    damage(orders, table)
    send(orders, {0: [order(8), bad(9)]})
    with pytest.raises(Terminal, match=table) as refused:
        orders.run()
    assert f"frazil repair orders {table} --reason" in str(refused.value)

    repair(orders, table)

    assert orders.run().read == 2
    assert [(p, o) for p, o, _ in letters(orders)] == [(0, o) for o in (1, 3, 5, 7, 9)]
    assert_clean(orders)


def test_pipeline_without_any_table_begins_as_new(shop: MakeShop) -> None:
    """Nothing is left of the pipeline: then this is its first run."""
    orders = landed(shop, 2)
    for table in (ORDERS, LETTERS, LEDGER):
        drop(orders, table)

    assert orders.run().read == 8
    assert position(orders).n == 1
    assert_clean(orders)
