"""A driver that was forked in advance does its job as one that the interpreter starts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from frazil.errors import FrazilError
from frazil.runtime.home import project_root
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


def watched(folder: Path, *arguments: str, job: str = JOB) -> list[str]:
    """The lines for people of a job."""
    lines: list[str] = []
    ended(folder, *arguments, job=job, report=lines.append)
    return lines


def ended(
    folder: Path, *arguments: str, job: str = JOB, report: Callable[[str], object] = lambda _: None
) -> FrazilError:
    """What a job is told as that left no outcome."""
    program = folder / "job.py"
    program.write_text(job, encoding="utf-8")
    command = [sys.executable, str(program), *arguments]
    return watch_job(command, {"TOKEN": "t", "PYTHONPATH": "/first"}, folder / "log", report, list)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if this process had no other thread: those that earlier tests left hold no lock that a job here wants."""
    monkeypatch.setattr("threading.active_count", lambda: 1)


def child_states() -> list[Any]:
    """Children of this process."""
    children = Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split()
    return [stat_of(int(child)) for child in children]


@pytest.mark.skipif(sys.platform != "linux", reason="only there a driver is forked")
@pytest.mark.usefixtures("alone")
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


@pytest.mark.usefixtures("alone")
def test_failure_of_a_forked_driver_is_told_by_its_exit_code(tmp_path: Path) -> None:
    """As of any other job."""
    with forked_driver(start):
        assert "exit code 75" in str(ended(tmp_path, "75", job="import sys; sys.exit(int(sys.argv[1]))"))


@pytest.mark.usefixtures("alone")
def test_exit_code_of_a_driver_that_died_is_in_the_error(tmp_path: Path) -> None:
    """Such as one that the system killed for want of memory."""
    with forked_driver(lambda: os._exit(7)):
        assert until(lambda: all(state is None or state.has_ended for state in child_states()), 30)
        assert "exit code 7" in str(ended(tmp_path))


@pytest.mark.usefixtures("alone")
def test_driver_without_a_job_ends_with_the_block() -> None:
    """A run with nothing new needs none, and does not wait for what it prepares."""
    began = time.monotonic()
    with forked_driver(lambda: time.sleep(60)):
        assert child_states()

    assert not child_states()
    assert time.monotonic() - began < 10


def test_process_with_threads_forks_no_driver(tmp_path: Path) -> None:
    """Locks of other threads would stay locked in the fork for ever; the interpreter starts a driver then."""
    event = threading.Event()
    thread = threading.Thread(target=event.wait)
    thread.start()
    try:
        with forked_driver(start):
            (line,) = watched(tmp_path, "0")
    finally:
        event.set()
        thread.join()

    assert line.split()[-1] == str(tmp_path)


WRITING = """
import os, sys, time
from pathlib import Path
parent = os.getppid()
print("frazil: at work", flush=True)
while os.getppid() == parent:
    time.sleep(0.05)
try:
    print("x" * 1_000_000, flush=True)
except BrokenPipeError:
    Path(sys.argv[1]).touch()
    os._exit(0)
"""

WATCHING = """
import sys
from pathlib import Path
from frazil.spark.submit.job_process import forked_driver, watch_job
with forked_driver(lambda: None):
    command = [sys.executable, *sys.argv[1:]]
    watch_job(command, {"PYTHONPATH": "/first"}, Path(sys.argv[1] + ".log"), lambda line: print(line, flush=True), list)
"""


def watching(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    """A process with a forked driver."""
    env = os.environ | {"PYTHONPATH": str(project_root() / "include")}
    command = [sys.executable, "-c", WATCHING, *arguments]
    return subprocess.Popen(command, env=env, text=True, stdout=subprocess.PIPE, **options)


@pytest.mark.usefixtures("alone")
def test_forked_driver_learns_that_nobody_reads_any_more(tmp_path: Path) -> None:
    """A killed command's driver, which finishes a decided batch, must not wait for ever until somebody reads what it says."""
    program, script_output = tmp_path / "job.py", tmp_path / "told"
    program.write_text(WRITING, encoding="utf-8")
    with watching(str(program), str(script_output)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "at work\n"
        process.kill()

    assert until(script_output.exists, 30)


@pytest.mark.parametrize("closed", [0, 1, 2])
@pytest.mark.usefixtures("alone")
def test_job_is_done_where_a_standard_stream_was_closed(tmp_path: Path, closed: int) -> None:
    """As `frazil run orders <&-` does: a pipe must not take the number of a stream."""
    program, done = tmp_path / "job.py", tmp_path / "done"
    program.write_text("import sys; open(sys.argv[1], 'w').close()", encoding="utf-8")
    watching(str(program), str(done), preexec_fn=lambda: os.close(closed)).communicate(timeout=60)

    assert done.exists()


@pytest.mark.usefixtures("alone")
def test_forked_driver_ignores_what_its_command_ignores(tmp_path: Path) -> None:
    """As nohup has it ignore SIGHUP."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with forked_driver(lambda: None):
            job = "import signal; print('frazil:', signal.getsignal(signal.SIGHUP) is signal.SIG_IGN)"
            assert watched(tmp_path, job=job) == ["True"]
    finally:
        signal.signal(signal.SIGHUP, before)
