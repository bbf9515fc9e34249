"""What Airflow's Variables keep for the monitor, which notifies people: failed and late runs, stored by callbacks, and
the log of sent notices; and sending of due messages.

A task's callback runs in the task's process and knows the error; of a task that was killed, and of a run that took too long,
the callback runs in the DAG processor, where nothing more is known. Failures are stored as Airflow Variables, since both
processes may write these. Only callbacks store them and only the monitor sends: so no notice is sent twice, and one that
fails is sent later.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk.definitions.deadline import DeadlineAlert, DeadlineReference
from asgiref.sync import sync_to_async

from frazil.alerts.failure import ChoreKind, Failure, failure, of_chore
from frazil.errors import without_values
from frazil.pipeline.models.alerts import AlertSettings
from frazil.pipeline.models.maintenance import parse_age
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.pipeline.settings.capture import Flow, dag_of
from frazil.project import Project
from frazil_airflow.compat import AirflowFailException, AsyncCallback, named_deadline
from frazil_airflow.project.pipelines import MAINTAIN, REPLAY, REPORT
from frazil_airflow.project.secrets import Variables, load_project

if TYPE_CHECKING:
    from frazil.alerts.notification_log import Page


# A pipeline's page is one Variable, which the monitor alone writes, one task at a time. It lives in Airflow's database and so
# survives restarts; a task may not touch that database otherwise. Notices of late runs, sent while no monitor runs, have a
# separate page.

_PREFIX, _LATE_PREFIX = "frazil_alerts__", "frazil_late__"

_SAID = "Frazil: what people were told"

_log = logging.getLogger(__name__)


def variable_of(pipeline: str) -> str:
    """Return the name of the Airflow Variable that is a pipeline's page of the log."""
    return _PREFIX + pipeline


def late_variable(pipeline: str) -> str:
    """Return the name of the Airflow Variable with the notices of late runs."""
    return _LATE_PREFIX + pipeline


def pages(store: Variables) -> set[str]:
    """Return the names of the pipelines that have a page."""
    return {name.removeprefix(prefix) for prefix in (_PREFIX, _LATE_PREFIX) for name in store.names(prefix)}


def page_of(store: Variables, pipeline: str, variable: str | None = None) -> Page:
    """Return a pipeline's page of the log: empty if there is none, or it can't be read."""
    name = variable or variable_of(pipeline)
    return _page(name, store.get(name))


def _page(name: str, text: str | None) -> Page:
    from frazil.alerts.notification_log import Page, from_json

    if text is None:
        return Page()
    try:
        return from_json(text)
    except ValueError as error:
        _log.warning("Airflow variable %s is written again: %s", name, error)
        return Page()


def whole_page(store: Variables, pipeline: str, late: str | None) -> Page:
    """Return the page merged with the notices of late runs, which `text` holds."""
    from frazil.alerts.notification_log import merge_pages

    return merge_pages(page_of(store, pipeline), _page(late_variable(pipeline), late))


def delete_late_page(store: Variables, pipeline: str, late: str | None) -> None:
    """Delete the page of late runs, unless another process changed it since it was read: then the monitor's next run merges
    it.
    """
    if late is not None and store.get(late_variable(pipeline)) == late:
        store.delete(late_variable(pipeline))


def store_page(store: Variables, pipeline: str, page: Page) -> None:
    """Store a page without sending anything."""
    from frazil.alerts.notification_log import to_json

    store.set(variable_of(pipeline), to_json(page), _SAID)


def send_due(
    project: Project,
    pipeline: str,
    page: Page,
    now: datetime,
    store: Variables,
    *,
    variable: str | None = None,
) -> list[str]:
    """Send the messages that are due on a page, and store the page. Without a pipeline file, all channels get them.

    Returns:
        The reasons why channels took no message, one line each.
    """
    from frazil.alerts.notification_log import due_messages, record_attempt, to_json
    from frazil.pipeline.models.alerts import Alerts, channels_for
    from frazil_airflow.alerts.channels import send

    settings, name = project.settings.alerts, variable or variable_of(pipeline)
    if settings is None:
        return []
    pipeline_file = project.find_flow(pipeline)
    alerts = pipeline_file.alerts if pipeline_file is not None else Alerts()
    page, messages = due_messages(
        page,
        lambda *kind_and_severity: channels_for(alerts, settings, *kind_and_severity),
        now,
        parse_age(settings.remind_after),
    )
    store.set(name, to_json(page), _SAID)  # before anything is sent
    problems = []
    for message in messages:
        why = send(project, message.notice, [message.channel]).get(
            message.channel
        )  # a channel that is gone needs no word
        page = record_attempt(page, message, now, was_sent=why is None)
        problems += (
            [] if why is None else [f"channel {message.channel} was not notified of {message.notice.key}: {why}"]
        )
    if messages:
        store.set(name, to_json(page), _SAID)
    return problems


def delete_variables(store: Variables, *variables: str) -> None:
    """Delete Variables that may be there."""
    for name in variables:
        if store.get(name) is not None:
            store.delete(name)


_KILLED = "its process ended without a word: it was killed, or its machine was lost"

_COMMAND = "Cannot execute: "
"""Stands before the command line in errors of the Spark provider. The command line has settings that must not be shown."""

_REASONS = {
    "timed_out": "the run took too long: Airflow ended it (dagrun_timeout)",
    "task_failure": "a task failed; its log says why",
    "all_tasks_deadlocked": "no task of it could go on",
}
"""How Airflow says why a run failed."""


