"""What a piece of work took: seconds, CPU seconds of the machine, and the memory of processes, read from /proc.

CPU time is the machine's, less that of the measuring process: it holds also what a broker does for a reader, and processes
that began and ended in between, and it moves less than rates do. So nothing else may run. The broker's own share is told apart.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_SAMPLE_SECONDS: Final = 0.5
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_BUSY: Final = (0, 1, 2, 5, 6)
"""Columns of /proc/stat that are work: user, nice, system, irq, softirq; not idle, not waiting for a disk, nor for a core that a
hypervisor gave to another machine."""


@dataclass
class Reading:
    """What was measured; complete when the block of `measured` has ended.

    Attributes:
        began: Unix time.
        seconds: Wall-clock time.
        cpu_seconds: CPU time of the machine, less that of this process.
        broker_cpu_seconds: CPU time of the broker, a part of it.
        process_cpu_seconds: CPU time of the watched processes; of one that ended, what it had taken when it was last seen. It is
            right for processes that stay, whatever else the machine does.
        peak_bytes: Most memory that the watched processes had together, shared pages counted once.
    """

    began: float = 0.0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    broker_cpu_seconds: float = 0.0
    process_cpu_seconds: float = 0.0
    peak_bytes: int = 0
    _ended: threading.Event = field(default_factory=threading.Event, repr=False)

    @property
    def side_cpu_seconds(self) -> float:
        """CPU time without the broker's."""
        return self.cpu_seconds - self.broker_cpu_seconds


@contextmanager
def measured(broker: int, watched: Callable[[], Iterator[int]] = lambda: iter(())) -> Iterator[Reading]:
    """Measure a block.

    Args:
        broker: Id of the broker's process.
        watched: Tells the ids of the side's processes; asked twice a second.
    """
    reading = Reading(began=time.time())
    cpu_by_pid = {pid: _cpu_seconds(pid) for pid in watched()}
    sampler = threading.Thread(target=_sample, args=(reading, watched, cpu_by_pid), daemon=True)
    sampler.start()
    began, machine, own = time.monotonic(), _machine_cpu_seconds(), time.process_time()
    of_broker = _cpu_seconds(broker)
    try:
        yield reading
    finally:
        reading.seconds = time.monotonic() - began
        reading.cpu_seconds = _machine_cpu_seconds() - machine - (time.process_time() - own)
        reading.broker_cpu_seconds = _cpu_seconds(broker) - of_broker
        reading._ended.set()
        sampler.join()


def processes_with(variable: str, value: str) -> Iterator[int]:
    """Ids of live processes that inherited an environment variable, however they detached."""
    marker = f"{variable}={value}".encode()
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal() and int(folder.name) != os.getpid():
            try:
                if marker in (folder / "environ").read_bytes().split(b"\0"):
                    yield int(folder.name)
            except OSError:  # it ended meanwhile
                continue


def _machine_cpu_seconds() -> float:
    """CPU time that all processes of the machine have taken since it started."""
    columns = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()[1:]
    return sum(int(columns[index]) for index in _BUSY) / _TICKS


def _cpu_seconds(pid: int) -> float:
    """CPU time of a process, without its children; 0 if it is gone."""
    try:
        stat = Path("/proc", str(pid), "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(stat[11]) + int(stat[12])) / _TICKS


def _sample(reading: Reading, watched: Callable[[], Iterator[int]], before: dict[int, float]) -> None:
    cpu_by_pid, is_last = dict(before), False
    while not is_last:
        is_last = reading._ended.wait(_SAMPLE_SECONDS)
        pids = list(watched())
        cpu_by_pid |= {pid: max(_cpu_seconds(pid), cpu_by_pid.get(pid, 0.0)) for pid in pids}
        reading.peak_bytes = max(reading.peak_bytes, sum(map(_memory, pids)))
    reading.process_cpu_seconds = sum(cpu_by_pid.values()) - sum(before.values())


def _memory(pid: int) -> int:
    """Bytes of a process, pages that are shared divided among those that share them."""
    try:
        for line in Path("/proc", str(pid), "smaps_rollup").read_text(encoding="ascii").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        return 0
    return 0
