"""A look at a reset: it shows what would be done, and leaves everything as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from frazil.batch.position import parse_target
from frazil.errors import Terminal
from frazil.run.repair.reset import plan_reset, preview_reset
from frazil.run.repair.reset_batch import RemovalCounts, ResetOrder, count_removed
from tests.compaction import configure
from tests.operations import (
    LEDGER,
    LETTERS,
    ORDERS,
    TABLES,
    Killed,
    assert_clean,
    bad,
    drop,
    landed,
    letters,
    order,
    places,
    reset,
    roll_back,
    scope,
    send,
    state,
    to_table,
)

MakeShop = Callable[..., Any]
AtFailpoint = Callable[..., Any]

EARLIEST = ResetOrder(parse_target("earliest"))


@pytest.mark.parametrize("lost", [(ORDERS,), (ORDERS, LETTERS), (ORDERS, LEDGER)])
def test_reset_preview_creates_no_lost_tables(shop: MakeShop, lost: tuple[str, ...]) -> None:
    """It shows what a reset would do, and the catalog is as it was."""
    orders = landed(shop, 2)
    for table in lost:
        drop(orders, table)
    before = state(orders)

    preview = preview_reset(scope(orders), EARLIEST)

    assert state(orders) == before
    assert {name: topic.next for name, topic in preview.after.topics.items()} == {orders.topic: (0,)}
    assert "the rows of all topics are gone" in preview.remarks[0]
    assert plan_reset(scope(orders), preview.with_fixed_offsets).has_same_effect(preview)


def test_rewind_preview_changes_nothing(shop: MakeShop) -> None:
    """It shows how far the position goes back with the table; a reset to elsewhere is refused until it did."""
    orders = landed(shop, 2)
    roll_back(orders, ORDERS)
    before = state(orders)

    preview = preview_reset(scope(orders), ResetOrder(None))
    with pytest.raises(Terminal, match="was rolled back"):
        preview_reset(scope(orders), EARLIEST)

    assert state(orders) == before
    assert "continues from batch 1; the pipeline was at batch 2" in preview.remarks[0]
    assert [(move.before, move.after) for move in preview.moves] == [(8, 4)]
    assert count_removed(scope(orders), preview) == RemovalCounts({}, 2)
    assert to_table(orders).n == preview.after.n
    assert orders.run().read == 4
    again = preview_reset(scope(orders), ResetOrder(None))
    assert (again.is_idle, again.moves) == (True, ())
    assert_clean(orders)


def test_rewind_of_a_compacted_topic_gives_up_what_may_be_gone(shop: MakeShop) -> None:
    """Nobody knows what compaction took, so dead letters stay; whoever wants what Kafka has lets records stand twice."""
    orders = landed(shop, 2)
    roll_back(orders, ORDERS)
    configure(orders.cluster, orders.topic, {"cleanup.policy": "compact,delete"})

    preview = preview_reset(scope(orders), ResetOrder(None))
    again = preview_reset(scope(orders), ResetOrder(None, allow_duplicates=True))

    assert ([(skipped.start, skipped.end) for skipped in preview.skipped], preview.moves) == ([(4, 8)], ())
    assert count_removed(scope(orders), preview) == RemovalCounts({}, 0)
    assert [(move.before, move.after) for move in again.moves] == [(8, 4)]


def test_reset_preview_does_not_finish_batch(shop: MakeShop, at_failpoint: AtFailpoint) -> None:
    """A decided batch counts as landed, and stays for the reset to finish."""
    orders = landed(shop, 2)
    send(orders, {0: [order(8), bad(9)]})
    at_failpoint("decide.committed")
    with pytest.raises(Killed):
        orders.run()
    before = state(orders)

    preview = preview_reset(scope(orders), EARLIEST)

    assert state(orders) == before
    assert "batch 3 is decided and not finished" in preview.remarks[0]
    assert [(move.before, move.after) for move in preview.moves] == [(10, 0)]
    assert plan_reset(scope(orders), preview.with_fixed_offsets).has_same_effect(preview)
    assert places(orders) == [(0, o) for o in range(0, 10, 2)]
    assert [(p, o) for p, o, _ in letters(orders)] == [(0, o) for o in range(1, 10, 2)]


def test_refused_reset_of_new_pipeline_creates_no_tables(shop: MakeShop) -> None:
    """A pipeline that never ran has nothing to move, and gets no tables by asking."""
    orders = shop()

    with pytest.raises(Terminal, match="never ran"):
        reset(orders, "earliest")

    assert state(orders) == dict.fromkeys(TABLES)


def test_reset_to_latest_moves_to_previewed_end(shop: MakeShop) -> None:
    """What was shown for `latest` is what is done: records that came meanwhile are for the next run."""
    orders = landed(shop, 2)
    send(orders, {0: [order(8)]})
    shown = preview_reset(scope(orders), ResetOrder(parse_target("latest")))
    send(orders, {0: [order(9)]})

    planned = plan_reset(scope(orders), shown.with_fixed_offsets)

    assert planned.has_same_effect(shown)
    assert {name: topic.next for name, topic in planned.after.topics.items()} == {orders.topic: (9,)}
