"""The steps of a demo on a running stack: produce, trigger the DAG, follow it, let the schedule read the rest, clean up."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_fixed

from frazil.cli.operate.produce import PARTITIONS, ensure_topic
from frazil.cli.output.progress import Progress
from frazil.error_codes import AIRFLOW_FAILED, INTERNAL, RUN_FAILED
from frazil.errors import Retryable
from frazil.generators import DEMO_BROKEN_PER_THOUSAND, GENERATORS
from frazil.kafka.write.produce import produce
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.project import Project
from frazil.report.landing import Landing, landing
from frazil.runtime import airflow_login
from frazil.runtime.airflow_api import AirflowApi
from frazil.runtime.home import Home
from frazil.runtime.waiting import until

_DAG_SECONDS = 60.0
"""Bounds the wait for Airflow to read the DAG files, 5 to 10 s after its start."""

_FIRST_RUN_SECONDS = 75.0
"""Bounds the wait for the schedule's first run, which comes within a minute. Without it, all goes on."""

_RUN_SECONDS = 300.0
"""Bounds one DAG run: 20 s on two idle cores, and its task may be tried again."""

_SCHEDULE_SECONDS = 180.0
"""Bounds the wait for the schedule: a minute until it fires, then one run."""

_EVERY_SECONDS = 1.0
_ATTEMPTS = 5
_SECOND_SHARE = 10
"""The schedule gets a tenth of the records."""

_LOG_LINES = 12

T = TypeVar("T")


