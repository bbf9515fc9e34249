"""A run that stays, when something fails, is half written, or asks it to stop: what is trying again, and what ends it."""

from __future__ import annotations

import signal
from collections import Counter
from typing import Any

import pytest

from frazil import shutdown
from frazil.batch.plan import RunPlan
from frazil.error_codes import INTERNAL
from frazil.errors import Retryable, Stopped, Terminal
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.project import Project
from frazil.run.batches import session as sessions
from frazil.run.batches.plan import plan_run
from frazil.run.batches.session import inline_lander, run_session, run_session_with_jobs
from tests.integration.conftest import environment
from tests.integration.run.staying import Clock, MakeShop, landing, session, staying
from tests.servers import delete_topic


def test_temporary_batch_failure_does_not_end_session(
    shop: MakeShop, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What passes is trying again, planned anew; what does not pass ends the run with its own words."""
    monkeypatch.setattr(sessions, "PAUSES_SECONDS", (0.1, 0.1))
    orders, lines = staying(shop()), list[str]()
    orders.produce_orders(range(5))
    failures = [INTERNAL.retryable("no broker"), INTERNAL.retryable("no catalog")]
    land = inline_lander(lines.append)

    def failing(project: Project, pipeline: Pipeline, plan: RunPlan) -> bool:
        if failures:
            raise failures.pop()
        clock.end()
        return land(project, pipeline, plan)

    with session(orders, clock, lines) as stay:
        assert run_session(stay, failing) is None
    assert orders.ids() == list(range(5))
    assert [line for line in lines if "trying again" in line] == [
        "trying again in 0 s: no catalog",
        "trying again in 0 s: no broker",
    ]

    orders.produce_orders(range(5, 9))
    failures += [INTERNAL.retryable("no broker")] * 3
    with session(orders, clock, lines) as stay, pytest.raises(Retryable, match="no broker"):
        run_session(stay, failing)


def test_missing_topic_ends_session(shop: MakeShop, clock: Clock) -> None:
    """A look that finds no topic leads to a plan, which refuses in full, as it does in every run."""
    orders = staying(shop())
    orders.produce_orders(range(5))
    with session(orders, clock) as stay, pytest.raises(Terminal, match=orders.topic):
        run_session(stay, landing({1: lambda: delete_topic(orders.cluster, orders.topic)}))
    assert orders.ids() == list(range(5))


def test_half_written_file_does_not_end_session(shop: MakeShop, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """What can't be read is looked at again, and counts once it can; what stays so fails the run, in its words."""
    monkeypatch.setattr(sessions, "PAUSES_SECONDS", (0.1, 0.1))
    orders, lines = staying(shop()), list[str]()
    file = orders.project.pipelines_folder / "orders.yaml"
    text = file.read_text()
    orders.produce_orders(range(5))

    def breaks() -> None:
        file.write_text(text[:30])
        orders.produce_orders(range(5, 9))

    class Mends(list[str]):
        def append(self, line: str) -> None:
            lines.append(line)
            if "trying again" in line:
                file.write_text(text)

    with session(orders, clock, Mends()) as stay:
        assert run_session(stay, landing({1: breaks, 2: clock.end})) is None
    assert orders.ids() == list(range(9))
    assert sum("files changed" in line for line in lines) == 1

    with session(orders, clock) as stay:
        file.unlink()
        with pytest.raises(Retryable, match="files changed: no pipeline is named 'orders'"):
            run_session(stay, landing({}))


def test_stop_during_planning_does_not_start_spark(
    shop: MakeShop, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan that is for a job is not handed over by a session that was asked to stop meanwhile."""
    orders = staying(shop(), engine="spark")
    orders.produce_orders(range(5))

    def planned(*arguments: Any) -> Any:
        signal.raise_signal(signal.SIGTERM)
        return plan_run(*arguments)

    monkeypatch.setattr(sessions, "plan_run", planned)
    with session(orders, clock) as stay, pytest.raises(Stopped, match="between two batches"):
        run_session(stay, inline_lander(print))


@pytest.mark.parametrize("error", [None, INTERNAL.retryable("the JVM is gone")])
def test_stop_of_job_ends_its_session(shop: MakeShop, monkeypatch: pytest.MonkeyPatch, error: Retryable | None) -> None:
    """Whatever a job ended with that was asked to stop, `frazil run --stay` waits for no further records and starts no other."""
    from typer.testing import CliRunner

    from frazil.cli.app import app

    orders, jobs = staying(shop(), engine="spark"), Counter[str]()
    orders.produce_orders(range(5))
    for name, value in environment(orders.project).items():
        monkeypatch.setenv(name, value)

    def job(*_: object) -> None:
        jobs["started"] += 1
        with shutdown.handled(print):
            signal.raise_signal(signal.SIGTERM)
        if error is not None:
            raise error

    monkeypatch.setattr("frazil.spark.submit.submission.run_spark", job)

    done = CliRunner().invoke(app, ["run", "orders", "--stay", "5s"])

    assert isinstance(done.exception, Stopped), done.output
    assert jobs["started"] == 1


def test_failures_of_jobs_with_progress_between_do_not_add_up(
    shop: MakeShop, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that failed is followed by another, as often as there is something landed between; without, a few times."""
    monkeypatch.setattr(sessions, "PAUSES_SECONDS", (0.1, 0.1))
    orders, land, jobs = staying(shop(), engine="spark"), inline_lander(print), list[RunPlan]()
    orders.produce_orders(range(5))

    def dies(plan: RunPlan) -> None:
        jobs.append(plan)
        if len(jobs) <= 4:
            land(stay.project, stay.pipeline.model_copy(update={"engine": "inline"}), plan)
            orders.produce_orders(range(5 * len(jobs), 5 * len(jobs) + 5))
        raise INTERNAL.retryable("the JVM is gone")

    with session(orders, clock) as stay, pytest.raises(Retryable, match="JVM"):
        run_session_with_jobs(stay, land, dies)

    assert orders.ids() == list(range(20))
    assert len(jobs) == 4 + 3


def test_session_in_job_ends_at_first_spark_failure(shop: MakeShop, clock: Clock) -> None:
    """In a job a batch that fails ends the session at once: whoever waits for it starts another job."""
    orders, lines = staying(shop()), list[str]()
    orders.produce_orders(range(5))

    def fails(*_: object) -> bool:
        raise INTERNAL.retryable("Spark could not land its part")

    with session(orders, clock, lines, in_job=True) as stay, pytest.raises(Retryable, match="its part"):
        run_session(stay, fails)
    assert not any("trying again" in line for line in lines)
