"""What Airflow knows of pipelines, over its REST API, for those who look from outside of it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Final

from frazil.errors import FrazilError
from frazil.local.airflow import api
from frazil.local.home import Home
from frazil.monitor.condition import Runs

if TYPE_CHECKING:
    from frazil.local.airflow_rows import DagRun

_LAST: Final = 20
"""Runs that are looked at: more failures than that in a row are told as so many."""


def runs_of(pipeline: str, home: Home) -> Runs:
    """What the embedded Airflow knows of a pipeline; nothing if it does not answer, or does not know it."""
    dag = f"ingest__{pipeline}"
    try:
        with api(home) as airflow:
            return summed(airflow.newest_runs(dag, _LAST), is_paused=airflow.is_paused(dag))
    except FrazilError:  # there is no Airflow here, or not of this pipeline: that is no trouble of the pipeline
        return Runs()


def summed(runs: Sequence[DagRun], *, is_paused: bool | None = None) -> Runs:
    """What the last runs of a DAG amount to.

    Args:
        runs: The newest first.
        is_paused: Whether its schedule is paused.
    """
    finished = [run for run in runs if run.has_finished]
    last = finished[0] if finished else None
    begun = [run.start_date for run in runs if run.state == "running" and run.start_date is not None]
    return Runs(
        is_paused=is_paused,
        running_since=min(begun, default=None),
        last_state=last.state if last else None,
        last_ended_at=last.end_date if last else None,
        last_run=last.run_id if last else None,
        failures=sum(1 for _ in takewhile(lambda run: run.state == "failed", finished)),
    )
