"""Several destinations after somebody took back a table, or lost it: nothing lands twice, nothing is guessed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from frazil.errors import Terminal
from frazil.report.history import history
from frazil.run.repair.reset import preview_reset
from frazil.run.repair.reset_batch import RemovalCounts, ResetOrder, count_removed
from tests.fan_out import TABLES, expected, fanned_out, file_of, fill, outcomes, record
from tests.operations import (
    LEDGER,
    LETTERS,
    assert_clean,
    delete_records,
    drop,
    lake,
    offsets,
    recreate_topic,
    repair,
    reset,
    roll_back,
    scope,
    send,
    to_table,
)

MakeShop = Callable[..., Any]
NUMBERS = range(20)


@pytest.mark.parametrize("replays", [True, False])
def test_rolled_back_follower_is_noticed(shop: MakeShop, replays: bool) -> None:
    """It is refused by name; a repair fills it again, or gives up what it lost, on record."""
    orders = fanned_out(shop)
    for first in (0, 10):
        fill(orders, range(first, first + 10))
        orders.run()
    roll_back(orders, "shop.audit")
    with pytest.raises(Terminal, match=r"table shop\.audit was rolled back"):
        orders.run()

    repair(orders, "shop.audit", replays=replays)

    rows, letters = expected(NUMBERS)
    kept_rows = rows if replays else {**rows, "shop.audit": [offset for offset in rows["shop.audit"] if offset < 10]}
    assert outcomes(orders) == (kept_rows, letters)
    assert orders.run().batches == 0
    assert_clean(orders)


def test_rolled_back_ledger_lands_nothing_twice(shop: MakeShop) -> None:
    """A ledger that closes is not followed backwards: refused, until it is restored, or reset takes all rows out."""
    orders = fanned_out(shop)
    fill(orders, NUMBERS)
    orders.run()
    roll_back(orders, LEDGER, snapshots=2)
    with pytest.raises(Terminal, match="reset orders --to earliest"):
        orders.run()

    reset(orders, "earliest")
    orders.run()

    assert outcomes(orders) == expected(NUMBERS)


def test_lost_ledger_lands_nothing_twice(shop: MakeShop) -> None:
    """The position went with the ledger: a reset takes out what comes again."""
    orders = fanned_out(shop)
    fill(orders, NUMBERS)
    orders.run()
    lake(orders)._catalog.drop_table(LEDGER)
    with pytest.raises(Terminal, match="reset orders --to earliest"):
        orders.run()

    reset(orders, "earliest")
    orders.run()

    assert outcomes(orders) == expected(NUMBERS)


def test_rolled_back_closing_destination_doubles_no_follower_rows(shop: MakeShop) -> None:
    """Followers were not rolled back: what comes again is taken out of them first."""
    orders = shop(partitions=1)
    one = orders.with_pipeline(
        file_of(orders, ("shop.orders",), "route: {static: {field: kind, tables: {shop.orders: order}}}")
    )
    one.run()
    several = one.with_pipeline(file_of(orders))
    for first in (0, 10):
        fill(several, range(first, first + 10))
        several.run()
    roll_back(several, "shop.orders")
    to_table(several)

    several.run()

    assert outcomes(several) == expected(NUMBERS)
    assert_clean(several)


def test_rewind_keeps_what_kafka_no_longer_holds(shop: MakeShop) -> None:
    """Records that retention deleted meanwhile come to no table again: followers keep their rows, the rest is on record."""
    orders = shop(partitions=1)
    one = orders.with_pipeline(
        file_of(orders, ("shop.orders",), "route: {static: {field: kind, tables: {shop.orders: order}}}")
    )
    one.run()
    several = one.with_pipeline(file_of(orders))
    for first in (0, 10):
        fill(several, range(first, first + 10))
        several.run()
    roll_back(several, "shop.orders")
    delete_records(several, 14)

    to_table(several)
    several.run()

    rows, letters = expected(NUMBERS)
    rows["shop.orders"] = [offset for offset in rows["shop.orders"] if offset not in range(10, 14)]
    assert outcomes(several) == (rows, letters)
    (rewind,) = [batch for batch in history(several.project, several.pipeline) if batch.kind == "rewind"]
    assert [skipped[-2:] for skipped in rewind.skipped] == [(10, 14)]
    assert_clean(several)


def test_lost_dead_letters_of_several_tables_are_restored(shop: MakeShop) -> None:
    """Each is of the table that its record does not fit."""
    orders = fanned_out(shop)
    fill(orders, range(10))
    orders.run()
    drop(orders, LETTERS)

    repair(orders, LETTERS)

    assert outcomes(orders) == expected(range(10))
    assert orders.run().batches == 0
    assert_clean(orders)


def passed_by(shop: MakeShop) -> Any:
    """A pipeline of fewer tables than before, reset to the beginning: the third one holds rows that come again."""
    orders = fanned_out(shop)
    fill(orders, range(10))
    orders.run()
    route = "route: {static: {field: kind, tables: {shop.orders: order, shop.refunds: refund}}, otherwise: filter}"
    fewer = orders.with_pipeline(file_of(orders, TABLES[:2], route))
    fill(fewer, range(10, 13))
    fewer.run()
    reset(fewer, "earliest")
    return fewer


def test_table_named_again_after_reset_holds_its_rows_once(shop: MakeShop) -> None:
    """The reset passed it by while the file did not name it: what comes again is taken out when it is back."""
    fewer = passed_by(shop)

    again = fewer.with_pipeline(file_of(fewer))
    again.run()

    assert outcomes(again) == expected(range(13))
    assert_clean(again)


def test_ledger_rolled_back_to_decision_lands_nothing_twice(shop: MakeShop) -> None:
    """It looks like an unfinished batch, and is a lost position all the same."""
    orders = fanned_out(shop, partitions=2)
    orders.run()
    for partition in (0, 1):
        send(orders, {partition: [record(number) for number in range(10)]})
        orders.run()
    roll_back(orders, LEDGER, snapshots=3)
    with pytest.raises(Terminal, match="reset orders --to earliest"):
        orders.run()

    reset(orders, "earliest")
    orders.run()

    rows, letters = expected(range(10))
    twice = {table: sorted([*offsets, *offsets]) for table, offsets in rows.items()}
    assert outcomes(orders) == (twice, sorted([*letters, *letters], key=str))


@pytest.mark.short("dropped")
@pytest.mark.parametrize("loss", ["rolled back", "dropped"])
def test_lost_ledger_keeps_rows_of_recreated_topic_apart(shop: MakeShop, loss: str) -> None:
    """Rows of the earlier topic can't come again and stay; those of the present one come again once."""
    orders = fanned_out(shop)
    fill(orders, range(3))
    orders.run()
    head = lake(orders).load_table(LEDGER).current_snapshot().snapshot_id
    recreate_topic(orders, 1)
    reset(orders, "earliest")
    fill(orders, range(3))
    orders.run()
    if loss == "dropped":
        lake(orders)._catalog.drop_table(LEDGER)
    else:
        lake(orders).load_table(LEDGER).manage_snapshots().rollback_to_snapshot(head).commit()

    reset(orders, "earliest")
    orders.run()

    rows = {table: Counter(offsets) for table, offsets in outcomes(orders)[0].items()}
    assert rows == {table: Counter([*offsets, *offsets]) for table, offsets in expected(range(3))[0].items()}


