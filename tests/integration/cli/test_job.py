"""A job whose own Spark starts while it still reads its modules."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from typing import Any

import pytest

from frazil.batch.position import RunRequest
from frazil.error_codes import INTERNAL
from frazil.errors import Terminal
from frazil.project import Project
from frazil.run.batches.plan import plan_run
from frazil.runtime.home import Home
from frazil.runtime.jars import fetch
from frazil.spark.submit.configuration import LOCAL_VARIABLE
from frazil.spark.submit.handover import Handover, storage_of
from frazil.spark.submit.job_process import REPORT_PREFIX
from frazil.spark.submit.submission import Submission, submission

Place = Any
"""A project of its own: `place.frazil(...)` runs the command in it. See conftest."""

SECONDS = 120
BROKEN = 'engines: {spark: {conf: {spark.driver.port: "none"}}}'
"""Spark's context does not start with it."""


def job_result(job: Submission, *arguments: str) -> tuple[int, str]:
    """Exit code of a job, and its last line for people."""
    done = subprocess.run(
        job.command(list(arguments)),
        env=os.environ | job.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    report_lines = [line for line in done.stdout.splitlines() if line.startswith(REPORT_PREFIX)]
    return done.returncode, report_lines[-1] if report_lines else done.stdout


def test_spark_that_does_not_start_is_no_failure_of_the_job(place: Place) -> None:
    """Its error is met by whoever asks for the session: told in a line, to be tried again, and nothing is landed."""
    fetch(Home.resolve(), "spark")
    settings = place.root / "settings.yaml"
    settings.write_text(f"{settings.read_text()}\n{BROKEN}\n", encoding="utf-8")
    place.succeed("produce", place.topic, "--generate", "payments", "--count", "10")

    run = place.frazil("run", "orders", "--engine", "spark")

    assert run.returncode == 75, run.stderr
    assert "Spark did not start" in run.stderr
    assert "spark.driver.port" in run.stderr
    assert place.json("run", "orders")["written"] == 10


@pytest.mark.parametrize("local", [True, False])
def test_job_that_fails_at_once_keeps_its_message(place: Place, local: bool) -> None:
    """A plan that can't be carried out is told by its outcome, whether Spark is on its way by then or not."""
    fetch(Home.resolve(), "spark")
    place.succeed("produce", place.topic, "--generate", "payments", "--count", "10")
    project = Project.load(place.environment)
    pipeline = project.pipeline("orders").model_copy(update={"engine": "spark"})
    plan = plan_run(project, pipeline, RunRequest("a run")).plan
    job = submission(project, pipeline, plan)
    if not local:
        job = replace(job, env={key: value for key, value in job.env.items() if key != LOCAL_VARIABLE})

    handover = Handover.begin(project, storage_of(project, pipeline), "nobody", plan.run)
    handover.hand_over(plan.to_json())

    code, outcome = job_result(job, *handover.arguments)

    assert code == 78, outcome
    assert "nobody" in outcome
    with pytest.raises(Terminal, match="nobody"):
        handover.take_result(INTERNAL.retryable("it left nothing"))
