"""A process that is asked to stop ends, in order or not."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from frazil import shutdown
from frazil.errors import Stopped
from frazil.runtime.process import stat_of, until
from tests.signals import hearing_ctrl_c

_SECONDS: Final = 30
_HANGS: Final = """
import signal, sys, threading
from frazil import shutdown
def report(line):
    raise BrokenPipeError("nobody listens")
def cancel():
    threading.Event().wait()
with shutdown.handled(report, grace_seconds=0.5), shutdown.cancelling(cancel):
    sys.stdout.write("ready\\n")
    sys.stdout.flush()
    threading.Event().wait()
"""

_WAITS_IN_C: Final = """
import sqlite3, sys
from frazil import shutdown
def say(line):
    sys.stdout.write(line + "\\n")
    sys.stdout.flush()
def cancel():
    say("cancelled, " + shutdown.requester())
catalog = sqlite3.connect(sys.argv[1], timeout=60)
with shutdown.handled(say, grace_seconds=0.5), shutdown.cancelling(cancel):
    say("ready")
    catalog.execute("BEGIN IMMEDIATE")
"""


def state_of(pid: int) -> str | None:
    """One letter of /proc: S of a process whose first thread waits."""
    stat = stat_of(pid)
    return stat.state if stat is not None else None


def test_hanging_run_ends() -> None:
    """Whoever works hangs, its engine does too, and nobody listens any more: the process ends when its time is over."""
    with subprocess.Popen([sys.executable, "-c", _HANGS], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == b"ready\n"
        run.send_signal(signal.SIGTERM)

        assert run.wait(_SECONDS) == Stopped.exit_code


def test_signal_ends_a_wait_in_a_c_library(tmp_path: Path) -> None:
    """No handler runs while the main thread waits in C for a database: the engine is told to end at once, and time runs."""
    file = tmp_path / "catalog.db"
    with closing(sqlite3.connect(file)) as rival:
        rival.execute("BEGIN EXCLUSIVE")
        returncode, output = asked_to_stop([sys.executable, "-c", _WAITS_IN_C, str(file)])

    assert returncode == Stopped.exit_code
    assert "cancelled, SIGTERM" in output
    assert "not ended within" in output


def asked_to_stop(command: list[str]) -> tuple[int, str]:
    """Ask a process to stop once it waits; returns its exit code and what it said."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "ready\n"
        assert until(lambda: state_of(run.pid) == "S", _SECONDS)
        run.send_signal(signal.SIGTERM)
        output = run.communicate(timeout=_SECONDS)[0]
    return run.returncode, output


def test_stop_request_lets_half_done_work_finish() -> None:
    """A first signal only asks, the same one again changes nothing; a further Ctrl-C ends at once."""
    with hearing_ctrl_c(), shutdown.handled(lambda _: None):
        assert shutdown.requester() is None
        signal.raise_signal(signal.SIGTERM)
        assert shutdown.requester() == "SIGTERM"
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)

    assert shutdown.requester() is None


def test_ignored_signal_stops_nothing() -> None:
    """A signal that is ignored asks nobody to stop."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with shutdown.handled(lambda _: None):
            signal.raise_signal(signal.SIGHUP)
            assert shutdown.requester() is None
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_stop_ends_with_its_run() -> None:
    """What one run was asked is not asked of the next one of the same process, and the handlers before come back."""
    before = signal.getsignal(signal.SIGTERM)
    with shutdown.handled(lambda _: None):
        signal.raise_signal(signal.SIGTERM)
    with shutdown.handled(lambda _: None):
        assert shutdown.requester() is None

    assert signal.getsignal(signal.SIGTERM) is before


_DRIVER: Final = """
import os, sys, threading
from pathlib import Path
from frazil import shutdown
shutdown.end_with_parent()
Path(sys.argv[1]).symlink_to(str(os.getpid()))
threading.Event().wait()
"""
_PARENT: Final = "import subprocess, sys; subprocess.run([sys.executable, '-c', *sys.argv[1:]])"


def test_task_without_its_worker_ends(tmp_path: Path) -> None:
    """A process whose parent was killed ends by itself, whatever it is busy with."""
    pid = tmp_path / "pid"
    with subprocess.Popen([sys.executable, "-c", _PARENT, _DRIVER, str(pid)]) as parent:
        assert until(pid.is_symlink, _SECONDS)
        parent.kill()
    driver = int(pid.readlink().name)

    def has_ended() -> bool:
        stat = stat_of(driver)
        return stat is None or stat.has_ended

    assert until(has_ended, _SECONDS)
