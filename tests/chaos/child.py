"""What a process of its own does for a test, so that it can be killed or paused like the real thing.

Loaded once by the fork server, which has no threads: a child then starts in milliseconds.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from uuid import uuid4

import confluent_kafka.admin  # noqa: F401 - loaded before the fork, as everything here
import sqlalchemy.dialects.sqlite  # noqa: F401

from frazil.batch.changes import LetterChoice
from frazil.batch.plan import session_order
from frazil.batch.position import RunRequest, Target
from frazil.errors import FrazilError
from frazil.failpoints import VARIABLE
from frazil.iceberg.catalog import rest  # noqa: F401
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.project import Project
from frazil.run.batches.plan import plan_run
from frazil.run.batches.session import Session, ingest, inline_lander
from frazil.run.batches.session import run_session as stay_in
from frazil.run.repair import dead_letter_replay
from frazil.run.repair.reset import plan_reset, reset
from frazil.run.repair.reset_batch import ResetOrder
from frazil.run.staging.stage import stage_inline
from frazil.run.state.context import Clock, Report, RunContext, utc_now

PIPELINE = "orders"

SESSION_SECONDS = 120.0
"""Longer than any test of it takes."""

Deed = Callable[[Project, Report], None]
"""What a child does: raises what it can't do."""


def enter(deed: Deed, env: Mapping[str, str], crash: str, log: Path) -> None:
    """Do one deed and end with the exit code of its error, as the command line would."""
    os.environ[VARIABLE] = crash
    with log.open("w", buffering=1, encoding="utf-8") as output:

        def report(line: str) -> None:
            output.write(f"{line}\n")

        try:
            deed(Project.load(env), report)
        except FrazilError as error:
            report(f"{type(error).__name__}: {error}")
            sys.exit(error.exit_code)
        except BaseException:
            report(traceback.format_exc())
            raise


def ahead(clock_file: Path) -> datetime:
    """A clock that is ahead of the world by as many hours as a file says now."""
    return datetime.now(UTC) + timedelta(hours=float(clock_file.read_text()))


def run(project: Project, report: Report, request: RunRequest | None = None, clock_file: Path | None = None) -> None:
    """One run: plan, then batches to the plan's ends; what is asked decides whether it lands or replays."""
    pipeline = project.pipeline(PIPELINE)
    clock: Clock = partial(ahead, clock_file) if clock_file else utc_now
    planned = plan_run(project, pipeline, request or RunRequest(str(uuid4())), report, clock)
    if planned.plan is not None:
        ingest(project, pipeline, planned.plan, stage_inline, report, clock)


def run_ahead(project: Project, report: Report, seconds: float) -> None:
    """A run of a host whose clock is ahead."""
    really = time.time
    time.time = lambda: really() + seconds
    run(project, report)


def stay(project: Project, report: Report, seconds: float = SESSION_SECONDS) -> None:
    """A session: a run that stays, and lands a batch each second."""

    def load() -> tuple[Project, Pipeline]:
        pipeline = project.pipeline(PIPELINE)
        return project, pipeline.model_copy(update={"interval": "1s", "session_for": "10m"})

    now = utc_now()
    order = session_order(PIPELINE, RunRequest(str(uuid4())), now, now + timedelta(seconds=seconds))
    session = Session(order, load, report)
    report("staying")
    stay_in(session, inline_lander(report))


def replay_dead_letters(project: Project, report: Report) -> None:
    """Land what is good now of the dead letters."""
    scope = RunContext.open(project, project.pipeline(PIPELINE), report)
    dead_letter_replay.replay_dead_letters(scope, LetterChoice(), RunRequest(str(uuid4()), reason="a test"))


def replay_few_dead_letters(project: Project, report: Report) -> None:
    """The same in batches of few dead letters, so that there are several."""
    dead_letter_replay.LETTERS_PER_BATCH = 3
    replay_dead_letters(project, report)


def replay(
    project: Project,
    report: Report,
    start: Target,
    end: Target | None = None,
    run_id: str | None = None,
    clock_file: Path | None = None,
) -> None:
    """Land a range again."""
    request = RunRequest(run_id or str(uuid4()), mode="replay", start=start, end=end, reason="a test")
    run(project, report, request, clock_file)


def to_table(project: Project, report: Report) -> None:
    """Reset to what the closing table holds."""
    move(project, report, ResetOrder(None))


def move(project: Project, report: Report, order: ResetOrder) -> None:
    """Reset the position."""
    scope = RunContext.open(project, project.pipeline(PIPELINE), report)
    reset(scope, plan_reset(scope, order), RunRequest(str(uuid4()), reason="a test"))
