"""A run that stays, on a real broker and a real catalog: what lands when, what an idle tick costs, what ends it."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from frazil import stopping
from frazil.batch.plan import RunPlan
from frazil.batch.request import RunRequest
from frazil.batch.session import session_order
from frazil.errors import Retryable, Stopped, Terminal
from frazil.iceberg.catalog import Lake
from frazil.kafka.observe import observe
from frazil.kafka.topics import delete_topic
from frazil.pipeline.model import Pipeline
from frazil.project import Project
from frazil.run import session as sessions
from frazil.run.inline_session import inline_lander
from frazil.run.plan import plan_run
from frazil.run.result import run_result
from frazil.run.session import Session, serve, stay
from tests.integration.conftest import Shop, environment

MakeShop = Callable[..., Any]

FILE = """
name: orders
source: {{topics: [{topic}]}}
interval: {interval}
session_for: 10m
engine: {engine}
destinations: [{{table: shop.orders, columns: {{id: long, name: string}}}}]
"""


def staying(made: Shop, interval: str = "1s", engine: str = "inline") -> Shop:
    return made.with_pipeline(FILE.format(topic=made.topic, interval=interval, engine=engine))


class Clock:
    """The time, until a test says that the session is over."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def __call__(self) -> datetime:
        """Tell it."""
        return datetime.now(UTC) + self.ahead

    def end(self) -> None:
        """All sessions are over."""
        self.ahead = timedelta(hours=1)


@pytest.fixture
def clock() -> Clock:
    """The clock of the test's sessions."""
    return Clock()


@contextmanager
def session(
    orders: Shop, clock: Clock, said: list[str] | None = None, seconds: float = 600, *, in_job: bool = False
) -> Iterator[Session]:
    """A session that ends when the clock says so, or after so many seconds."""
    clock.ahead = timedelta()

    def load() -> tuple[Project, Pipeline]:
        project = Project.load(environment(orders.project))
        return project, project.pipeline("orders")

    now = datetime.now(UTC)
    order = session_order("orders", RunRequest("stays", reason="a test"), now, now + timedelta(seconds=seconds))
    with Session(order, load, print if said is None else said.append, clock, in_job=in_job) as made:
        yield made


def landing(then: Mapping[int, Callable[[], object]]) -> sessions.Land:
    """Lands every plan in this process, and does something behind the n-th one."""
    land, times = inline_lander(print), Counter[str]()

    def landed(project: Project, pipeline: Pipeline, plan: RunPlan) -> bool:
        done = land(project, pipeline, plan)
        times["landed"] += 1
        then.get(times["landed"], lambda: None)()
        return done

    return landed


def test_records_wait_for_the_next_run(shop: MakeShop, clock: Clock) -> None:
    """What comes while a session stays lands at its ticks, in batches of one run, and it knows through when all is in."""
    orders = staying(shop())
    orders.produce_orders(range(10))
    with session(orders, clock) as made:
        then: dict[int, Callable[[], object]] = {
            1: lambda: orders.produce_orders(range(10, 20)),
            2: lambda: orders.produce_orders(range(20, 30)),
            3: clock.end,
        }
        assert stay(made, landing(then)) is None
        through = made.end.complete_through

    assert orders.ids() == list(range(30))
    result = run_result(orders.project, orders.pipeline, "stays")
    assert (result.batches, result.written) == (3, 30)
    assert [batch.reason for batch in orders.history()] == ["a test"] * 3
    assert through is not None


