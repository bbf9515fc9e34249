"""The whole way of a batch on a REST catalog."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from threading import Event, Thread, Timer
from typing import NoReturn

import pytest

from frazil.errors import Terminal
from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.commit import expiry
from frazil.maintain.need import Order
from frazil.maintain.run import maintain
from frazil.report.sql import query
from frazil.run.state.context import RunContext
from frazil.spark.submit import handover as handovers
from frazil.spark.submit.handover import Handover, Outcome, storage_of
from tests.integration.rest.conftest import LEDGER, LETTERS, ORDERS, RestShop
from tests.logs import hear

MakeShop = Callable[..., RestShop]


class Killed(BaseException):
    """Ends a run like a kill: nothing inside may catch it."""


def killer(phase: str) -> Callable[[str], None]:
    """A report that kills the run when a phase is told."""

    def report(line: str) -> None:
        if phase in line:
            raise Killed(phase)

    return report


def test_records_land_once_on_rest_catalog(rest_shop: MakeShop) -> None:
    """Rows, dead letters and ledger land as on a SQL catalog; a second run commits nothing."""
    shop = rest_shop(max_records=20)
    shop.produce(0, 30)

    result = shop.run()

    assert (result.read, result.written, result.dead) == (33, 30, 3)
    shop.assert_exactly_once(orders=30, rounds=1)


@pytest.mark.short("decided")
@pytest.mark.parametrize("phase", ["staging", "staged", "decided", "finished"])
def test_kill_between_steps_neither_loses_nor_doubles_records(rest_shop: MakeShop, phase: str) -> None:
    """Killed after any step, the next run carries on from what the REST catalog says."""
    shop = rest_shop()
    shop.produce(0, 30)
    with pytest.raises(Killed):
        shop.run(report=killer(phase))
    shop.produce(30, 40)

    shop.run()

    shop.assert_exactly_once(orders=40, rounds=2)


@pytest.mark.short("403", "501")
@pytest.mark.parametrize("status", [400, 403, 406, 500, 501])
def test_batches_land_where_service_refuses_expiry(
    begun: RestShop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    """Old snapshots stay, and the log says why and what to do; rows, dead letters and ledger land. Maintenance says it, too."""
    hear("frazil.iceberg.commit.commit", monkeypatch, caplog)
    monkeypatch.setattr(expiry, "RECENT", 2)
    for table in (ORDERS, LETTERS, LEDGER):
        begun.server.lake().set_property(table, "history.expire.min-snapshots-to-keep", "1")
    begun.proxy.refuse('"remove-snapshots"', status)
    for number in range(4):
        begun.produce(10 * number, 10 * number + 10)
        assert begun.run().written == 10

    log_lines = [record.getMessage() for record in caplog.records if "tried again without" in record.getMessage()]
    assert {line.split(":")[0] for line in log_lines} == {f"table {table}" for table in (ORDERS, LETTERS, LEDGER)}
    assert all("expiry: false" in line for line in log_lines)
    assert begun.snapshots(ORDERS) == 5
    begun.assert_exactly_once(orders=40, rounds=4)
    scope = RunContext.open(begun.shop.project, begun.shop.pipeline, print)
    result = maintain(scope, Order(steps=("expiry",), force=True), NoEngine(begun.server.lake()))
    assert [step.status for table in result.tables for step in table.steps] == ["failed"] * 3


@dataclass(frozen=True)
class NoEngine:
    """For steps that need none: it only sets properties."""

    lake: Lake

    def call(self, *arguments: object) -> NoReturn:
        """Fail the test."""
        raise AssertionError(arguments)

    listed = call

    def note(self, _: str, table: str, key: str, value: str) -> None:
        """Set a property of a table."""
        self.lake.set_property(table, key, value)


def test_sql_queries_work_on_rest_catalog(rest_shop: MakeShop) -> None:
    """`frazil sql` reads tables, lists them and reads what stands behind them, whatever the catalog's type."""
    shop = rest_shop()
    shop.produce(0, 5)
    shop.run()
    project = shop.shop.project

    assert query(project, "select sum(id) as total from shop.orders").to_pylist() == [{"total": 10}]
    assert query(project, "show tables")["name"].to_pylist() == [ORDERS, LETTERS, LEDGER]
    assert query(project, "select count(*) as n from shop.orders.snapshots").to_pylist() == [{"n": 2}]
    with pytest.raises(Terminal, match=r"no table shop\.order in catalog lake, did you mean shop\.orders\?"):
        query(project, "select 1 from shop.order")


def test_driver_and_who_waits_for_it_load_the_ledger_once_each(
    begun: RestShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often they look between two beats: a REST catalog says with a table how its storage is opened."""
    monkeypatch.setattr(handovers, "_LOOK_SECONDS", 0.02)
    monkeypatch.setattr(
        handovers, "scheme_of", lambda _: "s3"
    )  # the test's warehouse is a folder, which is just opened
    project, pipeline = begun.shop.project, begun.shop.pipeline
    order = Handover.begin(project, storage_of(project, pipeline), pipeline.name, "a run")
    order.hand_over("{}", outlives=True)
    at_work, ends = Event(), Event()

    def work() -> None:
        with order.heartbeats():
            at_work.set()
            ends.wait(10.0)
            order.write_outcome(Outcome(result="9"))

    driver = Thread(target=work)
    driver.start()
    assert at_work.wait(10.0)
    begun.proxy.seen.clear()
    Timer(1.0, ends.set).start()

    assert order.await_outcome() == Outcome(result="9")
    driver.join()
    assert [path for _, path in begun.proxy.seen].count(
        f"/v1/namespaces/shop/tables/{LEDGER[5:]}"
    ) == 2  # one leaves it
