"""Children that are started, killed at a named point, paused there, continued and waited for."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Final

from frazil.failpoints import Failpoint
from frazil.runtime.process import until
from tests.chaos.child import Deed, enter
from tests.fork_server import fork_server

SECONDS: Final = 120
"""Bounds everything that a child does; it takes a second or two."""

_OFTEN: Final = 0.005
"""Between two looks at a child, in seconds: what is waited for takes milliseconds."""


@dataclass(frozen=True)
class ExitResult:
    """How a child ended: its exit code (negative: the signal that killed it) and what it said."""

    code: int
    output: str

    @property
    def killed(self) -> bool:
        """Whether SIGKILL ended it."""
        return self.code == -signal.SIGKILL


@dataclass
class Child:
    """A process that does one deed."""

    process: BaseProcess
    log: Path

    @property
    def output(self) -> str:
        """What it reported so far."""
        return self.log.read_text() if self.log.exists() else ""

    def wait(self) -> ExitResult:
        """Wait for its end."""
        self.process.join(SECONDS)
        assert self.process.exitcode is not None, f"a child did not end within {SECONDS} s; it said:\n{self.output}"
        return ExitResult(self.process.exitcode, self.output)

    def succeed(self) -> str:
        """Wait for its end, which must be a good one, and return what it said."""
        ended = self.wait()
        assert ended.code == 0, f"exit code {ended.code}:\n{ended.output}"
        return ended.output

    def die(self) -> None:
        """Wait until it is killed by the point it was told to die at."""
        ended = self.wait()
        assert ended.killed, f"never got to its crash point: exit code {ended.code}\n{ended.output}"

    def pause(self) -> None:
        """Wait until it is stopped by the point it was told to stop at."""
        assert self.stands_or_ended(), f"ended before its crash point:\n{self.output}"

    def stands_or_ended(self) -> bool:
        """Wait until it stands still, or is gone without having got there: then False."""
        assert until(lambda: self._state() in "TZX", SECONDS, _OFTEN), f"neither stopped nor ended:\n{self.output}"
        return self._state() == "T"

    def resume(self) -> None:
        """Let it go on."""
        os.kill(self._pid, signal.SIGCONT)

    def kill(self) -> None:
        """End it now, wherever it is."""
        self.process.kill()
        self.process.join(SECONDS)

    @property
    def _pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    def _state(self) -> str:
        """One letter of /proc: R, S, D, T (stopped); X when it is gone."""
        try:
            return Path(f"/proc/{self._pid}/stat").read_text().rpartition(") ")[2][0]
        except (FileNotFoundError, ProcessLookupError):
            return "X"


@dataclass
class Nursery:
    """Starts children and leaves none behind."""

    folder: Path
    children: list[Child] = field(default_factory=list)

    def start(self, deed: Deed, env: Mapping[str, str], crash: str = "") -> Child:
        """Start a child."""
        log = self.folder / f"child-{len(self.children)}.log"
        process = fork_server().Process(target=enter, args=(deed, dict(env), crash, log), daemon=True)
        process.start()
        child = Child(process, log)
        self.children.append(child)
        return child


@contextmanager
def nursery(folder: Path) -> Iterator[Nursery]:
    """A nursery that ends every child that is left."""
    folder.mkdir(parents=True, exist_ok=True)
    nursery = Nursery(folder)
    try:
        yield nursery
    finally:
        for child in nursery.children:
            child.kill()
            child.process.close()


def kill_at(point: Failpoint, time: int = 1) -> str:
    """The order to die at a point."""
    return f"{point}:{time}=kill"


def term_at(point: Failpoint, time: int = 1) -> str:
    """The order to be asked to stop at a point."""
    return f"{point}:{time}=term"


def stop_at(point: Failpoint, time: int = 1) -> str:
    """The order to pause at a point."""
    return f"{point}:{time}=stop"
