"""The count that must come out even, after batches that were read again: what they left out counts once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from frazil.report.reconcile import reconcile
from tests.fan_out import ROUTE, fanned_out, file_of, fill
from tests.operations import ORDERS, drop, landed_in_two_partitions, offsets, repair, replay, reset, roll_back, to_table

MakeShop = Callable[..., Any]
FILTERING = ROUTE.rstrip() + "\n      otherwise: filter\n"


def counted(shop: Any) -> list[tuple[int, int]]:
    """Per destination: what is missing, and what nobody can tell."""
    return [(of.difference, of.unsure) for of in reconcile(shop.project, shop.pipeline)]


@pytest.fixture
def filled(shop: MakeShop) -> Any:
    """Three destinations, two batches of ten records each; some are meant for none, which is counted."""
    orders = fanned_out(shop)
    orders = orders.with_pipeline(file_of(orders, route=FILTERING))
    for first in (0, 10):
        fill(orders, range(first, first + 10))
        orders.run()
    assert counted(orders) == [(0, 0)] * 3
    return orders


def test_replay_or_reset_counts_omissions_once(filled: Any) -> None:
    """What whole batches left out is counted by the batch that stands, wherever the others were."""
    reset(filled, offsets(filled, 10))
    filled.run()
    assert counted(filled) == [(0, 0)] * 3
    replay(filled, "earliest")
    assert counted(filled) == [(0, 0)] * 3
    reset(filled, "earliest")
    assert [lost for lost, _ in counted(filled)] == [20] * 3
    filled.run()
    assert counted(filled) == [(0, 0)] * 3


def test_partial_replay_bounds_omissions_of_first_batch(filled: Any) -> None:
    """The ledger does not say which records of the first batch were left out: at most so many, and a lost row shows beyond."""
    replay(filled, offsets(filled, 3), offsets(filled, 5))

    found = reconcile(filled.project, filled.pipeline)
    assert [of.difference for of in found] == [0, 0, 0]
    assert all(0 < of.unsure <= 8 for of in found)
    assert all(f"left out {of.unsure} at most" in str(of) for of in found)
    roll_back(filled, "shop.audit", by=3)
    repair(filled, "shop.audit", replays=False)
    assert reconcile(filled.project, filled.pipeline)[2].difference > 0


def test_rewind_counts_omissions_once(shop: MakeShop) -> None:
    """One destination, whose tombstones are left out: rolled back, and landed again."""
    orders = landed_in_two_partitions(shop)
    text = (orders.project.pipelines_folder / "orders.yaml").read_text()
    orders = orders.with_pipeline(f"{text}value: {{null_value: filter}}\n")
    orders.produce([None, None])
    orders.run()
    assert counted(orders) == [(0, 0)]
    roll_back(orders, ORDERS, by=2)
    to_table(orders)
    orders.run()
    assert counted(orders) == [(0, 0)]
    replay(orders, "earliest")
    assert counted(orders) == [(0, 0)]


def test_abandoned_rows_show_in_counts(filled: Any) -> None:
    """A table that was dropped, and whose rows were given up, lacks them."""
    drop(filled, "shop.orders")
    repair(filled, "shop.orders", replays=False)

    assert [lost > 0 for lost, _ in counted(filled)] == [True, False, False]
