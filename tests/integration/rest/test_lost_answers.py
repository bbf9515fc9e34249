"""Answers of the catalog that are lost or wrong, on each commit of a batch: everything lands exactly once."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event

import pytest

from frazil.errors import OutcomeUnknown, Retryable
from frazil.iceberg.catalog.rest import ANSWER
from tests.fault_proxy import Step, hung, lost, refused
from tests.integration.rest.conftest import LEDGER, LETTERS, ORDERS, RestShop, path_of, then_silence

COMMITS = (ORDERS, LETTERS, LEDGER)
"""The deciding commit, the follower's and the ledger's."""

FAULTS: dict[str, tuple[Step, ...]] = {
    "landed, 500": (lost(500),),
    "landed, 502": (lost(502),),
    "landed, 504": (lost(504),),
    "landed, 409": (lost(409),),
    "landed, connection breaks": (lost(None),),
    "never arrived, 409": (refused(409),),
    "never arrived, 429": (refused(429),),
    "never arrived, 503": (refused(503),),
    "never arrived, connection breaks": (refused(None),),
    # PyIceberg gives up here, and would delete what it wrote for a commit that it takes for refused.
    "landed behind the last of five 409": (*[refused(409)] * 4, lost(409)),
}


AKIN = ("landed, 502", "landed, 504", "never arrived, 429", "never arrived, connection breaks")
"""Answers that take the same way as another one."""


@pytest.mark.parametrize(
    "fault", [pytest.param(name, marks=pytest.mark.full) if name in AKIN else name for name in FAULTS]
)
def test_lost_answer_neither_doubles_nor_loses_records(begun: RestShop, fault: str) -> None:
    """The run itself finds out what became of its commit, whichever of the batch's commits is struck."""
    for number, table in enumerate(COMMITS):
        begun.produce(10 * number, 10 * number + 10)
        begun.proxy.script("POST", path_of(table), *FAULTS[fault])

        result = begun.run()

        assert (result.written, begun.proxy.unused) == (10, 0)
    begun.assert_exactly_once(orders=30, rounds=3)


@pytest.mark.short("broken", "never arrived")
@pytest.mark.parametrize("fault", [lost(504), lost(None), refused(503)], ids=["504", "broken", "never arrived"])
def test_silent_catalog_after_commit_leaves_outcome_unknown_until_next_run(begun: RestShop, fault: Step) -> None:
    """With no answer and no way to read the table the run says that it does not know; the next one finds out."""
    for number, table in enumerate(COMMITS):
        begun.produce(10 * number, 10 * number + 10)
        begun.proxy.script("POST", path_of(table), then_silence(begun.proxy, table, fault))
        with pytest.raises(OutcomeUnknown, match=f"a commit to table {table} was sent and the table can't be read"):
            begun.run()
        assert begun.proxy.unused == 0

        begun.run()
    begun.assert_exactly_once(orders=30, rounds=3)


@pytest.mark.parametrize("carried_out", [True, False], ids=["landed", "never arrived"])
def test_hanging_commit_ends_at_time_limit(rest_shop: Callable[..., RestShop], carried_out: bool) -> None:
    """A commit without any answer ends at the time limit, and the table says what became of it."""
    shop = rest_shop(properties={ANSWER: "4000"})
    shop.run()
    shop.produce(0, 10)
    over = Event()
    shop.proxy.script("POST", path_of(ORDERS), hung(over, carried_out=carried_out))
    try:
        shop.run()
    finally:
        over.set()

    assert shop.proxy.unused == 0
    shop.assert_exactly_once(orders=10, rounds=1)


@pytest.mark.parametrize(
    ("fault", "times"),
    [(lost(500), 6), (lost(504), 6), (lost(409), 3), (lost(None), 3)],
    ids=["500", "504", "409", "broken"],
)
def test_lost_answer_to_new_table_does_not_stop_pipeline(
    rest_shop: Callable[..., RestShop], fault: Step, times: int
) -> None:
    """A table that was made although the answer said otherwise is found by the same run or the next one."""
    shop = rest_shop()
    shop.produce(0, 10)
    shop.proxy.script("POST", "/namespaces/shop/tables", *[fault] * times)

    finished = [runs(shop) for _ in range(4)]

    assert finished[-1]
    assert shop.proxy.unused == 0
    shop.assert_exactly_once(orders=10, rounds=1)


@pytest.mark.parametrize("fault", [lost(500), refused(500)], ids=["made", "not made"])
def test_server_that_fails_once_over_new_table_does_not_fail_run(
    rest_shop: Callable[..., RestShop], fault: Step
) -> None:
    """Servers do when two ask at the same moment: the run asks again, and takes the table if it is there."""
    shop = rest_shop()
    shop.produce(0, 10)
    shop.proxy.script("POST", "/namespaces/shop/tables", fault)

    shop.run()

    assert shop.proxy.unused == 0
    shop.assert_exactly_once(orders=10, rounds=1)


def runs(shop: RestShop) -> bool:
    """Whether a run comes to its end; one that doesn't says that another may."""
    try:
        shop.run()
    except Retryable:
        return False
    return True
