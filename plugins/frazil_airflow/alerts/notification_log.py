"""The log of sent notices in Airflow Variables, and sending of due messages.

A pipeline's page is one Variable, which the monitor alone writes, one task at a time. It lives in Airflow's database and so
survives restarts; a task may not touch that database otherwise. Notices of late runs, sent while no monitor runs, have a
separate page.
"""

from __future__ import annotations

import logging
from datetime import datetime
from typing import TYPE_CHECKING

from airflow.sdk import Variable

from frazil.pipeline.models.maintenance import parse_age
from frazil.project import Project

if TYPE_CHECKING:
    from frazil.alerts.notification_log import Page


class Variables:
    """Texts by name: Airflow's Variables, which people see with their descriptions in its UI."""

    def get(self, name: str) -> str | None:
        """Return the value; None if there is no such variable."""
        text: str | None = Variable.get(name, default=None)
        return text

    def names(self, prefix: str) -> list[str]:
        """Return the names of variables that begin so, of those in Airflow's database."""
        return [name for name in Variable.keys(prefix) if name.startswith(prefix)]

    def set(self, name: str, text: str, description: str) -> None:
        """Make the variable, or give it another value."""
        Variable.set(name, text, description=description)

    def delete(self, name: str) -> None:
        """Remove the variable."""
        Variable.delete(name)


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
        _log.warning("Airflow variable %s is written anew: %s", name, error)
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
        problems += [] if why is None else [f"channel {message.channel} was not told of {message.notice.key}: {why}"]
    if messages:
        store.set(name, to_json(page), _SAID)
    return problems


def delete_variables(store: Variables, *variables: str) -> None:
    """Delete Variables that may be there."""
    for name in variables:
        if store.get(name) is not None:
            store.delete(name)
