"""A rewind or a repair is decided and not finished, and tables go back: each batch has its rows once afterwards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from frazil.errors import Terminal
from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.catalog.table import Table
from frazil.run.state import tables
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
    location,
    offsets,
    order,
    places,
    remove_manifest,
    repair,
    replay,
    restore,
    roll_back,
    send,
    to_table,
)
from tests.refusals import refused

MakeShop = Callable[..., Any]
AtFailpoint = Callable[..., Any]


def more(orders: Any, first: int) -> None:
    send(orders, {0: [order(first), bad(first + 1), order(first + 2), bad(first + 3)]})


def kill(at_failpoint: AtFailpoint, point: str, deed: Callable[..., object], *arguments: object) -> None:
    at_failpoint(point)
    with pytest.raises(Killed):
        deed(*arguments)


def assert_all(orders: Any, count: int) -> None:
    """Every record has its one outcome: even offsets are rows, odd ones letters."""
    assert places(orders) == [(0, o) for o in range(0, count, 2)]
    assert [(p, o) for p, o, _ in letters(orders)] == [(0, o) for o in range(1, count, 2)]
    assert_clean(orders)


def letters_hold_a_batch_without_manifest(orders: Any, at_failpoint: AtFailpoint) -> None:
    more(orders, 12)
    kill(at_failpoint, "follow.committed", orders.run)
    remove_manifest(orders)
    kill(at_failpoint, "decide.committed", to_table, orders)


def letters_hold_a_batch_that_the_ledger_lacks(orders: Any, at_failpoint: AtFailpoint) -> None:
    more(orders, 12)
    kill(at_failpoint, "follow.committed", orders.run)
    roll_back(orders, LEDGER)
    kill(at_failpoint, "decide.committed", repair, orders, LEDGER)


def letters_went_back_with_the_closing_table(orders: Any, at_failpoint: AtFailpoint) -> None:
    roll_back(orders, ORDERS)
    roll_back(orders, LETTERS)
    more(orders, 12)
    kill(at_failpoint, "decide.committed", to_table, orders)


def letters_get_an_abandoned_batch_late(orders: Any, at_failpoint: AtFailpoint) -> None:
    """A run sleeps before its followers get their parts; the rewind that takes its batch back is killed."""

    def rewind() -> None:
        roll_back(orders, ORDERS)
        kill(at_failpoint, "decide.committed", to_table, orders)
        at_failpoint("follow.committed")

    more(orders, 12)
    at_failpoint("follow.committing", rewind)
    with pytest.raises(Killed):
        orders.run()


STATES = [
    letters_hold_a_batch_without_manifest,
    letters_hold_a_batch_that_the_ledger_lacks,
    letters_went_back_with_the_closing_table,
    letters_get_an_abandoned_batch_late,
]


@pytest.mark.parametrize("state", STATES)
def test_next_run_finishes_a_killed_rewind_or_repair(
    shop: MakeShop, at_failpoint: AtFailpoint, state: Callable[[Any, AtFailpoint], None]
) -> None:
    """Followers are held against its manifest: no command is needed."""
    orders = landed(shop)
    state(orders, at_failpoint)

    orders.run()

    assert_all(orders, 16)
    assert orders.run().batches == 0


@pytest.mark.parametrize("table", [LETTERS, LEDGER])
def test_table_that_goes_back_before_a_rewind_is_repaired(
    shop: MakeShop, at_failpoint: AtFailpoint, table: str
) -> None:
    """The rewind was decided on what the table held; what it lost since is no late batch."""
    orders = landed(shop)
    roll_back(orders, ORDERS)
    kill(at_failpoint, "decide.committed", to_table, orders)
    roll_back(orders, table, snapshots=2)
    assert refused(orders) == ["repair", "orders", table]

    repair(orders, table)
    orders.run()

    assert [row["n"] for row in ledger(orders, "ingest") if row["table"] == ORDERS][:2] == [1, 2]
    assert_all(orders, 12)


def test_restored_ledger_is_repaired_first(shop: MakeShop, at_failpoint: AtFailpoint) -> None:
    """Batch 4, which gives the dead letters nothing, is not finished; the ledger lacks batch 3, and so does not tell of theirs."""
    orders = landed(shop, 2)
    before = location(orders, LEDGER)
    more(orders, 8)
    orders.run()
    send(orders, {0: [order(12)]})
    kill(at_failpoint, "decide.committed", orders.run)
    restore(orders, LEDGER, before)
    assert refused(orders) == ["repair", "orders", LEDGER]
    with pytest.raises(Terminal, match=f"frazil repair orders {LEDGER}"):
        repair(orders, LETTERS)

    repair(orders, LEDGER)

    assert [row["n"] for row in ledger(orders, "ingest") if row["table"] == ORDERS] == [1, 2, 3, 4]
    assert orders.run().batches == 0
    assert places(orders) == [(0, o) for o in range(0, 13, 2)]
    assert_clean(orders)


def test_rows_beyond_the_position_go_from_a_lost_follower(shop: MakeShop) -> None:
    """A rewind moves behind what a follower holds, and leaves it to a repair: all of that comes again."""
    orders = landed(shop)
    replay(orders, offsets(orders, 0), offsets(orders, 4))
    roll_back(orders, LETTERS, snapshots=2)
    roll_back(orders, ORDERS)
    to_table(orders)
    assert refused(orders) == ["repair", "orders", LETTERS]

    repair(orders, LETTERS)
    orders.run()

    assert_all(orders, 12)


def test_batch_of_a_rival_between_two_reads_is_no_loss(shop: MakeShop, monkeypatch: pytest.MonkeyPatch) -> None:
    """It lands after the dead letters were read and before the ledger is."""
    orders = landed(shop, 2)
    more(orders, 8)
    real, reads = tables._find_each, Counter[str]()

    def found(lake: Lake, names: list[str]) -> dict[str, Table | None]:
        reads.update(names)
        if LETTERS not in names or reads[LETTERS] != 2:  # the first look only asks which table closes
            return real(lake, names)
        first = real(lake, [LETTERS])
        assert orders.run().batches == 1
        return first | real(lake, [name for name in names if name != LETTERS])

    monkeypatch.setattr(tables, "_find_each", found)

    assert repair(orders, LETTERS) is None
    assert_all(orders, 12)
