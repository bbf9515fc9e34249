"""The conditions of all pipelines and captures, refreshed in the background: readers get the last one at once."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from threading import Event, Lock, Thread
from typing import Final, Self

from frazil.errors import FrazilError
from frazil.monitor.batches import Ledgers, Series, last_day
from frazil.monitor.captures import read_capture
from frazil.monitor.condition import Condition, Runs
from frazil.monitor.freshness import freshness_objective
from frazil.monitor.reading import read, table_health
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.pipeline.settings.capture import Flow
from frazil.project import Project
from frazil.run.state.context import utc_now

_LOG: Final = logging.getLogger(__name__)
# Where nobody asked for logs, nothing is drawn over a screen; each condition says what is wrong.
_LOG.addHandler(logging.NullHandler())

THREADS: Final = 4
"""Mostly they wait for brokers and storages."""

REFRESH_SECONDS: Final = 15.0
"""From one look at a pipeline to the next; longer where looks take longer."""

HEALTH_SECONDS: Final = 600.0
"""From one look at the health of a pipeline's tables to the next: it reads all their manifests."""

HEALTH_AGAIN_SECONDS: Final = 60.0
"""From a look at the health of tables that can't be read to the next."""

RunsOf = Callable[[Iterable[str]], Mapping[str, Runs]]
"""What Airflow knows of pipelines, by their names; those that it does not know are left out."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The last condition read of a pipeline, and when, by the monotonic clock.

    Attributes:
        condition: Its condition.
        series: What it landed; the previous reading if the ledger can't be read now.
        read_at: When that was.
    """

    condition: Condition
    series: Series
    read_at: float


def _no_runs(_: Iterable[str]) -> Mapping[str, Runs]:
    return {}


