"""Registry of drivers: the processes that run batches for a home, so that `frazil stop` finds them."""

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
"""Suffix of a file that is being written, which no process reads. A kill may leave one."""


@dataclass(frozen=True, slots=True)
class Driver:
    """A process that runs the batches of a pipeline, perhaps in another container with the same home.

    Attributes:
        start_ticks: Start time by the kernel's clock: with the pid it names one process. 0 where there is no /proc.
        host: Name of its machine or container.
    """

    pid: int
    start_ticks: int
    host: str
    pipeline: str
    run: str

    @property
    def is_here(self) -> bool:
        """Whether it is a living process of this machine or container."""
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
    """While the block runs, `drivers` finds this process. In a home that is not writable it does not, and `report` gets a line."""
    stat = stat_of(os.getpid())
    driver = Driver(os.getpid(), stat.start_ticks if stat else 0, platform.node(), pipeline, run)
    try:
        file, lock = _write_locked(home, driver)
    except OSError as error:  # no reason for a batch to fail
        report(f"`frazil stop` can't find this run: {error}")
        yield
        return
    with lock:
        try:
            yield
        finally:
            with suppress(OSError):  # `drivers` removes a file that stays, since its lock is gone
                file.unlink(missing_ok=True)


def drivers(home: Home, pipeline: str, run: str | None = None) -> list[Driver]:
    """Return the drivers of a pipeline in this home, of one run or of all, also in other containers; remove files of dead ones."""
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
        # A session registers itself, and each of its batches does so again.
        if driver.pipeline == pipeline and run in (None, driver.run) and driver not in alive:
            alive.append(driver)
    return alive


def _write_locked(home: Home, driver: Driver) -> tuple[Path, IO[str]]:
    """Write a driver's file and lock it. Every container sees the lock, and it ends with the process, however that ends.

    A pid means nothing in another container. The file gets its final name once it is whole and locked.
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
