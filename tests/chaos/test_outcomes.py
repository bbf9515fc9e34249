"""A job's outcome in storage, while tasks and drivers are killed: nothing is done twice, and nothing is lost."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from threading import Thread

import pytest

from frazil.batch.plan import RunPlan
from frazil.batch.position import RunRequest
from frazil.error_codes import INTERNAL
from frazil.errors import Retryable
from frazil.failpoints import VARIABLE, Failpoint
from frazil.project import Project
from frazil.run.batches.plan import plan_run
from frazil.run.batches.session import ingest
from frazil.run.staging.stage import stage_inline
from frazil.run.state.context import Report
from frazil.runtime.home import Home
from frazil.runtime.jars import fetch
from frazil.runtime.process import until
from frazil.spark.submit import handover as handovers
from frazil.spark.submit.configuration import SUBMITTER_VARIABLE
from frazil.spark.submit.handover import Handover, Outcome, storage_of
from frazil.spark.submit.submission import submission
from tests.chaos.lab import Lab
from tests.chaos.processes import SECONDS, Child, kill_at, stop_at
from tests.chaos.scenes import BATCH

MakeLab = Callable[..., Lab]
P = Failpoint

BEAT: float = 0.2
"""Seconds between two beats, for tests that wait for some."""


def hand_over(project: Project, report: Report, *, waits: bool = True) -> None:
    """A task: plans, leaves the order, and waits for a job elsewhere."""
    pipeline = project.pipeline("orders")
    plan = plan_run(project, pipeline, RunRequest("a run"), report).plan
    assert plan is not None
    handover = Handover.begin(project, storage_of(project, pipeline), "orders", plan.run)
    handover.hand_over(plan.to_json(), outlives=True)
    report(" ".join(handover.arguments))
    report(plan.to_json())
    while waits:
        time.sleep(1.0)


def drive(project: Project, report: Report, env: Mapping[str, str], argv: list[str], gate: Path | None = None) -> None:
    """A driver with everything but a JVM: it lands the plan of an order in its own process, once a gate is there."""
    from frazil.spark.jobs.driver import carry_out

    handovers.BEAT_SECONDS = BEAT
    os.environ |= env
    del project

    def work(project: Project, name: str, order: str) -> str:
        assert gate is None or until(gate.exists, SECONDS)
        return str(ingest(project, project.pipeline(name), RunPlan.from_json(order), stage_inline, report))

    report(f"exit code {carry_out('ingest', argv, work)}")


def lost_task(orders: Lab) -> tuple[list[str], str]:
    """Have a task hand a plan over, and kill it. Returns the arguments of its job, and the plan."""
    task = orders.start(hand_over)
    assert until(lambda: '"pipeline"' in task.output, SECONDS)
    *_, arguments, plan = task.output.splitlines()
    task.kill()
    return arguments.split(), plan


def driver(orders: Lab, argv: list[str], crash: str = "", gate: Path | None = None) -> Child:
    return orders.start(partial(drive, env=orders.env, argv=argv, gate=gate), crash)


def next_try(orders: Lab) -> Handover:
    return Handover.begin(orders.project, storage_of(orders.project, orders.pipeline), "orders", "a run")


@pytest.fixture
def orders(lab: MakeLab, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """Records of two batches, and beats that come soon."""
    monkeypatch.setattr(handovers, "_LOOK_SECONDS", BEAT / 2)
    monkeypatch.setattr(handovers, "_LOST_SECONDS", 20 * BEAT)
    first_lab = lab(max_records=BATCH)
    first_lab.run()
    first_lab.fill(0)
    first_lab.fill(100)
    return first_lab


def test_next_try_waits_for_the_job_of_a_killed_task(orders: Lab, tmp_path: Path) -> None:
    """The job goes on without its task; the next try takes its result, and starts nothing."""
    arguments, plan = lost_task(orders)
    job = driver(orders, arguments, gate=tmp_path / "gate")
    handover = next_try(orders)
    assert until(lambda: any("-beat.json" in file.name for file in metadata(orders)), SECONDS)
    outcomes: list[Outcome | None] = []
    waits = Thread(target=lambda: outcomes.append(handover.collect(plan)))
    waits.start()
    (tmp_path / "gate").touch()
    waits.join(SECONDS)

    assert [outcome.result for outcome in outcomes if outcome] == ["2"]
    assert "exit code 0" in job.succeed()
    assert handover.collect(plan) is None  # once
    orders.assert_clean()
    orders.assert_at_rest()


def test_second_driver_of_one_attempt_does_nothing(orders: Lab, tmp_path: Path) -> None:
    """Somebody's operator lost its job, and starts it again: it waits for the first one, and ends as that one does."""
    arguments, _ = lost_task(orders)
    first = driver(orders, arguments, gate=tmp_path / "gate")
    assert until(lambda: any("-beat.json" in file.name for file in metadata(orders)), SECONDS)
    second = driver(orders, arguments, crash=kill_at(P.STAGING))
    (tmp_path / "gate").touch()

    assert "exit code 0" in first.succeed()
    assert "exit code 0" in second.succeed()
    orders.assert_clean()


