"""A job in another process: its start, its log without values of records, its end, and its private configuration. Imports no
pyspark.
"""

from __future__ import annotations

import os
import re
import runpy
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import quote

from frazil import shutdown
from frazil.error_codes import RUN_FAILED
from frazil.errors import FrazilError, kind_of, without_values
from frazil.runtime.drivers import Driver
from frazil.runtime.home import PRIVATE_FILE, Home, private_folder, write_atomically
from frazil.spark.submit.configuration import properties_text
from frazil.spark.submit.yarn import place_of_log

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

_MOST_NAMES: Final = 12
"""Most names that a message quotes from a log."""

_NAMED: Final = re.compile(
    r"""
    \b(?:java|javax|org|com|io|software|scala|py4j|pyspark|pyarrow|pyiceberg|duckdb|frazil)\.(?:[a-z]\w*\.)*[A-Z][\w$]*(?:Exception|Error|Failure)\b
    | ^pyarrow\.lib\.Arrow\w+
    | ^[A-Z]\w*(?:Error|Exception)(?=:|$)       # of Python, where a traceback names it
    | \bSQLSTATE:\ [0-9A-Z]{5}\b
    | (?<=Exception:\ )\[[A-Z][A-Z_]+(?:\.[A-Z_]+)*\]
    | (?<=/)frazil/[\w/]+\.py",\ line\ \d+
    | \bstatus(?:\ code)?:?\ \d{3}\b
    | (?i:No\ space\ left\ on\ device|Access\ Denied|Connection\ refused|Permission\ denied|Too\ many\ open\ files
      | password\ authentication\ failed|Java\ heap\ space|GC\ overhead\ limit\ exceeded|exceeding\ memory\ limits
      | insufficient\ memory\ for\ the\ Java|ExecutorLostFailure|database\ is\ locked|timed\ out|was\ cancelled|stopped\ SparkContext)
    """,
    re.VERBOSE | re.MULTILINE,
)
"""What a message may quote of a log: names of errors, places in Frazil's code, well-known phrases; nothing of a record."""

_OF_SUBMIT: Final = ("Error: ", 'Exception in thread "main" ')
"""Prefixes of spark-submit's own errors about its arguments, before any record is read."""


def names_in(text: str) -> Iterator[str]:
    """The first names of errors in a text, each once."""
    names = dict.fromkeys(match[0].replace('", line ', ":") for match in _NAMED.finditer(text))
    yield from list(names)[:_MOST_NAMES]


def shown_lines(lines: list[str]) -> list[str]:
    """The lines of a log that a message may show, without values of records."""
    own = [line[:500] for line in lines if line.startswith(_OF_SUBMIT)]
    names = ", ".join(names_in("\n".join(lines)))
    return [*own, *([names] if names else [])]


REPORT_PREFIX = "frazil: "
"""Prefix of each line that a job reports to people; the rest of its output is Spark's."""

_GRACE_SECONDS = 10.0
"""Bounds the wait for Spark to shut down after a second Ctrl-C; it takes 1-3 s."""

STOP_SECONDS = shutdown.GRACE_SECONDS + 3.0
"""How long a job may take to end after a stop request: its driver's grace, and the end of the JVM."""

_LAST_LINES = 200
"""Lines at the end of a log that messages draw on."""


@dataclass(slots=True)
class _Job:
    """A running job, and its drivers that got a stop request.

    Attributes:
        at_work: Returns the job's drivers that run batches now.
        withdraw: Requests a driver in a cluster to stop, which it does within seconds; None for a local driver.
        asked_pids: Process ids of drivers that got a request. A second one would kill a driver that is about to end.
    """

    child: subprocess.Popen[str] | ForkedDriver
    at_work: Callable[[], list[Driver]]
    withdraw: Callable[[], object] | None = None
    asked_pids: set[int] = field(default_factory=set)

    def cancel(self) -> None:
        """Ask the job's driver to stop. Without a driver no batch is running, so the child process is ended."""
        if self.withdraw is not None:
            self.withdraw()
            return
        for driver in self.at_work():
            if driver.is_here and driver.pid not in self.asked_pids:
                self.asked_pids.add(driver.pid)
                driver.ask_to_stop()
        if not self.asked_pids:
            self.child.terminate()


class ForkedDriver:
    """A driver forked from this process, with the part of `subprocess.Popen` that `watch_job` needs. Without a job it is killed."""

    def __init__(self, prepare: Callable[[], object]) -> None:
        from multiprocessing import get_context

        context = get_context("fork")
        receiver, self.orders = context.Pipe(duplex=False)
        output, writer = os.pipe()
        self._process = context.Process(target=_drive, args=(receiver, self.orders, output, writer, prepare))
        self._process.start()
        receiver.close()
        os.close(writer)
        self.stdout = os.fdopen(output, encoding="utf-8", errors="replace")
        self.terminate, self.kill = self._process.terminate, self._process.kill

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self.orders.closed:
            self.orders.close()
            self.kill()
        self.stdout.close()
        self._process.join()

    @property
    def returncode(self) -> int:
        """Exit code of the ended driver."""
        return 1 if self._process.exitcode is None else self._process.exitcode

    def wait(self, seconds: float) -> None:
        """Wait for the driver's end."""
        self._process.join(seconds)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("driver", seconds)


_waiting: Final[list[ForkedDriver]] = []
"""The driver that waits for its job, at most one. It is global, as signals and forks are."""