def test_idle_ticks_read_the_catalog(shop: MakeShop, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as Kafka's ends do not move, a tick asks Kafka alone, over one client."""
    orders = staying(shop())
    orders.produce_orders(range(5))
    loads, find = Counter[str](), Lake.find_table

    def counting(lake: Lake, name: str) -> Any:
        loads[name] += 1
        return find(lake, name)

    monkeypatch.setattr(Lake, "find_table", counting)
    with session(orders, clock) as made:
        looks, look = Counter[str](), made._log_ends.look

        def looked(*asked: Any) -> Any:
            looks["ends"] += 1
            if looks["ends"] == 3:
                clock.end()
            return look(*asked)

        monkeypatch.setattr(made._log_ends, "look", looked)
        assert stay(made, landing({1: loads.clear})) is None
        client = made._log_ends._asked

        assert made.plans == 1
        assert looks["ends"] == 3
        assert client is not None
    assert loads == {}
    assert orders.ids() == list(range(5))


def test_a_position_that_was_moved_is_never_seen(shop: MakeShop, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """However still the topic is, a plan is made from time to time: it sees topics that came, and resets."""
    monkeypatch.setattr(sessions, "PLAN_EVERY", timedelta(seconds=1))
    orders = staying(shop())

    def planned(*asked: Any) -> Any:
        if made.plans == 3:
            clock.end()
        return plan_run(*asked)

    monkeypatch.setattr(sessions, "plan_run", planned)
    with session(orders, clock) as made:
        assert stay(made, landing({})) is None
        assert made.plans == 3
        assert made.end.complete_through is not None


def test_a_batch_that_fails_for_a_moment_ends_the_session(
    shop: MakeShop, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What passes is tried again, planned anew; what does not pass ends the run with its own words."""
    monkeypatch.setattr(sessions, "PAUSES_SECONDS", (0.1, 0.1))
    orders, said = staying(shop()), list[str]()
    orders.produce_orders(range(5))
    failures = [Retryable("no broker"), Retryable("no catalog")]
    land = inline_lander(said.append)

    def failing(project: Project, pipeline: Pipeline, plan: RunPlan) -> bool:
        if failures:
            raise failures.pop()
        clock.end()
        return land(project, pipeline, plan)

    with session(orders, clock, said) as made:
        assert stay(made, failing) is None
    assert orders.ids() == list(range(5))
    assert [line for line in said if "tried again" in line] == [
        "tried again in 0 s: no catalog",
        "tried again in 0 s: no broker",
    ]

    orders.produce_orders(range(5, 9))
    failures += [Retryable("no broker")] * 3
    with session(orders, clock, said) as made, pytest.raises(Retryable, match="no broker"):
        stay(made, failing)


def test_a_topic_that_is_gone_is_waited_for(shop: MakeShop, clock: Clock) -> None:
    """A look that finds no topic leads to a plan, which refuses in full, as it does in every run."""
    orders = staying(shop())
    orders.produce_orders(range(5))
    with session(orders, clock) as made, pytest.raises(Terminal, match=orders.topic):
        stay(made, landing({1: lambda: delete_topic(orders.cluster, orders.topic)}))
    assert orders.ids() == list(range(5))


def test_an_edited_file_counts_from_the_next_run_on(shop: MakeShop, clock: Clock) -> None:
    """A session takes up the file as it is now, also its engine; one in a job ends, for the waiting one to start another."""
    orders, said = staying(shop()), list[str]()
    orders.produce_orders(range(5))

    def edit() -> None:
        text = FILE.format(topic=orders.topic, interval="1s", engine="inline")
        orders.with_pipeline(text.replace("name: string", "name: {type: string, from: alias}"))
        orders.produce_orders(range(5, 9))

    def move() -> None:
        staying(orders, engine="spark")
        orders.produce_orders(range(9, 12))

    with session(orders, clock, said) as made:
        waits = stay(made, landing({1: edit, 2: move}))
        assert waits is not None
        assert (waits.records, made.pipeline.engine) == (3, "spark")

    names = {row["id"]: row["name"] for row in orders.rows()}
    assert names == {n: f"order {n}" if n < 5 else None for n in range(9)}
    assert "from here on they count" in "\n".join(said)

    orders = staying(orders)
    with session(orders, clock, said, in_job=True) as made:
        assert stay(made, landing({1: edit})) is None
    assert "the session ends here" in said[-1]


def test_a_file_that_is_half_written_ends_the_session(
    shop: MakeShop, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What can't be read is looked at again, and counts once it can; what stays so fails the run, in its words."""
    monkeypatch.setattr(sessions, "PAUSES_SECONDS", (0.1, 0.1))
    orders, said = staying(shop()), list[str]()
    file = orders.project.pipelines_folder / "orders.yaml"
    text = file.read_text()
    orders.produce_orders(range(5))

    def breaks() -> None:
        file.write_text(text[:30])
        orders.produce_orders(range(5, 9))

    class Mends(list[str]):
        def append(self, line: str) -> None:
            said.append(line)
            if "tried again" in line:
                file.write_text(text)

    with session(orders, clock, Mends()) as made:
        assert stay(made, landing({1: breaks, 2: clock.end})) is None
    assert orders.ids() == list(range(9))
    assert sum("files changed" in line for line in said) == 1

    with session(orders, clock) as made:
        file.unlink()
        with pytest.raises(Retryable, match="files changed: no pipeline is named 'orders'"):
            stay(made, landing({}))


def test_an_edit_while_a_session_begins_is_never_seen(shop: MakeShop, clock: Clock) -> None:
    """Files that change as soon as they were read are read again at the first tick."""
    orders = staying(shop())

    def load() -> tuple[Project, Pipeline]:
        project = Project.load(environment(orders.project))
        staying(orders, interval="2s")
        return project, project.pipeline("orders")

    now = datetime.now(UTC)
    order = session_order("orders", RunRequest("stays"), now, now + timedelta(seconds=1))
    with Session(order, load, print, clock) as made:
        assert made.pipeline.interval == "1s"
        assert stay(made, landing({})) is None
        assert made.pipeline.interval == "2s"


def test_a_stop_while_it_plans_starts_spark(shop: MakeShop, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan that is for a job is not handed over by a session that was asked to stop meanwhile."""
    orders = staying(shop(), engine="spark")
    orders.produce_orders(range(5))

    def planned(*asked: Any) -> Any:
        signal.raise_signal(signal.SIGTERM)
        return plan_run(*asked)

    monkeypatch.setattr(sessions, "plan_run", planned)
    with session(orders, clock) as made, pytest.raises(Stopped, match="between two batches"):
        stay(made, inline_lander(print))


@pytest.mark.parametrize("error", [None, Retryable("the JVM is gone")])
def test_a_stop_ends_a_job_and_no_session(
    shop: MakeShop, monkeypatch: pytest.MonkeyPatch, error: Retryable | None
) -> None:
    """Whatever a job ended with that was asked to stop, `frazil run --stay` waits for no further records and starts no other."""
    from typer.testing import CliRunner

    from frazil.cli.app import app

    orders, jobs = staying(shop(), engine="spark"), Counter[str]()
    orders.produce_orders(range(5))
    for name, value in environment(orders.project).items():
        monkeypatch.setenv(name, value)

    def job(*_: object) -> None:
        jobs["started"] += 1
        with stopping.heeded(print):
            signal.raise_signal(signal.SIGTERM)
        if error is not None:
            raise error

    monkeypatch.setattr("frazil.spark.submit.run_spark", job)

    done = CliRunner().invoke(app, ["run", "orders", "--stay", "5s"])

    assert isinstance(done.exception, Stopped), done.output
    assert jobs["started"] == 1


def test_failures_of_jobs_add_up_over_a_day(shop: MakeShop, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that failed is followed by another, as often as there is something landed between; without, a few times."""
    monkeypatch.setattr(sessions, "PAUSES_SECONDS", (0.1, 0.1))
    orders, land, jobs = staying(shop(), engine="spark"), inline_lander(print), list[RunPlan]()
    orders.produce_orders(range(5))

    def dies(plan: RunPlan) -> None:
        jobs.append(plan)
        if len(jobs) <= 4:
            land(made.project, made.pipeline.model_copy(update={"engine": "inline"}), plan)
            orders.produce_orders(range(5 * len(jobs), 5 * len(jobs) + 5))
        raise Retryable("the JVM is gone")

    with session(orders, clock) as made, pytest.raises(Retryable, match="JVM"):
        serve(made, land, dies)

    assert orders.ids() == list(range(20))
    assert len(jobs) == 4 + 3


def test_a_job_asks_a_dead_spark_again_and_again(shop: MakeShop, clock: Clock) -> None:
    """In a job a batch that fails ends the session at once: whoever waits for it starts another job."""
    orders, said = staying(shop()), list[str]()
    orders.produce_orders(range(5))

    def fails(*_: object) -> bool:
        raise Retryable("Spark could not land its part")

    with session(orders, clock, said, in_job=True) as made, pytest.raises(Retryable, match="its part"):
        stay(made, fails)
    assert not any("tried again" in line for line in said)


def test_a_session_without_spark_does_its_work(shop: MakeShop, clock: Clock) -> None:
    """Without records no engine is asked for; the first ones are handed over with the session's end, and `auto` keeps the rest."""
    orders = staying(shop(), engine="spark")
    with session(orders, clock, seconds=1) as made:
        assert stay(made, inline_lander(print)) is None
    orders.produce_orders(range(5))
    with session(orders, clock) as made:
        plan = stay(made, inline_lander(print))
        assert plan is not None
        assert (plan.records, plan.until) == (5, made.order.until)

    orders = staying(orders, engine="auto")
    with session(orders, clock, seconds=1) as made:
        assert stay(made, inline_lander(print)) is None
    assert orders.ids() == list(range(5))


def test_a_session_in_a_terminal_lands_nothing(shop: MakeShop, monkeypatch: pytest.MonkeyPatch) -> None:
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
