"""Keys for alerts: channels and the monitor in the settings file, routes and thresholds in a pipeline file."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import cleandoc
from typing import TYPE_CHECKING, Final, Literal, Self

from pydantic import Field, create_model, model_validator

from frazil.pipeline.channels import CHANNELS, SEVERITIES, Channel, Severity
from frazil.pipeline.models.maintenance import Age
from frazil.pipeline.syntax.strict import InvalidKey, Model, kinds_by_key, nearest, option_keys
from frazil.records import options_of

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
"""Subject of a notice: docs/alerts.md has the meaning of each kind, docs/runbooks what to do about it."""

_TYPES_OF: Final = kinds_by_key({name: options_of(channel) for name, channel in CHANNELS.items()})
"""Option -> types of channels that have it."""


class _ChannelSettings(Model):
    """A way to notify people. Its secrets (passwords, tokens, addresses with tokens) are in its Airflow connection."""

    type: str
    connection: str = Field(description="Airflow connection with the address and the secrets.")
    severity: Severity = Field(
        "warning", description="Lowest severity of notices that the channel gets: `info`, `warning` or `critical`."
    )

    @property
    def channel(self) -> Channel:
        """The channel with its options."""
        channel = CHANNELS[self.type]
        return channel(self.connection, **{name: getattr(self, name) for name in options_of(channel)})

    @model_validator(mode="after")
    def _options_fit(self) -> Self:
        for key, types in _TYPES_OF.items():
            field, value = type(self).model_fields[key], getattr(self, key)
            if self.type not in types and value and value != field.default:
                raise InvalidKey(field.alias or key, f"is for type {' or '.join(types)}, and this one is {self.type}")
        for key, problem in self.channel.problems():
            raise InvalidKey(key, problem)
        return self


if TYPE_CHECKING:
    ChannelSettings = _ChannelSettings
else:
    _types = " ".join(f"`{name}`: {cleandoc(channel.__doc__).splitlines()[0]}" for name, channel in CHANNELS.items())
    ChannelSettings = create_model(
        "ChannelSettings",
        __base__=_ChannelSettings,
        __module__=__name__,
        __doc__=_ChannelSettings.__doc__,
        type=(Literal[tuple(CHANNELS)], Field(description=_types)),
        **option_keys(CHANNELS.values()),
    )


class AlertSettings(Model):
    """Where alerts are sent. If there is a single channel, it gets every notice that is urgent enough, of every pipeline."""

    channels: dict[str, ChannelSettings] = Field(min_length=1, description="Channels that get notices, by name.")
    every: Age = Field("2m", description="How often the DAG `monitor` checks every pipeline.")
    remind_after: Age = Field("4h", description="Time after which a notice is sent again, if the problem persists.")


class AlertRoute(Model):
    """The notices about a pipeline that one channel gets."""

    severity: Severity | None = Field(
        None,
        description="Only notices of this severity or a higher one. Without: the severity of the channel in the settings"
        " file.",
    )
    kinds: tuple[Kind, ...] = Field((), description="Only these kinds of notices. Without: all.")


class Alerts(Model):
    """Which notices about a pipeline are sent, to which channels, and the figures that cause them."""

    channels: dict[str, AlertRoute] = Field(
        default_factory=dict,
        description="Channels of the settings file that get notices of this pipeline, such as `channels: {chat:"
        " {severity: critical}}`. Without: all.",
    )
    silent: tuple[Kind, ...] = Field((), description="Kinds of notices that are never sent.")
    fresh_within: Age | None = Field(
        None,
        description="The freshness objective: at any time the tables must be complete through an instant that is at most"
        " this old. Without unread records they are complete. Default: three intervals, at least 10m; for a"
        " cron expression, the third last time at which a run was due. If you set it, Airflow also watches it"
        " as a deadline of each run, so that you are notified while the monitor is down.",
    )
    lag: int | None = Field(None, gt=0, description="Notify above this number of unread records. Without: never.")
    growing_intervals: int = Field(
        4,
        ge=2,
        description="Notify if unread records grow through this number of intervals: the smallest number in each is"
        " larger than in the one before.",
    )
    retention_left: Age = Field(
        "1d",
        description="Notify this long before Kafka's retention deletes unread records. For a topic that keeps records for"
        " less than four times this long: a quarter of its retention.",
    )
    failures: int = Field(
        1,
        ge=1,
        description="Notify after this number of failed runs in a row. An error that needs a person is reported at once.",
    )


def unknown_channels(alerts: Alerts | Literal[False], settings: AlertSettings | None) -> Iterator[str]:
    """One line per channel that a pipeline names and the settings don't have; none if the settings have no alerts at all."""
    if alerts is False or settings is None:  # such as on a developer's machine
        return
    channels = list(settings.channels)
    for name in alerts.channels:
        if name not in channels:
            hint = nearest(name, channels)
            yield f"alerts.channels.{name}: the settings have no {name!r} under alerts.channels, {hint}"


def channels_for(
    alerts: Alerts | Literal[False], settings: AlertSettings | None, kind: str, severity: Severity
) -> list[str]:
    """Names of the channels that get a notice, in the order of the settings."""
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
