"""The input of every route: the user, the watched conditions, and the pipelines that the user may see."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Annotated

from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import Depends, HTTPException

from frazil.monitor.batches import Series
from frazil.monitor.captures import with_runs
from frazil.monitor.condition import Condition, Runs, State
from frazil.monitor.state import state_of
from frazil.monitor.watch import REFRESH_SECONDS
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.pipeline.settings.capture import Capture, Flow, dag_of
from frazil_airflow.page.access import AirflowAccess, may_see, visible
from frazil_airflow.page.project_source import ProjectSource, shared_source
from frazil_airflow.page.runs import RecentRuns
from frazil_airflow.page.words import ago
from frazil_airflow.project.pipelines import INGEST

RUNS = RecentRuns()
"""For the whole process."""

OLD = timedelta(seconds=4 * REFRESH_SECONDS)
"""From what age on a reading is not taken for the present: nobody looked for a while, or reading takes long."""


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
            HTTPException: 404, it is not there, or the person may not see it.
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
            HTTPException: 404, it is not there, or the person may not see it.
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
