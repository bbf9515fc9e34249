"""The ledger is lost: the pipeline stops by name, and it is written again from manifests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from frazil.errors import Terminal
from tests.operations import (
    ALL_LETTERS,
    LEDGER,
    LETTERS,
    ORDERS,
    Killed,
    assert_clean,
    bad,
    drop,
    lake,
    landed,
    ledger,
    letters,
    order,
    places,
    roll_back,
    send,
    settle,
)

MakeShop = Callable[..., Any]
At = Callable[..., Any]


@pytest.mark.parametrize("damage", [lambda shop: roll_back(shop, LEDGER), lambda shop: drop(shop, LEDGER)])
def test_lost_ledger_is_begun_anew(shop: MakeShop, damage: Callable[[Any], None]) -> None:
    """Refused with the command, which writes the rows of all batches again from their manifests."""
    orders = landed(shop)
    before = ledger(orders)
    damage(orders)
    with pytest.raises(Terminal, match=f"frazil settle orders --table {LEDGER} --restage"):
        orders.run()

    done = settle(orders, LEDGER)

    assert done is not None
    assert done.abandoned == 0
    told = ("n", "batch", "table", "kind", "ranges", "position", "snapshot_id", "records_dead", "run")
    assert [[row[name] for name in told] for row in ledger(orders) if row["kind"] != "settle"] == [
        [row[name] for name in told] for row in before
    ]
    send(orders, {0: [order(12), bad(13)]})
    orders.run()
    assert letters(orders) == [*ALL_LETTERS, (0, 13, 5)]
    assert_clean(orders)


def test_ledger_and_letters_dropped_block_each_other(shop: MakeShop) -> None:
    """Both gone: the ledger first, then the letters by what it says."""
    orders = landed(shop)
    drop(orders, LETTERS)
    drop(orders, LEDGER)
    with pytest.raises(Terminal):
        settle(orders, LETTERS)

    settle(orders, LEDGER)
    with pytest.raises(Terminal, match=LETTERS):
        orders.run()
    settle(orders, LETTERS)

    assert letters(orders) == ALL_LETTERS
    assert_clean(orders)


@pytest.mark.short("record.committing")
@pytest.mark.parametrize("point", ["manifest.written", "decide.committed", "record.committing", "record.committed"])
def test_killed_settle_of_the_ledger_forgets_batches(shop: MakeShop, at: At, point: str) -> None:
    """Killed at any step, a second settle carries on; every batch is in the ledger once."""
    orders = landed(shop)
    drop(orders, LEDGER)
    at(point)
    with pytest.raises(Killed):
        settle(orders, LEDGER)

    settle(orders, LEDGER)
    orders.run()

    assert [row["n"] for row in ledger(orders) if row["role"] == "destination"] == [0, 1, 2, 3, 4]
    assert letters(orders) == ALL_LETTERS
    assert_clean(orders)


def test_unfinished_batch_is_lost_with_the_ledger(shop: MakeShop, at: At) -> None:
    """Decided, killed before its letters, then the ledger is dropped: letters and rows of that batch are there."""
    orders = landed(shop, 2)
    send(orders, {0: [order(8), bad(9), order(10), bad(11)]})
    at("follow.committing")
    with pytest.raises(Killed):
        orders.run()
    drop(orders, LEDGER)

    settle(orders, LEDGER)

    assert letters(orders) == ALL_LETTERS
    assert [row["n"] for row in ledger(orders, "ingest") if row["table"] == LETTERS] == [1, 2, 3]
    assert_clean(orders)


def test_batches_without_manifests_are_made_up(shop: MakeShop) -> None:
    """What no snapshot tells any more is said to be lost and counted; the letters' own word is taken."""
    orders = landed(shop)
    table = lake(orders).load_table(ORDERS)
    ours = [s.snapshot_id for s in table.metadata.snapshots]
    table.maintenance.expire_snapshots().by_ids(ours[:2]).commit()
    drop(orders, LEDGER)

    done = settle(orders, LEDGER)

    assert done is not None
    assert (done.restaged, done.abandoned) == (2, 2)
    assert "batches 0 to 1" in done.remarks[0]
    assert orders.run().batches == 0
    drop(orders, LETTERS)
    with pytest.raises(Terminal, match="the ledger does not know batches 0 to 1"):
        settle(orders, LETTERS)
    settle(orders, LETTERS, abandon=True)
    assert letters(orders) == ALL_LETTERS[2:]
    assert orders.run().batches == 0


def test_settle_of_a_whole_table_or_of_another_one(shop: MakeShop) -> None:
    """Nothing to do is said, and the closing table and strangers are refused."""
    orders = landed(shop, 1)

    assert settle(orders, LETTERS) is None
    assert settle(orders, LEDGER) is None
    with pytest.raises(Terminal, match="holds the position"):
        settle(orders, ORDERS)
    with pytest.raises(Terminal, match="no follower"):
        settle(orders, "shop.other")
    assert len(places(orders)) == 2
