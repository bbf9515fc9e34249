"""A driver that was forked in advance does its job as one that the interpreter starts."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from frazil.errors import FrazilError
from frazil.runtime.process import stat_of, until
from frazil.spark.jobs.imports import leave_out_pandas
from frazil.spark.jobs.start import start
from frazil.spark.submit.job_process import forked_driver, watch_job

JOB = """
import os, sys
import pandas
print("frazil:", os.getpid(), os.getppid(), os.getsid(0), os.environ["TOKEN"], sys.argv[1:], sys.stdin.read(), sys.path[0])
print("noise", file=sys.stderr, flush=True)
sys.exit(int(sys.argv[1]))
"""


def watched(folder: Path, *arguments: str) -> list[str]:
    """The lines for people of a job."""
    lines: list[str] = []
    end_of(folder, *arguments, report=lines.append)
    return lines


def end_of(
    folder: Path, *arguments: str, job: str = JOB, report: Callable[[str], object] = lambda _: None
) -> FrazilError:
    """How a job ended that left no outcome."""
    program = folder / "job.py"
    program.write_text(job, encoding="utf-8")
    command = [sys.executable, str(program), *arguments]
    return watch_job(command, {"TOKEN": "t", "PYTHONPATH": "/first"}, folder / "log", report, list)


def child_states() -> list[Any]:
    """Children of this process."""
    children = Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split()
    return [stat_of(int(child)) for child in children]


@pytest.mark.skipif(sys.platform != "linux", reason="only there a driver is forked")
def test_forked_driver_does_the_job_of_a_new_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a session of its own, with the job's variables and pandas; this process keeps its own."""
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.delitem(sys.modules, "pandas", raising=False)
    leave_out_pandas()

    with forked_driver(start):
        (line,) = watched(tmp_path, "0", "--plan")

    pid, parent, session, *rest = line.split()
    assert (int(parent), session) == (os.getpid(), pid)
    assert rest == ["t", "['0',", "'--plan']", "/first"]
    assert "noise" in (tmp_path / "log").read_text()
    assert "TOKEN" not in os.environ
    assert "pandas" not in sys.modules


def test_exit_code_of_a_forked_driver_is_in_the_error(tmp_path: Path) -> None:
    """As of any other job that left no outcome."""
    with forked_driver(start):
        error = end_of(tmp_path, "5", job="import sys; sys.exit(int(sys.argv[1]))")

    assert "exit code 5" in error.message


def test_exit_code_of_a_driver_that_died_is_in_the_error(tmp_path: Path) -> None:
    """Such as one that the system killed for want of memory."""
    with forked_driver(lambda: os._exit(7)):
        assert until(lambda: all(state is None or state.has_ended for state in child_states()), 30)
        error = end_of(tmp_path)

    assert "exit code 7" in error.message


def test_driver_without_a_job_ends_with_the_block() -> None:
    """A run with nothing new needs none, and does not wait for what it prepares."""
    began = time.monotonic()
    with forked_driver(lambda: time.sleep(60)):
        assert child_states()

    assert not child_states()
    assert time.monotonic() - began < 10


def test_process_with_threads_forks_no_driver(tmp_path: Path) -> None:
    """Locks of other threads would stay locked in the fork for ever; the interpreter starts a driver then."""
    held = threading.Event()
    thread = threading.Thread(target=held.wait)
    thread.start()
    try:
        with forked_driver(start):
            (line,) = watched(tmp_path, "0")
    finally:
        held.set()
        thread.join()

    assert line.split()[-1] == str(tmp_path)
