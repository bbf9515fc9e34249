"""Watches a job in another process: its output, without values that must not be repeated. Imports no pyspark."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from frazil import shutdown
from frazil.error_codes import RUN_FAILED
from frazil.errors import (
    FrazilError,
    OutcomeUnknown,
    Retryable,
    Stopped,
    Terminal,
    Unavailable,
    code_in,
    without_values,
)
from frazil.runtime.drivers import Driver

_MOST: Final = 12
"""Names that a message repeats."""

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

_OF_SUBMIT: Final = ("Error: ", 'Exception in thread "main" ')
"""Begin what spark-submit itself says of its arguments, before any record is read."""


def names_in(text: str) -> Iterator[str]:
    """The first names in a text, each once."""
    names = dict.fromkeys(match[0].replace('", line ', ":") for match in _NAMED.finditer(text))
    yield from list(names)[:_MOST]


def shown_lines(lines: list[str]) -> list[str]:
    """The end of a job's log without quoted values."""
    own = [line[:500] for line in lines if line.startswith(_OF_SUBMIT)]
    names = ", ".join(names_in("\n".join(lines)))
    return [*own, *([names] if names else [])]


REPORT_PREFIX = "frazil: "
"""Begins every line of the job that is meant for people; the rest of its output is Spark's."""

_GRACE_SECONDS = 10.0
"""Bounds the wait for Spark to shut down after a second Ctrl-C; it takes 1-3 s."""

STOP_SECONDS = shutdown.GRACE_SECONDS + 3.0
"""How long a job that was asked to stop may take: its driver's own time, and what the JVM needs to end."""

_LAST_LINES = 200
_ERROR_CLASSES: Mapping[int, type[FrazilError]] = {
    e.exit_code: e for e in (Retryable, Unavailable, Terminal, OutcomeUnknown, Stopped)
}


@dataclass(frozen=True, slots=True)
class _JobEnd:
    """How a job ended: its exit code, its last line for people, and the end of its log."""

    code: int
    last_line: str
    lines: list[str]


@dataclass(slots=True)
class _Job:
    """A running job, and its drivers that were asked to stop.

    Attributes:
        at_work: The drivers that say that they run batches now.
        asked_pids: Process ids of those that were asked: once, a driver that is about to end takes a second time for an order.
    """

    child: subprocess.Popen[str]
    at_work: Callable[[], list[Driver]]
    asked_pids: set[int] = field(default_factory=set)

    def cancel(self) -> None:
        """Ask the job's driver to stop. Without a driver no batch is running, so the child process is ended."""
        for driver in self.at_work():
            if driver.is_here and driver.pid not in self.asked_pids:
                self.asked_pids.add(driver.pid)
                driver.ask_to_stop()
        if not self.asked_pids:
            self.child.terminate()


def watch_job(
    command: list[str],
    env: Mapping[str, str],
    log: Path,
    report: Callable[[str], None],
    at_work: Callable[[], list[Driver]],
) -> None:
    """Start a job and wait until it ends. A signal asks its driver to stop; its second Ctrl-C ends it at once.

    `at_work` returns the job's drivers that registered themselves as running batches.
    """
    with shutdown.handled(report, STOP_SECONDS):
        ended = _watched(command, env, log, report, at_work)
        if ended.code and shutdown.requester() and ended.code not in _ERROR_CLASSES:
            raise shutdown.stopped("the job was ended; what it decided is finished, or the next run finishes it")
    if ended.code:
        raise _failure(ended, log)


def _watched(
    command: list[str],
    env: Mapping[str, str],
    log: Path,
    report: Callable[[str], None],
    at_work: Callable[[], list[Driver]],
) -> _JobEnd:
    lines: list[str] = []
    last_line = ""
    with log.open("w", encoding="utf-8") as log_file, _start_process(command, env) as child:
        try:
            with shutdown.cancelling(_Job(child, at_work).cancel):
                for line in map(without_values, child.stdout or ()):
                    log_file.write(line)
                    log_file.flush()  # whoever is killed leaves a log to look at
                    lines = [*lines[-_LAST_LINES:], line.rstrip()]
                    if line.startswith(REPORT_PREFIX):
                        last_line = line.removeprefix(REPORT_PREFIX).rstrip()
                        report(last_line)
        except BaseException:
            _end(child)
            raise
    return _JobEnd(child.returncode, last_line, lines)


def _start_process(command: list[str], env: Mapping[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        env=os.environ | env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,  # a terminal's Ctrl-C is for this process alone, which passes it on in order
    )


def _end(child: subprocess.Popen[str]) -> None:
    child.terminate()
    try:
        child.wait(_GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()


def _failure(ended: _JobEnd, log: Path) -> FrazilError:
    kind = _ERROR_CLASSES.get(ended.code, Retryable)
    if ended.code in _ERROR_CLASSES and ended.last_line:
        return kind(ended.last_line, code=code_in(ended.last_line) or RUN_FAILED, next_step=f"the whole log: {log}")
    # Not the lines themselves: Spark and Python quote values of records in theirs, and this goes into alerts.
    log_end = "\n".join(shown_lines(ended.lines)) or "names no error"
    return kind(
        f"the Spark job ended with exit code {ended.code}; the end of its log: {log_end}",
        code=RUN_FAILED,
        next_step=f"the whole log: {log}",
    )
