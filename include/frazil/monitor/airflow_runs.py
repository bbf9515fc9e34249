"""What Airflow knows of pipelines, over its REST API, for those who look from outside of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Final

from frazil.errors import FrazilError
from frazil.local.airflow import api
from frazil.local.home import Home
from frazil.monitor.condition import Runs

if TYPE_CHECKING:
    from frazil.local.airflow_api import AirflowApi
    from frazil.local.airflow_rows import DagRun

_PREFIX: Final = "ingest__"

_LAST: Final = 20
"""Runs of a DAG that are looked at: more failures than that in a row are told as so many."""

_PAGE: Final = 500
"""Runs that are asked for at a time, over many DAGs: about a megabyte."""

_PAGES: Final = 8
"""Bounds the requests. DAGs that run often fill the first page; those that run rarely are found on the next, without them."""


def runs_of(pipelines: Iterable[str], home: Home) -> Mapping[str, Runs]:
    """What the embedded Airflow knows of pipelines; nothing if it does not answer."""
    try:
        with api(home) as airflow:
            return told_by(airflow, pipelines)
    except FrazilError:  # there is no Airflow here: that is no trouble of the pipelines
        return {}


def told_by(airflow: AirflowApi, pipelines: Iterable[str]) -> Mapping[str, Runs]:
    """What Airflow knows of pipelines, by name, in a handful of requests; those that it does not know are left out.

    Raises:
        Retryable: Airflow does not answer.
        Terminal: Airflow refused the requests.
    """
    paused = airflow.paused(_PREFIX)
    known = {f"{_PREFIX}{name}": name for name in pipelines if f"{_PREFIX}{name}" in paused}
    runs = _newest(airflow, known)
    return {name: summed(runs[dag_id], is_paused=paused[dag_id]) for dag_id, name in known.items()}


def _newest(airflow: AirflowApi, dag_ids: Iterable[str]) -> Mapping[str, Sequence[DagRun]]:
    """The last runs of each DAG, the newest first: enough to tell how it does, as far as the requests go."""
    found: dict[str, list[DagRun]] = {dag_id: [] for dag_id in dag_ids}
    wanted = set(found)
    for _ in range(_PAGES):
        if not wanted:
            break
        count = min(_PAGE, _LAST * len(wanted))
        page = airflow.newest_runs(wanted, count)
        found |= {dag_id: [] for dag_id in wanted}  # of fewer DAGs, the same page goes back farther
        for run in page:
            found[run.dag_id].append(run)
        if len(page) < count:
            break
        wanted = {dag_id for dag_id in wanted if not _is_enough(found[dag_id])}
    return found


def _is_enough(runs: Sequence[DagRun]) -> bool:
    return len(runs) >= _LAST or any(run.state == "success" for run in runs)


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
