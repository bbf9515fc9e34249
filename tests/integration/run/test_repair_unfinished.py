"""A rewind or a repair is decided and not finished, and tables go back: each batch has its rows once afterwards."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from typing import Any

import pytest

from frazil.errors import Terminal
from tests.operations import (
    LEDGER,
    LETTERS,
    ORDERS,
    Killed,
    assert_clean,
    bad,
    landed,
    ledger,
    letters,
    order,
    places,
    repair,
    roll_back,
    send,
    to_table,
)

MakeShop = Callable[..., Any]
At = Callable[..., Any]


def refused(orders: Any) -> str:
    """The table that a refused run says to repair."""
    with pytest.raises(Terminal) as refusal:
        orders.run()
    command = re.search(r"frazil (repair .*? --reason) …", str(refusal.value))
    assert command is not None, refusal.value
    return shlex.split(command[1])[2]


def more(orders: Any, first: int) -> None:
    send(orders, {0: [order(first), bad(first + 1), order(first + 2), bad(first + 3)]})


def kill(at: At, point: str, deed: Callable[..., object], *of: object) -> None:
    at(point)
    with pytest.raises(Killed):
        deed(*of)


def assert_all(orders: Any, count: int) -> None:
    """Every record has its one outcome: even offsets are rows, odd ones letters."""
    assert places(orders) == [(0, o) for o in range(0, count, 2)]
    assert [(p, o) for p, o, _ in letters(orders)] == [(0, o) for o in range(1, count, 2)]
    assert_clean(orders)


@pytest.mark.parametrize("table", [LETTERS, LEDGER])
def test_table_that_goes_back_before_a_rewind_is_repaired(shop: MakeShop, at: At, table: str) -> None:
    """The rewind was decided on what the table held; what it lost since is no late batch."""
    orders = landed(shop)
    roll_back(orders, ORDERS)
    kill(at, "decide.committed", to_table, orders)
    roll_back(orders, table, by=2)
    assert refused(orders) == table

    repair(orders, table)
    orders.run()

    assert [row["n"] for row in ledger(orders, "ingest") if row["table"] == ORDERS][:2] == [1, 2]
    assert_all(orders, 12)
