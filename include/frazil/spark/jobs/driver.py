"""The driver process of a job: its order and outcome, its session, its reports and its end."""

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
"""Spark sets this variable in a driver whose parent is its JVM."""


def end_with_parent() -> None:
    """End this process after its JVM, or the submitter, has ended: the kill of a task leaves both running.

    A batch that is being decided is finished first, for which no JVM is needed. A process without a JVM that a user's operator
    started depends on no other process.
    """
    if SUBMITTER_VARIABLE not in os.environ and _GATEWAY_VARIABLE not in os.environ:
        return
    # In a group of its own: Airflow kills the JVM with its process group, and the driver must see that and end in order.
    if os.getsid(0) != os.getpid():
        os.setpgid(0, 0)
    submitter = os.environ.get(SUBMITTER_VARIABLE)
    shutdown.end_with_parent(lambda: submitter is not None and _has_ended(int(submitter)))


def _has_ended(pid: int) -> bool:
    # In a container whose first process does not reap, a killed task stays in /proc.
    process = stat_of(pid)
    return process is None or process.has_ended


@contextmanager
def session(project: Project, *, writes: bool = False) -> Iterator[SparkSession]:
    """The session of this job: of its own Spark, which ends with this process, or on a Spark Connect server.

    Raises:
        Retryable, Terminal: Spark does not start; the server does not answer, or does not fit.
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
        if LOCAL_VARIABLE not in os.environ:  # a local Spark ends with this process anyway
            with suppress(*SPARK_FAILED):  # the JVM may be gone; the block's own error says more
                spark.stop()


def run_job(main: Callable[[list[str]], int]) -> None:
    """Run a job with the arguments of this process, and end the process at once with the job's exit code.

    A local Spark stops when its JVM sees that this process is gone. To stop it in order, and to free all objects, would take a
    second and a half; with a server, Python would wait for threads of its client, which may wait for the server.

    A process that a user's platform started ends as usual: the platform may have more to do in it.
    """
    code = 1  # Python's exit code after an uncaught exception
    try:
        code = main(sys.argv[1:])
    except SystemExit as exit_request:
        code = _exit_code_of(exit_request)
    except BaseException:  # noqa: BLE001 - reported as Python does
        traceback.print_exc()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # the reader is gone, or the stream is closed
            stream.flush()
    if SUBMITTER_VARIABLE in os.environ:
        os._exit(code)
    if code:
        sys.exit(code)


def _exit_code_of(exit_request: SystemExit) -> int:
    """The exit code that Python would end with. A code that is no number is printed, as Python does."""
    if exit_request.code is None:
        return 0
    if isinstance(exit_request.code, int):
        return exit_request.code
    print(exit_request.code, file=sys.stderr)  # noqa: T201
    return 1


def carry_out(prog: str, argv: list[str], work: Callable[[Project, str, str], str | None]) -> int:
    """Carry out the order that a job's command line names, write the outcome beside the order, and return the exit code.

    `work` takes the project, the name of the pipeline or capture, and the order; it returns the result, if the job has one. The
    submitter reads the outcome; the exit code is for people and their tools.
    """
    end_with_parent()
    return exit_code(lambda: _carry_out(prog, argv, work))


def _carry_out(prog: str, argv: list[str], work: Callable[[Project, str, str], str | None]) -> None:
    project = Project.load()
    handover = Handover.from_arguments(project, prog, argv)
    order, outlives = handover.read_order()
    if outlives:
        # A user's operator may start a second driver for one attempt: it waits for the first, and needs to do no more.
        earlier = handover.await_outcome()
        if earlier is not None and earlier.error is None:
            return
    with handover.heartbeats() if outlives else nullcontext():
        if outlives:
            handover.forget_failure()
        outcome = _outcome(lambda: work(project, handover.name, order))
        try:
            _while_storage_fails(handover.write_outcome, outcome)
        except (Retryable, Terminal) as error:
            say(f"warning: the outcome of this job is not reported: {error.message_with_code}")
    if outcome.error is not None:
        raise outcome.error


_while_storage_fails: Final = Retrying(
    retry=retry_if_exception_type(Retryable), stop=stop_after_delay(60), wait=wait_fixed(5), reraise=True
)
"""Repeats a write to storage: a storage that fails for a moment must not make a landed run look lost."""


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
    """Do the work of a job, and return 0 or the exit code of its error, whose message is the last reported line."""
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
    """Report one line to the process that watches the job, if that still runs."""
    try:
        sys.stdout.write(f"{REPORT_PREFIX}{line}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # A decided batch must be finished, even if the watching process is gone.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
