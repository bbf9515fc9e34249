"""The DAG `monitor`: looks at every pipeline, tells people what is wrong and what is over. Paused, it tells nobody.

Its book is one Airflow Variable per pipeline, which it alone writes, one task at a time. It lives in Airflow's database and so
survives restarts; a task may not touch that database otherwise.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import DAG, Connection
from airflow.sdk.exceptions import AirflowNotFoundException

from frazil.errors import FrazilError
from frazil.pipeline.interval import parse_interval
from frazil.pipeline.maintenance import parse_age
from frazil.pipeline.model import Pipeline
from frazil.project import Project
from frazil_airflow.factory import START_DATE, dag_id
from frazil_airflow.maintenance import maintain_dag_id
from frazil_airflow.pipelines import broken_pipelines, sound_pipelines
from frazil_airflow.timetable import timetable
from frazil_airflow.variables import Store, Variables

if TYPE_CHECKING:
    from frazil.alerts.book import Page
    from frazil.monitor.condition import Condition, Runs

MONITOR = "monitor"

LOOK_TIMEOUT = timedelta(minutes=30)
"""Bounds a look at all pipelines: a second or two each, more where servers are away."""

READ_TIMEOUT = timedelta(minutes=5)
"""Bounds reading all of them. What takes longer is left to the next look, and told as a failure of this one."""

READERS = 4
"""Pipelines that are read at once: most of it is waiting for brokers and catalogs."""

_log = logging.getLogger(__name__)


def monitor_dags(project: Project) -> list[DAG]:
    """Make the DAG, if the settings say who is to be told."""
    alerts = project.settings.alerts
    if alerts is None:
        return []
    with DAG(
        MONITOR,
        description="Looks at every pipeline and tells people what is wrong",
        doc_md=_DOC,
        schedule=timetable(parse_interval(alerts.every)),
        start_date=START_DATE,
        catchup=False,
        max_active_runs=1,
        is_paused_upon_creation=False,  # who names a channel wants to be told
        tags=["frazil", "monitor"],
    ) as dag:
        PythonOperator(
            task_id="look",
            python_callable=look,
            retries=0,  # the next look is near
            max_active_tis_per_dag=1,
            execution_timeout=LOOK_TIMEOUT,
            doc_md="Reads the condition of every pipeline, and tells what changed. Fails where a channel was not told.",
        )
    return [dag]


def look() -> None:
    """Look at every pipeline and tell people what there is to tell.

    Raises:
        RuntimeError: A channel was not told, or a pipeline could not be looked at. All others were; the next look tries
            again.
    """
    from frazil.monitor.condition import Runs
    from frazil.monitor.reading import read

    project = Project.load()
    watched = [pipeline for pipeline in sound_pipelines(project) if pipeline.alerts is not False]
    runs = _runs(watched)
    problems = tell_of_broken(project, datetime.now(UTC), Variables())
    readers = ThreadPoolExecutor(READERS)
    # Threads read, this one asks Airflow and tells: its API is for one thread.
    looks = {readers.submit(read, project, of, runs=runs.get(of.name, Runs())): of for of in watched}
    try:
        for looked in _answered(looks):
            problems += _looked(project, looks.pop(looked), looked)
    finally:
        readers.shutdown(wait=False, cancel_futures=True)
    problems += [f"{of.name} could not be looked at: no answer within {READ_TIMEOUT}" for of in looks.values()]
    if problems:
        raise RuntimeError("\n".join(problems))


def _answered(looks: Iterable[Future[Condition]]) -> Iterator[Future[Condition]]:
    """Each as it comes, until the time is up: a server that does not answer keeps back its own pipelines only."""
    waiting = set(looks)
    try:
        for looked in as_completed(tuple(waiting), READ_TIMEOUT.total_seconds()):
            waiting.remove(looked)
            yield looked
    except TimeoutError:
        yield from [looked for looked in waiting if looked.done()]  # while others were told of


def _looked(project: Project, pipeline: Pipeline, looked: Future[Condition]) -> list[str]:
    from frazil.monitor.promise import promise_of
    from frazil_airflow.metrics import emit_condition

    error = looked.exception()
    if error is not None:
        return [f"{pipeline.name} could not be looked at: {type(error).__name__}: {error}"]
    emit_condition(looked.result(), promise_of(pipeline))  # first: a channel that is away keeps none back
    return tell(project, pipeline, looked.result(), datetime.now(UTC), Variables())


def tell(project: Project, pipeline: Pipeline, condition: Condition, now: datetime, store: Store) -> list[str]:
    """Tell people what a condition calls for, by the book.

    Args:
        project: Settings.
        pipeline: Who is told of it, and from which figures on.
        condition: How it is doing.
        now: The time.
        store: Where the book is, and what failed runs left.

    Returns:
        Why channels were not told, one line each.
    """
    from frazil.alerts.book import turned
    from frazil.alerts.rules import judge

    settings = project.settings.alerts
    if settings is None or pipeline.alerts is False:
        return []
    page, case = _case(pipeline, condition, store, parse_age(settings.every))
    page = turned(page, judge(case), now)
    return _by_the_book(project, pipeline.name, page, now, store, lambda kind: _link(pipeline, kind, condition.runs))


def tell_of_broken(project: Project, now: datetime, store: Store) -> list[str]:
    """Tell people of pipelines whose file no DAG can be made of: they stop without a failed run.

    Returns:
        Why channels were not told, and which files nobody could be told of, one line each.
    """
    from frazil.alerts.book import turned
    from frazil.alerts.notice import Notice

    found = []
    sound = {of.name for of in sound_pipelines(project)}
    for name, complaint in broken_pipelines(project).items():
        if name in sound:  # of another file: one page can't say of both how they are
            found.append(f"a broken file is named as another pipeline: {complaint}")
            continue
        cause, _, step = complaint.partition("\n  next: ")
        known = project.pipelines.usable.get(name)
        owner = known.owner if known is not None else "unknown"
        title = f"{name}: its file is broken, it does not run"
        notice = Notice(name, owner, "refused", "critical", title, cause, step or "frazil validate")
        page = turned(page_of(store, name), {"refused": notice}, now)
        found += _by_the_book(project, name, page, now, store, lambda _: None)
    return found


def _by_the_book(
    project: Project, pipeline: str, page: Page, now: datetime, store: Store, link: Callable[[str], str | None]
) -> list[str]:
    """Send what is due on a page; says why channels were not told."""
    from dataclasses import replace

    from frazil.alerts.book import due, settled
    from frazil.pipeline.alerts import Alerts, channels_for
    from frazil_airflow.alerts import send

    settings = project.settings.alerts
    if settings is None:
        return []
    known = project.pipelines.usable.get(pipeline)
    alerts = known.alerts if known is not None else Alerts()
    remind_after = parse_age(settings.remind_after)
    page, messages = due(page, lambda *of: channels_for(alerts, settings, *of), now, remind_after)
    _store(store, pipeline, page)  # before anything is sent
    problems = []
    for message in messages:
        notice = replace(message.notice, link=link(message.notice.kind))
        why = send(project, notice, only=[message.channel]).get(message.channel, "it is told no more")
        page = settled(page, message, now, sent=why is None)
        problems += [] if why is None else [f"channel {message.channel} was not told of {notice.key}: {why}"]
    if messages:
        _store(store, pipeline, page)
    return problems


def _case(pipeline: Pipeline, condition: Condition, store: Store, every: timedelta) -> tuple[Page, Any]:
    from frazil.alerts.rules import Case
    from frazil.monitor.promise import longest_gap, promise_of
    from frazil_airflow.callbacks import noted

    alerts = pipeline.alerts
    if alerts is False:
        raise AssertionError("nobody is told of it")
    gap = max(longest_gap(pipeline.every), 2 * every)  # a look at least in each, or nothing can be compared
    page = page_of(store, pipeline.name).with_unread(condition.lag, condition.at, gap, alerts.growing_intervals + 2)
    return page, Case(
        condition=condition,
        alerts=alerts,
        promise=timedelta(seconds=promise_of(pipeline).seconds or 0.0),
        interval=gap,
        fewest=page.finished,
        failure=noted(store, dag_id(pipeline.name)),
        # Without a schedule no later run would end it.
        maintenance=noted(store, maintain_dag_id(pipeline.name)) if pipeline.maintenance.schedule else None,
    )


def variable_of(pipeline: str) -> str:
    """Return the name of the Airflow Variable that is a pipeline's page of the book."""
    return f"frazil_alerts__{pipeline}"


