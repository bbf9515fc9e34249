"""Moving the position on demand: what is skipped, what comes again, and what must never happen on the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from frazil.batch.position import parse_target
from frazil.errors import Retryable, Terminal
from frazil.report.history import history
from frazil.run.repair.reset import plan_reset
from frazil.run.repair.reset_batch import RemovalCounts, ResetOrder, count_removed
from tests.operations import (
    ALL_ROWS,
    ORDERS,
    Killed,
    assert_clean,
    bad,
    landed_in_two_partitions,
    ledger,
    letters,
    offsets,
    order,
    places,
    position,
    recreate_topic,
    reset,
    scope,
    send,
)

MakeShop = Callable[..., Any]
AtFailpoint = Callable[..., Any]


def test_backward_reset_doubles_no_records(shop: MakeShop) -> None:
    """Rows and letters beyond the new position go in the same commit, and the next run lands them again, once."""
    orders = landed_in_two_partitions(shop)

    after = reset(orders, offsets(orders, 2, 8))

    assert (after.n, after.epoch) == (3, 1)
    assert places(orders) == [place for place in ALL_ROWS if place[0] == 1 or place[1] < 2]
    assert letters(orders) == [(0, 1, 1), (1, 1, 1), (1, 5, 2)]
    assert orders.run().read == 6
    assert places(orders) == ALL_ROWS
    assert letters(orders) == [(0, 1, 1), (0, 5, 4), (1, 1, 1), (1, 5, 2)]
    assert_clean(orders)


def test_forward_reset_skips_what_lies_between(shop: MakeShop) -> None:
    """What lies between is skipped, nothing that was landed goes."""
    orders = landed_in_two_partitions(shop)
    send(orders, {0: [order(n) for n in range(8, 12)]})

    reset(orders, "latest")
    send(orders, {0: [order(12)]})

    assert orders.run().read == 1
    assert places(orders) == sorted([*ALL_ROWS, (0, 12)])
    assert_clean(orders)


def test_reset_is_recorded_in_ledger(shop: MakeShop) -> None:
    """Who, why, from where and what went stands in the ledger, one batch above the last."""
    orders = landed_in_two_partitions(shop)

    reset(orders, "earliest")

    batch = history(orders.project, orders.pipeline)[-1]
    assert (batch.kind, batch.n, batch.reason, batch.started_by) == ("reset", 3, "a test", "cli:tester@here")
    assert {(removed.table, removed.partition, removed.start) for removed in batch.removed} >= {
        ("shop.orders", 0, 0),
        ("shop.orders", 1, 0),
    }
    assert position(orders).topics[orders.topic].next == (0, 0)


def test_reset_preview_changes_nothing(shop: MakeShop) -> None:
    """Planning a reset shows moves and what would go, and commits nothing."""
    orders = landed_in_two_partitions(shop)
    before = [orders.snapshots(table) for table in ("shop.orders", "shop.orders__dead_letters", "shop.orders__ledger")]

    planned = plan_reset(scope(orders), ResetOrder(parse_target("earliest")))

    assert [(move.partition, move.before, move.after, move.distance) for move in planned.moves] == [
        (0, 8, 0, -8),
        (1, 8, 0, -8),
    ]
    assert count_removed(scope(orders), planned) == RemovalCounts({ORDERS: 12}, 4)
    assert before == [
        orders.snapshots(table) for table in ("shop.orders", "shop.orders__dead_letters", "shop.orders__ledger")
    ]


def test_allowed_duplicates_stay(shop: MakeShop) -> None:
    """On demand records land a second time beside their rows, told apart by their batch, and verify knows."""
    orders = landed_in_two_partitions(shop)

    reset(orders, "earliest", allow_duplicates=True)
    orders.run()

    assert places(orders) == sorted([*ALL_ROWS, *ALL_ROWS])
    assert len(letters(orders)) == 8
    assert_clean(orders)


@pytest.mark.short("1", "3")
@pytest.mark.parametrize("partitions", [1, 2, 3])
def test_reset_to_recreated_topic_keeps_older_rows(shop: MakeShop, partitions: int) -> None:
    """Refused with the command; after it the rows of the old topic stay and those of the new one land beside them."""
    orders = landed_in_two_partitions(shop)
    recreate_topic(orders, partitions)
    send(orders, {0: [order(100), bad(101)]})
    with pytest.raises(Terminal, match="was recreated") as refused:
        orders.run()
    assert f"frazil reset orders --to earliest --topic {orders.topic}" in str(refused.value)

    reset(orders, "earliest", (orders.topic,))
    result = orders.run()

    assert (result.read, result.dead) == (2, 1)
    assert places(orders) == sorted([*ALL_ROWS, (0, 0)])
    assert len(letters(orders)) == 5
    assert_clean(orders)
    reset(orders, "earliest", (orders.topic,))  # back in the new one: the old rows are another topic's
    assert places(orders) == ALL_ROWS
    assert len(letters(orders)) == 4
    orders.run()
    assert places(orders) == sorted([*ALL_ROWS, (0, 0)])
    assert_clean(orders)


@pytest.mark.short("follow.committed")
@pytest.mark.parametrize("point", ["decide.committed", "follow.committed", "record.committing"])
def test_reset_between_two_follow_ups_leaves_no_half_batch(
    shop: MakeShop, at_failpoint: AtFailpoint, point: str
) -> None:
    """A batch that was decided is finished first, then the position moves."""
    orders = landed_in_two_partitions(shop)
    send(orders, {0: [order(8), bad(9)]})
    at_failpoint(point)
    with pytest.raises(Killed):
        orders.run()

    reset(orders, offsets(orders, 9, 8))

    assert [row["n"] for row in ledger(orders) if row["role"] == "destination"] == [0, 1, 2, 3, 4]
    assert letters(orders) == [(0, 1, 1), (0, 5, 2), (1, 1, 1), (1, 5, 2)]
    orders.run()
    assert letters(orders)[2] == (0, 9, 5)
    assert_clean(orders)


@pytest.mark.short("decide.committed")
@pytest.mark.parametrize("point", ["manifest.written", "decide.committed", "follow.committed", "record.committed"])
def test_killed_reset_is_undone_or_finished(shop: MakeShop, at_failpoint: AtFailpoint, point: str) -> None:
    """Before its decision it never was, after it whoever comes next finishes it."""
    orders = landed_in_two_partitions(shop)
    at_failpoint(point)
    with pytest.raises(Killed):
        reset(orders, offsets(orders, 2, 8))

    orders.run()

    assert places(orders) == ALL_ROWS
    assert position(orders).epoch == (0 if point == "manifest.written" else 1)
    assert_clean(orders)


def test_one_of_two_resets_at_once_is_refused(shop: MakeShop, at_failpoint: AtFailpoint) -> None:
    """The slower one is refused: what it showed is not what it would do any more."""
    orders = landed_in_two_partitions(shop)
    at_failpoint("decide.committing", lambda: reset(orders, "latest"))

    with pytest.raises(Retryable, match="nothing was reset"):
        reset(orders, "earliest")

    assert (position(orders).epoch, places(orders)) == (1, ALL_ROWS)
    assert_clean(orders)


def test_run_with_plan_from_before_reset_ends(shop: MakeShop, at_failpoint: AtFailpoint) -> None:
    """A run whose position is reset under it ends with a clear message and lands nothing of its plan."""
    orders = landed_in_two_partitions(shop)
    send(orders, {0: [order(8)]})
    at_failpoint("staged", lambda: reset(orders, "latest"))

    with pytest.raises(Retryable, match="reset"):
        orders.run()

    assert places(orders) == ALL_ROWS
    assert orders.run().batches == 0
    assert_clean(orders)
