"""Registry of the processes that run batches for a home, so that they can be asked to stop."""

from __future__ import annotations

import fcntl
import json
import os
import platform
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from frazil.runtime.home import Home, private_folder
from frazil.runtime.process import stat_of

_UNFINISHED = ".unfinished"
"""Suffix of a file that is being written. No process reads such a file; a killed process leaves an empty one."""


@dataclass(frozen=True, slots=True)
class Driver:
    """A process that runs the batches of a pipeline. It may be in another container that has the same home.

    Attributes:
        start_ticks: When it started, in the kernel's clock: with the pid it names one process. 0 where there is no /proc.
        host: Name of the machine or container that it runs in.
    """

    pid: int
    start_ticks: int
    host: str
    pipeline: str
    run: str

    @property
    def is_here(self) -> bool:
        """Whether it is a process of this machine or container, and has not ended."""
        stat = stat_of(self.pid)
        return stat is not None and not stat.has_ended and stat.start_ticks == self.start_ticks

    def ask_to_stop(self) -> None:
        """Send SIGTERM: the process finishes its decided batch and ends. Does nothing if it has ended or runs elsewhere."""
        if not self.is_here:
            return
        try:
            os.kill(self.pid, signal.SIGTERM)
        except ProcessLookupError:
            return  # it ended by itself meanwhile


@contextmanager
def registered(home: Home, pipeline: str, run: str, report: Callable[[str], None]) -> Iterator[None]:
    """While the block runs, `drivers` finds this process. If the home is not writable, it does not, and `report` gets a line."""
    stat = stat_of(os.getpid())
    driver = Driver(os.getpid(), stat.start_ticks if stat else 0, platform.node(), pipeline, run)
    try:
        file, lock = _written(home, driver)
    except OSError as error:  # a batch must not fail for it
        report(f"`frazil stop` can't find this run: {error}")
        yield
        return
    with lock:
        try:
            yield
        finally:
            with suppress(OSError):  # what is left is held by nobody, and goes with the next look
                file.unlink(missing_ok=True)


def drivers(home: Home, pipeline: str, run: str | None = None) -> list[Driver]:
    """Return the processes that run batches of a pipeline for this home, of one run or of any, also in other containers.

    Files of dead ones are removed.
    """
    alive: list[Driver] = []
    for file in sorted(_folder(home).glob("*.json")):
        try:
            with file.open(encoding="utf-8") as content:
                if not _is_held(content):
                    file.unlink(missing_ok=True)
                    continue
                driver = Driver(**json.load(content))
        except FileNotFoundError:
            continue  # it ended meanwhile
        # A session says that it is at work, and each of its batches says so again.
        if driver.pipeline == pipeline and run in (None, driver.run) and driver not in alive:
            alive.append(driver)
    return alive


def _written(home: Home, driver: Driver) -> tuple[Path, IO[str]]:
    """Write a driver's file, and lock it: the lock ends with the process, however that ends, and is seen by every container.

    A pid says nothing beyond the container it is of. The file gets its name when it is whole and locked.
    """
    folder = private_folder(_folder(home))
    handle, name = tempfile.mkstemp(dir=folder, prefix=f"{driver.pipeline}-", suffix=_UNFINISHED)
    handle_file = os.fdopen(handle, "w", encoding="utf-8")
    try:
        fcntl.flock(handle_file, fcntl.LOCK_EX)
        json.dump(asdict(driver), handle_file)
        handle_file.flush()
        unfinished = Path(name)
        return unfinished.replace(unfinished.with_suffix(".json")), handle_file
    except OSError:
        handle_file.close()
        raise


def _is_held(content: IO[str]) -> bool:
    try:
        fcntl.flock(content, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _folder(home: Home) -> Path:
    return home.root / "drivers"
