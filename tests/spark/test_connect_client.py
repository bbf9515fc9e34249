"""The client of a spark connect server, as far as it can be told without one: it waits for nothing without end."""

from __future__ import annotations

import os
import subprocess
import sys
from threading import Event, Thread

from pyspark.sql.connect.client.reattach import ExecutePlanResponseReattachableIterator as Answers
from pyspark.sql.connect.session import SparkSession

from frazil.runtime.home import project_root
from frazil.runtime.process import until
from frazil.spark.connect import limit_waiting
from frazil.spark.submit.configuration import ENGINE_VARIABLE, SUBMITTER_VARIABLE

NOBODY = "sc://127.0.0.1:9"

JOB = """
import threading
from frazil.spark.jobs.driver import run_job

def main(_):
    threading.Thread(target=threading.Event().wait).start()  # for a server that never answers
    ENDS

run_job(main)
"""


def test_closed_session_does_not_wait_for_garbage_collecting_thread() -> None:
    """Spark's own lock is what both would wait for."""
    closed, sessions = session(), [session()]
    begun, collecting = Event(), Event()

    def release() -> None:
        begun.set()
        collecting.wait()
        sessions.clear()  # the last that knows the session, as a garbage collection in this thread would be

    Answers._get_or_create_release_thread_pool().submit(release)
    begun.wait()
    closing = Thread(target=closed.stop, daemon=True)
    closing.start()
    assert until(lambda: Answers._release_thread_pool_instance is None, 20)  # it waits for the thread now
    collecting.set()

    closing.join(20)
    assert not closing.is_alive()


def test_job_ends_despite_threads_of_its_client() -> None:
    """It ends with the code of its work, of SystemExit, or Python's own for what nobody foresaw, which is told."""
    ways = (
        "return 75",
        "raise SystemExit(143)",
        "raise SystemExit",
        "raise SystemExit('words')",
        "raise LookupError('unforeseen')",
    )
    ended = [job(ends) for ends in ways]

    assert [process.returncode for process in ended] == [75, 143, 0, 1, 1]
    assert ended[3].stderr == "words\n"
    assert "LookupError: unforeseen" in ended[-1].stderr


def session() -> SparkSession:
    """A session of a server that nobody asks anything."""
    spark_session = SparkSession(NOBODY)
    spark_session.release_session_on_close = False
    limit_waiting(spark_session)
    return spark_session


def job(ends: str) -> subprocess.CompletedProcess[str]:
    """A job beside a server that ends in some way."""
    env = os.environ | {"PYTHONPATH": str(project_root() / "include"), ENGINE_VARIABLE: "warm"}
    env |= {SUBMITTER_VARIABLE: str(os.getpid())}
    command = [sys.executable, "-c", JOB.replace("ENDS", ends)]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=60)