@contextmanager
def forked_driver(prepare: Callable[[], object]) -> Iterator[None]:
    """Fork the driver of the block's job on a server, so that it need not repeat this process's imports.

    It calls `prepare` and waits for the job. This must come before the process has connections or locks.
    """
    # Libraries of other systems may not survive a fork. If a standard stream is closed, a pipe would get its number, and with it
    # the output of libraries.
    if (
        sys.platform != "linux"
        or threading.active_count() > 1
        or None in (sys.__stdin__, sys.__stdout__, sys.__stderr__)
    ):
        yield
        return
    with ForkedDriver(prepare) as driver:
        _waiting.append(driver)
        try:
            yield
        finally:
            _waiting.clear()


def _drive(receiver: Connection, orders: Connection, reader: int, output: int, prepare: Callable[[], object]) -> None:
    """Wait for a job and run it: the main function of a `ForkedDriver`."""
    orders.close()
    os.close(reader)  # with a reading end of its own, this process would not notice that the other reader is gone
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    for source, target in ((os.open(os.devnull, os.O_RDONLY), 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    sys.stdout, sys.stderr = (
        os.fdopen(number, "w", encoding="utf-8", errors="backslashreplace", buffering=1) for number in (1, 2)
    )
    with suppress(ImportError):  # the job meets the error again, and reports it
        prepare()
    command, env = receiver.recv()
    os.environ.update(env)
    sys.path[:0] = env["PYTHONPATH"].split(os.pathsep)
    sys.argv = command[1:]
    runpy.run_path(command[1], run_name="__main__")


def watch_job(
    command: list[str],
    env: Mapping[str, str],
    log: Path,
    report: Callable[[str], None],
    at_work: Callable[[], list[Driver]],
    withdraw: Callable[[], object] | None = None,
) -> FrazilError:
    """Start a job and wait until it ends. A signal requests its driver to stop; a second Ctrl-C ends it at once.

    `at_work` returns the job's registered drivers; `withdraw` requests a driver in a cluster to stop.

    Returns:
        The error to raise if the job left no outcome.
    """
    with shutdown.handled(report, STOP_SECONDS):
        code, lines = _run_process(command, env, log, report, partial(_Job, at_work=at_work, withdraw=withdraw))
        if shutdown.requester():
            return shutdown.stopped("the job was ended; what it decided is finished, or the next run finishes it")
    return lost_job(code, lines, str(log) if withdraw is None else place_of_log(log))


def lost_job(code: int, lines: list[str], log: str) -> FrazilError:
    """The error for a job that ended without an outcome: it was killed, or did not reach the storage.

    Its class is that of the driver's exit code, which may say that a person must act, or that the job was stopped.
    """
    reports = [line.removeprefix(REPORT_PREFIX) for line in lines if line.startswith(REPORT_PREFIX)]
    # Not the lines themselves: those of Spark and Python quote values of records, and this text goes into alerts.
    end = "; ".join([*reports[-1:], *shown_lines(lines)]) or "names no error"
    return kind_of(code)(
        f"the Spark job ended with exit code {code} and left no outcome; the end of its log: {end}",
        code=RUN_FAILED,
        next_step=f"the next try reads from the tables what the job did; the whole log: {log}",
    )


def _run_process(
    command: list[str],
    env: Mapping[str, str],
    log: Path,
    report: Callable[[str], None],
    job_of: Callable[[subprocess.Popen[str] | ForkedDriver], _Job],
) -> tuple[int, list[str]]:
    """The exit code of a job, and the end of its log."""
    lines: list[str] = []
    with log.open("w", encoding="utf-8") as log_file, _start_process(command, env) as child:
        try:
            with shutdown.cancelling(job_of(child).cancel):
                for line in map(without_values, child.stdout or ()):
                    log_file.write(line)
                    log_file.flush()  # so that there is a log even after a kill
                    lines = [*lines[-_LAST_LINES:], line.rstrip()]
                    if line.startswith(REPORT_PREFIX):
                        report(line.removeprefix(REPORT_PREFIX).rstrip())
        except BaseException:
            child.terminate()
            try:
                child.wait(_GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                child.kill()
            raise
    return child.returncode, lines


def _start_process(command: list[str], env: Mapping[str, str]) -> subprocess.Popen[str] | ForkedDriver:
    if _waiting and command[0].endswith("python"):  # spark-submit starts its own driver
        driver = _waiting.pop()
        with suppress(BrokenPipeError):  # the driver has ended; its exit code and output say why
            driver.orders.send((command, dict(env)))
        driver.orders.close()
        return driver
    return subprocess.Popen(
        command,
        env=os.environ | env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,  # so that a terminal's Ctrl-C reaches only this process, which stops the job in order
    )


_ABANDONED_SECONDS: Final = 3600.0
"""Age from which files in the folder are useless: a job reads its file when it starts."""


@contextmanager
def private_properties(home: Home, name: str, run: str, conf: Mapping[str, str]) -> Iterator[Path | None]:
    """While the block runs, a file with Spark's private configuration for spark-submit; None without configuration.

    Files of killed submitters are removed at the next call.
    """
    folder = private_folder(home.root / "plans")
    _sweep(folder)
    if not conf:
        yield None
        return
    file = folder / f"{name}-{quote(run, safe=':+')}.properties"
    try:
        write_atomically(file, properties_text(conf), mode=PRIVATE_FILE)
        yield file
    finally:
        file.unlink(missing_ok=True)


def _sweep(folder: Path) -> None:
    """Remove files of killed submitters: they may contain secrets, and no other run removes them."""
    for file in folder.iterdir():  # with half written files, which begin with a dot
        with suppress(FileNotFoundError):  # its submitter, or another sweep, was faster
            if time.time() - file.stat().st_mtime > _ABANDONED_SECONDS:
                file.unlink()
