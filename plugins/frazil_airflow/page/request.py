"""One request to the page: its user, the conditions of the pipelines that the user may see, and their runs from Airflow's
metadata database.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import GetUserDep
from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from fastapi import Depends, HTTPException
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from frazil.monitor.batches import Series
from frazil.monitor.condition import Condition, Runs, State, state_of
from frazil.monitor.reading import with_runs
from frazil.monitor.watch import REFRESH_SECONDS
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.pipeline.settings.capture import Capture, Flow, dag_of
from frazil_airflow.page.access import AirflowAccess, may_see, visible
from frazil_airflow.page.project_source import ProjectSource, shared_source
from frazil_airflow.page.rendering import ago
from frazil_airflow.project.pipelines import INGEST

CACHE_SECONDS = 5.0
"""Age up to which runs that were read are shown again: there may be many runs, and many users at once."""

_WORKING, _SUCCESS, _FAILED = "running", "success", "failed"


@dataclass
class RecentRuns:
    """A cache of runs by DAG, shared by all users: permissions differ by user, runs do not.

    Attributes:
        max_age: Age in seconds up to which runs are returned again.
    """

    max_age: float = CACHE_SECONDS
    clock: Callable[[], float] = time.monotonic
    _cache: dict[str, tuple[Runs | None, float]] = field(default_factory=dict)

    def find(self, session: Session, dag_ids: Sequence[str]) -> Mapping[str, Runs]:
        """The runs of these DAGs as `runs_of` reads them, at most `max_age` old."""
        now = self.clock()
        cached = {dag_id: self._cache[dag_id] for dag_id in dag_ids if dag_id in self._cache}
        fresh = {dag_id: entry for dag_id, entry in cached.items() if now - entry[1] < self.max_age}
        if missing := [dag_id for dag_id in dag_ids if dag_id not in fresh]:
            runs_read = runs_of(session, missing)
            fresh |= {dag_id: (runs_read.get(dag_id), now) for dag_id in missing}
            self._cache |= fresh
        return {dag_id: runs for dag_id, (runs, _) in fresh.items() if runs is not None}


def runs_of(session: Session, dag_ids: Sequence[str]) -> Mapping[str, Runs]:
    """Read the runs of these DAGs, without DAGs that Airflow does not know.

    Of the runs it reads one index entry each, and rows only of the newest run per state.
    """
    paused = dict(
        session.execute(select(DagModel.dag_id, DagModel.is_paused).where(DagModel.dag_id.in_(dag_ids))).all()
    )
    newest = _newest(session, dag_ids)
    failures = _failures(session, dag_ids)
    return {
        dag_id: _runs(is_paused, newest.get(dag_id, {}), failures.get(dag_id, 0))
        for dag_id, is_paused in paused.items()
    }


def _newest(session: Session, dag_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    """DAG -> state -> its newest run, the one with the highest id."""
    last = (
        select(func.max(DagRun.id))
        .where(DagRun.dag_id.in_(dag_ids), DagRun.state.in_((_WORKING, _SUCCESS, _FAILED)))
        .group_by(DagRun.dag_id, DagRun.state)
    )
    columns = (DagRun.dag_id, DagRun.state, DagRun.run_id, DagRun.start_date, DagRun.end_date, DagRun.id)
    newest: dict[str, dict[str, Any]] = {}
    for row in session.execute(select(*columns).where(DagRun.id.in_(last.scalar_subquery()))):
        newest.setdefault(row.dag_id, {})[str(row.state)] = row
    return newest


def _failures(session: Session, dag_ids: Sequence[str]) -> dict[str, int]:
    """DAG -> number of runs that failed since the last success; without DAGs that have none."""
    good = (
        select(DagRun.dag_id, func.max(DagRun.id).label("last"))
        .where(DagRun.dag_id.in_(dag_ids), DagRun.state == _SUCCESS)
        .group_by(DagRun.dag_id)
        .subquery()
    )
    counted = (
        select(DagRun.dag_id, func.count())
        .outerjoin(good, good.c.dag_id == DagRun.dag_id)
        .where(DagRun.dag_id.in_(dag_ids), DagRun.state == _FAILED, DagRun.id > func.coalesce(good.c.last, 0))
        .group_by(DagRun.dag_id)
    )
    return dict(session.execute(counted).all())


def _runs(is_paused: bool, newest: Mapping[str, Any], failures: int) -> Runs:  # noqa: FBT001 - a column
    ended = [newest[state] for state in (_SUCCESS, _FAILED) if state in newest]
    last = max(ended, key=lambda row: row.id, default=None)
    working = newest.get(_WORKING)
    return Runs(
        is_paused=is_paused,
        running_since=working.start_date if working is not None else None,
        last_state=str(last.state) if last is not None else None,
        last_ended_at=last.end_date if last is not None else None,
        last_run=last.run_id if last is not None else None,
        failures=failures,
    )


RUNS = RecentRuns()
"""The cache of this process."""

OLD = timedelta(seconds=4 * REFRESH_SECONDS)
"""Age from which the page says how old a reading is: nobody opened the page for a while, or reading takes long."""


@dataclass(frozen=True, slots=True)
class PipelineView:
    """A pipeline or a capture as the page shows it.

    Attributes:
        pipeline: The pipeline or capture, as its file declares it.
        condition: Its condition; before the first reading with name, owner and runs only.
        read_at: When the condition was read; None before the first reading.
        why: The reason for the state, in one line.
        series: Landed records over time.
    """

    pipeline: Flow
    condition: Condition
    read_at: datetime | None
    state: State
    why: str
    series: Series

    @property
    def is_read(self) -> bool:
        """Whether its condition was read at all."""
        return self.read_at is not None


def access(user: GetUserDep) -> AirflowAccess:
    """The user's permissions."""
    return AirflowAccess(user)


