"""What the page shows: the files and tables of this Airflow's project, and conditions that are read in the background."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from threading import BoundedSemaphore, Lock
from typing import TYPE_CHECKING

from frazil.error_codes import CATALOG_UNREACHABLE
from frazil.errors import FrazilError
from frazil.monitor.batches import Series
from frazil.monitor.condition import Condition
from frazil.monitor.freshness import freshness_objective
from frazil.monitor.watch import ProjectFiles, Watch
from frazil.report import dead_letters, history, letter_reports
from frazil_airflow.project.secrets import connection_environment

if TYPE_CHECKING:
    from frazil.batch.changes import LetterChoice, Place
    from frazil.iceberg.ledger.dead_letters import State as LetterState
    from frazil.monitor.batches import BatchPage
    from frazil.pipeline.models.pipeline_file import Pipeline
    from frazil.pipeline.settings.capture import Capture
    from frazil.project import Project
    from frazil.report.dead_letters import LetterMark, LetterRows, Listing, WholeLetter
    from frazil.report.history import SchemaVersion, Snapshots
    from frazil.report.letter_reports import KeptReport


IDLE_SECONDS = 300.0
"""Seconds without a request after which conditions are no longer read: a page that nobody has open costs nothing."""

SLOTS = 8
"""Requests that may read tables at the same time. A catalog that hangs must leave threads for Airflow's own requests."""

SLOT_SECONDS = 1.5
"""Seconds that a request waits for a slot before it says that the page is busy."""

MOST_SCHEMAS = 50
"""Schemas of a table that are shown, the newest ones."""


CONNECTIONS_SECONDS = 60.0
"""Seconds between two reads of Airflow's connections while the page is open: a secrets backend may be slow, and charge for each."""