def page_of(store: Store, pipeline: str) -> Page:
    """Return a pipeline's page of the book: empty if there is none, or it can't be read."""
    from frazil.alerts.book import Page, from_json

    text = store.get(variable_of(pipeline))
    if text is None:
        return Page()
    try:
        return from_json(text)
    except ValueError as error:
        _log.warning("Airflow variable %s is written anew: %s", variable_of(pipeline), error)
        return Page()


def _store(store: Store, pipeline: str, page: Page) -> None:
    from frazil.alerts.book import to_json

    store.set(variable_of(pipeline), to_json(page), "Frazil: what people were told; written by monitor")


def _runs(pipelines: Sequence[Pipeline]) -> Mapping[str, Runs]:
    """What Airflow knows of the runs of pipelines; nothing without its API, then the tables tell."""
    from frazil.local.airflow_api import AirflowApi
    from frazil.monitor.airflow_runs import told_by
    from frazil_airflow.notes import CONNECTION, address

    try:
        login = Connection.get(CONNECTION)
        with AirflowApi(address(login), login.login or "", login.password or "") as api:
            return told_by(api, [of.name for of in pipelines])
    except AirflowNotFoundException:
        _log.info("there is no Airflow connection %r: the tables tell how runs went", CONNECTION)
    except FrazilError as error:
        _log.warning("Airflow does not say how runs went, the tables do: %s", error)
    return {}


def _link(pipeline: Pipeline, kind: str, runs: Runs) -> str | None:
    """Where to look in Airflow's UI; None where its address is not configured."""
    from airflow.sdk.configuration import conf

    base = conf.get("api", "base_url", fallback=None)
    if not base:
        return None
    dag = maintain_dag_id(pipeline.name) if kind == "failed_maintenance" else dag_id(pipeline.name)
    failed: Sequence[str] = ("failed_run", "tolerance", "conflict")
    tail = f"/runs/{quote(runs.last_run)}" if kind in failed and runs.last_run else ""
    return f"{base.rstrip('/')}/dags/{dag}{tail}"


_DOC = """### Monitor

Looks at every pipeline: is it refused, stale, behind, failing; will Kafka's retention take what was not read. Tells the channels
of the settings file (`alerts`) once, again after `remind_after`, and when it is over. Paused, it tells nobody.

Its book is in the Airflow Variables `frazil_alerts__PIPELINE`. To have everything told anew, delete one.
"""
