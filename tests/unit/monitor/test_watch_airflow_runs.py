"""What the last runs of a DAG amount to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from frazil.monitor import watch
from frazil.monitor.condition import Runs
from frazil.monitor.watch import fetch_runs, runs_of, summarize_runs
from frazil.runtime.airflow_api import AirflowApi, DagRun
from frazil.runtime.home import Home

BEGIN = datetime(2026, 5, 1, tzinfo=UTC)


def run(n: int, state: str) -> DagRun:
    begin = BEGIN + timedelta(hours=n)
    ended = begin + timedelta(minutes=1) if state in ("success", "failed") else None
    return DagRun("ingest__orders", f"run-{n}", state, "scheduled", begin, begin, ended, None)


def test_only_failures_since_the_last_success_count() -> None:
    """Failures are those in a row since the last success; a run at work and one that waits say nothing of that."""
    states = ("queued", "running", "failed", "failed", "success", "failed")
    runs = summarize_runs([run(9 - n, state) for n, state in enumerate(states)], is_paused=False)

    ended = BEGIN + timedelta(hours=7, minutes=1)
    working = BEGIN + timedelta(hours=8)
    assert runs == Runs(
        is_paused=False, running_since=working, last_state="failed", last_ended_at=ended, last_run="run-7", failures=2
    )


def test_success_after_failures_is_a_success() -> None:
    """The last finished run decides."""
    runs = summarize_runs([run(2, "success"), run(1, "failed")])

    assert (runs.last_state, runs.failures) == ("success", 0)
    assert summarize_runs([]) == Runs(failures=0)


def test_project_without_airflow_reports_no_runs(tmp_path: Path) -> None:
    """Without an embedded Airflow nothing is said of runs."""
    assert runs_of(["orders"], Home.resolve({"FRAZIL_HOME": str(tmp_path)})) == {}


def test_airflow_of_the_environment_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container the one is asked that variables name: the home never had one."""
    requests = []

    def told(airflow: AirflowApi, _: Iterable[str]) -> dict[str, Runs]:
        requests.append(airflow._url)
        return {"orders": Runs(is_paused=True)}

    monkeypatch.setattr(watch, "fetch_runs", told)
    monkeypatch.setenv("FRAZIL_AIRFLOW_URL", "http://airflow:8080")
    monkeypatch.setenv("FRAZIL_AIRFLOW_PASSWORD", "unused")

    runs = runs_of(["orders"], Home.resolve({"FRAZIL_HOME": str(tmp_path)}))

    assert (runs["orders"].is_paused, requests) == (True, ["http://airflow:8080"])


class ListedRuns(AirflowApi):
    """An Airflow that knows these runs, by DAG, and counts what it is asked."""

    def __init__(self, runs_by_dag: Mapping[str, Sequence[DagRun]]) -> None:
        super().__init__("http://127.0.0.1:1", "", "")
        self.known, self.asked = runs_by_dag, 0

    def paused(self, prefix: str) -> Mapping[str, bool]:
        """None is paused."""
        return {dag_id: False for dag_id in self.known if dag_id.startswith(prefix)}

    def newest_runs(self, dag_ids: Iterable[str], count: int, start: int = 0) -> list[DagRun]:
        """As Airflow's."""
        self.asked += 1
        runs = [run for dag_id in dag_ids for run in self.known[dag_id]]
        return sorted(runs, key=lambda run: run.start_date or BEGIN, reverse=True)[start : start + count]


def test_many_pipelines_take_few_requests() -> None:
    """Some requests for all of them; one that runs rarely is not hidden by those that run often, an unknown one by none."""
    often = {f"ingest__p{n:03}": [run(100 + hour, "success") for hour in range(30)] for n in range(200)}
    rare = {"ingest__rare": [run(hour, "failed") for hour in range(3)], "ingest__never": []}
    names = [dag_id.removeprefix("ingest__") for dag_id in [*often, *rare]]
    with ListedRuns(
        {dag_id: [replace(one, dag_id=dag_id) for one in runs] for dag_id, runs in (often | rare).items()}
    ) as airflow:
        runs_by_name = fetch_runs(airflow, [*names, "unknown"])

    assert list(runs_by_name) == names
    assert {runs_by_name[name].last_run for name in names[:200]} == {"run-129"}
    assert (runs_by_name["rare"].last_state, runs_by_name["rare"].failures, runs_by_name["never"].last_state) == (
        "failed",
        3,
        None,
    )
    assert airflow.asked <= 4


def test_runs_of_captures_are_found_beside_those_of_a_pipeline_of_the_same_name() -> None:
    history = {"ingest__logs": [run(1, "failed")], "capture__logs": [run(2, "success")]}
    with ListedRuns(
        {dag_id: [replace(one, dag_id=dag_id) for one in runs] for dag_id, runs in history.items()}
    ) as airflow:
        fetched = fetch_runs(airflow, ["logs", "capture.logs", "capture.gone"])

    assert {name: runs.last_state for name, runs in fetched.items()} == {"logs": "failed", "capture.logs": "success"}


def test_search_over_pipelines_that_only_fail_ends() -> None:
    """None of their pages ends the search; it ends all the same, and of each of them something is known."""
    history = {f"ingest__p{n:03}": [run(hour, "failed") for hour in range(100)] for n in range(200)}
    with ListedRuns(
        {dag_id: [replace(one, dag_id=dag_id) for one in runs] for dag_id, runs in history.items()}
    ) as airflow:
        runs_by_name = fetch_runs(airflow, [dag_id.removeprefix("ingest__") for dag_id in history])

    assert airflow.asked <= 8
    assert {(runs.last_state, runs.failures) for runs in runs_by_name.values()} == {("failed", 20)}


def test_frequent_failures_do_not_hide_an_earlier_one() -> None:
    """Nothing told of a run would say that the failure of the daily one is over."""
    often = {f"ingest__p{n:02}": [run(100 + hour, "failed") for hour in range(100)] for n in range(30)}
    history = often | {"ingest__daily": [run(0, "success"), run(24, "failed")]}
    with ListedRuns(
        {dag_id: [replace(one, dag_id=dag_id) for one in runs] for dag_id, runs in history.items()}
    ) as airflow:
        runs_by_name = fetch_runs(airflow, [dag_id.removeprefix("ingest__") for dag_id in history])

    assert (runs_by_name["daily"].last_state, runs_by_name["daily"].failures) == ("failed", 1)
    assert {runs.last_state for runs in runs_by_name.values()} == {"failed"}
    assert airflow.asked <= 3


def test_pipeline_beyond_the_request_limit_is_left_out() -> None:
    """Runs that wait fill all that is asked for: it is left out, which is other than to have no failure."""
    history = {
        "ingest__orders": [run(0, "failed"), *(run(1 + hour, "queued") for hour in range(1_000))],
        "ingest__new": [],
    }
    with ListedRuns(
        {dag_id: [replace(one, dag_id=dag_id) for one in runs] for dag_id, runs in history.items()}
    ) as airflow:
        runs_by_name = fetch_runs(airflow, ["orders", "new"])

    assert runs_by_name == {}
    assert airflow.asked <= 8
