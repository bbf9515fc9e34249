"""Tables of an older Frazil, and of a newer one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from frazil.errors import Terminal
from frazil.iceberg.own_tables import FORMAT_KEY
from tests.operations import LEDGER, LETTERS, assert_clean, bad, lake, landed, ledger, letters, order, replay, send

MakeShop = Callable[..., Any]

FIRST_COLUMNS = {LEDGER: "config", LETTERS: "_frazil_batch"}
"""The last of the columns that the first Frazil made."""


def make_old(shop: Any) -> None:
    """Take from ledger and letters the columns that came later."""
    for name, last in FIRST_COLUMNS.items():
        table = lake(shop).load_table(name)
        names = [field.name for field in table.schema().fields]
        with table.update_schema() as update:
            for column in names[names.index(last) + 1 :]:
                update.delete_column(column)


def test_tables_of_an_older_frazil_stop_it(shop: MakeShop) -> None:
    """They get the columns that they lack, and batches and replays land as before; what the old rows lack is nothing."""
    orders = landed(shop, 1)
    make_old(orders)
    old = len(ledger(orders))
    assert len(lake(orders).load_table(LEDGER).schema().fields) < 30
    send(orders, {0: [order(4), bad(5)]})

    assert orders.run().read == 2

    rows = ledger(orders)
    assert [row["record_ages"] for row in rows[:old]] == [None] * old
    assert all(row["ranges"] and row["record_ages"] for row in rows[old:])
    assert [offset for _, offset, _ in letters(orders)] == [1, 3, 5]
    replay(orders, "earliest")
    assert [offset for _, offset, _ in letters(orders)] == [1, 3, 5]
    assert_clean(orders)


@pytest.mark.parametrize("table", [LEDGER, LETTERS])
def test_tables_of_a_newer_frazil_are_written(shop: MakeShop, table: str) -> None:
    """What a newer one uses otherwise is left alone, and the error says which table and what to do."""
    orders = landed(shop, 1)
    with lake(orders).load_table(table).transaction() as transaction:
        transaction.set_properties({FORMAT_KEY: "2"})
    send(orders, {0: [order(4)]})

    with pytest.raises(Terminal, match=f"table {table} of version 2 was found, written by a newer Frazil"):
        orders.run()
