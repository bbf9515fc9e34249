"""Reads the runs of pipelines and captures from Airflow's REST API, for processes outside of Airflow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Final

from frazil.errors import FrazilError
from frazil.monitor.condition import Runs
from frazil.pipeline.settings.capture import dag_of
from frazil.runtime.airflow_login import any_api
from frazil.runtime.home import Home

if TYPE_CHECKING:
    from frazil.runtime.airflow_api import AirflowApi, DagRun

_PREFIXES: Final = ("ingest__", "capture__")

_LAST: Final = 20
"""Runs of a DAG that are looked at: more failures than that in a row are told as so many."""

_PAGE: Final = 500
"""Runs that are asked for at a time, over many DAGs: about a megabyte."""

_PAGES: Final = 8
"""Bounds the requests. DAGs that run often fill the first page; those that run rarely are found on the next, without them."""


def runs_of(pipelines: Iterable[str], home: Home) -> Mapping[str, Runs]:
    """Runs of pipelines in Airflow, at FRAZIL_AIRFLOW_URL or else the embedded one; empty if it does not answer."""
    try:
        with any_api(home) as airflow:
            return fetch_runs(airflow, pipelines)
    except FrazilError:  # there is no Airflow here: that is no trouble of the pipelines
        return {}


def fetch_runs(airflow: AirflowApi, pipelines: Iterable[str]) -> Mapping[str, Runs]:
    """Airflow's runs of pipelines and captures by unique name, in a few requests. Those without a DAG are left out, and
    those beyond the limit of requests.

    Raises:
        Retryable: Airflow does not answer.
        Terminal: Airflow refused the requests.
    """
    dag_ids = {dag_of(key): key for key in pipelines}
    prefixes = [prefix for prefix in _PREFIXES if any(dag_id.startswith(prefix) for dag_id in dag_ids)]
    paused = {dag_id: is_paused for prefix in prefixes for dag_id, is_paused in airflow.paused(prefix).items()}
    pipeline_names = {dag_id: key for dag_id, key in dag_ids.items() if dag_id in paused}
    runs = _newest(airflow, pipeline_names) if pipeline_names else {}
    return {
        name: summarize_runs(runs[dag_id], is_paused=paused[dag_id])
        for dag_id, name in pipeline_names.items()
        if dag_id in runs
    }


def _newest(airflow: AirflowApi, dag_ids: Iterable[str]) -> Mapping[str, Sequence[DagRun]]:
    """The last runs of each DAG, newest first: enough to judge its state. DAGs beyond the limit of requests are left out."""
    runs: dict[str, list[DagRun]] = {dag_id: [] for dag_id in dag_ids}
    remaining, start = set(runs), 0
    for _ in range(_PAGES):
        count = min(_PAGE, _LAST * len(remaining))
        page = airflow.newest_runs(remaining, count, start)
        if start == 0:  # of fewer DAGs, the same page goes back farther
            runs |= {dag_id: [] for dag_id in remaining}
        for run in page:
            if all(
                run.run_id != other_run.run_id for other_run in runs[run.dag_id]
            ):  # a run that began meanwhile moves the others on
                runs[run.dag_id].append(run)
        if len(page) < count:
            return runs
        fewer = {dag_id for dag_id in remaining if not _is_enough(runs[dag_id])}
        if fewer == remaining:  # first those of which nothing can be told yet
            fewer = {dag_id for dag_id in remaining if not _has_finished_run(runs[dag_id])} or remaining
        if not fewer:
            return runs
        remaining, start = fewer, start + count if fewer == remaining else 0
    return {dag_id: newest for dag_id, newest in runs.items() if dag_id not in remaining or _has_finished_run(newest)}


def _has_finished_run(runs: Sequence[DagRun]) -> bool:
    return any(run.has_finished for run in runs)


def _is_enough(runs: Sequence[DagRun]) -> bool:
    return (len(runs) >= _LAST and _has_finished_run(runs)) or any(run.state == "success" for run in runs)


def summarize_runs(runs: Sequence[DagRun], *, is_paused: bool | None = None) -> Runs:
    """Summarize the last runs of a DAG, newest first."""
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