class Watch:
    """Reads the conditions of pipelines and captures again and again, a few at a time. Use it as a context manager, or close it.

    If a pipeline can't be read, its condition says why, and the others are still read.

    Args:
        load: The project as it is now, so that files that come and go are followed.
        names: Keys of pipelines and captures to watch; all if left out.
        runs_of: Reads Airflow's runs of pipelines.
        refresh_seconds: From one reading of a pipeline to the next.
        threads: How many pipelines are read at the same time.
        forsaken_seconds: After so long without requests, reading pauses until the next request.
    """

    def __init__(
        self,
        load: Callable[[], Project],
        names: Iterable[str] = (),
        runs_of: RunsOf = _no_runs,
        refresh_seconds: float = REFRESH_SECONDS,
        *,
        threads: int = THREADS,
        forsaken_seconds: float = math.inf,
    ) -> None:
        self.ledgers = Ledgers()
        self._load, self._names, self._runs_of = load, frozenset(names), runs_of
        self._refresh_seconds, self._forsaken_seconds = refresh_seconds, forsaken_seconds
        self._seen: dict[str, Reading | None] = {}
        self._promises: dict[str, float | None] = {}
        self._health: dict[str, tuple[Mapping[str, int], float]] = {}
        self._lock, self._closed, self._round_done = Lock(), Event(), Event()
        self._asked, self._asked_at = Event(), time.monotonic()
        self._pool = ThreadPoolExecutor(threads, "frazil-watch")
        self._thread: Thread | None = None

    def start(self) -> Self:
        """Start watching."""
        self._thread = Thread(target=self._run, name="frazil-watch", daemon=True)
        self._thread.start()
        return self

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop watching, without waiting for a read in progress."""
        with self._lock:  # nothing is begun after it
            self._closed.set()
        self._asked.set()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def snapshot(self) -> Mapping[str, Condition | None]:
        """The condition of every pipeline by name; None before its first reading. Never waits."""
        return {name: None if reading is None else reading.condition for name, reading in self.readings().items()}

    def readings(self) -> Mapping[str, Reading | None]:
        """The last reading of every pipeline by name, with landed records and ages."""
        self._note_asked()
        with self._lock:
            return dict(sorted(self._seen.items()))

    def reading(self, name: str) -> Reading | None:
        """The last reading of one pipeline; None before the first. Never waits."""
        self._note_asked()
        with self._lock:
            return self._seen.get(name)

    def promises(self) -> Mapping[str, float | None]:
        """How many seconds a record of each pipeline may wait, by name."""
        with self._lock:
            return dict(self._promises)

    def wait(self, seconds: float) -> bool:
        """Whether a round over all pipelines ended since the last call, or ends within this time."""
        is_done = self._round_done.wait(seconds)
        self._round_done.clear()
        return is_done

    def _note_asked(self) -> None:
        self._asked_at = time.monotonic()
        self._asked.set()
        with self._lock:  # a fault of ours ended it: whoever asks has it look again
            if self._thread is not None and not self._thread.is_alive() and not self._closed.is_set():
                self.start()

    def _run(self) -> None:
        project: Project | None = None
        while not self._closed.is_set():
            began = time.monotonic()
            try:
                project = self._load()
                self._round(project)
            except FrazilError as problem:  # a settings file that somebody edits now: what is known stays, and ages
                _LOG.warning("the project can't be read: %s", problem)
            self._round_done.set()
            seconds_left = self._refresh_seconds - (time.monotonic() - began)
            self._closed.wait(max(0.0, seconds_left) if math.isfinite(seconds_left) else None)
            self._rest(project)

    def _rest(self, project: Project | None) -> None:
        """After a long time without requests, close the catalogs and wait for the next request."""
        self._asked.clear()  # before the look at the clock: a question between them ends the wait
        if not self._closed.is_set() and time.monotonic() - self._asked_at >= self._forsaken_seconds:
            if project is not None:
                project.close()
            self._asked.wait()

    def _round(self, project: Project) -> None:
        """Look at every pipeline once."""
        pipelines = {
            name: pipeline for name, pipeline in project.flows().items() if not self._names or name in self._names
        }
        with self._lock:
            self._seen = {name: self._seen.get(name) for name in pipelines}
            self._promises = {name: freshness_objective(pipeline, utc_now()) for name, pipeline in pipelines.items()}
            if self._closed.is_set():
                return
            runs = self._pool.submit(self._runs_of, tuple(pipelines))
            looks = {
                name: self._pool.submit(self._look, project, pipeline, runs) for name, pipeline in pipelines.items()
            }
        for name, look in looks.items():
            try:
                failure = look.exception()
            except CancelledError:  # closed meanwhile; to wait for all of them would never end
                continue
            if failure is not None:  # a fault of ours: told, and the others go on
                _LOG.error("reading the state of pipeline %s failed", name, exc_info=failure)

    def _look(self, project: Project, flow: Flow, runs: Future[Mapping[str, Runs]]) -> None:
        if isinstance(flow, Pipeline):
            self._look_at_pipeline(project, flow, runs)
        else:
            runs_of_capture = runs.result().get(flow.unique_name, Runs())
            self._note(read_capture(project, flow, runs=runs_of_capture), Series())

    def _look_at_pipeline(self, project: Project, pipeline: Pipeline, runs: Future[Mapping[str, Runs]]) -> None:
        name = pipeline.name
        with self._lock:
            before = self._seen.get(name)
        condition = read(project, pipeline, ledgers=self.ledgers)
        # None is ever unmade: those that were known stay while nobody can tell.
        auto_created = condition.auto_created or (before.condition.auto_created if before is not None else ())
        scores, due = self._health.get(name, ({}, -math.inf))
        condition = replace(condition, runs=runs.result().get(name, Runs()), health=scores, auto_created=auto_created)
        series = self._series(project, pipeline, condition, before)
        is_due = condition.n is not None and time.monotonic() >= due
        if before is None or not is_due:  # whoever waits for the first look need not wait for the health, too
            self._note(condition, series)
        if is_due:
            self._note(replace(condition, health=self._scores(project, pipeline, scores)), series)

    def _series(self, project: Project, pipeline: Pipeline, condition: Condition, before: Reading | None) -> Series:
        """Series of landed records from the ledger alone; the previous series if the ledger can't be read."""
        try:
            return last_day(self.ledgers.load(project, pipeline), condition.read_at)
        except FrazilError as problem:  # the condition says so, too
            _LOG.info("ledger of pipeline %s: %s", pipeline.name, problem)
        return before.series if before is not None else Series()

    def _scores(self, project: Project, pipeline: Pipeline, previous: Mapping[str, int]) -> Mapping[str, int]:
        """Health of the tables, read rarely; the last values if they can't be read now."""
        scores = previous
        try:
            scores, pause = table_health(project, pipeline), HEALTH_SECONDS
        except FrazilError as problem:  # the condition says what can't be read
            _LOG.info("health of the tables of pipeline %s: %s", pipeline.name, problem)
            pause = HEALTH_AGAIN_SECONDS
        self._health[pipeline.name] = scores, time.monotonic() + pause
        return scores

    def _note(self, condition: Condition, series: Series) -> None:
        with self._lock:
            if condition.pipeline in self._seen:
                self._seen[condition.pipeline] = Reading(condition, series, time.monotonic())