def test_rolled_back_ledger_and_follower_are_repaired_by_one_reset(shop: MakeShop) -> None:
    """The ledger closes, so it is no second follower: the reset that mends it takes up the other one with it."""
    orders = fanned_out(shop)
    for first in (0, 10):
        fill(orders, range(first, first + 10))
        orders.run()
    roll_back(orders, LEDGER, snapshots=2)
    roll_back(orders, "shop.audit")

    reset(orders, "earliest")
    orders.run()

    assert outcomes(orders) == expected(NUMBERS)


@pytest.mark.short("False")
@pytest.mark.parametrize("allow_duplicates", [False, True])
def test_reset_that_names_table_again_doubles_no_rows(shop: MakeShop, *, allow_duplicates: bool) -> None:
    """An earlier reset passed the table by; a second one, forward or beside what is there, takes out what comes again."""
    fewer = passed_by(shop)

    again = fewer.with_pipeline(file_of(fewer))
    start = 0 if allow_duplicates else 5
    before, dead = outcomes(again)
    order = ResetOrder(offsets(again, start), allow_duplicates=allow_duplicates)
    shown = count_removed(scope(again), preview_reset(scope(again), order))
    reset(again, offsets(again, start), allow_duplicates=allow_duplicates)
    after, letters_after = outcomes(again)
    removed = {table: len(before[table]) - len(after[table]) for table in before}
    assert shown == RemovalCounts(
        {table: count for table, count in removed.items() if count}, len(dead) - len(letters_after)
    )
    assert removed["shop.audit"] > 0
    again.run()

    rows, letters = expected(range(13))
    kept_rows = {table: [offset for offset in offsets if offset >= start] for table, offsets in rows.items()}
    assert outcomes(again) == (
        kept_rows | {"shop.audit": rows["shop.audit"]},
        [letter for letter in letters if letter[0] >= start],
    )
    assert_clean(again)
