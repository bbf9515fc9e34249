"""What the page reads, of the project that this Airflow runs: its files, tables and topics."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from threading import BoundedSemaphore, Lock
from typing import TYPE_CHECKING

from frazil.errors import FrazilError, Retryable
from frazil.monitor.batches import Ledgers
from frazil.monitor.condition import Condition
from frazil.monitor.promise import promise_of
from frazil.monitor.reading import read
from frazil.monitor.table_health import table_health
from frazil.monitor.watch import HEALTH_SECONDS
from frazil.pipeline.load import SCHEMAS
from frazil.project import Places, Project
from frazil.report import dead_letters, table_past
from frazil_airflow.page.readings import Readings
from frazil_airflow.page.source import Series

if TYPE_CHECKING:
    from frazil.batch.letters import LetterChoice, Place
    from frazil.iceberg.letter_scan import State as LetterState
    from frazil.monitor.batches import BatchPage, Ledger
    from frazil.pipeline.model import Pipeline
    from frazil.report.dead_letters import LetterMark, Listing, WholeLetter
    from frazil.report.table_past import SchemaVersion, Snapshots

_LOG = logging.getLogger(__name__)

SLICE = timedelta(minutes=30)
SLICES = 48

LOOK_SECONDS = 1.0
"""From one look for changed files to the next: a page asks for the project once per pipeline."""

HEALTH_AGAIN_SECONDS = 60.0
"""From a look at the health of tables that can't be read to the next."""

SEATS = 8
"""Requests that read tables at a time. Airflow's own requests share the threads: a catalog that hangs must not take them all."""

SEAT_SECONDS = 1.5
"""How long a request waits for one of them before it says that the page is busy."""

MOST_SCHEMAS = 50
"""Schemas that are shown of a table: evolution is rare."""

_Stamp = tuple[tuple[str, int, int], ...]


@dataclass(frozen=True)
class _Reading:
    condition: Condition
    series: Series


