"""The conditions of all pipelines, kept fresh in the background: whoever asks gets what is known, at once."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from threading import Event, Lock, Thread
from typing import Final, Self

from frazil.errors import FrazilError
from frazil.monitor.batches import Ledgers
from frazil.monitor.condition import Condition, Runs
from frazil.monitor.promise import promise_of
from frazil.monitor.reading import read
from frazil.monitor.state import Promise
from frazil.monitor.table_health import table_health
from frazil.pipeline.model import Pipeline
from frazil.project import Project
from frazil.run.scope import utc_now

_LOG: Final = logging.getLogger(__name__)
# Where nobody asked for logs, nothing is drawn over a screen; each condition says what is wrong.
_LOG.addHandler(logging.NullHandler())

THREADS: Final = 4
"""Mostly they wait for brokers and storages."""

REFRESH_SECONDS: Final = 15.0
"""From one look at a pipeline to the next; longer where looks take longer."""

HEALTH_SECONDS: Final = 600.0
"""From one look at the health of a pipeline's tables to the next: it reads all their manifests."""

RunsOf = Callable[[str], Runs]
"""What Airflow knows of a pipeline, by its name."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A condition and when it was read, by the monotonic clock."""

    condition: Condition
    read_at: float

    @property
    def age(self) -> float:
        """Seconds since it was read."""
        return time.monotonic() - self.read_at


def _no_runs(_: str) -> Runs:
    return Runs()


class Watch:
    """Reads the conditions of pipelines again and again, a few at a time. Use it as a context manager, or close it.

    A pipeline that can't be read is one of many: its condition says why, and the others go on.

    Args:
        load: Reads the project anew, so that files that come and go are followed.
        names: Pipelines to watch; all if left out.
        runs_of: What Airflow knows of a pipeline.
        refresh_seconds: From one look at a pipeline to the next.
        ledgers: Shared with whoever shows their batches.
        threads: How many pipelines are looked at together.
    """

    def __init__(
        self,
        load: Callable[[], Project],
        names: Iterable[str] = (),
        runs_of: RunsOf = _no_runs,
        refresh_seconds: float = REFRESH_SECONDS,
        ledgers: Ledgers | None = None,
        threads: int = THREADS,
    ) -> None:
        self.ledgers = ledgers or Ledgers()
        self._load, self._names, self._runs_of = load, frozenset(names), runs_of
        self._refresh_seconds = refresh_seconds
        self._seen: dict[str, Seen | None] = {}
        self._promises: dict[str, Promise] = {}
        self._opened: set[str] = set()
        self._health: dict[str, tuple[Mapping[str, int], float]] = {}
        self._lock, self._closed, self._round_done = Lock(), Event(), Event()
        self._pool = ThreadPoolExecutor(threads, "frazil-watch")
        self._thread = Thread(target=self._run, name="frazil-watch", daemon=True)

    def start(self) -> Self:
        """Begin to look."""
        self._thread.start()
        return self

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Look no more. A look that is under way is not waited for."""
        with self._lock:  # nothing is begun after it
            self._closed.set()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def snapshot(self) -> Mapping[str, Condition | None]:
        """The condition of every pipeline, by name; None of one that was not read yet. Never waits for a look."""
        return {name: None if seen is None else seen.condition for name, seen in self.seen().items()}

    def seen(self) -> Mapping[str, Seen | None]:
        """The same, with ages."""
        with self._lock:
            return dict(sorted(self._seen.items()))

    def promises(self) -> Mapping[str, Promise]:
        """What is promised of every pipeline, by name."""
        with self._lock:
            return dict(self._promises)

    def wait(self, seconds: float) -> bool:
        """Whether a round over all pipelines ended, since this was asked last, or does so within this time."""
        is_done = self._round_done.wait(seconds)
        self._round_done.clear()
        return is_done

    def _run(self) -> None:
        while not self._closed.is_set():
            began = time.monotonic()
            try:
                self._round(self._load())
            except FrazilError as problem:  # a settings file that somebody edits now: what is known stays, and ages
                _LOG.warning("the project can't be read: %s", problem)
            self._round_done.set()
            left = self._refresh_seconds - (time.monotonic() - began)
            self._closed.wait(max(0.0, left) if math.isfinite(left) else None)

    def _round(self, project: Project) -> None:
        """Look at every pipeline once."""
        wanted = {name: of for name, of in project.pipelines.usable.items() if not self._names or name in self._names}
        self._open({name for of in wanted.values() for name in of.catalogs}, project)
        with self._lock:
            self._seen = {name: self._seen.get(name) for name in wanted}
            self._promises = {name: promise_of(of, utc_now()) for name, of in wanted.items()}
            if self._closed.is_set():
                return
            looks = {name: self._pool.submit(self._look, project, of) for name, of in wanted.items()}
        wait(looks.values())
        for name, look in looks.items():
            failure = None if look.cancelled() else look.exception()
            if failure is not None:  # a fault of ours: told, and the others go on
                _LOG.error("looking at pipeline %s failed", name, exc_info=failure)

    def _open(self, catalogs: set[str], project: Project) -> None:
        """Open each catalog once before many threads do: a SQL catalog makes its tables where they are not there."""
        for name in sorted(catalogs - self._opened):
            try:
                project.lake(name).find_table("frazil.nothing")
                self._opened.add(name)
            except FrazilError as problem:  # each pipeline's condition says so, too
                _LOG.info("catalog %s: %s", name, problem)

    def _look(self, project: Project, pipeline: Pipeline) -> None:
        name = pipeline.name
        known = self._health.get(name)
        found = read(project, pipeline, runs=self._runs_of(name), ledgers=self.ledgers)
        self._note(found if known is None else replace(found, health=known[0]))
        if known is None or time.monotonic() - known[1] > HEALTH_SECONDS:
            try:
                scores = table_health(project, pipeline)
            except FrazilError as problem:  # the condition says what can't be read
                _LOG.info("health of the tables of pipeline %s: %s", name, problem)
            else:
                self._health[name] = scores, time.monotonic()
                self._note(replace(found, health=scores))

    def _note(self, condition: Condition) -> None:
        with self._lock:
            if condition.pipeline in self._seen:
                self._seen[condition.pipeline] = Seen(condition, time.monotonic())
