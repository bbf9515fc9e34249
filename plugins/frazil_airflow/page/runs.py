"""Reads the runs of many DAGs from Airflow's metadata database, in a few queries."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from frazil.monitor.condition import Runs

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