SourceDep = Annotated[ProjectSource, Depends(shared_source)]
AccessDep = Annotated[AirflowAccess, Depends(access)]


@dataclass(frozen=True)
class PageRequest:
    """One request to the page: its user's permissions, the project, and a session of Airflow's database."""

    source: ProjectSource
    access: AirflowAccess
    session: SessionDep

    def views(self) -> list[PipelineView]:
        """All pipelines that the user may see, by name."""
        return self._views(visible(self.access, self.source.pipelines()))

    def captures(self) -> list[PipelineView]:
        """All captures that the user may see, by name."""
        return self._views(visible(self.access, self.source.captures()))

    def broken(self) -> dict[str, str]:
        """Name -> why its file can't be used, for pipelines and captures whose DAG the user may read."""
        files = self.source.broken()
        return {name: files[name] for name in visible(self.access, files)}

    def view(self, name: str) -> PipelineView:
        """One pipeline or capture, by unique name. The error does not reveal whether it exists.

        Raises:
            HTTPException: 404, it does not exist, or the user may not see it.
        """
        return self._views(((self.capture(name) or self.pipeline(name)).unique_name,))[0]

    def sees(self, name: str) -> bool:
        """Whether a pipeline or capture with this unique name exists, and the user may see it."""
        return (name in self.source.pipelines() or name in self.source.captures()) and may_see(self.access, name)

    def capture(self, name: str) -> Capture | None:
        """The capture with this unique name; None if it does not exist, or the user may not see it."""
        return self.source.captures().get(name) if may_see(self.access, name) else None

    def pipeline(self, name: str) -> Pipeline:
        """The pipeline with this name.

        Raises:
            HTTPException: 404, it does not exist, or the user may not see it.
        """
        pipeline = self.source.pipelines().get(name)
        if pipeline is None or not may_see(self.access, name):
            raise HTTPException(404, f"There is no pipeline {name}, or you may not see its DAG {INGEST}{name}")
        return pipeline

    def _views(self, names: Iterable[str]) -> list[PipelineView]:
        names = tuple(names)
        runs = RUNS.find(self.session, [dag_of(name) for name in names])
        pipelines: dict[str, Flow] = {**self.source.pipelines(), **self.source.captures()}
        return [self._view(pipelines[name], runs.get(dag_of(name), Runs())) for name in names]

    def _view(self, pipeline: Flow, runs: Runs) -> PipelineView:
        now = datetime.now(UTC)
        read = self.source.condition(pipeline.unique_name)
        condition = _as_of(read or Condition(pipeline.unique_name, pipeline.owner, now), runs, now)
        state, why = state_of(condition, self.source.objective(pipeline.unique_name))
        read_at = read.read_at if read is not None else None
        series = self.source.series(pipeline.unique_name)
        return PipelineView(pipeline, condition, read_at, state, _with_age(state, why, read_at, now), series)


def _as_of(read: Condition, runs: Runs, now: datetime) -> Condition:
    """A condition with the present time and runs. Its other figures stay as they were read."""
    since = read.unfinished_since
    if read.is_capture:
        return with_runs(replace(read, read_at=now), runs)
    return replace(
        read, read_at=now, runs=runs, unfinished_since=since + (now - read.read_at) if since is not None else None
    )


def _with_age(state: State, why: str, read_at: datetime | None, now: datetime) -> str:
    """The reason for a state, with the age of the reading if it is old, or a hint that there is none yet."""
    if read_at is None:
        return "not read yet" if state == "Idle" else f"not read yet; {why}"
    return f"read {ago(read_at, now)}; {why}" if now - read_at > OLD else why


def page_request(source: SourceDep, access: AccessDep, session: SessionDep) -> PageRequest:
    """Collect what a route needs of its request."""
    return PageRequest(source, access, session)


PageRequestDep = Annotated[PageRequest, Depends(page_request)]
