"""Who ingests on this machine: every process that runs batches says so while it does, so that it can be asked to stop."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from frazil.local.files import private_folder, write_atomically
from frazil.local.home import Home
from frazil.local.proc import stat_of


@dataclass(frozen=True, slots=True)
class Driver:
    """A process that runs the batches of a pipeline.

    Attributes:
        pid: Process id.
        start_ticks: When it started, in the kernel's clock: with the pid it names one process. 0 where there is no /proc.
        pipeline: Name of the pipeline.
        run: Id of the run.
    """

    pid: int
    start_ticks: int
    pipeline: str
    run: str

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended."""
        found = stat_of(self.pid)
        return found is not None and not found.has_ended and found.start_ticks == self.start_ticks

    def ask_to_stop(self) -> None:
        """Send SIGTERM: it finishes what it decided, and ends. One that has ended is left alone."""
        if not self.is_alive:
            return
        try:
            os.kill(self.pid, signal.SIGTERM)
        except ProcessLookupError:
            return  # it ended by itself meanwhile


@contextmanager
def registered(home: Home, pipeline: str, run: str, report: Callable[[str], None]) -> Iterator[None]:
    """While the block runs, `drivers` finds this process; if the home can't be written, nobody does, and `report` is told."""
    stat = stat_of(os.getpid())
    driver = Driver(os.getpid(), stat.start_ticks if stat else 0, pipeline, run)
    file = _folder(home) / f"{pipeline}-{driver.pid}.json"
    try:
        private_folder(_folder(home))
        write_atomically(file, json.dumps(asdict(driver)))
    except OSError as error:  # a batch must not fail for it
        report(f"`frazil stop` can't find this run: {error}")
        yield
        return
    try:
        yield
    finally:
        with suppress(OSError):  # what is left names a dead process, and goes with the next look
            file.unlink(missing_ok=True)


def drivers(home: Home, pipeline: str, run: str | None = None) -> list[Driver]:
    """Return the processes of this machine that run batches of a pipeline, of one run or of any, for this home.

    Files of dead ones are removed.
    """
    alive: list[Driver] = []
    for file in sorted(_folder(home).glob("*.json")):
        try:
            driver = Driver(**json.loads(file.read_text(encoding="utf-8")))
        except FileNotFoundError:
            continue  # it ended meanwhile
        if not driver.is_alive:
            file.unlink(missing_ok=True)
        elif driver.pipeline == pipeline and run in (None, driver.run):
            alive.append(driver)
    return alive


def _folder(home: Home) -> Path:
    return home.root / "drivers"
