"""Telling people: a notice goes through every channel that its pipeline's file and the settings let it go."""

from __future__ import annotations

import logging
from collections.abc import Collection

from frazil.alerts.notice import Notice
from frazil.pipeline.alerts import Alerts, channels_for
from frazil.project import Project

_log = logging.getLogger(__name__)


def send(project: Project, notice: Notice, channels: Collection[str] | None = None) -> dict[str, str | None]:
    """Send a notice through the channels that are told of it. A channel that fails keeps no other from being told.

    Nothing is remembered here: whoever calls twice tells twice.

    Args:
        project: Settings and pipelines.
        notice: What to tell. A pipeline that there is no file of is told of to all channels.
        channels: Names of those to tell; None: all that are told of it.

    Returns:
        Channel -> None, or why it was not sent, without secrets. Those that the settings don't have are left out.
    """
    from frazil_airflow.channels import deliver

    alerts = project.settings.alerts
    if alerts is None:
        return {}
    told: dict[str, str | None] = {}
    for name in told_channels(project, notice) if channels is None else channels:
        if name in alerts.channels:
            told[name] = deliver(alerts.channels[name], notice)
            if told[name] is None:
                _log.info("told %s: %s", name, notice.title)
            else:
                _log.warning("channel %s was not told of %s: %s", name, notice.key, told[name])
    return told


def told_channels(project: Project, notice: Notice) -> list[str]:
    """Return the names of the channels that are told of a notice."""
    pipeline = project.pipelines.find(notice.pipeline)
    alerts = pipeline.alerts if pipeline is not None else Alerts()
    return channels_for(alerts, project.settings.alerts, notice.kind, notice.severity)