class ProjectSource:
    """The project of this process. Files are read again when one of them changed."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env
        self._lock = Lock()
        self._loaded: tuple[_Stamp, Project] | None = None
        self._looked_at = 0.0
        self._health: dict[str, tuple[Mapping[str, int], float]] = {}
        self._made: dict[str, tuple[str, ...]] = {}
        self._landed: dict[str, Series] = {}
        self._ledgers = Ledgers()
        self._seats = BoundedSemaphore(SEATS)
        self._readings = Readings(self.pipelines, self._read)

    @property
    def project(self) -> Project:
        """Settings and pipelines in force: while the files are broken, as they were before.

        Raises:
            ConfigError: They were broken from the start.
        """
        with self._lock:
            now = time.monotonic()
            if self._loaded is None or now - self._looked_at >= LOOK_SECONDS:
                stamp = _stamp(Places.resolve(self._env))
                if self._loaded is None or self._loaded[0] != stamp:
                    self._loaded = stamp, self._load()
                self._looked_at = now
            return self._loaded[1]

    def _load(self) -> Project:
        try:
            return Project.load(self._env)
        except FrazilError as problem:
            if self._loaded is None:
                raise
            # Of no concern to those who look; whoever edits the file is told by its own check.
            _LOG.warning("the page goes on with the settings that it read before: %s", problem)
            return self._loaded[1]

    def pipelines(self) -> Mapping[str, Pipeline]:
        """Pipelines by name, as their files say now."""
        return self.project.pipelines.usable

    def broken(self) -> Mapping[str, str]:
        """Files that can't be used, by their names without the ending, and why."""
        return {of.file.stem: str(of) for of in self.project.pipelines.broken}

    def condition(self, name: str) -> Condition | None:
        """The condition that was read last; None before the first."""
        found = self._readings.of(name)
        return found.condition if found is not None else None

    def promised(self, name: str) -> float | None:
        """How long a record may wait, in seconds."""
        return promise_of(self.pipelines()[name], datetime.now(UTC)).seconds

    def tables(self, name: str) -> tuple[str, ...]:
        """Its destinations: of its file, and, as read last, those that it made because records name them."""
        listed = self.pipelines()[name].tables
        return (*listed, *(table for table in self._made.get(name, ()) if table not in listed))

    def series(self, name: str) -> Series:
        """Rows and dead letters over the last day, as read last."""
        found = self._readings.of(name)
        return found.series if found is not None else Series()

    def batches(self, name: str, start: int, limit: int) -> BatchPage:
        """Finished batches, the newest first, without the first `start`."""
        with self._seated():
            return self._ledger(name).page(start, limit)

    def letters(
        self, name: str, choice: LetterChoice, state: LetterState, after: LetterMark | None, limit: int
    ) -> Listing | None:
        """Dead letters behind a mark; None if the pipeline has no table for them yet."""
        project = self.project
        with self._seated():
            return dead_letters.list_letters(project, project.pipeline(name), choice, state, limit, after)

    def letter(self, name: str, place: Place) -> tuple[WholeLetter, ...]:
        """Every letter of one record."""
        project = self.project
        with self._seated():
            return dead_letters.find_letters(project, project.pipeline(name), place)

    def snapshots(self, name: str, table: str, start: int, limit: int) -> Snapshots | None:
        """Snapshots of a table, the newest first; None if the table is not there."""
        project = self.project
        with self._seated():
            return table_past.snapshots(project, project.told(project.pipeline(name)), table, start, limit)

    def schema_changes(self, name: str, table: str) -> tuple[SchemaVersion, ...] | None:
        """How the schema of a table changed, the newest first; None if the table is not there."""
        project = self.project
        with self._seated():
            return table_past.schema_versions(project, project.told(project.pipeline(name)), table, MOST_SCHEMAS)

    @contextmanager
    def _seated(self) -> Iterator[None]:
        if not self._seats.acquire(timeout=SEAT_SECONDS):
            raise Retryable(
                f"the page is busy: {SEATS} requests wait for a catalog or a storage",
                next_step="open it again in a moment; if it stays so, look whether the catalog answers",
            )
        try:
            yield
        finally:
            self._seats.release()

    def _ledger(self, name: str) -> Ledger:
        project = self.project
        return self._ledgers.of(project, project.pipeline(name))

    def _read(self, name: str) -> _Reading:
        project = self.project
        self._made[name] = self._tables_made(project, name)
        condition = read(project, project.pipeline(name), ledgers=self._ledgers)
        scores = self._scores(project, name) if condition.n is not None else self._known_scores(name)
        return _Reading(replace(condition, health=scores), self._series(name))

    def _tables_made(self, project: Project, name: str) -> tuple[str, ...]:
        try:
            return project.made_tables(project.pipeline(name))
        except FrazilError as problem:  # the condition says so, too
            _LOG.info("tables that pipeline %s made: %s", name, problem)
            return self._made.get(name, ())

    def _known_scores(self, name: str) -> Mapping[str, int]:
        return self._health[name][0] if name in self._health else {}

    def _scores(self, project: Project, name: str) -> Mapping[str, int]:
        """Health of the tables, looked at rarely: it reads all their manifests. What was seen last, if they can't be read now."""
        scores, due = self._health.get(name, ({}, float("-inf")))
        if time.monotonic() < due:
            return scores
        try:
            scores, wait = table_health(project, project.pipeline(name)), HEALTH_SECONDS
        except FrazilError as problem:
            _LOG.info("health of tables of pipeline %s: %s", name, problem)
            wait = HEALTH_AGAIN_SECONDS
        self._health[name] = scores, time.monotonic() + wait
        return scores

    def _series(self, name: str) -> Series:
        """What landed, of the ledger alone, whatever else can't be read; as it was read last, if the ledger can't."""
        try:
            self._landed[name] = self._read_series(name)
        except FrazilError as problem:
            _LOG.info("ledger of pipeline %s: %s", name, problem)
        return self._landed.get(name, Series())

    def _read_series(self, name: str) -> Series:
        begin = (int(datetime.now(UTC).timestamp()) // int(SLICE.total_seconds()) + 1 - SLICES) * SLICE.total_seconds()
        starts = tuple(datetime.fromtimestamp(begin, UTC) + number * SLICE for number in range(SLICES))
        points = {point.begin: point for point in self._ledger(name).series(starts[0], starts[-1] + SLICE, SLICE)}
        rows = tuple(points[at].rows if at in points else 0 for at in starts)
        return Series(starts, rows, tuple(points[at].dead if at in points else 0 for at in starts))


@cache
def shared_source() -> ProjectSource:
    """The one of this process, made when somebody first looks at the page."""
    return ProjectSource(dict(os.environ))


def _stamp(places: Places) -> _Stamp:
    """What changes when a file does that the project was read from."""
    schemas = places.pipelines_folder.parent / SCHEMAS
    files = [places.settings_file, *sorted(places.pipelines_folder.glob("*.y*ml")), *sorted(schemas.rglob("*"))]
    found = []
    for file in files:
        try:
            status = file.stat()
        except FileNotFoundError:  # removed since the folder was listed
            continue
        found.append((str(file), status.st_mtime_ns, status.st_size))
    return tuple(found)
