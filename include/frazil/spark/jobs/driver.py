"""The driver process of a job: its parent, its reports, its session and its end."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Final

from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from frazil import shutdown
from frazil.error_codes import RUN_FAILED
from frazil.errors import FrazilError, Retryable, Terminal
from frazil.project import Project
from frazil.runtime.process import stat_of
from frazil.spark.errors import SPARK_FAILED, error_text, not_started, silence_error_log
from frazil.spark.jobs.start import started_session
from frazil.spark.submit.configuration import ENGINE_VARIABLE, LOCAL_VARIABLE, SUBMITTER_VARIABLE
from frazil.spark.submit.handover import Handover, Outcome
from frazil.spark.submit.job_process import REPORT_PREFIX
from frazil.spark.writes.rows import configure_quoting

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_GATEWAY_VARIABLE: Final = "PYSPARK_GATEWAY_PORT"
"""Spark's own: set in a driver whose parent is its JVM."""


def end_with_parent() -> None:
    """End this process when its JVM, or the JVM's parent, has ended: a killed task leaves both running.

    A batch that it decides at this moment is finished first: it needs the catalog, not the JVM. A process without a JVM that a
    user's operator started depends on no other process.
    """
    if SUBMITTER_VARIABLE not in os.environ and _GATEWAY_VARIABLE not in os.environ:
        return
    # Who kills the JVM together with its group, as Airflow does, means the run; the driver sees it and ends by itself.
    if os.getsid(0) != os.getpid():
        os.setpgid(0, 0)
    submitter = os.environ.get(SUBMITTER_VARIABLE)
    shutdown.end_with_parent(lambda: submitter is not None and _has_ended(int(submitter)))


def _has_ended(pid: int) -> bool:
    # In a container whose first process reaps nobody, a killed task stays in /proc.
    process = stat_of(pid)
    return process is None or process.has_ended


@contextmanager
def session(project: Project, *, writes: bool = False) -> Iterator[SparkSession]:
    """The session of this job: its own Spark's, which ends with this process, or one on a spark connect server.

    Raises:
        Retryable, Terminal: Spark does not start; the server does not answer, or is not fit for it.
    """
    silence_error_log()
    engine = os.environ.get(ENGINE_VARIABLE)
    if engine is None:
        with _own_session() as spark:
            configure_quoting(spark)
            yield spark
        return
    from frazil.spark.connect import connected_session

    with connected_session(project, engine, writes=writes) as spark:
        configure_quoting(spark)
        yield spark


@contextmanager
def _own_session() -> Iterator[SparkSession]:
    try:
        spark = started_session()
    except SPARK_FAILED as error:
        raise not_started(error) from error
    if (ui := spark.sparkContext.uiWebUrl) is not None:
        say(f"Spark's pages: {ui}")
    try:
        yield spark
    finally:
        if LOCAL_VARIABLE not in os.environ:  # a cluster is told; a Spark that is a JVM alone ends with this process
            with suppress(*SPARK_FAILED):  # a JVM that is gone is stopped already, and what the block met says more
                spark.stop()


def run_job(main: Callable[[list[str]], int]) -> None:
    """Run a job with the arguments of this process, and end it with the job's exit code, at once.

    Where somebody's platform started it, it ends as any Python program does: the platform may have more to do in this process.

    Nothing is left to do: a local Spark stops when its JVM sees that this process is gone. To stop it from here, and then to
    take this process apart object by object, would take a second and a half. Beside a server Python would even wait for threads
    of the server's client, and those may wait for the server.
    """
    code = 1  # Python's own, for what nobody foresaw
    try:
        code = main(sys.argv[1:])
    except SystemExit as exit_request:
        code = _exit_code_of(exit_request)
    except BaseException:  # noqa: BLE001 - told as Python tells it
        traceback.print_exc()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # nobody listens any more, or can
            stream.flush()
    if SUBMITTER_VARIABLE in os.environ:
        os._exit(code)
    if code:
        sys.exit(code)


def _exit_code_of(exit_request: SystemExit) -> int:
    """The exit code that Python would end with; it also says what is no number."""
    if exit_request.code is None:
        return 0
    if isinstance(exit_request.code, int):
        return exit_request.code
    print(exit_request.code, file=sys.stderr)  # noqa: T201
    return 1


def carry_out(prog: str, argv: list[str], work: Callable[[Project, str, str], str | None]) -> int:
    """Do the order that a job's command line names, and leave its outcome where the order is.

    `work` takes the project, the name of the pipeline or capture, and the order; it returns the result, if the job has one.

    Returns:
        See `exit_code`. For people and their tools: who waits for the job reads the outcome.
    """
    end_with_parent()
    return exit_code(lambda: _carry_out(prog, argv, work))


def _carry_out(prog: str, argv: list[str], work: Callable[[Project, str, str], str | None]) -> None:
    project = Project.load()
    handover = Handover.from_arguments(project, prog, argv)
    order, outlives = handover.read_order()
    if outlives:
        # Somebody's operator may start a second driver for one attempt: it waits for the first, and has no more to do.
        earlier = handover.await_outcome()
        if earlier is not None and earlier.error is None:
            return
    with handover.beating() if outlives else nullcontext():
        if outlives:
            handover.forget_failure()
        outcome = _outcome(lambda: work(project, handover.name, order))
        try:
            _storage_away(handover.leave, outcome)
        except (Retryable, Terminal) as error:
            say(f"warning: the outcome of this job is not reported: {error.message_with_code}")
    if outcome.error is not None:
        raise outcome.error


_storage_away: Final = Retrying(
    retry=retry_if_exception_type(Retryable), stop=stop_after_delay(60), wait=wait_fixed(5), reraise=True
)
"""A storage that is away for a moment must not make a landed run look lost."""


def _outcome(work: Callable[[], str | None]) -> Outcome:
    try:
        return Outcome(result=work())
    except FrazilError as error:
        return Outcome(error=error)
    except SPARK_FAILED as error:
        return Outcome(error=_spark_failure(error))


def _spark_failure(error: BaseException) -> Retryable:
    return RUN_FAILED.retryable(f"Spark failed: {error_text(error)}")


def exit_code(work: Callable[[], object]) -> int:
    """Do the work of a job.

    0, or the exit code of the error's class; its message is the last reported line.
    """
    try:
        work()
    except FrazilError as error:
        say(f"{error.label}: {' '.join(str(error).split())}")
        return error.exit_code
    except SPARK_FAILED as error:
        failure = _spark_failure(error)
        say(f"{failure.label}: {failure}")
        return failure.exit_code
    return 0


def say(line: str) -> None:
    """Report one line to the process that watches the job, if it is still running."""
    try:
        sys.stdout.write(f"{REPORT_PREFIX}{line}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # A batch that is decided must not stay half done because nobody listens any more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
