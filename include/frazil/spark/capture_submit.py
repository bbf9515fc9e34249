"""How the Spark job of a capture is started, for Airflow's operator and for `frazil capture`. No pyspark here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from frazil.capture.order import CaptureOrder
from frazil.capture.run import CaptureResult
from frazil.errors import Retryable, Terminal
from frazil.local.jars import jar_paths
from frazil.pipeline.capture import JdbcCapture
from frazil.project import Project
from frazil.spark.server import JVM_OPTIONS
from frazil.spark.submit import Submission, bare_submission, run_submission

_UTC: Final = "-Duser.timezone=UTC"
"""Option of each JVM: drivers take it for the time zone of their session, in which literals without one are read."""

_SESSION_CLOCK: Final = "spark.sql.session.timeZone"
"""Time zone in which times are written, and sorted: in one with summer time an hour would come before the one before it."""

_EXECUTOR_OPTIONS: Final = "spark.executor.extraJavaOptions"


def capture_submission(project: Project, capture: JdbcCapture, run: str) -> Submission:
    """How to start the job of a capture.

    Args:
        project: Settings and doors.
        capture: The capture.
        run: Id of the run.

    Raises:
        Terminal: The settings have no such engine or database, a jar or a Java is missing.
    """
    database = project.database(capture.database)
    if missing := [path for path in database.jars if not Path(path).is_file()]:
        raise Terminal(
            f"databases.{capture.database}.jars of the settings: no file {missing[0]}",
            next_step="get the driver from the maker of the database, or correct the path",
        )
    job = bare_submission(project, capture.engine, "capture.py", f"frazil capture {capture.name} {run}")
    jars = database.jars or tuple(str(path) for path in jar_paths(project.home, "spark"))
    private = {key: of for key, of in job.private.items() if key != _SESSION_CLOCK}
    conf = {**job.conf, _SESSION_CLOCK: "UTC", JVM_OPTIONS: f"{job.conf.get(JVM_OPTIONS, '')} {_UTC}".strip()}
    # What the engine says may be secret, and stays where it is.
    place = private if _EXECUTOR_OPTIONS in private else conf
    place[_EXECUTOR_OPTIONS] = f"{private.get(_EXECUTOR_OPTIONS, '')} {_UTC}".strip()
    return replace(job, jars=jars, conf=conf, private=private)


def capture_run(run: str) -> str:
    """Id of the job of a run. Pipelines may have a run of the same id, and a capture's name."""
    return f"capture__{run}"


def run_capture(
    project: Project, capture: JdbcCapture, order: CaptureOrder, report: Callable[[str], None]
) -> CaptureResult:
    """Capture a database in a Spark job started by this process, and wait for it.

    Args:
        project: Settings and doors.
        capture: The capture.
        order: What is asked for.
        report: Takes the job's own lines; everything else goes to its log.

    Raises:
        Retryable, Terminal: What the job ended with; the message quotes the end of its log.
        Stopped: A signal asked this process to stop. What was committed stays.
    """
    job = capture_submission(project, capture, order.run)
    run = capture_run(order.run)
    return handed_back(run_submission(project.home, job, capture.name, run, order.to_json(), report))


def handed_back(found: str | None) -> CaptureResult:
    """What a job handed back.

    Raises:
        Retryable: Nothing, although it ended well.
    """
    if found is None:
        raise Retryable("the job of the capture ended without a result", next_step="look at its log, then run again")
    return CaptureResult.from_json(found)
