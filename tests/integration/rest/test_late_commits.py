"""A commit that hangs on its way and is carried out when nobody expects it any more."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from frazil.errors import OutcomeUnknown
from tests.fault_proxy import Forward, HeldRequest, Reply, after
from tests.integration.rest.conftest import LEDGER, LETTERS, ORDERS, RestShop, path_of, then_silence

LANDED, REFUSED = 200, 409
"""What the server says to the late commit."""

commits = pytest.mark.parametrize(
    "table",
    [
        pytest.param(ORDERS, id="deciding"),
        pytest.param(LETTERS, id="follower's", marks=pytest.mark.full),
        pytest.param(LEDGER, id="ledger's"),
    ],
)


@commits
def test_late_commit_is_found(begun: RestShop, held: HeldRequest, table: str) -> None:
    """It lands after the 504 and before the run reads the table again: found, not repeated."""
    begun.produce(0, 10)

    def step(forward: Forward, reply: Reply) -> None:
        begun.proxy.script("GET", path_of(table), after(lambda: statuses.append(held.release())))
        held(forward, reply)

    statuses: list[int] = []
    begun.proxy.script("POST", path_of(table), step)

    begun.run()

    assert (statuses, begun.proxy.unused) == ([LANDED], 0)
    begun.assert_exactly_once(orders=10, rounds=1)


@commits
def test_late_commit_does_not_land_beside_its_repetition(begun: RestShop, held: HeldRequest, table: str) -> None:
    """It lands after the run read the table again and before the second attempt arrives: only the first counts."""
    begun.produce(0, 10)
    statuses: list[int] = []
    begun.proxy.script("POST", path_of(table), held, after(lambda: statuses.append(held.release())))

    begun.run()

    assert (statuses, begun.proxy.unused) == ([LANDED], 0)
    begun.assert_exactly_once(orders=10, rounds=1)


@commits
def test_late_commit_does_not_land_on_its_repetition(begun: RestShop, held: HeldRequest, table: str) -> None:
    """It arrives when the second attempt has landed and the run is over: the catalog refuses it."""
    begun.produce(0, 10)
    begun.proxy.script("POST", path_of(table), held)
    begun.run()

    assert held.release() == REFUSED

    begun.assert_exactly_once(orders=10, rounds=1)


def lose_sight_of(held: HeldRequest, shop: RestShop, table: str) -> None:
    """A run whose commit hangs and that ends without knowing; more records arrive afterwards."""
    shop.produce(0, 10)
    shop.proxy.script("POST", path_of(table), then_silence(shop.proxy, table, held))
    with pytest.raises(OutcomeUnknown, match=f"a commit to table {table} was sent"):
        shop.run()
    shop.produce(10, 15)


@commits
def test_late_commit_before_next_run_is_not_repeated(begun: RestShop, held: HeldRequest, table: str) -> None:
    """It lands between two runs: the next one rolls it forward and reads on from there."""
    lose_sight_of(held, begun, table)

    assert held.release() == LANDED
    begun.run()

    begun.assert_exactly_once(orders=15, rounds=2)


@commits
def test_late_commit_does_not_land_beside_recovery(begun: RestShop, held: HeldRequest, table: str) -> None:
    """It lands when the next run has planned and staged, just before that run's commit: the run gives way."""
    lose_sight_of(held, begun, table)
    statuses: list[int] = []
    begun.proxy.script("POST", path_of(table), after(lambda: statuses.append(held.release())))

    begun.run()

    assert (statuses, begun.proxy.unused) == ([LANDED], 0)
    begun.assert_exactly_once(orders=15, rounds=2)


@commits
def test_late_commit_does_not_land_on_recovery(begun: RestShop, held: HeldRequest, table: str) -> None:
    """It arrives when the next run has landed the same records: the catalog refuses it, and the table stays readable."""
    lose_sight_of(held, begun, table)
    begun.run()

    assert held.release() == REFUSED

    begun.assert_exactly_once(orders=15, rounds=2)


@commits
def test_late_commit_does_not_land_on_table_changed_by_others(begun: RestShop, held: HeldRequest, table: str) -> None:
    """A stranger's commit after the 504 moves the head: the late commit is refused, its repetition lands."""
    begun.produce(0, 10)
    statuses: list[int] = []

    def stranger() -> None:
        with begun.server.lake().load_table(table).transaction() as transaction:
            transaction.append(begun.server.lake().load_table(table).scan(limit=0).to_arrow())
        statuses.append(held.release())

    begun.proxy.script("POST", path_of(table), held, after(stranger))

    begun.run()

    assert (statuses, begun.proxy.unused) == ([REFUSED], 0)
    begun.assert_exactly_once(orders=10, rounds=1)


@pytest.mark.parametrize("late", [True, False], ids=["lands", "never lands"])
def test_latest_is_resolved_once(rest_shop: Callable[..., RestShop], held: HeldRequest, late: bool) -> None:
    """The very first commit, of `start: latest`, is late: if it lands, its start counts, and nothing after it is missing."""
    shop = rest_shop(start="latest")
    shop.produce(0, 7)
    shop.proxy.script("POST", path_of(ORDERS), then_silence(shop.proxy, ORDERS, held))
    with pytest.raises(OutcomeUnknown):
        shop.run()
    shop.shop.produce_orders(range(7, 12))
    if late:
        shop.proxy.script("POST", path_of(ORDERS), after(held.release))

    shop.run()

    assert shop.proxy.unused == 0
    shop.shop.produce_orders(range(12, 15))
    shop.run()
    assert sorted(row["id"] for row in shop.rows(ORDERS)) == list(range(7 if late else 12, 15))
