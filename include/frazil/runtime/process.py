"""Start and stop the processes of the stack, detached from the process that starts them; read /proc; wait for conditions.

Every process opens a session, and its children stay in it, even if they open a process group of their own (as Airflow's tasks
do) or their parent dies. To stop a component is to end its whole session, so nothing outlives it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from frazil.error_codes import STACK_FAILED
from frazil.runtime.home import PRIVATE_FILE, private_folder

_PROC = Path("/proc")
_STATE, _SESSION, _THREADS, _START_TICKS = 0, 3, 17, 19
"""Positions in /proc/PID/stat after the command's closing parenthesis (proc_pid_stat(5): fields 3, 6, 20 and 22)."""

ENDED_STATES = "ZX"
"""Zombie and dead: the process has ended and only waits to be reaped."""


@dataclass(frozen=True, slots=True)
class Stat:
    """One process as the kernel sees it.

    Attributes:
        threads: Number of threads that have not ended.
        session: Id of its session: the pid of the process that opened it.
        start_ticks: Start time in clock ticks since boot; pid and start time together name one process of a boot.
    """

    pid: int
    state: str
    threads: int
    session: int
    start_ticks: int

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended, but for its zombie entry. A JVM whose first thread ended may hold its ports."""
        return self.state in ENDED_STATES and self.threads <= 1


def parse_stat(text: str) -> Stat:
    """Read one /proc/PID/stat line."""
    # The command's name stands in parentheses, and may contain spaces and parentheses.
    pid, _, after_pid = text.partition(" ")
    fields = after_pid.rpartition(")")[2].split()
    return Stat(int(pid), fields[_STATE], int(fields[_THREADS]), int(fields[_SESSION]), int(fields[_START_TICKS]))


def stat_of(pid: int) -> Stat | None:
    """Return the kernel's facts about a process; None if there is no such process."""
    try:
        return parse_stat((_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace"))
    except (FileNotFoundError, ProcessLookupError):  # the second: it ended between open and read
        return None


def session_members(session: int) -> Iterator[Stat]:
    """Yield the processes of a session that have not ended."""
    for pid in (int(entry.name) for entry in _PROC.iterdir() if entry.name.isdecimal()):
        stat = stat_of(pid)
        if stat is not None and stat.session == session and not stat.has_ended:
            yield stat


def boot_id() -> str:
    """Return the id of the running boot: pids and ticks of another boot mean nothing.

    Raises:
        Terminal: This is not Linux.
    """
    path = _PROC / "sys/kernel/random/boot_id"
    try:
        return path.read_text(encoding="utf-8").strip()
    except FileNotFoundError as error:
        raise STACK_FAILED.terminal(
            f"the embedded stack needs Linux: there is no {path}",
            next_step="use the docker-compose.yml instead",
        ) from error


_EVERY_SECONDS = 0.05
"""Pause between two checks: short compared with any start, and cheap on two cores."""


def until(condition: Callable[[], bool], timeout_seconds: float, every_seconds: float = _EVERY_SECONDS) -> bool:
    """Wait until the condition holds, and return whether it did within the time."""
    deadline = time.monotonic() + timeout_seconds
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(every_seconds)
    return True


_RECORD_SECONDS = 10.0
"""Bounds how long a shell may take to write its record, usually milliseconds."""

_FOLLOWERS_SECONDS = 5.0
"""Time that the rest of a session gets to end after its leader, before it is killed."""

_KILL_SECONDS = 10.0
"""Bounds the wait after SIGKILL; only a process inside a hanging system call outlives it."""

_JAVA_FRAMES = ("\tat ", "\t... ")

# The shell records itself before it becomes the command: whichever process is killed, and when, none runs unrecorded.
_SELF_RECORDING = (
    "read -r boot </proc/sys/kernel/random/boot_id; read -r stat </proc/$$/stat; "
    'printf "%s\\n" "$boot" "$stat" "$1" >"$0.new" && mv "$0.new" "$0" && shift && exec "$@"'
)

_children: dict[int, subprocess.Popen[bytes]] = {}
"""Processes that this process started, which must reap them when they end."""


@dataclass(frozen=True, slots=True)
class Spec:
    """A process to start.

    Attributes:
        name: Name of the component, and of its log and its record.
        url: Address at which it will answer, for `status`; empty if it has no port.
        grace_seconds: How long it may take to end after SIGTERM.
    """

    name: str
    command: Sequence[str]
    env: Mapping[str, str]
    url: str = ""
    grace_seconds: float = 10.0


@dataclass(frozen=True, slots=True)
class Record:
    """A started process, as its record file describes it."""

    boot: str
    leader: Stat
    url: str
    since: datetime

    @property
    def pid(self) -> int:
        """Process id of the component, and id of its session."""
        return self.leader.pid


@dataclass(frozen=True, slots=True)
class Processes:
    """The processes of one home: their records lie in `run`, their output in `logs`."""

    run: Path
    logs: Path
    cwd: Path

    def log(self, name: str) -> Path:
        """Return the log file of a component."""
        return self.logs / f"{name}.log"

    def start(self, spec: Spec) -> Record:
        """Start a detached process. Its log starts over, and the previous log is kept beside it.

        Raises:
            Retryable: It could not be started.
        """
        self.cwd.mkdir(parents=True, exist_ok=True)
        private_folder(self.run)
        log = _fresh_log(private_folder(self.logs) / f"{spec.name}.log")
        record = self._file(spec.name)
        command = ["/bin/sh", "-c", _SELF_RECORDING, str(record), spec.url, *spec.command]
        with _signals_held():
            with os.fdopen(log, "wb") as output:
                child = subprocess.Popen(
                    command,
                    env=dict(spec.env),
                    cwd=self.cwd,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
            _children[child.pid] = child
            until(lambda: self._has_recorded(spec.name, child.pid) or child.poll() is not None, _RECORD_SECONDS)
        started_process = self.record(spec.name)
        if started_process is None or started_process.pid != child.pid:
            raise STACK_FAILED.retryable(
                f"{spec.name}: could not start {spec.command[0]}\n{self.last_lines(spec.name)}"
            )
        return started_process

    def finish(self, spec: Spec, timeout_seconds: float) -> int:
        """Run a command to its end and return its exit status; its output is in its log.

        Raises:
            Retryable: The command could not be started, or took too long and was stopped.
        """
        child = _children[self.start(spec).pid]
        try:
            return child.wait(timeout_seconds)
        except subprocess.TimeoutExpired as error:
            raise STACK_FAILED.retryable(
                f"{spec.name}: took over {timeout_seconds:.0f} s\n{self.last_lines(spec.name)}"
            ) from error
        finally:
            self.stop((spec.name, spec.grace_seconds))

    def wait_ready(
        self,
        name: str,
        who: str,
        is_ready: Callable[[], bool],
        timeout_seconds: float,
        hidden: Sequence[str] = (),
        advice: str = "",
    ) -> None:
        """Wait until the started process of a component is ready.

        Messages name it as `who`, quote its log with the texts of `hidden` masked, and append `advice` to their next step.

        Raises:
            Retryable: The process ended, or was not ready in time; the message quotes the end of its log.
        """

        def ended() -> bool:
            return self.running(name) is None

        until(lambda: ended() or is_ready(), timeout_seconds)
        if not ended() and is_ready():
            return
        what = "ended while starting" if ended() else f"gave no answer in {timeout_seconds:.0f} s"
        complaint = f"{who} {what}; its log ends with\n{self.last_lines(name, hidden)}"
        raise STACK_FAILED.retryable(complaint, next_step=f"read {self.log(name)}{advice}")

    def record(self, name: str) -> Record | None:
        """Return the record of the component's last start; None if it was stopped or never started."""
        try:
            text, written = self._file(name).read_text(encoding="utf-8"), self._file(name).stat().st_mtime
        except FileNotFoundError:
            return None
        boot, leader, url = text.splitlines()
        return Record(boot, parse_stat(leader), url, datetime.fromtimestamp(written, UTC))

    def running(self, name: str) -> Record | None:
        """Return the record of the component if its process is alive."""
        record = self.record(name)
        return record if record is not None and _is_alive(record) else None

    def stop(self, *specs: tuple[str, float]) -> None:
        """Stop components together, each given by its name and its grace in seconds: SIGTERM to its whole session, then SIGKILL.

        To stop a stopped component does nothing.

        Raises:
            Retryable: A process survived SIGKILL.
        """
        records = [(name, grace, record) for name, grace in specs if (record := self.record(name)) is not None]
        for _, _, record in records:
            if _is_alive(record):
                _signal(record.pid, signal.SIGTERM)
        for name, grace, record in records:
            until(lambda record=record: not _is_alive(record), grace)  # type: ignore[misc]
            _end_session(record, name)
            self._file(name).unlink(missing_ok=True)

    def last_lines(self, name: str, secrets: Sequence[str] = (), count: int = 20) -> str:
        """Return the end of a component's log, for a message, with secrets masked.

        Frames of Java stack traces are left out: they would push the reason out of sight.
        """
        try:
            text = self.log(name).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return f"(there is no {self.log(name)})"
        for secret in secrets:
            text = text.replace(secret, "***")
        lines = [line for line in text.splitlines() if not line.startswith(_JAVA_FRAMES)]
        return "\n".join(lines[-count:]) or f"({self.log(name)} is empty)"

    def _file(self, name: str) -> Path:
        return self.run / f"{name}.pid"

    def _has_recorded(self, name: str, pid: int) -> bool:
        record = self.record(name)
        return record is not None and record.pid == pid


@contextmanager
def _signals_held() -> Iterator[None]:
    """Defer signals until the block ends: a process that was started but not recorded could not be found and stopped."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[int] = []
    before = {number: signal.signal(number, lambda n, _: arrived.append(n)) for number in _ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        for late in arrived:
            signal.raise_signal(late)


_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _fresh_log(path: Path) -> int:
    if path.exists():
        path.replace(path.with_name(f"{path.name}.1"))
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, PRIVATE_FILE)


def _is_alive(record: Record) -> bool:
    child = _children.get(record.pid)
    if child is not None and child.poll() is not None:
        return False
    stat = stat_of(record.pid)
    return stat is not None and not stat.has_ended and _is_same(record, stat)


def _is_same(record: Record, stat: Stat) -> bool:
    return record.boot == boot_id() and stat.start_ticks == record.leader.start_ticks


def _members(record: Record) -> list[Stat]:
    """Return the living processes of the component's session.

    While one of them lives, the kernel gives the session's id to no new process. So a process with that pid and another start
    time shows that the session has ended, and that others now have its id.
    """
    leader = stat_of(record.pid)
    if record.boot != boot_id() or (leader is not None and not _is_same(record, leader)):
        return []
    return list(session_members(record.pid))


def _end_session(record: Record, name: str) -> None:
    for number, seconds in ((signal.SIGTERM, _FOLLOWERS_SECONDS), (signal.SIGKILL, _KILL_SECONDS)):
        for member in _members(record):
            _signal(member.pid, number)
        if until(lambda: not _is_alive(record) and not _members(record), seconds):
            return
    pids = ", ".join(str(member.pid) for member in _members(record))
    raise STACK_FAILED.retryable(f"{name}: processes {pids} survived SIGKILL for {_KILL_SECONDS:.0f} s")


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return  # it ended by itself meanwhile
