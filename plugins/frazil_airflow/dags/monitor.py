"""Makes the DAG `monitor`, which checks every pipeline and capture and sends notices when a problem begins and when it ends."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import quote

from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import DAG

from frazil.pipeline.models.maintenance import parse_age
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.pipeline.settings.capture import Flow, dag_of
from frazil.pipeline.syntax.interval import parse_interval
from frazil.project import Project
from frazil_airflow.alerts.callbacks import (
    CHORES,
    delete_late_page,
    delete_variables,
    failure_variable,
    last_failure,
    late_variable,
    load_page,
    logged_names,
    merged_page,
    page_variable,
    send_due,
    store_page,
)
from frazil_airflow.dags.dag_defaults import dag_arguments, timetable
from frazil_airflow.dags.maintenance import maintenance_schedule
from frazil_airflow.project.pipelines import MAINTAIN, REPLAY, REPORT, broken_pipelines, valid_captures, valid_pipelines
from frazil_airflow.project.secrets import Variables, load_project

if TYPE_CHECKING:
    from frazil.alerts.failure import ChoreKind, Failure
    from frazil.monitor.condition import Condition, Runs


MISSED_CHECKS = 3
"""Consecutive checks without a pipeline after which it counts as removed. A deployment under way, or a folder that is not
mounted for a moment, removes none."""


def notify_of_broken_files(project: Project, now: datetime, store: Variables) -> list[str]:
    """Send notices about broken files of pipelines and captures. These have no DAG, so they stop without a failed run.

    Returns:
        Why channels took no message, and which files no notice could be sent about, one line each.
    """
    from frazil.alerts.notification_log import update_page
    from frazil.pipeline.channels import Notice

    problems = []
    valid = {pipeline.unique_name for pipeline in (*valid_pipelines(project), *valid_captures(project))}
    for name, broken in broken_pipelines(project).items():
        if name in valid:  # a valid file has this name: the log has one page per name
            problems.append(f"a broken file has the name of another pipeline: {broken.complaint}")
            continue
        cause, _, step = broken.complaint.partition("\n  next: ")
        title = f"{name.replace('.', ' ')}: its file is broken, it does not run"
        notice = Notice(name, broken.owner or "unknown", "refused", "critical", title, cause, step or "frazil validate")
        page = update_page(load_page(store, page_variable(name)), {"refused": notice}, now)
        problems += send_due(project, name, page, now, store)
    return problems


def close_unmonitored(project: Project, now: datetime, store: Variables) -> list[str]:
    """End the notices about pipelines that are no longer monitored, and delete what is stored about them.

    Returns:
        Why channels took no message, one line each.
    """
    usable = project.flows()
    unmonitored = logged_names(store) - {name for name, flow in usable.items() if flow.alerts is not False}
    if project.pipelines.broken or project.captures.broken:  # an unreadable file may be that of any missing name
        unmonitored &= usable.keys()
    problems = []
    for name in sorted(unmonitored):
        if name in usable:
            problems += _close(project, name, "Its file says alerts: false.", now, store)
            continue
        page = load_page(store, page_variable(name))
        page = replace(page, missed=page.missed + 1)
        store_page(store, name, page)
        if page.missed >= MISSED_CHECKS:  # a broken file has its own notice, under the file's name
            problems += _close(project, name, "No pipeline has this name, and no broken file.", now, store)
    return problems


def _close(project: Project, name: str, why: str, now: datetime, store: Variables) -> list[str]:
    from frazil.alerts.notification_log import close_page

    late = store.get(late_variable(name))
    page = close_page(merged_page(store, name, late), now, f"{why} It is no longer monitored.")
    problems = send_due(project, name, page, now, store)
    delete_late_page(store, name, late)  # else the next check would end the same notice again
    if not load_page(store, page_variable(name)).entries:
        dag_ids = (dag_of(name), *(f"{prefix}{name}" for prefix in CHORES.values()))
        delete_variables(store, *map(failure_variable, dag_ids), page_variable(name))
    return problems


MONITOR = "monitor"

CHECK_TIMEOUT = timedelta(minutes=30)
"""Bounds a check of all pipelines: a second or two each, more if servers don't answer."""

