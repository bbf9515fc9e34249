"""Read /proc: which processes exist, when they started, whose session they are in. Linux only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from frazil.error_codes import STACK_FAILED

_PROC = Path("/proc")
_STATE, _SESSION, _THREADS, _START_TICKS = 0, 3, 17, 19
"""Positions in /proc/PID/stat after the command's closing parenthesis (proc_pid_stat(5): fields
3, 6, 20 and 22)."""

ENDED_STATES = "ZX"
"""Zombie and dead: the process has ended and only waits to be reaped."""


@dataclass(frozen=True, slots=True)
class Stat:
    """One process as the kernel sees it.

    Attributes:
        threads: Number of threads that have not ended.
        session: Id of its session: the pid of the process that opened it.
        start_ticks: Start time in clock ticks since boot. With the pid it names one process for
            ever (of one boot).
    """

    pid: int
    state: str
    threads: int
    session: int
    start_ticks: int

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended except for its zombie entry. A JVM's first thread may end while others still hold its
        ports.
        """
        return self.state in ENDED_STATES and self.threads <= 1


def parse_stat(text: str) -> Stat:
    """Read one /proc/PID/stat line."""
    # The command's name stands in parentheses and may itself hold spaces and parentheses.
    pid, _, after_pid = text.partition(" ")
    fields = after_pid.rpartition(")")[2].split()
    return Stat(int(pid), fields[_STATE], int(fields[_THREADS]), int(fields[_SESSION]), int(fields[_START_TICKS]))


def stat_of(pid: int) -> Stat | None:
    """Return what the kernel knows about a process; None when there is none."""
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
    """Return the id of the running boot: pids and ticks of another boot mean nothing now.

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
