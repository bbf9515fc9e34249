"""The DAG `monitor`: checks every pipeline and capture, and sends notices when a problem begins and when it ends. While it is
paused, it sends none.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import DAG

from frazil.pipeline.models.maintenance import parse_age
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.pipeline.settings.capture import Flow, dag_of
from frazil.pipeline.syntax.interval import parse_interval
from frazil.project import Project
from frazil_airflow.alerts.callbacks import (
    delete_late_page,
    delete_variables,
    last_failure,
    late_variable,
    note_of,
    page_of,
    pages,
    send_due,
    store_page,
    variable_of,
    whole_page,
)
from frazil_airflow.dags.dag_defaults import dag_arguments, timetable
from frazil_airflow.dags.maintenance import maintenance_schedule
from frazil_airflow.project.pipelines import MAINTAIN, REPLAY, REPORT, broken_pipelines, sound_captures, sound_pipelines
from frazil_airflow.project.secrets import Variables, load_project

if TYPE_CHECKING:
    from frazil.alerts.failure import ChoreKind, Failure
    from frazil.alerts.notification_log import Page
    from frazil.monitor.condition import Condition, Runs


MISSED = 3
"""Looks, one after another, that must find no such pipeline: a deployment that is under way, or a folder that is away for a
moment, removes none."""


def notify_of_broken_files(project: Project, now: datetime, store: Variables) -> list[str]:
    """Notify people of pipelines with broken files, which have no DAG: they stop without a failed run.

    Returns:
        The reasons why channels took no message, and the files that no notice could be sent about, one line each.
    """
    from frazil.alerts.notification_log import update_page
    from frazil.pipeline.channels import Notice

    problems_told = []
    sound = {pipeline.unique_name for pipeline in (*sound_pipelines(project), *sound_captures(project))}
    for name, broken in broken_pipelines(project).items():
        if name in sound:  # of another file: one page can't say of both how they are
            problems_told.append(f"a broken file is named as another pipeline: {broken.complaint}")
            continue
        cause, _, step = broken.complaint.partition("\n  next: ")
        title = f"{name.replace('.', ' ')}: its file is broken, it does not run"
        notice = Notice(name, broken.owner or "unknown", "refused", "critical", title, cause, step or "frazil validate")
        page = update_page(page_of(store, name), {"refused": notice}, now)
        problems_told += send_due(project, name, page, now, store)
    return problems_told


def close_unwatched(project: Project, now: datetime, store: Variables) -> list[str]:
    """Notify people that problems of unmonitored pipelines are over, and drop the log of these pipelines.

    Returns:
        The reasons why channels took no message, one line each.
    """
    usable = project.flows()
    unwatched = pages(store) - {name for name, pipeline in usable.items() if pipeline.alerts is not False}
    if project.pipelines.broken or project.captures.broken:  # a file that can't be read may be that of any
        unwatched &= usable.keys()
    problems = []
    for name in sorted(unwatched):
        if name in usable:
            problems += _close(project, name, "Its file says alerts: false.", now, store)
            continue
        page = page_of(store, name)
        page = replace(page, missed=page.missed + 1)
        store_page(store, name, page)
        if page.missed >= MISSED:  # a file that could not be read was told of under its own name
            problems += _close(project, name, "No pipeline has this name, and no broken file.", now, store)
    return problems


def _close(project: Project, name: str, why: str, now: datetime, store: Variables) -> list[str]:
    from frazil.alerts.notification_log import close_page

    late = store.get(late_variable(name))
    page = close_page(whole_page(store, name, late), now, f"{why} Nobody watches it.")
    problems = send_due(project, name, page, now, store)
    delete_late_page(store, name, late)  # or it would be over at each look anew
    if not page_of(store, name).entries:
        notes = (
            note_of(dag_id) for dag_id in (dag_of(name), *(f"{prefix}{name}" for prefix in (MAINTAIN, REPORT, REPLAY)))
        )
        delete_variables(store, *notes, variable_of(name))
    return problems


MONITOR = "monitor"

LOOK_TIMEOUT = timedelta(minutes=30)
"""Bounds a look at all pipelines: a second or two each, more where servers are away."""

READ_TIMEOUT = timedelta(minutes=5)
"""Bounds reading all of them. What takes longer is left to the next look, and told as a failure of this one."""

READERS = 4
"""Pipelines and captures that are read at once: most of it is waiting for brokers and catalogs."""

_log = logging.getLogger(__name__)


def monitor_dags(project: Project, only: str | None = None) -> list[DAG]:
    """Make the DAG, if the settings name an alert channel, and `only` names no other DAG."""
    alerts = project.settings.alerts
    if alerts is None or only not in (None, MONITOR):
        return []
    with DAG(
        MONITOR,
        description="Looks at every pipeline and capture and tells people what is wrong",
        doc_md=_DOC,
        schedule=timetable(parse_interval(alerts.every)),
        is_paused_upon_creation=False,  # who names a channel wants to be told
        **dag_arguments("monitor"),  # nobody is told of its own failures: by whom?
    ) as dag:
        PythonOperator(
            task_id="look",
            python_callable=look,
            retries=0,  # the next look is near
            max_active_tis_per_dag=1,
            execution_timeout=LOOK_TIMEOUT,
            doc_md="Reads the condition of every pipeline and capture, and tells what changed. Fails where a channel was not told.",
        )
    return [dag]


def look() -> None:
    """Check every pipeline and capture and send the due notices.

    Raises:
        RuntimeError: A channel took no message, or a pipeline could not be read. All others were handled; the next run tries
        again.
    """
    from frazil.monitor.condition import Runs
    from frazil_airflow.outputs.run_summary import runs_of

    project, store = load_project(), Variables()
    sound = (*sound_pipelines(project), *sound_captures(project))
    watched = [pipeline for pipeline in sound if pipeline.alerts is not False]
    runs = runs_of(watched)
    problems = _done("broken files", lambda: notify_of_broken_files(project, datetime.now(UTC), store))
    problems += _done("what nobody watches", lambda: close_unwatched(project, datetime.now(UTC), store))
    readers = ThreadPoolExecutor(READERS)
    # Threads read, this one asks Airflow and tells: its API is for one thread.
    looks = {
        readers.submit(_read, project, pipeline, runs.get(pipeline.unique_name, Runs())): pipeline
        for pipeline in watched
    }
    try:
        for look_future in _as_answered(looks):
            pipeline = looks.pop(look_future)
            problems += _done(pipeline.unique_name, partial(_handle_look, project, pipeline, look_future, store))
    finally:
        readers.shutdown(wait=False, cancel_futures=True)
    problems += [
        f"{pipeline.unique_name} could not be looked at: no answer within {READ_TIMEOUT}" for pipeline in looks.values()
    ]
    if problems:
        raise RuntimeError("\n".join(problems))


def _done(what: str, act: Callable[[], list[str]]) -> list[str]:
    """The lines that a step returns, or its error: a failure for one pipeline does not stop notices about others."""
    try:
        return act()
    except Exception as error:  # noqa: BLE001 - the task fails by it when the others were told
        _log.exception("%s: nobody could be told", what)
        return [f"{what}: nobody could be told: {type(error).__name__}: {error}"]


def _read(project: Project, pipeline: Flow, runs: Runs) -> Condition:
    from frazil.batch.audit import TABLE_NOT_MADE
    from frazil.monitor.reading import read, read_capture, with_open_letters
    from frazil_airflow.outputs.run_summary import are_sent

    if not isinstance(pipeline, Pipeline):
        return read_capture(project, pipeline, runs=runs)
    condition = read(project, pipeline, runs=runs)
    is_counted = are_sent() or TABLE_NOT_MADE in condition.dead_codes  # by which an alert of these ends
    return with_open_letters(condition, project, pipeline) if is_counted else condition


def _as_answered(looks: Iterable[Future[Condition]]) -> Iterator[Future[Condition]]:
    """Yield the results as they arrive, until a time limit: a server that does not answer delays only its own pipelines."""
    waiting = set(looks)
    try:
        for look_future in as_completed(tuple(waiting), READ_TIMEOUT.total_seconds()):
            waiting.remove(look_future)
            yield look_future
    except TimeoutError:
        yield from [look_future for look_future in waiting if look_future.done()]  # while others were told of


def _handle_look(project: Project, pipeline: Flow, look_future: Future[Condition], store: Variables) -> list[str]:
    from frazil.monitor.freshness import freshness_objective
    from frazil.monitor.metrics import condition_samples
    from frazil_airflow.outputs.run_summary import emit

    error = look_future.exception()
    if error is not None:
        return [f"{pipeline.unique_name} could not be looked at: {type(error).__name__}: {error}"]
    condition = look_future.result()
    emit(condition_samples(condition, freshness_objective(pipeline, condition.read_at)))  # first: a channel may be away
    return send_notices(project, pipeline, condition, datetime.now(UTC), store)


def send_notices(project: Project, pipeline: Flow, condition: Condition, now: datetime, store: Variables) -> list[str]:
    """Send the notices that a condition calls for, and record them on the pipeline's page.

    Returns:
        The reasons why channels took no message, one line each.
    """
    from frazil.alerts.notification_log import update_page
    from frazil.alerts.rules import judge

    settings = project.settings.alerts
    if settings is None or pipeline.alerts is False:
        return []
    late = store.get(late_variable(pipeline.unique_name))
    page, case = _case(project, pipeline, condition, store, whole_page(store, pipeline.unique_name, late))
    runs, judged = condition.runs, judge(case)
    linked = {kind: notice and replace(notice, link=_link(pipeline, kind, runs)) for kind, notice in judged.items()}
    page = update_page(page, linked, now)
    problems = send_due(project, pipeline.unique_name, page, now, store)
    delete_late_page(store, pipeline.unique_name, late)  # it is in the log now
    return problems


def _case(project: Project, pipeline: Flow, condition: Condition, store: Variables, page: Page) -> tuple[Page, Any]:
    from frazil.alerts.rules import Case
    from frazil.monitor.freshness import freshness_objective, span_at

    name, alerts, settings = pipeline.unique_name, pipeline.alerts, project.settings.alerts
    if alerts is False or settings is None:
        raise AssertionError("nobody is told of it")
    # A look at least in each, or nothing can be compared.
    span = span_at(pipeline.every, condition.read_at, 2 * parse_age(settings.every))
    page = page.with_lag(condition.lag, span, alerts.growing_intervals + 2)
    promised = freshness_objective(pipeline, condition.read_at)
    return page, Case(
        condition=condition,
        alerts=alerts,
        promise=timedelta.max if promised is None else timedelta(seconds=promised),
        interval=span.length,
        fewest=page.finished,
        failure=last_failure(store, dag_of(name)),
        chores=_chores(project, pipeline, store) if isinstance(pipeline, Pipeline) else {},
    )


def _chores(project: Project, pipeline: Pipeline, store: Variables) -> dict[ChoreKind, Failure | None]:
    name = pipeline.name
    return {
        # Without such a DAG no later run would end them.
        "failed_maintenance": last_failure(store, f"{MAINTAIN}{name}")
        if maintenance_schedule(project, pipeline)
        else None,
        "failed_report": last_failure(store, f"{REPORT}{name}") if pipeline.dead_letters.report else None,
        "failed_replay": last_failure(store, f"{REPLAY}{name}"),
    }


def _link(pipeline: Flow, kind: str, runs: Runs) -> str | None:
    """Link to Airflow's UI; None if its address is not configured."""
    from frazil_airflow.compat import conf

    base = conf.get("api", "base_url", fallback=None)
    if not base:
        return None
    chores = {"failed_maintenance": MAINTAIN, "failed_report": REPORT, "failed_replay": REPLAY}
    dag = f"{chores[kind]}{pipeline.unique_name}" if kind in chores else dag_of(pipeline.unique_name)
    failed: Sequence[str] = ("failed_run", "tolerance", "conflict")
    tail = f"/runs/{quote(runs.last_run)}" if kind in failed and runs.last_run else ""
    return f"{base.rstrip('/')}/dags/{dag}{tail}"


_DOC = """### Monitor

Looks at every pipeline and capture: is it refused, stale, behind, failing; will Kafka's retention take what was not read. Tells the channels
of the settings file (`alerts`) once, again after `remind_after`, and when it is over. Paused, it tells nobody, and
sends no levels of metrics.

Its book is in the Airflow Variables `frazil_alerts__PIPELINE`. To have everything told anew, delete one.
"""