READ_TIMEOUT = timedelta(minutes=5)
"""Bounds reading all conditions. A pipeline that takes longer counts as a failure of this check; the next check reads it again."""

READERS = 4
"""Pipelines and captures that are read at the same time: reading is mostly waiting for brokers and catalogs."""

_log = logging.getLogger(__name__)


def monitor_dags(project: Project, only: str | None = None) -> list[DAG]:
    """Make the DAG `monitor`, if the settings name an alert channel and `only` is not the id of another DAG."""
    alerts = project.settings.alerts
    if alerts is None or only not in (None, MONITOR):
        return []
    with DAG(
        MONITOR,
        description="Checks every pipeline and capture and sends alerts",
        doc_md=_DOC,
        schedule=timetable(parse_interval(alerts.every)),
        is_paused_upon_creation=False,  # whoever names a channel wants alerts
        **dag_arguments("monitor"),  # without callbacks: no other DAG would send alerts on its failures
    ) as dag:
        PythonOperator(
            task_id="look",
            python_callable=look,
            retries=0,  # the next check is soon
            max_active_tis_per_dag=1,
            execution_timeout=CHECK_TIMEOUT,
            doc_md="Reads the condition of every pipeline and capture and sends due notices. Fails if a channel took no message.",
        )
    return [dag]


def look() -> None:
    """Check every pipeline and capture and send the due notices.

    Raises:
        RuntimeError: A channel took no message, or a pipeline could not be checked. All others were; the next run tries again.
    """
    from frazil.monitor.condition import Runs
    from frazil_airflow.outputs.run_summary import runs_of

    project, store = load_project(), Variables()
    valid = (*valid_pipelines(project), *valid_captures(project))
    monitored = [pipeline for pipeline in valid if pipeline.alerts is not False]
    runs = runs_of(monitored)
    problems = _attempt("broken files", lambda: notify_of_broken_files(project, datetime.now(UTC), store))
    problems += _attempt("unmonitored pipelines", lambda: close_unmonitored(project, datetime.now(UTC), store))
    readers = ThreadPoolExecutor(READERS)
    # Other threads only read conditions: Airflow's Variables and connections are for one thread.
    readings = {
        readers.submit(_read, project, pipeline, runs.get(pipeline.unique_name, Runs())): pipeline
        for pipeline in monitored
    }
    try:
        for reading in _finished(readings):
            pipeline = readings.pop(reading)
            problems += _attempt(pipeline.unique_name, partial(_handle_reading, project, pipeline, reading, store))
    finally:
        readers.shutdown(wait=False, cancel_futures=True)
    problems += [
        f"{pipeline.unique_name} could not be checked: no answer within {READ_TIMEOUT}"
        for pipeline in readings.values()
    ]
    if problems:
        raise RuntimeError("\n".join(problems))


def _attempt(subject: str, step: Callable[[], list[str]]) -> list[str]:
    """The problems that a step returns, or its error as one: a failure for one pipeline must not stop notices about others."""
    try:
        return step()
    except Exception as error:  # noqa: BLE001 - the task fails with it after all others were handled
        _log.exception("%s: no notice could be sent", subject)
        return [f"{subject}: no notice could be sent: {type(error).__name__}: {error}"]


def _read(project: Project, pipeline: Flow, runs: Runs) -> Condition:
    from frazil.batch.audit import TABLE_NOT_MADE
    from frazil.monitor.reading import read, read_capture, with_open_letters
    from frazil_airflow.outputs.run_summary import are_metrics_on

    if not isinstance(pipeline, Pipeline):
        return read_capture(project, pipeline, runs=runs)
    condition = read(project, pipeline, runs=runs)
    is_counted = are_metrics_on() or TABLE_NOT_MADE in condition.dead_codes  # open letters end an alert on these
    return with_open_letters(condition, project, pipeline) if is_counted else condition


def _finished(readings: Iterable[Future[Condition]]) -> Iterator[Future[Condition]]:
    """Yield readings as they finish, until READ_TIMEOUT: a server that does not answer delays only its own pipelines."""
    waiting = set(readings)
    try:
        for reading in as_completed(tuple(waiting), READ_TIMEOUT.total_seconds()):
            waiting.remove(reading)
            yield reading
    except TimeoutError:
        yield from [reading for reading in waiting if reading.done()]  # finished while notices about others were sent


