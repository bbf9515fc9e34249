"""Tables of an older Frazil, and of a newer one."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from frazil.batch.manifest import Manifest
from frazil.errors import Terminal
from frazil.iceberg.holdings import DONE_KEY, MANIFEST_KEY, POSITION_KEY, TABLES_KEY
from frazil.iceberg.own_tables import FORMAT_KEY
from frazil.iceberg.table import metadata_path, read_text, write_text
from tests.operations import (
    LEDGER,
    LETTERS,
    ORDERS,
    assert_clean,
    bad,
    lake,
    landed,
    ledger,
    letters,
    order,
    position,
    replay,
    roll_back,
    send,
    to_table,
)

MakeShop = Callable[..., Any]

POSITION, DONE, TABLES = (of.format("orders") for of in (POSITION_KEY, DONE_KEY, TABLES_KEY))

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


def test_reset_to_the_table_gives_older_tables_their_columns(shop: MakeShop) -> None:
    """Also where it is the first command of the new version: a rollback is mended, and stands in the ledger."""
    orders = landed(shop, 2)
    make_old(orders)
    roll_back(orders, ORDERS)

    to_table(orders)

    assert [row["kind"] for row in ledger(orders)][-1] == "rewind"
    assert orders.run().read == 4
    assert_clean(orders)


def make_snapshots_old(shop: Any) -> None:
    """Let each snapshot carry the whole position, or what the ledger knows of all tables, as the first Frazil did."""
    for name in (ORDERS, LEDGER):
        table = lake(shop).load_table(name)
        body = json.loads(table.metadata.model_dump_json())
        for summary in (snapshot["summary"] for snapshot in body["snapshots"]):
            if POSITION in summary:
                summary[POSITION] = Manifest.from_json(read_text(table, summary[MANIFEST_KEY])).position.to_json()
            if DONE in summary:
                summary[TABLES] = json.loads(table.properties[TABLES])["value"]
        path = metadata_path(table, f"99999-{uuid4()}.metadata.json")
        write_text(table, path, json.dumps(body))
        lake(shop)._catalog.drop_table(name)
        lake(shop)._catalog.register_table(name, path)


def summaries(shop: Any, table: str) -> list[dict[str, str]]:
    return [of.summary.additional_properties for of in lake(shop).load_table(table).metadata.snapshots]


def test_snapshots_of_an_older_frazil_are_read(shop: MakeShop) -> None:
    """Batches go on behind them, carry what they moved alone, and a rollback brings the older position back."""
    orders = landed(shop, 2)
    assert [POSITION in of for of in summaries(orders, ORDERS)] == [True] * 3
    assert not any(TABLES in of for of in summaries(orders, LEDGER))
    make_snapshots_old(orders)
    before = position(orders)
    send(orders, {0: [order(8), bad(9)]})

    assert orders.run().read == 2

    assert (position(orders).n, position(orders).topics[orders.topic].start) == (3, before.topics[orders.topic].next)
    assert summaries(orders, ORDERS)[-1][POSITION] == position(orders).moves_json()
    assert not any(TABLES in of for of in summaries(orders, LEDGER)[-1:])
    assert_clean(orders)
    roll_back(orders, ORDERS)
    assert position(orders) == before


@pytest.mark.parametrize("table", [LEDGER, LETTERS])
def test_tables_of_a_newer_frazil_are_written(shop: MakeShop, table: str) -> None:
    """What a newer one uses otherwise is left alone, and the error says which table and what to do."""
    orders = landed(shop, 1)
    with lake(orders).load_table(table).transaction() as transaction:
        transaction.set_properties({FORMAT_KEY: "2"})
    send(orders, {0: [order(4)]})

    with pytest.raises(Terminal, match=f"table {table} of version 2 was found, written by a newer Frazil"):
        orders.run()
