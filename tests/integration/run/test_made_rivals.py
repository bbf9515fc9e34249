"""Tables that records name, and rivals that make some between two looks of a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from frazil.batch.plan import RunPlan
from frazil.batch.position import RunRequest
from frazil.errors import Terminal
from frazil.run.batches.plan import plan_run
from frazil.run.batches.session import ingest
from frazil.run.commit import commit_batch as looks
from frazil.run.repair import repair as repairs
from frazil.run.staging.stage import stage_inline
from frazil.verify import check
from tests import made as shops
from tests.made import auto_created, fill, ids, letters
from tests.operations import LEDGER, assert_clean, drop, reset, roll_back, scope


def plan_of(shop: Any) -> RunPlan:
    """What a run would read now."""
    planned = plan_run(shop.project, shop.pipeline, RunRequest(str(uuid4()))).plan
    assert planned is not None
    return planned


def land(shop: Any, plan: RunPlan) -> int:
    """Run a plan."""
    return ingest(shop.project, shop.pipeline, plan, stage_inline, lambda _: None)


def meanwhile(monkeypatch: pytest.MonkeyPatch, room: Any, deed: Callable[[], object]) -> None:
    """Do something, once, when a room is about to open its tables."""
    real, waiting = room.open_tables, [deed]

    def opened(*args: Any, **options: Any) -> Any:
        if waiting:
            waiting.pop()()
        return real(*args, **options)

    monkeypatch.setattr(room, "open_tables", opened)


@pytest.mark.parametrize("named", ["shop.a", "shop.b"])
def test_table_created_by_rival_is_recorded_and_filled(
    shop: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    """Its table stays told, whatever the slower run's batch names, and takes the rows of every later batch."""
    orders = shops.auto_creating(shop)
    fill(orders, (1, "shop.a"))
    orders.run()
    fill(orders, (2, "shop.b"))
    rivals = plan_of(orders)
    fill(orders, (3, named))
    slow = plan_of(orders)
    meanwhile(monkeypatch, looks, lambda: land(orders, rivals))
    assert land(orders, slow) == 1
    assert auto_created(orders) == ("shop.a", "shop.b")
    fill(orders, (4, "shop.b"))
    orders.run()
    rows = {"shop.a": [1], "shop.b": [2, 4]}
    assert ids(orders, ("shop.a", "shop.b")) == rows | {named: sorted([*rows[named], 3])}
    assert letters(orders) == []
    assert_clean(orders)


def test_table_created_by_rival_during_repair_is_recorded(
    shop: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The repair's batch tells of it, as the rival's did."""
    orders = shops.auto_creating(shop)
    fill(orders, (1, "shop.a"), (2, "shop.c"))
    orders.run()
    fill(orders, (3, "shop.b"))
    rivals = plan_of(orders)
    meanwhile(monkeypatch, repairs, lambda: (land(orders, rivals), drop(orders, "shop.c")))
    planned = repairs.plan_repair(scope(orders), "shop.c")
    assert set(planned.tables.destinations) == {"shop.a", "shop.b", "shop.c"}


def test_auto_created_table_survives_ledger_rollback(shop: Callable[..., Any]) -> None:
    """The table stays the pipeline's: the reset that the refusal advises takes its rows out, and they come again once."""
    orders = shops.auto_creating(shop)
    fill(orders, (1, "shop.a"))
    orders.run()
    before = orders.snapshots(LEDGER)
    fill(orders, (2, "shop.b"), (3, "shop.a"))
    orders.run()
    roll_back(orders, LEDGER, orders.snapshots(LEDGER) - before)
    with pytest.raises(Terminal, match="reset orders --to earliest"):
        orders.run()
    reset(orders, "earliest")
    assert ids(orders, ("shop.a", "shop.b")) == {"shop.a": [], "shop.b": []}
    orders.run()
    assert ids(orders, ("shop.a", "shop.b")) == {"shop.a": [1, 3], "shop.b": [2]}
    assert letters(orders) == []
    assert_clean(orders)


def test_table_created_during_verify_is_compared(shop: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows are compared with all others."""
    orders = shops.auto_creating(shop)
    fill(orders, (1, "shop.a"))
    orders.run()
    fill(orders, (2, "shop.b"), (3, "shop.a"))
    meanwhile(monkeypatch, check, orders.run)
    verification = check.verify(orders.project, orders.pipeline)
    assert verification.differences == ()
    assert sum(partition.rows for partition in verification.partitions) == 3