def _handle_reading(project: Project, pipeline: Flow, reading: Future[Condition], store: Variables) -> list[str]:
    from frazil.monitor.freshness import freshness_objective
    from frazil.monitor.metrics import condition_samples
    from frazil_airflow.outputs.run_summary import emit

    error = reading.exception()
    if error is not None:
        return [f"{pipeline.unique_name} could not be checked: {type(error).__name__}: {error}"]
    condition = reading.result()
    # Before the notices, since a channel may fail.
    emit(condition_samples(condition, freshness_objective(pipeline, condition.read_at)))
    return send_notices(project, pipeline, condition, datetime.now(UTC), store)


def send_notices(project: Project, pipeline: Flow, condition: Condition, now: datetime, store: Variables) -> list[str]:
    """Send the notices that are due for a condition, and log them on the pipeline's page.

    Returns:
        Why channels took no message, one line each.
    """
    from frazil.alerts.notification_log import update_page
    from frazil.alerts.rules import Case, judge
    from frazil.monitor.freshness import freshness_objective, span_at

    name, alerts, settings = pipeline.unique_name, pipeline.alerts, project.settings.alerts
    if settings is None or alerts is False:
        return []
    late = store.get(late_variable(name))
    # Each span must contain a check, or spans could not be compared.
    span = span_at(pipeline.every, condition.read_at, 2 * parse_age(settings.every))
    page = merged_page(store, name, late).with_lag(condition.lag, span, alerts.growing_intervals + 2)
    objective = freshness_objective(pipeline, condition.read_at)
    case = Case(
        condition=condition,
        alerts=alerts,
        objective=timedelta.max if objective is None else timedelta(seconds=objective),
        interval=span.length,
        fewest=page.finished,
        failure=last_failure(store, dag_of(name)),
        chores=_chores(project, pipeline, store) if isinstance(pipeline, Pipeline) else {},
    )
    notices = {
        kind: notice and replace(notice, link=_link(pipeline, kind, condition.runs))
        for kind, notice in judge(case).items()
    }
    problems = send_due(project, name, update_page(page, notices, now), now, store)
    delete_late_page(store, name, late)  # its notices are on the pipeline's page now
    return problems


def _chores(project: Project, pipeline: Pipeline, store: Variables) -> dict[ChoreKind, Failure | None]:
    name = pipeline.name
    return {
        # Only if the DAG still exists: else no later run could end the alert.
        "failed_maintenance": last_failure(store, f"{MAINTAIN}{name}")
        if maintenance_schedule(project, pipeline)
        else None,
        "failed_report": last_failure(store, f"{REPORT}{name}") if pipeline.dead_letters.report else None,
        "failed_replay": last_failure(store, f"{REPLAY}{name}"),
    }


def _link(pipeline: Flow, kind: str, runs: Runs) -> str | None:
    """Link to the DAG, or its last run, in Airflow's UI; None if the UI's address is not configured."""
    from frazil.alerts.failure import RUN_KINDS
    from frazil_airflow.compat import conf

    base = conf.get("api", "base_url", fallback=None)
    if not base:
        return None
    prefix = next((prefix for chore, prefix in CHORES.items() if chore == kind), None)
    dag = dag_of(pipeline.unique_name) if prefix is None else f"{prefix}{pipeline.unique_name}"
    tail = f"/runs/{quote(runs.last_run)}" if kind in RUN_KINDS and runs.last_run else ""
    return f"{base.rstrip('/')}/dags/{dag}{tail}"


_DOC = """### Monitor

Checks every pipeline and capture: whether it is refused, stale, behind or failing, and whether Kafka's retention may delete unread
records. The channels of the settings file (`alerts`) get a notice when a problem begins, again after `remind_after`, and when it is
over. While this DAG is paused, it sends no notices and no gauges.

The Airflow Variables `frazil_alerts__PIPELINE` log the notices. If you delete one, all present notices are sent again.
"""
