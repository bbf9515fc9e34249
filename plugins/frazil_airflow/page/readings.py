"""Conditions of pipelines, read beside the requests that show them: a page never waits for Kafka or a catalog."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Lock, Thread
from typing import Generic, TypeVar

T = TypeVar("T")

AGE_SECONDS = 15.0
"""A reading is read anew when it is older."""

FORSAKEN_SECONDS = 300.0
"""When nobody asked for so long, nothing is read any more: a page that is not looked at costs nothing."""

AT_ONCE = 4
"""Pipelines that are read at a time, so that one whose cluster does not answer holds up few others."""


@dataclass
class Readings(Generic[T]):
    """What was read last, by name. The first question starts the reading; with the last looker it ends.

    Attributes:
        names: Tells which there are now.
        read: Reads one; takes as long as it takes.
        age: Seconds after which one is read again.
        forsaken: Seconds without a question after which reading ends.
        clock: Tells seconds.
    """

    names: Callable[[], Iterable[str]]
    read: Callable[[str], T]
    age: float = AGE_SECONDS
    forsaken: float = FORSAKEN_SECONDS
    clock: Callable[[], float] = time.monotonic
    _found: dict[str, T] = field(default_factory=dict)
    _tried: dict[str, float] = field(default_factory=dict)
    _asked: float = 0.0
    _lock: Lock = field(default_factory=Lock)
    _thread: Thread | None = None

    def of(self, name: str) -> T | None:
        """What was read last; None before that. Never waits."""
        with self._lock:
            self._asked = self.clock()
            if self._thread is None or not self._thread.is_alive():
                self._thread = Thread(target=self._keep_reading, name="frazil-readings", daemon=True)
                self._thread.start()
        return self._found.get(name)

    def _keep_reading(self) -> None:
        with ThreadPoolExecutor(AT_ONCE, "frazil-reading") as pool:
            while self.clock() - self._asked < self.forsaken:
                due = self._due()
                if due and not self._tried:
                    self._read(due[0])  # alone: the first look into a SQL catalog makes its tables
                    continue
                for _ in pool.map(self._read, due):
                    pass
                if not due:
                    time.sleep(min(1.0, self.age))

    def _due(self) -> list[str]:
        """Those that are old, the oldest first. A try counts, whatever came of it: one can't hold up the others."""
        now = self.clock()
        names = [name for name in self.names() if now - self._tried.get(name, float("-inf")) >= self.age]
        return sorted(names, key=lambda name: self._tried.get(name, float("-inf")))

    def _read(self, name: str) -> None:
        self._tried[name] = self.clock()
        self._found[name] = self.read(name)
