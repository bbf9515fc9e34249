"""Callbacks that store failed and late runs in Airflow Variables, the log of notices, also in Variables, and the sending of due
notices.

The callback of a failed task runs in the task's process and knows the error. If a task was killed, or a run took too long, the
callback runs in the DAG processor and knows nothing more. Both processes may write Airflow Variables. Callbacks only store
failures, and only the monitor sends notices about them: so no notice is sent twice, and one that could not be sent is sent
later.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk.definitions.deadline import DeadlineAlert, DeadlineReference
from asgiref.sync import sync_to_async

from frazil.alerts.failure import ChoreKind, Failure, failure
from frazil.errors import without_values
from frazil.pipeline.models.maintenance import parse_age
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.pipeline.settings.capture import Flow, dag_of
from frazil.project import Project
from frazil_airflow.compat import AirflowFailException, AsyncCallback, named_deadline
from frazil_airflow.project.pipelines import MAINTAIN, REPLAY, REPORT
from frazil_airflow.project.secrets import Variables, load_project

if TYPE_CHECKING:
    from frazil.alerts.notification_log import Page


# Each pipeline has a page of the log, one Variable, which only the monitor writes, one task at a time. Notices of late runs,
# which are sent while the monitor does not run, have a page of their own; the monitor merges it.

_PREFIX, _LATE_PREFIX = "frazil_alerts__", "frazil_late__"

_DESCRIPTION = "Frazil: the notices that people got"

_log = logging.getLogger(__name__)


def page_variable(pipeline: str) -> str:
    """Return the name of the Airflow Variable with a pipeline's page of the log."""
    return _PREFIX + pipeline


def late_variable(pipeline: str) -> str:
    """Return the name of the Airflow Variable with a pipeline's page of late runs."""
    return _LATE_PREFIX + pipeline


def logged_names(store: Variables) -> set[str]:
    """Return the unique names of pipelines and captures that have a page."""
    return {name.removeprefix(prefix) for prefix in (_PREFIX, _LATE_PREFIX) for name in store.names(prefix)}


def load_page(store: Variables, variable: str) -> Page:
    """Return the page in an Airflow Variable; empty if there is none, or it can't be read."""
    return _parse_page(variable, store.get(variable))


def _parse_page(variable: str, text: str | None) -> Page:
    from frazil.alerts.notification_log import Page, from_json

    if text is None:
        return Page()
    try:
        return from_json(text)
    except ValueError as error:
        _log.warning("Airflow variable %s is not readable and will be overwritten: %s", variable, error)
        return Page()


def merged_page(store: Variables, pipeline: str, late: str | None) -> Page:
    """Return a pipeline's page merged with its page of late runs, whose text is `late`."""
    from frazil.alerts.notification_log import merge_pages

    return merge_pages(load_page(store, page_variable(pipeline)), _parse_page(late_variable(pipeline), late))


def delete_late_page(store: Variables, pipeline: str, late: str | None) -> None:
    """Delete the page of late runs, unless it changed since it was read as `late`: then the monitor's next run merges it."""
    if late is not None and store.get(late_variable(pipeline)) == late:
        store.delete(late_variable(pipeline))


def store_page(store: Variables, pipeline: str, page: Page) -> None:
    """Store a pipeline's page without sending anything."""
    from frazil.alerts.notification_log import to_json

    store.set(page_variable(pipeline), to_json(page), _DESCRIPTION)


def send_due(
    project: Project,
    pipeline: str,
    page: Page,
    now: datetime,
    store: Variables,
    *,
    variable: str | None = None,
) -> list[str]:
    """Send the messages that are due on a page, and store it in `variable`, or else as the pipeline's page. All channels get
    messages about a pipeline without a valid file.

    Returns:
        Why channels took no message, one line each.
    """
    from frazil.alerts.notification_log import due_messages, record_attempt, to_json
    from frazil.pipeline.models.alerts import Alerts, channels_for
    from frazil_airflow.alerts.channels import send

    settings, variable = project.settings.alerts, variable or page_variable(pipeline)
    if settings is None:
        return []
    flow = project.find_flow(pipeline)
    alerts = flow.alerts if flow is not None else Alerts()
    page, messages = due_messages(
        page,
        lambda *kind_and_severity: channels_for(alerts, settings, *kind_and_severity),
        now,
        parse_age(settings.remind_after),
    )
    store.set(variable, to_json(page), _DESCRIPTION)  # before anything is sent
    problems = []
    for message in messages:
        # None also for a channel that the settings no longer have: it counts as notified.
        why = send(project, message.notice, [message.channel]).get(message.channel)
        page = record_attempt(page, message, now, was_sent=why is None)
        if why is not None:
            problems.append(f"channel {message.channel} was not notified of {message.notice.key}: {why}")
    if messages:
        store.set(variable, to_json(page), _DESCRIPTION)
    return problems


def delete_variables(store: Variables, *variables: str) -> None:
    """Delete those of these Variables that exist."""
    for name in variables:
        if store.get(name) is not None:
            store.delete(name)


CHORES: Mapping[ChoreKind, str] = {"failed_maintenance": MAINTAIN, "failed_report": REPORT, "failed_replay": REPLAY}
"""Kind of a failure outside ingestion -> prefix of the ids of its DAGs."""

_KILLED = "its process ended without an error: it was killed, or its machine was lost"

