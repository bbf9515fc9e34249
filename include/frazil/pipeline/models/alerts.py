"""Alert keys of both files: channels and the monitor in the settings, routes and thresholds in a pipeline file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, get_args

from pydantic import Field, model_validator

from frazil.pipeline.models.maintenance import Age
from frazil.pipeline.syntax.strict import AtKey, Model, nearest

Severity = Literal["info", "warning", "critical"]
SEVERITIES: tuple[str, ...] = get_args(Severity)

Kind = Literal[
    "refused",
    "failed_run",
    "tolerance",
    "conflict",
    "stale",
    "lag",
    "lag_growing",
    "retention",
    "failed_maintenance",
    "failed_report",
    "failed_replay",
    "unreadable",
    "dead_letters",
]
"""What a notice may be about; docs/alerts.md says of each what it means, docs/operations.md what to do."""


class ChannelSettings(Model):
    """A way to tell people. What is secret about it (passwords, tokens, addresses with tokens) is in its Airflow connection."""

    type: Literal["smtp", "slack", "webhook", "pagerduty"] = Field(
        description="`smtp`: mail. `slack`: an incoming webhook of Slack. `webhook`: JSON by POST, to any server. `pagerduty`:"
        " events that open and resolve an incident."
    )
    connection: str = Field(description="Airflow connection that says where to, and holds what is secret.")
    to: tuple[str, ...] = Field((), description="`smtp`: addresses that the mail goes to.")
    sender: str | None = Field(
        None, description="`smtp`: address that the mail comes from. Without: `from_email` of the connection."
    )
    severity: Severity = Field(
        "warning", description="The least urgent notices that go this way: `info`, `warning` or `critical`."
    )

    @model_validator(mode="after")
    def _has_what_its_type_needs(self) -> ChannelSettings:
        if self.type == "smtp" and not self.to:
            raise AtKey("to", "is required by type smtp: the addresses that mail goes to")
        for key in ("to", "sender"):
            if self.type != "smtp" and getattr(self, key):
                raise AtKey(key, f"is for type smtp, and this one is {self.type}")
        return self


class AlertSettings(Model):
    """Who is told when something is wrong: with one channel, everybody is told of everything important."""

    channels: dict[str, ChannelSettings] = Field(min_length=1, description="The ways to tell people, by name.")
    every: Age = Field("2m", description="How often the DAG `monitor` looks at every pipeline.")
    remind_after: Age = Field("4h", description="How long after it was told a trouble that lasts is told again.")


class AlertRoute(Model):
    """What one channel is told of a pipeline."""

    severity: Severity | None = Field(
        None,
        description="The least urgent notices that go this way. Without: what the channel says in the settings file.",
    )
    kinds: tuple[Kind, ...] = Field((), description="Kinds of notices that go this way. Without: all.")


class Alerts(Model):
    """What is told of a pipeline, to whom, and from which figures on."""

    channels: dict[str, AlertRoute] = Field(
        default_factory=dict,
        description="Channels of the settings file that are told of this pipeline: `channels: {chat: {severity: critical}}`."
        " Without: all.",
    )
    silent: tuple[Kind, ...] = Field((), description="Kinds of notices that nobody is told.")
    fresh_within: Age | None = Field(
        None,
        description="The promise on freshness: the tables are complete through an instant that is no older than this; where"
        " nothing is unread, they are. Without: three intervals, at least 10m; of a cron expression, what came before the third"
        " last time at which a run was due is in. Where it is written, Airflow watches it as well, as a deadline of each run:"
        " for times when the monitor is not at work.",
    )
    lag: int | None = Field(None, gt=0, description="Records not read yet that are too many. Without: no number is.")
    growing_intervals: int = Field(
        4,
        ge=2,
        description="Intervals of the pipeline one after another that are told of if unread records grow: if the fewest of each"
        " are more than the fewest of the one before.",
    )
    retention_left: Age = Field(
        "1d",
        description="How long before Kafka's retention takes records that were not read people are told. A topic that keeps"
        " less than four times this long: a quarter of what it keeps.",
    )
    failures: int = Field(
        1,
        ge=1,
        description="Failed runs one after another that are told of, unless a person must act: that is told at once.",
    )


def unknown_channels(alerts: Alerts | Literal[False], settings: AlertSettings | None) -> Iterator[str]:
    """Channels that a pipeline names and the settings don't have, one line each; none where the settings have none at all."""
    if alerts is False or settings is None:  # where nobody is told, such as on somebody's own machine
        return
    channels = list(settings.channels)
    for name in alerts.channels:
        if name not in channels:
            hint = nearest(name, channels)
            yield f"alerts.channels.{name}: the settings have no {name!r} under alerts.channels, {hint}"


def channels_for(
    alerts: Alerts | Literal[False], settings: AlertSettings | None, kind: str, severity: Severity
) -> list[str]:
    """Names of the channels that are told of a notice, in the order of the settings."""
    if alerts is False or settings is None or kind in alerts.silent:
        return []
    names = []
    for name, channel in settings.channels.items():
        if alerts.channels and name not in alerts.channels:
            continue
        route = alerts.channels.get(name, AlertRoute())
        least = route.severity or channel.severity
        if SEVERITIES.index(severity) >= SEVERITIES.index(least) and (not route.kinds or kind in route.kinds):
            names.append(name)
    return names
