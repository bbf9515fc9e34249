"""The driver of a job as a process: whom it belongs to, what it reports, its session, how it ends."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pyspark.sql import SparkSession

from frazil import stopping
from frazil.errors import EXIT_PARENT_LOST, FrazilError, Retryable
from frazil.spark.faults import SPARK_FAILED
from frazil.spark.submit import SUBMITTER_VARIABLE
from frazil.spark.watch import REPORT_PREFIX

_PARENT_CHECK_SECONDS = 0.5
"""How soon a driver without a parent ends. A killed task leaves the Python driver behind; it must not go on committing."""

_FINISHING_SECONDS = 20.0
"""How long a driver without a parent may go on with a batch that is decided. What needs Spark fails by itself."""


def end_with_parent() -> None:
    """End this process once the JVM that started it is gone, or whoever started the JVM.

    A batch that it decides at this moment is finished first: it needs the catalog, not the JVM.
    """
    # Who kills the JVM together with its group, as Airflow does, means the run; the driver sees it and ends by itself.
    if os.getsid(0) != os.getpid():
        os.setpgid(0, 0)
    parent = os.getppid()
    submitter = os.environ.get(SUBMITTER_VARIABLE)

    def watch() -> None:
        while os.getppid() == parent and (submitter is None or Path("/proc", submitter).exists()):
            time.sleep(_PARENT_CHECK_SECONDS)
        stopping.wait_finished(_FINISHING_SECONDS)
        os._exit(EXIT_PARENT_LOST)  # no print: stdout is a pipe to the dead parent

    threading.Thread(target=watch, daemon=True, name="parent-watch").start()


@contextmanager
def session() -> Iterator[SparkSession]:
    """The session of this job; it ends with the block."""
    spark = SparkSession.builder.getOrCreate()
    try:
        yield spark
    finally:
        with suppress(*SPARK_FAILED):  # a JVM that is gone is stopped already, and what the block met says more
            spark.stop()


def exit_code(work: Callable[[], object]) -> int:
    """Do the work of a job.

    Returns:
        0, or the exit code of the error's class; its message is the last reported line.
    """
    try:
        work()
    except FrazilError as error:
        say(f"{error.label}: {' '.join(str(error).split())}")
        return error.exit_code
    except SPARK_FAILED as error:
        say(f"{Retryable.label}: Spark failed: {' '.join(str(error).split())[:2000]}")
        return Retryable.exit_code
    return 0


def say(line: str) -> None:
    """Report one line to whoever watches the job, if anybody still does."""
    try:
        sys.stdout.write(f"{REPORT_PREFIX}{line}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # A batch that is decided must not stay half done because nobody listens any more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
