"""Answers of Airflow's REST API as typed rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

FINISHED_STATES = frozenset({"success", "failed"})
"""States a run does not leave by itself."""


@dataclass(frozen=True, slots=True)
class DagRun:
    """One run of a DAG. Times are UTC; `logical_date` is None for most manual runs, `conf` is what was filled in of its form."""

    dag_id: str
    run_id: str
    state: str
    run_type: str
    logical_date: datetime | None
    start_date: datetime | None
    end_date: datetime | None
    note: str | None
    conf: Mapping[str, Any] = field(default_factory=dict)

    @property
    def has_finished(self) -> bool:
        """Whether the run ended, well or badly."""
        return self.state in FINISHED_STATES


@dataclass(frozen=True, slots=True)
class TaskInstance:
    """One task of a run. `state` is None until scheduled, `map_index` -1 unless mapped."""

    task_id: str
    map_index: int
    try_number: int
    state: str | None
    start_date: datetime | None
    end_date: datetime | None


@dataclass(frozen=True, slots=True)
class DagImportError:
    """A DAG file that could not be read, with the stack trace's text."""

    filename: str
    stack_trace: str


@dataclass(frozen=True, slots=True)
class Health:
    """Whether a component works, and its last heartbeat (UTC), perhaps of a process now gone."""

    is_healthy: bool
    heartbeat: datetime | None


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def component_health(row: Mapping[str, Any], name: str) -> Health | None:
    """Read one component of a health answer; None when it never ran."""
    status = row.get("status")
    return None if status is None else Health(status == "healthy", _time(row.get(f"latest_{name}_heartbeat")))


def dag_run(row: Mapping[str, Any]) -> DagRun:
    """Read a run from its JSON object."""
    return msgspec.convert({**row, "run_id": row["dag_run_id"], "conf": row.get("conf") or {}}, DagRun)


def task_instance(row: Mapping[str, Any]) -> TaskInstance:
    """Read a task instance from its JSON object."""
    return msgspec.convert(row, TaskInstance)