def deadline(project: Project, pipeline: Flow) -> DeadlineAlert | None:
    """Return the deadline of the runs of a pipeline or a capture: the freshness objective of its file, if there is one."""
    alerts = pipeline.alerts
    if project.settings.alerts is None or alerts is False or alerts.fresh_within is None:
        return None
    return named_deadline(
        "fresh_within",
        reference=DeadlineReference.DAGRUN_QUEUED_AT,
        interval=parse_age(alerts.fresh_within)
        + ((pipeline.session if isinstance(pipeline, Pipeline) else None) or timedelta()),
        callback=AsyncCallback(missed_deadline, {"pipeline": pipeline.unique_name}),
    )


def note_failed_task(context: Mapping[str, Any]) -> None:
    """Store why a task failed, if it has no retries left."""
    error = context.get("exception")
    task = context["ti"].task_id
    message = f"task {task}: {_KILLED}" if error is None else _error_text(error, task)
    _note(context, message, final=isinstance(error, AirflowFailException))


def note_failed_run(context: Mapping[str, Any]) -> None:
    """Store that a run failed, unless one of its tasks already stored the reason."""
    noted_failure = last_failure(Variables(), context["dag"].dag_id)
    if noted_failure is None or noted_failure.run != str(context["run_id"]):
        reason = str(context.get("reason"))
        _note(context, _REASONS.get(reason, reason), final=False)


def forget_failure(context: Mapping[str, Any]) -> None:
    """Delete the stored failure of a DAG, because a run succeeded; not if the run did only a part of the work."""
    params, variable = _run_conf(context), note_of(context["dag"].dag_id)
    if not any(params.get(name) for name in ("dry_run", "table", "steps")) and Variables().get(variable) is not None:
        Variables().delete(variable)


def last_failure(store: Variables, place: str) -> Failure | None:
    """Return the stored failure of a DAG's last failed run; None if none is stored, or it can't be read."""
    text = store.get(note_of(place))
    if text is None:
        return None
    try:
        return Failure.from_json(text)
    except ValueError as error:
        _log.warning("Airflow variable %s is left alone: %s", note_of(place), error)
        return None


def note_of(place: str) -> str:
    """Return the name of the Airflow Variable that stores a DAG's last failure."""
    return f"frazil_failure__{place}"


def _run_conf(context: Mapping[str, Any]) -> Mapping[str, Any]:
    """The run's `conf`. Airflow passes no run if it ended before any task was created."""
    run = context.get("dag_run")
    return (run.conf if run is not None else None) or {}


async def missed_deadline(pipeline: str) -> None:
    """Notify people that a run exceeds the freshness objective, unless the monitor runs: it checks the tables themselves.

    Runs in the triggerer: what Airflow 3.3 runs in an executor instead may read neither connections nor variables.
    """
    await sync_to_async(notify_of_late_run)(pipeline)  # asgiref's own thread: another one can't reach Airflow's API


def notify_of_late_run(pipeline: str) -> None:
    """Notify people that a pipeline's run is late, unless the monitor ran lately. The notice is stored in an Airflow
    Variable, which the monitor reads on its next run: so people get one notice for many late runs, and one when it is over.

    Raises:
        RuntimeError: A channel took no message.
    """
    from frazil.alerts.notification_log import update_page
    from frazil.pipeline.channels import Notice

    project, now, store = load_project(), datetime.now(UTC), Variables()
    settings = project.settings.alerts
    watched_pipeline = project.find_flow(pipeline)
    if settings is None or watched_pipeline is None:
        return
    looked_at = page_of(store, pipeline).looked_at
    if looked_at is not None and now - looked_at < _patience(settings):
        _log.info("the monitor was at work at %s: it checks whether the table is stale", looked_at)
        return
    cause = (
        f"A run of {dag_of(pipeline)} has not ended within its deadline, and the monitor, which would know more, is not at"
        f" work: its last look was {looked_at or 'never'}."
    )
    title = f"{pipeline.replace('.', ' ')}: a run is late"
    step = "airflow dags unpause monitor"
    notice = Notice(pipeline, watched_pipeline.owner, "stale", "critical", title, cause, step)
    variable = late_variable(pipeline)
    page = update_page(page_of(store, pipeline, variable), {"stale": notice}, now)
    if problems := send_due(project, pipeline, page, now, store, variable=variable):
        raise RuntimeError("\n".join(problems))


def _patience(settings: AlertSettings) -> timedelta:
    return 3 * parse_age(settings.every) + timedelta(minutes=1)


def _note(context: Mapping[str, Any], message: str, *, final: bool) -> None:
    dag, run = context["dag"].dag_id, str(context["run_id"])
    left_failure, chore = failure(dag, run, datetime.now(UTC), message, final=final), _chore(dag)
    if chore == "failed_replay" and _run_conf(context).get("dry_run"):  # who asked for a look is looking
        return
    left_failure = left_failure if chore is None else of_chore(left_failure, chore)
    Variables().set(note_of(dag), left_failure.to_json(), "Frazil: what the last failed run left; for the monitor")


def _chore(dag: str) -> ChoreKind | None:
    """The kind of failure of a DAG other than ingest; None for ingest itself."""
    chores: dict[str, ChoreKind] = {
        MAINTAIN: "failed_maintenance",
        REPORT: "failed_report",
        REPLAY: "failed_replay",
    }
    return next((kind for prefix, kind in chores.items() if dag.startswith(prefix)), None)


def _error_text(error: BaseException, task: str) -> str:
    """An error's text. That of the Spark provider begins with the whole command."""
    from frazil_airflow.project.secrets import exit_code

    text = without_values(str(error)) or type(error).__name__
    if _COMMAND not in text:
        return text
    return f"task {task}: the Spark job ended with exit code {exit_code(text)}; its log says why"