class ProjectSource:
    """The project of this process, thread-safe. There are conditions only after `watch` was started.

    Methods that read tables may take long, and raise FrazilError. Call them before Airflow's database is asked: else one of its few
    connections would be held meanwhile.
    """

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env
        self._connections_read_at = -math.inf
        self._files = ProjectFiles(env)
        self._slots = BoundedSemaphore(SLOTS)
        self.watch = Watch(self._with_fresh_connections, idle_seconds=IDLE_SECONDS)

    def load_connections(self) -> None:
        """Load the Airflow connections that the settings refer to. May wait for a secrets backend."""
        self._connections_read_at = time.monotonic()
        with suppress(FrazilError):  # settings that somebody edits now: the connections read before stay
            self._files.take({**self._env, **connection_environment()})

    def _with_fresh_connections(self) -> Project:
        if time.monotonic() - self._connections_read_at >= CONNECTIONS_SECONDS:
            self.load_connections()
        return self._files.project()

    def project(self) -> Project:
        """The project, as its files are now."""
        return self._files.project()

    def look_again(self) -> None:
        """Make the next request look for changed files."""
        self._files.look_again()

    def pipelines(self) -> Mapping[str, Pipeline]:
        """Pipelines by name, as their files are now."""
        return self._files.project().pipelines.usable

    def captures(self) -> Mapping[str, Capture]:
        """Captures by unique name, as their files are now."""
        return {capture.unique_name: capture for capture in self._files.project().captures.usable.values()}

    def broken(self) -> Mapping[str, str]:
        """Why files of pipelines and captures can't be used, by unique name, taken from the file's name."""
        project = self._files.project()
        return {error.file.stem: str(error) for error in project.pipelines.broken} | {
            f"capture.{error.file.stem}": str(error) for error in project.captures.broken
        }

    def condition(self, name: str) -> Condition | None:
        """The condition of the last reading; None before the first."""
        reading = self.watch.reading(name)
        return reading.condition if reading is not None else None

    def objective(self, name: str) -> float | None:
        """Freshness objective of a pipeline or capture: seconds that a record may wait."""
        flow = self._files.project().find_flow(name)
        return None if flow is None else freshness_objective(flow, datetime.now(UTC))

    def tables(self, name: str) -> tuple[str, ...]:
        """Destinations of a pipeline: those of its file, and, from the last reading, tables that it created for records."""
        listed, condition = self.pipelines()[name].tables, self.condition(name)
        auto_created = condition.auto_created if condition is not None else ()
        return (*listed, *(table for table in auto_created if table not in listed))

    def series(self, name: str) -> Series:
        """Rows and dead letters over the last day, from the last reading."""
        reading = self.watch.reading(name)
        return reading.series if reading is not None else Series()

    def batches(self, name: str, start: int, limit: int) -> BatchPage:
        """A page of finished batches, the newest first; the `start` newest ones are left out."""
        with self.pipeline_slot(name) as (project, pipeline):
            return self.watch.ledgers.load(project, pipeline).page(start, limit)

    def letters(
        self, name: str, choice: LetterChoice, state: LetterState, after: LetterMark | None, limit: int
    ) -> Listing | None:
        """Dead letters after a mark; None if the pipeline has no dead-letter table yet."""
        with self.pipeline_slot(name) as (project, pipeline):
            rows = self._letter_rows(project, pipeline)
            return dead_letters.list_letters(project, pipeline, choice, state, limit, after, rows)

    def letter(self, name: str, place: Place) -> tuple[WholeLetter, ...]:
        """Every letter of one record."""
        with self.pipeline_slot(name) as (project, pipeline):
            return dead_letters.find_letters(project, pipeline, place, rows=self._letter_rows(project, pipeline))

    def reports(self, name: str, most: int) -> list[KeptReport]:
        """The newest stored reports on a pipeline's dead letters."""
        with self.pipeline_slot(name) as (project, pipeline):
            return letter_reports.list_reports(project, pipeline, most)

    def snapshots(self, name: str, table: str, start: int, limit: int) -> Snapshots | None:
        """Snapshots of a table, the newest first; None if the table does not exist."""
        with self.pipeline_slot(name) as (project, pipeline):
            return history.snapshots(project, project.with_auto_created(pipeline), table, start, limit)

    def schema_changes(self, name: str, table: str) -> tuple[SchemaVersion, ...] | None:
        """How the schema of a table changed, the newest first; None if the table does not exist."""
        with self.pipeline_slot(name) as (project, pipeline):
            return history.schema_versions(project, project.with_auto_created(pipeline), table, MOST_SCHEMAS)

    def _letter_rows(self, project: Project, pipeline: Pipeline) -> LetterRows:
        """A function that reads the ledger's rows about letters from the cache. Call it after the dead-letter table was opened."""
        return lambda: self.watch.ledgers.load(project, pipeline).letter_rows()

    @contextmanager
    def pipeline_slot(self, name: str) -> Iterator[tuple[Project, Pipeline]]:
        """Yield the project and one of its pipelines, while this request holds one of the slots."""
        with self.slot() as project:
            yield project, project.pipeline(name)

    @contextmanager
    def slot(self) -> Iterator[Project]:
        """Yield the project, while this request holds one of the slots.

        Raises:
            Retryable: No slot was free in time.
        """
        project = self._files.project()
        if not self._slots.acquire(timeout=SLOT_SECONDS):
            raise CATALOG_UNREACHABLE.retryable(
                f"the page is busy: {SLOTS} requests wait for a catalog or a storage",
                next_step="open it again in a moment; if it persists, check whether the catalog answers",
            )
        try:
            yield project
        finally:
            self._slots.release()


def shared_source() -> ProjectSource:
    """The source of this process, created at the first request to the page."""
    with _MAKING:  # else two first requests would each make a source with a watch
        return _make_source()


_MAKING = Lock()


@cache
def _make_source() -> ProjectSource:
    source = ProjectSource(dict(os.environ))
    source.load_connections()
    source.watch.start()
    return source
