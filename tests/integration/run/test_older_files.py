"""A deploy adds a destination while runs of the file of before go on: each record of a later batch has its row there."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from frazil.batch.position import RunRequest
from frazil.errors import Retryable
from frazil.run.batches.plan import plan_run
from frazil.run.batches.session import ingest
from frazil.run.commit.commit_batch import FILES_ARRIVE
from frazil.run.staging.stage import stage_inline
from tests.fan_out import TABLES, expected, fanned_out, file_of, fill, outcomes
from tests.integration.run.conftest import AtFailpoint
from tests.operations import assert_clean, ledger

MakeShop = Callable[..., Any]
ROUTE = "route: {static: {field: kind, tables: {shop.orders: order, shop.refunds: refund}}}"


def before(orders: Any) -> Any:
    """The shop with the file of before the deploy, which lacks the last destination."""
    return orders.with_pipeline(file_of(orders, TABLES[:2], ROUTE))


def deployed(shop: MakeShop) -> tuple[Any, Any]:
    """The shop by its file of before and by the one of after a deploy. Both have landed a batch."""
    old = before(fanned_out(shop))
    fill(old, range(7))
    old.run()
    new = old.with_pipeline(file_of(old))
    fill(new, range(7, 14))
    new.run()
    fill(new, range(14, 20))
    return old, new


def run_at(orders: Any, instant: datetime) -> None:
    """One run, by a clock that says so."""
    planned = plan_run(orders.project, orders.pipeline, RunRequest(str(uuid.uuid4())), clock=lambda: instant)
    assert planned.plan is not None
    ingest(orders.project, orders.pipeline, planned.plan, stage_inline, lambda _: None, lambda: instant)


def assert_audit_has_all_since(orders: Any, first: int) -> None:
    rows, _ = expected(range(20))
    assert outcomes(orders)[0]["shop.audit"] == [offset for offset in rows["shop.audit"] if offset >= first]


@pytest.mark.parametrize("point", ["planned", "staged"])
def test_run_planned_before_deploy_lands_nothing_after_it(
    shop: MakeShop, at_failpoint: AtFailpoint, point: str
) -> None:
    """Its batch is refused by the rival's; it does not try again without the new destination."""
    old = before(fanned_out(shop))
    fill(old, range(7))
    old.run()
    fill(old, range(7, 14))

    def deploy() -> None:
        new = old.with_pipeline(file_of(old))
        new.run()
        fill(new, range(14, 20))

    at_failpoint(point, deploy)
    with pytest.raises(
        Retryable, match=r"this run read a pipeline file with .*; the file was edited and has .*shop\.audit"
    ):
        old.run()

    new = old.with_pipeline(file_of(old))
    new.run()
    assert_audit_has_all_since(new, 7)
    assert_clean(new)


def test_host_whose_file_is_late_waits_for_it(shop: MakeShop) -> None:
    """A new process reads the file of before from a disk that the deploy has not reached."""
    old, _ = deployed(shop)
    with pytest.raises(Retryable, match=r"an edit of its file added table shop\.audit") as refused:
        before(old).run()

    assert "runs go on without it from" in str(refused.value.next_step)
    new = old.with_pipeline(file_of(old))
    new.run()
    assert_audit_has_all_since(new, 7)
    assert_clean(new)


def test_file_that_takes_a_new_destination_back_is_landed_in_the_end(shop: MakeShop) -> None:
    """A git revert waits as long as a file may be late, and goes on by itself, on record."""
    old, _ = deployed(shop)
    reverted = before(old)

    with pytest.raises(Retryable):
        reverted.run()
    run_at(reverted, datetime.now(UTC) + FILES_ARRIVE)

    assert [(row["n"], row["table"]) for row in ledger(reverted) if row["role"] == "left"] == [(3, "shop.audit")]
    assert reverted.run().batches == 0
    rows, _ = expected(range(20))
    assert outcomes(reverted)[0]["shop.orders"] == rows["shop.orders"]
    assert_clean(reverted)


def test_run_planned_before_deploy_does_not_restore_destination(shop: MakeShop) -> None:
    """A destination that a newer file took out gets no rows from a run that read the older one."""
    orders = fanned_out(shop)
    fill(orders, range(7))
    orders.run()
    fewer = before(orders)
    fill(fewer, range(7, 14))
    fewer.run()
    fill(fewer, range(14, 20))

    with pytest.raises(Retryable, match=r"the file was edited and has shop\.orders, shop\.refunds now"):
        orders.run()

    fewer.run()
    assert max(outcomes(orders)[0]["shop.audit"]) < 7
    assert_clean(fewer)
