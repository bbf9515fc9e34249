"""What every route is given: who asks, where to read, and which pipelines he may see."""

# No `from __future__ import annotations`: FastAPI reads the signatures.

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Annotated

from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import Depends, HTTPException

from frazil.monitor.condition import Condition, Runs, State
from frazil.monitor.state import Promise, state_of
from frazil.pipeline.model import Pipeline
from frazil_airflow.page.access import Access, AirflowAccess, may_see, visible
from frazil_airflow.page.naming import ingest_of
from frazil_airflow.page.project_source import shared_source
from frazil_airflow.page.runs import runs_of
from frazil_airflow.page.source import Series, Source


@dataclass(frozen=True, slots=True)
class Standing:
    """A pipeline as the page shows it.

    Attributes:
        pipeline: Its file.
        condition: What is known of it; only its name, owner and runs before the first reading.
        is_read: Whether it was read at all.
        state: The word.
        why: The reason, in one line.
        series: What it landed.
    """

    pipeline: Pipeline
    condition: Condition
    is_read: bool
    state: State
    why: str
    series: Series


def source() -> Source:
    """Where to read; one for the whole process."""
    return shared_source()


def access(user: GetUserDep) -> Access:
    """What the person may do."""
    return AirflowAccess(user)


SourceDep = Annotated[Source, Depends(source)]
AccessDep = Annotated[Access, Depends(access)]


@dataclass(frozen=True)
class Asking:
    """One request: who asks, and where to read."""

    source: Source
    access: Access
    session: SessionDep

    def standings(self) -> list[Standing]:
        """All pipelines that the person may see, by name."""
        return self._standings(visible(self.access, self.source.pipelines()))

    def standing(self, name: str) -> Standing:
        """One pipeline. That it is hidden and that it is not there can't be told apart.

        Raises:
            HTTPException: 404, it is not there, or the person may not see it.
        """
        return self._standings((self.pipeline(name).name,))[0]

    def sees(self, name: str) -> bool:
        """Whether there is such a pipeline, and the person may see it."""
        return name in self.source.pipelines() and may_see(self.access, name)

    def pipeline(self, name: str) -> Pipeline:
        """The file of one pipeline that the person may see.

        Raises:
            HTTPException: 404, it is not there, or the person may not see it.
        """
        found = self.source.pipelines().get(name)
        if found is None or not may_see(self.access, name):
            raise HTTPException(404, f"There is no pipeline {name}, or you may not see its DAG {ingest_of(name)}")
        return found

    def _standings(self, names: Iterable[str]) -> list[Standing]:
        names = tuple(names)
        runs = runs_of(self.session, [ingest_of(name) for name in names])
        pipelines = self.source.pipelines()
        return [self._judged(pipelines[name], runs.get(ingest_of(name), Runs())) for name in names]

    def _judged(self, pipeline: Pipeline, runs: Runs) -> Standing:
        read = self.source.condition(pipeline.name)
        condition = read or Condition(pipeline.name, pipeline.owner, datetime.now(UTC))
        condition = replace(condition, runs=runs)
        state, why = state_of(condition, Promise(self.source.promised(pipeline.name)))
        if read is None:  # Airflow alone knows what is said: it is not the whole
            why = "not read yet" if state == "Idle" else f"not read yet; {why}"
        return Standing(pipeline, condition, read is not None, state, why, self.source.series(pipeline.name))


def asking(source: SourceDep, access: AccessDep, session: SessionDep) -> Asking:
    """What a route needs."""
    return Asking(source, access, session)


AskingDep = Annotated[Asking, Depends(asking)]