@pytest.mark.parametrize(
    "point",
    [
        P.STAGING,
        P.DECIDE_COMMITTED,
        *(pytest.param(point, marks=pytest.mark.full) for point in (P.STAGED, P.RECORD_COMMITTED)),
    ],
)
def test_job_killed_before_its_outcome_is_unknown(orders: Lab, point: Failpoint) -> None:
    """Nobody knows what it did but the tables: the next try asks them."""
    arguments, plan = lost_task(orders)
    driver(orders, arguments, crash=kill_at(point)).die()

    again = next_try(orders)
    assert again.collect(plan) is None
    again.hand_over(plan, outlives=True)
    with pytest.raises(Retryable, match="no outcome"):
        again.take_result(INTERNAL.retryable("no outcome"))
    assert "exit code 0" in driver(orders, again.arguments).succeed()

    assert again.take_result(INTERNAL.retryable("no outcome")) in ("1", "2")
    orders.assert_clean()
    orders.assert_at_rest()


def test_driver_that_slept_is_not_believed(orders: Lab) -> None:
    """It was taken for lost, and another attempt did its order: what it decides is refused, what it leaves is not read."""
    arguments, plan = lost_task(orders)
    asleep = driver(orders, arguments, crash=stop_at(P.AUDITED))
    asleep.pause()
    again = next_try(orders)
    assert again.collect(plan) is None
    again.hand_over(plan, outlives=True)
    assert "exit code 0" in driver(orders, again.arguments).succeed()

    asleep.resume()
    asleep.wait()

    assert again.take_result(INTERNAL.retryable("no outcome")) == "2"
    orders.assert_clean()
    orders.assert_at_rest()


@pytest.mark.full
@pytest.mark.parametrize("point", [None, P.STAGING, P.DECIDE_COMMITTED])
def test_spark_driver_outlives_its_task(lab: MakeLab, point: Failpoint | None) -> None:
    """A real driver that nobody waits for: its short form is the driver without a JVM, above."""
    fetch(Home.resolve(), "spark")
    orders = lab(max_records=BATCH, engine="spark")
    orders.run()
    orders.fill(0)
    arguments, plan = lost_task(orders)
    job = submission(orders.project, orders.pipeline, RunPlan.from_json(plan))
    env = {name: value for name, value in (os.environ | job.env | orders.env).items() if name != SUBMITTER_VARIABLE}
    crash = {} if point is None else {VARIABLE: kill_at(point)}

    subprocess.run(job.command(arguments), env=env | crash, check=point is None, timeout=2 * SECONDS)

    outcome = next_try(orders).collect(plan)
    assert outcome == (Outcome() if point is None else None)
    orders.run()
    orders.assert_clean()


def metadata(orders: Lab) -> list[Path]:
    """Files beside the ledger's metadata."""
    folder = storage_of(orders.project, orders.pipeline).removeprefix("file://")
    return list(Path(folder).iterdir())