_COMMAND = "Cannot execute: "
"""Text before the command line in errors of the Spark provider. The command line has settings that must not be shown."""

_REASONS = {
    "timed_out": "the run took too long: Airflow ended it (dagrun_timeout)",
    "task_failure": "a task failed; its log says why",
    "all_tasks_deadlocked": "no task of it could go on",
}
"""Airflow's reason for a failed run -> text for people."""


def deadline(project: Project, pipeline: Flow) -> DeadlineAlert | None:
    """Return the deadline for runs of a pipeline or capture: its `fresh_within` plus the session's length; None without it or alerts."""
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
    """Store why a task failed. Airflow calls this when no retries are left."""
    error = context.get("exception")
    task = context["ti"].task_id
    message = f"task {task}: {_KILLED}" if error is None else _error_text(error, task)
    _store_failure(context, message, final=isinstance(error, AirflowFailException))


def note_failed_run(context: Mapping[str, Any]) -> None:
    """Store that a run failed, unless one of its tasks already stored the reason."""
    stored = last_failure(Variables(), context["dag"].dag_id)
    if stored is None or stored.run != str(context["run_id"]):
        reason = str(context.get("reason"))
        _store_failure(context, _REASONS.get(reason, reason), final=False)


def forget_failure(context: Mapping[str, Any]) -> None:
    """Delete a DAG's stored failure after a successful run, unless the run did only a part of the work."""
    params, variable = _run_conf(context), failure_variable(context["dag"].dag_id)
    if not any(params.get(name) for name in ("dry_run", "table", "steps")) and Variables().get(variable) is not None:
        Variables().delete(variable)


def last_failure(store: Variables, dag_id: str) -> Failure | None:
    """Return the stored failure of a DAG's last failed run; None if none is stored, or it can't be read."""
    text = store.get(failure_variable(dag_id))
    if text is None:
        return None
    try:
        return Failure.from_json(text)
    except ValueError as error:
        _log.warning("Airflow variable %s is not readable and is ignored: %s", failure_variable(dag_id), error)
        return None


def failure_variable(dag_id: str) -> str:
    """Return the name of the Airflow Variable with a DAG's last failure."""
    return f"frazil_failure__{dag_id}"


def _run_conf(context: Mapping[str, Any]) -> Mapping[str, Any]:
    """The run's `conf`; empty without a run: Airflow passes none if the run ended before any task was created."""
    run = context.get("dag_run")
    return (run.conf if run is not None else None) or {}


async def missed_deadline(pipeline: str) -> None:
    """Send a notice that a run missed its deadline, unless the monitor works, which checks the tables themselves.

    It is asynchronous, so that it runs in the triggerer: Airflow 3.3 runs synchronous ones in an executor, where they may read
    neither connections nor variables.
    """
    await sync_to_async(notify_of_late_run)(pipeline)  # in asgiref's thread, the only one that can reach Airflow's API


def notify_of_late_run(pipeline: str) -> None:
    """Send a notice that a pipeline's run is late, unless the monitor ran lately. The notice is on the page of late runs, which the
    monitor merges on its next run: so many late runs make one notice, and people hear when it is over.

    Raises:
        RuntimeError: A channel took no message.
    """
    from frazil.alerts.notification_log import update_page
    from frazil.pipeline.channels import Notice

    project, now, store = load_project(), datetime.now(UTC), Variables()
    settings = project.settings.alerts
    flow = project.find_flow(pipeline)
    if settings is None or flow is None:
        return
    checked_at = load_page(store, page_variable(pipeline)).looked_at
    # The monitor may miss two of its intervals before it counts as down.
    if checked_at is not None and now - checked_at < 3 * parse_age(settings.every) + timedelta(minutes=1):
        _log.info("the monitor was at work at %s: it checks whether the table is stale", checked_at)
        return
    cause = (
        f"A run of {dag_of(pipeline)} has not ended within its deadline, and the monitor, which would know more, is not at"
        f" work: its last check was {checked_at or 'never'}."
    )
    title = f"{pipeline.replace('.', ' ')}: a run is late"
    step = "airflow dags unpause monitor"
    notice = Notice(pipeline, flow.owner, "stale", "critical", title, cause, step)
    variable = late_variable(pipeline)
    page = update_page(load_page(store, variable), {"stale": notice}, now)
    if problems := send_due(project, pipeline, page, now, store, variable=variable):
        raise RuntimeError("\n".join(problems))


def _store_failure(context: Mapping[str, Any], message: str, *, final: bool) -> None:
    dag_id, run = context["dag"].dag_id, str(context["run_id"])
    chore = next((kind for kind, prefix in CHORES.items() if dag_id.startswith(prefix)), None)
    if chore == "failed_replay" and _run_conf(context).get("dry_run"):  # the person who started it sees that it failed
        return
    stored = failure(dag_id, run, datetime.now(UTC), message, final=final, chore=chore)
    Variables().set(
        failure_variable(dag_id), stored.to_json(), "Frazil: the failure of the last failed run, for the monitor"
    )


def _error_text(error: BaseException, task: str) -> str:
    """An error's text, without the command line that the Spark provider's errors quote."""
    from frazil_airflow.project.secrets import exit_code

    text = without_values(str(error)) or type(error).__name__
    if _COMMAND not in text:
        return text
    return f"task {task}: the Spark job ended with exit code {exit_code(text)}; its log says why"