def land_pizzas(project: Project, pipeline: Pipeline, records: int, progress: Progress) -> None:
    """Produce records and wait until the DAG, triggered once and then on schedule, has landed them all.

    While the second part lands, the table is maintained, whether it is due or not.

    Raises:
        Terminal: A run failed, its DAG is not there, or records that were acknowledged are not in the topic.
        Retryable: Something did not happen in time.
    """
    dag, maintenance = f"ingest__{pipeline.name}", f"maintain__{pipeline.name}"
    cluster, topic = project.cluster(pipeline.source.cluster), pipeline.source.topics[0]
    with airflow_login.api(project.home) as api:
        if ensure_topic(cluster, topic, PARTITIONS):
            progress.done(f"topic {topic}: created with {PARTITIONS} partitions")
        _start_schedule(api, dag, progress)
        _wait_for_dag(api, maintenance, progress)
        _patiently(lambda: api.unpause(maintenance))  # its own first run finds nothing due
        _send(project, pipeline, records, progress)
        _run_once(project, pipeline, api, dag, progress)
        maintained = _triggered(api, maintenance, {"table": pipeline.tables[0], "force": True}, progress)
        _send(project, pipeline, max(1, records // _SECOND_SHARE), progress)
        if not _landed_by_schedule(project, pipeline, progress):
            _run_once(project, pipeline, api, dag, progress)
        _follow(project.home, api, maintained, lambda: "beside the schedule", progress)


def _start_schedule(api: AirflowApi, dag: str, progress: Progress) -> None:
    """Unpause the DAG, and wait for the run that Airflow starts at once for the interval that just ended.

    Otherwise that run would land the records, and the triggered one would wait for nothing.
    """
    began = datetime.now(UTC)
    _wait_for_dag(api, dag, progress)
    _patiently(lambda: api.unpause(dag))
    progress.doing(f"{dag}: unpaused, waiting for the schedule's first run")

    def passed() -> bool:
        runs = _patiently(lambda: api.runs(dag))
        return all(run.has_finished for run in runs) and any(run.end_date and run.end_date > began for run in runs)

    if until(passed, _FIRST_RUN_SECONDS, _EVERY_SECONDS):
        progress.done(f"{dag}: the schedule's first run is over")


def _send(project: Project, pipeline: Pipeline, count: int, progress: Progress) -> None:
    cluster, topic = project.cluster(pipeline.source.cluster), pipeline.source.topics[0]
    before = landing(project, pipeline).produced
    pizzas = GENERATORS["pizzas"](count, broken_per_thousand=DEMO_BROKEN_PER_THOUSAND)
    delivery = produce(
        cluster, topic, pizzas, progress=lambda n: progress.counting(f"produced {n:,} of {count:,} records")
    )
    progress.done(
        f"topic {topic}: {delivery.count:,} records produced in {delivery.seconds:.1f} s,"
        f" {DEMO_BROKEN_PER_THOUSAND} of every thousand broken on purpose"
    )
    growth = landing(project, pipeline).produced - before
    if growth < delivery.count:
        raise INTERNAL.terminal(
            f"topic {topic}: {delivery.count} records were acknowledged, its offsets grew by {growth}"
        )


def _wait_for_dag(api: AirflowApi, dag: str, progress: Progress) -> None:
    progress.doing(f"waiting for Airflow to read {dag}")
    if not until(lambda: dag in _patiently(api.dag_ids), _DAG_SECONDS, _EVERY_SECONDS):
        errors = [f"{error.filename}: {error.stack_trace.strip().splitlines()[-1]}" for error in api.import_errors()]
        raise AIRFLOW_FAILED.terminal(
            f"Airflow does not know {dag} after {_DAG_SECONDS:.0f} s",
            next_step="; ".join(errors) or "see the DAG processor's log",
        )


def _run_once(project: Project, pipeline: Pipeline, api: AirflowApi, dag: str, progress: Progress) -> None:
    """Trigger a run and follow it. A scheduled run may be at work too: the later one finds nothing to do."""
    before = landing(project, pipeline).landed
    run = _triggered(api, dag, {}, progress)
    firsts: list[float] = []

    def progress_text() -> str:
        state = landing(project, pipeline)
        if state.landed > before and not firsts:
            firsts.append(time.monotonic() - run.began)
            progress.done(f"{dag}: the first batch landed {firsts[0]:.1f} s after the trigger")
        return _landing_text(state)

    _follow(project.home, api, run, progress_text, progress)


@dataclass(frozen=True, slots=True)
class _Run:
    """A run that the demo triggered, and when, by the monotonic clock."""

    dag: str
    id: str
    began: float


def _triggered(api: AirflowApi, dag: str, conf: Mapping[str, Any], progress: Progress) -> _Run:
    run_id = f"demo__{datetime.now(UTC).isoformat(timespec='seconds')}"
    api.trigger(dag, run_id=run_id, conf=conf, note="triggered by `frazil demo`")
    progress.done(f"{dag}: run {run_id} triggered through the REST API")
    return _Run(dag, run_id, time.monotonic())


def _follow(home: Home, api: AirflowApi, run: _Run, landed_so_far: Callable[[], str], progress: Progress) -> None:
    last = ""

    def finished() -> bool:
        nonlocal last
        tasks = _patiently(lambda: api.task_instances(run.dag, run.id))
        last = _patiently(lambda: api.run(run.dag, run.id)).state
        steps = ", ".join(f"{task.task_id} {task.state or 'waiting'}" for task in tasks)
        progress.doing(f"{run.dag}: {last} ({steps}); {landed_so_far()}")
        return last in ("success", "failed")

    if not until(finished, _RUN_SECONDS, _EVERY_SECONDS):
        raise RUN_FAILED.retryable(f"run {run.id} of {run.dag} is still {last} after {_RUN_SECONDS:.0f} s")
    if last == "failed":
        raise RUN_FAILED.terminal(
            f"run {run.id} of {run.dag} failed\n{_last_log(api, run.dag, run.id)}",
            next_step=f"look at it: {home.airflow_url}",
        )
    progress.done(f"{run.dag}: run succeeded after {time.monotonic() - run.began:.1f} s; {landed_so_far()}")


def _landed_by_schedule(project: Project, pipeline: Pipeline, progress: Progress) -> bool:
    began = time.monotonic()

    def landed() -> bool:
        progress_made = landing(project, pipeline)
        progress.doing(f"waiting for the schedule ({pipeline.interval}); {_landing_text(progress_made)}")
        return progress_made.is_complete

    if not until(landed, _SCHEDULE_SECONDS, _EVERY_SECONDS):
        progress.done(f"the schedule has not picked up everything after {_SCHEDULE_SECONDS:.0f} s")
        return False
    progress.done(
        f"the schedule picked up the rest after {time.monotonic() - began:.1f} s; {_landing_text(landing(project, pipeline))}"
    )
    return True


def _landing_text(progress_made: Landing) -> str:
    return f"{progress_made.landed:,} of {progress_made.produced:,} records landed"


def _patiently(ask: Callable[[], T]) -> T:
    """Retry a request while Airflow is too busy to answer: its metadata database is one SQLite file."""
    retrying = Retrying(
        retry=retry_if_exception_type(Retryable),
        stop=stop_after_attempt(_ATTEMPTS),
        wait=wait_fixed(_EVERY_SECONDS),
        reraise=True,
    )
    return retrying(ask)


def _last_log(api: AirflowApi, dag: str, run_id: str) -> str:
    failed = [task for task in api.task_instances(dag, run_id) if task.state == "failed"]
    parts = []
    for task in failed:
        lines = api.log(dag, run_id, task.task_id, try_number=task.try_number).splitlines()
        parts.append(f"the log of task {task.task_id} ends with\n" + "\n".join(lines[-_LOG_LINES:]))
    return "\n".join(parts)
