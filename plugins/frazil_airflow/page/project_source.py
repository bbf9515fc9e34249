"""The page's source of data: files, tables and topics of this Airflow's project, and conditions read in the background."""

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


FORSAKEN_SECONDS = 300.0
"""Without a request for so long, conditions are no longer read: a page that is not open costs nothing."""

SEATS = 8
"""Requests that read tables at a time. Airflow's own requests share the threads: a catalog that hangs must not take them all."""

SEAT_SECONDS = 1.5
"""How long a request waits for one of them before it says that the page is busy."""

MOST_SCHEMAS = 50
"""Schemas that are shown of a table: evolution is rare."""


CONNECTIONS_SECONDS = 60.0
"""From one look at Airflow's connections to the next, while somebody looks at the page: a secrets backend may be slow, and bill each."""


class ProjectSource:
    """The project of this process. Conditions are there once its watch was started. Several threads may ask at once.

    What reads tables may take its time, and raises FrazilError: it is asked before Airflow's database is, whose connections would
    wait with it.
    """

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env
        self._asked_at = -math.inf
        self._files = ProjectFiles(env)
        self._seats = BoundedSemaphore(SEATS)
        self.watch = Watch(self._with_connections, forsaken_seconds=FORSAKEN_SECONDS)

    def ask_connections(self) -> None:
        """Load the Airflow connections that the settings refer to. May wait for a secrets backend, so only the first request
        does it.
        """
        self._asked_at = time.monotonic()
        with suppress(FrazilError):  # half-written settings: what is known stays
            self._files.take({**self._env, **connection_environment()})

    def _with_connections(self) -> Project:
        if time.monotonic() - self._asked_at >= CONNECTIONS_SECONDS:
            self.ask_connections()
        return self._files.project()

    def project(self) -> Project:
        """The project, as its files say now."""
        return self._files.project()

    def look_again(self) -> None:
        """Look for changed files at the next request."""
        self._files.look_again()

    def pipelines(self) -> Mapping[str, Pipeline]:
        """Pipelines by name, as their files say now."""
        return self._files.project().pipelines.usable

    def captures(self) -> Mapping[str, Capture]:
        """Captures by unique name, as their files say now."""
        return {capture.unique_name: capture for capture in self._files.project().captures.usable.values()}

    def broken(self) -> Mapping[str, str]:
        """Files that can't be used, by the name that theirs without the ending gives, and why."""
        project = self._files.project()
        return {error.file.stem: str(error) for error in project.pipelines.broken} | {
            f"capture.{error.file.stem}": str(error) for error in project.captures.broken
        }

    def condition(self, name: str) -> Condition | None:
        """The condition that was read last; None before the first."""
        reading = self.watch.reading(name)
        return reading.condition if reading is not None else None

    def promised(self, name: str) -> float | None:
        """How long a record may wait, in seconds."""
        flow = self._files.project().find_flow(name)
        return None if flow is None else freshness_objective(flow, datetime.now(UTC))

    def tables(self, name: str) -> tuple[str, ...]:
        """Its destinations: of its file, and, as read last, those that it made because records name them."""
        listed, condition = self.pipelines()[name].tables, self.condition(name)
        auto_created = condition.auto_created if condition is not None else ()
        return (*listed, *(table for table in auto_created if table not in listed))

    def series(self, name: str) -> Series:
        """Rows and dead letters over the last day, as read last."""
        reading = self.watch.reading(name)
        return reading.series if reading is not None else Series()

    def batches(self, name: str, start: int, limit: int) -> BatchPage:
        """Finished batches, the newest first, without the first `start`."""
        with self.seated(name) as (project, pipeline):
            return self.watch.ledgers.load(project, pipeline).page(start, limit)

    def letters(
        self, name: str, choice: LetterChoice, state: LetterState, after: LetterMark | None, limit: int
    ) -> Listing | None:
        """Dead letters after a mark; None if the pipeline has no dead-letter table yet."""
        with self.seated(name) as (project, pipeline):
            rows = self._letter_rows(project, pipeline)
            return dead_letters.list_letters(project, pipeline, choice, state, limit, after, rows)

    def letter(self, name: str, place: Place) -> tuple[WholeLetter, ...]:
        """Every letter of one record."""
        with self.seated(name) as (project, pipeline):
            return dead_letters.find_letters(project, pipeline, place, rows=self._letter_rows(project, pipeline))

    def reports(self, name: str, most: int) -> list[KeptReport]:
        """The newest kept reports on its dead letters."""
        with self.seated(name) as (project, pipeline):
            return letter_reports.list_reports(project, pipeline, most)

    def snapshots(self, name: str, table: str, start: int, limit: int) -> Snapshots | None:
        """Snapshots of a table, the newest first; None if the table does not exist."""
        with self.seated(name) as (project, pipeline):
            return history.snapshots(project, project.with_auto_created(pipeline), table, start, limit)

    def schema_changes(self, name: str, table: str) -> tuple[SchemaVersion, ...] | None:
        """How the schema of a table changed, the newest first; None if the table does not exist."""
        with self.seated(name) as (project, pipeline):
            return history.schema_versions(project, project.with_auto_created(pipeline), table, MOST_SCHEMAS)

    def _letter_rows(self, project: Project, pipeline: Pipeline) -> LetterRows:
        """Of a long ledger, what is new only; opened when it is asked, behind the table of letters."""
        return lambda: self.watch.ledgers.load(project, pipeline).letter_rows()

    @contextmanager
    def seated(self, name: str) -> Iterator[tuple[Project, Pipeline]]:
        """Lend the project and one of its pipelines to a limited number of requests at a time."""
        with self.seat() as project:
            yield project, project.pipeline(name)

    @contextmanager
    def seat(self) -> Iterator[Project]:
        """Lend the project to a limited number of requests at a time."""
        project = self._files.project()
        if not self._seats.acquire(timeout=SEAT_SECONDS):
            raise CATALOG_UNREACHABLE.retryable(
                f"the page is busy: {SEATS} requests wait for a catalog or a storage",
                next_step="open it again in a moment; if it persists, check whether the catalog answers",
            )
        try:
            yield project
        finally:
            self._seats.release()


def shared_source() -> ProjectSource:
    """The source of this process, created at the first request to the page."""
    with _MAKING:  # two first requests would each make one, and each a watch
        return _make_source()


_MAKING = Lock()


@cache
def _make_source() -> ProjectSource:
    source = ProjectSource(dict(os.environ))
    source.ask_connections()
    source.watch.start()
    return source
