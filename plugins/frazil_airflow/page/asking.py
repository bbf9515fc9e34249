"""The input of every route: the user, the watched conditions, the runs of Airflow's metadata database, and the
pipelines that the user may see.
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

KEPT_SECONDS = 5.0
"""How long what was asked is told again: the metadata's past may be long, and many may look at once."""

_WORKING, _SUCCESS, _FAILED = "running", "success", "failed"


@dataclass
class RecentRuns:
    """A cache of runs by DAG, a few seconds old at most and shared by all users: permissions differ by user, runs do not.

    Attributes:
        max_age: Seconds for which an answer is reused.
    """

    max_age: float = KEPT_SECONDS
    clock: Callable[[], float] = time.monotonic
    _found: dict[str, tuple[Runs | None, float]] = field(default_factory=dict)

    def find(self, session: Session, dag_ids: Sequence[str]) -> Mapping[str, Runs]:
        """As `runs_of`, at most some seconds old."""
        now = self.clock()
        answers = {dag_id: self._found[dag_id] for dag_id in dag_ids if dag_id in self._found}
        answers = {dag_id: answer for dag_id, answer in answers.items() if now - answer[1] < self.max_age}
        if missing := [dag_id for dag_id in dag_ids if dag_id not in answers]:
            runs_read = runs_of(session, missing)
            answers |= {dag_id: (runs_read.get(dag_id), now) for dag_id in missing}
            self._found |= answers
        return {dag_id: runs for dag_id, (runs, _) in answers.items() if runs is not None}


def runs_of(session: Session, dag_ids: Sequence[str]) -> Mapping[str, Runs]:
    """The runs of these DAGs, without DAGs that Airflow does not know.

    Reads one index entry per run and the rows of the newest run per state, however long the past is.
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
    """DAG -> state -> its newest run. Ids are given in the order in which runs are made."""
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
    """How many runs failed since the last that succeeded."""
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
"""For the whole process."""

OLD = timedelta(seconds=4 * REFRESH_SECONDS)
"""Age from which a reading counts as old: the page was not opened for a while, or reading takes long."""


@dataclass(frozen=True, slots=True)
class PipelineView:
    """A pipeline or a capture as the page shows it.

    Attributes:
        pipeline: Its file.
        condition: Its condition; only name, owner and runs before the first reading.
        read_at: When it was read; None before the first time.
        state: Its state.
        why: The reason, in one line.
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
        """Whether it was read at all."""
        return self.read_at is not None


def source() -> ProjectSource:
    """The source of conditions; one for the whole process."""
    return shared_source()


def access(user: GetUserDep) -> AirflowAccess:
    """The user's permissions."""
    return AirflowAccess(user)


SourceDep = Annotated[ProjectSource, Depends(source)]
AccessDep = Annotated[AirflowAccess, Depends(access)]


@dataclass(frozen=True)
class PageRequest:
    """One request: its user, and the source of conditions."""

    source: ProjectSource
    access: AirflowAccess
    session: SessionDep

    def standings(self) -> list[PipelineView]:
        """All pipelines that the person may see, by name."""
        return self._standings(visible(self.access, self.source.pipelines()))

    def captures(self) -> list[PipelineView]:
        """All captures that the person may see, by name."""
        return self._standings(visible(self.access, self.source.captures()))

    def broken(self) -> dict[str, str]:
        """Files of pipelines that can't be used, and why, of those whose DAG the person may read."""
        files = self.source.broken()
        return {name: files[name] for name in visible(self.access, files)}

    def standing(self, name: str) -> PipelineView:
        """One pipeline or capture. The answer does not reveal whether a missing one is hidden or does not exist.

        Raises:
            HTTPException: 404, it does not exist, or the person may not see it.
        """
        return self._standings(((self.capture(name) or self.pipeline(name)).unique_name,))[0]

    def sees(self, name: str) -> bool:
        """Whether there is such a pipeline or capture, and the person may see it."""
        return (name in self.source.pipelines() or name in self.source.captures()) and may_see(self.access, name)

    def capture(self, name: str) -> Capture | None:
        """The capture with a unique name; None if there is none, or the person may not see it."""
        return self.source.captures().get(name) if may_see(self.access, name) else None

    def pipeline(self, name: str) -> Pipeline:
        """The file of one pipeline that the person may see.

        Raises:
            HTTPException: 404, it does not exist, or the person may not see it.
        """
        pipeline = self.source.pipelines().get(name)
        if pipeline is None or not may_see(self.access, name):
            raise HTTPException(404, f"There is no pipeline {name}, or you may not see its DAG {INGEST}{name}")
        return pipeline

    def _standings(self, names: Iterable[str]) -> list[PipelineView]:
        names = tuple(names)
        runs = RUNS.find(self.session, [dag_of(name) for name in names])
        pipelines: dict[str, Flow] = {**self.source.pipelines(), **self.source.captures()}
        return [self._judged(pipelines[name], runs.get(dag_of(name), Runs())) for name in names]

    def _judged(self, pipeline: Flow, runs: Runs) -> PipelineView:
        now = datetime.now(UTC)
        read = self.source.condition(pipeline.unique_name)
        condition = _as_of(read or Condition(pipeline.unique_name, pipeline.owner, now), runs, now)
        state, why = state_of(condition, self.source.promised(pipeline.unique_name))
        read_at = read.read_at if read is not None else None
        series = self.source.series(pipeline.unique_name)
        return PipelineView(pipeline, condition, read_at, state, _with_age(state, why, read_at, now), series)


def _as_of(read: Condition, runs: Runs, now: datetime) -> Condition:
    """A condition with Airflow's present runs. Its other figures stay as they were read."""
    since = read.unfinished_since
    if read.is_capture:
        return with_runs(replace(read, read_at=now), runs)
    return replace(
        read, read_at=now, runs=runs, unfinished_since=since + (now - read.read_at) if since is not None else None
    )


def _with_age(state: State, why: str, read_at: datetime | None, now: datetime) -> str:
    """The reason, with the time of the reading if it is old. Before the first reading, only Airflow's run states are used."""
    if read_at is None:
        return "not read yet" if state == "Idle" else f"not read yet; {why}"
    return f"read {ago(read_at, now)}; {why}" if now - read_at > OLD else why


def page_request(source: SourceDep, access: AccessDep, session: SessionDep) -> PageRequest:
    """The input of a route."""
    return PageRequest(source, access, session)


AskingDep = Annotated[PageRequest, Depends(page_request)]
