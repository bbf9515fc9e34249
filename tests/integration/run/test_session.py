"""A run that stays, on a real broker and a real catalog: what lands when, what an idle tick costs, what ends it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from frazil.batch.plan import session_order
from frazil.batch.position import RunRequest
from frazil.iceberg.catalog.catalog import Lake
from frazil.kafka.admin.observe import observe
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.project import Project
from frazil.run.batches import session as sessions
from frazil.run.batches.plan import plan_run, run_result
from frazil.run.batches.session import Session, inline_lander, run_session
from tests.integration.conftest import environment
from tests.integration.run.staying import FILE, Clock, MakeShop, landing, session, staying


def test_records_during_session_land_at_its_ticks(shop: MakeShop, clock: Clock) -> None:
    """What comes while a session stays lands at its ticks, in batches of one run, and it knows through when all is in."""
    orders = staying(shop())
    orders.produce_orders(range(10))
    with session(orders, clock) as stay:
        actions: dict[int, Callable[[], object]] = {
            1: lambda: orders.produce_orders(range(10, 20)),
            2: lambda: orders.produce_orders(range(20, 30)),
            3: clock.end,
        }
        assert run_session(stay, landing(actions)) is None
        through = stay.end.complete_through

    assert orders.ids() == list(range(30))
    result = run_result(orders.project, orders.pipeline, "stays")
    assert (result.batches, result.written) == (3, 30)
    assert [batch.reason for batch in orders.history()] == ["a test"] * 3
    assert through is not None


def test_idle_ticks_do_not_read_catalog(shop: MakeShop, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as Kafka's ends do not move, a tick asks Kafka alone."""
    orders = staying(shop())
    orders.produce_orders(range(5))
    loads, find = Counter[str](), Lake.find_table

    def counting(lake: Lake, name: str) -> Any:
        loads[name] += 1
        return find(lake, name)

    monkeypatch.setattr(Lake, "find_table", counting)
    with session(orders, clock) as stay:
        looks, look = Counter[str](), sessions.log_ends

        def looked(*arguments: Any) -> Any:
            looks["ends"] += 1
            if looks["ends"] == 3:
                clock.end()
            return look(*arguments)

        monkeypatch.setattr(sessions, "log_ends", looked)
        assert run_session(stay, landing({1: loads.clear})) is None

        assert stay.plans == 1
        assert looks["ends"] == 3
    assert loads == {}
    assert orders.ids() == list(range(5))


def test_moved_position_is_noticed_by_idle_session(
    shop: MakeShop, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However still the topic is, a plan is made from time to time: it sees topics that came, and resets."""
    monkeypatch.setattr(sessions, "PLAN_EVERY", timedelta(seconds=1))
    orders = staying(shop())

    def planned(*arguments: Any) -> Any:
        if stay.plans == 3:
            clock.end()
        return plan_run(*arguments)

    monkeypatch.setattr(sessions, "plan_run", planned)
    with session(orders, clock) as stay:
        assert run_session(stay, landing({})) is None
        assert stay.plans == 3
        assert stay.end.complete_through is not None


def test_edited_file_counts_within_session(shop: MakeShop, clock: Clock) -> None:
    """A session takes up the file as it is now, also its engine; one in a job ends, for the waiting one to start another."""
    orders, lines = staying(shop()), list[str]()
    orders.produce_orders(range(5))

    def edit() -> None:
        text = FILE.format(topic=orders.topic, interval="1s", engine="inline")
        orders.with_pipeline(text.replace("name: string", "name: {type: string, from: alias}"))
        orders.produce_orders(range(5, 9))

    def move() -> None:
        staying(orders, engine="spark")
        orders.produce_orders(range(9, 12))

    with session(orders, clock, lines) as stay:
        waits = run_session(stay, landing({1: edit, 2: move}))
        assert waits is not None
        assert (waits.records, stay.pipeline.engine) == (3, "spark")

    names = {row["id"]: row["name"] for row in orders.rows()}
    assert names == {n: f"order {n}" if n < 5 else None for n in range(9)}
    assert "the new files are used from now on" in "\n".join(lines)

    orders = staying(orders)
    with session(orders, clock, lines, in_job=True) as stay:
        assert run_session(stay, landing({1: edit})) is None
    assert "the session ends here" in lines[-1]


def test_edit_while_session_begins_is_noticed(shop: MakeShop, clock: Clock) -> None:
    """Files that change as soon as they were read are read again at the first tick."""
    orders = staying(shop())

    def load() -> tuple[Project, Pipeline]:
        project = Project.load(environment(orders.project))
        pair = project, project.pipeline("orders")
        staying(orders, interval="2s")
        return pair

    now = datetime.now(UTC)
    order = session_order("orders", RunRequest("stays"), now, now + timedelta(seconds=1))
    stay = Session(order, load, print, clock)
    assert stay.pipeline.interval == "1s"
    assert run_session(stay, landing({})) is None
    assert stay.pipeline.interval == "2s"


def test_session_without_spark_hands_its_records_over(shop: MakeShop, clock: Clock) -> None:
    """Without records no engine is asked for; the first ones are handed over with the session's end, and `auto` keeps the rest."""
    orders = staying(shop(), engine="spark")
    with session(orders, clock, seconds=1) as stay:
        assert run_session(stay, inline_lander(print)) is None
    orders.produce_orders(range(5))
    with session(orders, clock) as stay:
        plan = run_session(stay, inline_lander(print))
        assert plan is not None
        assert (plan.records, plan.until) == (5, stay.order.until)

    orders = staying(orders, engine="auto")
    with session(orders, clock, seconds=1) as stay:
        assert run_session(stay, inline_lander(print)) is None
    assert orders.ids() == list(range(5))


def test_session_in_terminal_lands_records(shop: MakeShop, monkeypatch: pytest.MonkeyPatch) -> None:
    """`frazil run --stay` lands at every tick of the interval, tells a line per batch, and ends with the run's figures."""
    from typer.testing import CliRunner

    from frazil.cli.app import app

    orders = staying(shop())
    orders.produce_orders(range(7))
    for name, value in environment(orders.project).items():
        monkeypatch.setenv(name, value)

    done = CliRunner().invoke(app, ["run", "orders", "--stay", "2s"])

    assert done.exit_code == 0, done.output
    assert "batch 1: finished" in done.stderr
    assert "1 batch, 7 read = 7 written" in done.stdout
    assert orders.ids() == list(range(7))
    assert observe(orders.cluster, [orders.topic]).topics
    refused = CliRunner().invoke(app, ["run", "orders", "--stay", "soon"])
    assert refused.exit_code != 0
