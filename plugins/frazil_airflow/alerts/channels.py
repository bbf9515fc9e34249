"""Sends a notice by Airflow's notifiers through every channel that the pipeline file allows. Secrets never reach logs or
errors.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from pkgutil import resolve_name
from typing import Any
from urllib.parse import urlsplit

from airflow.sdk import Connection
from airflow.sdk.log import mask_secret

from frazil.pipeline.channels import Channel, Notice
from frazil.pipeline.models.alerts import Alerts, ChannelSettings, channels_for
from frazil.project import Project

_SHORTEST_SECRET = 5
"""Shorter texts, such as a port or `true`, are no secrets; blotting them out would garble every line."""


def deliver(settings: ChannelSettings, notice: Notice) -> str | None:
    """Send a notice through one channel.

    Returns:
        None, or why it was not sent, without what is secret of the connection.
    """
    hidden = list[str]()
    try:
        channel = settings.channel
        hidden += secrets_of(Connection.get(channel.connection), channel)
        for secret in hidden:
            mask_secret(secret)
        notifier = resolve_name(channel.notifier)(**channel.arguments(notice))
        _silence(notifier.hook, hidden)
        notifier.notify({})
    except Exception as error:  # noqa: BLE001 - whatever happens to one channel, the others are told
        return _redacted(f"{type(error).__name__}: {error}", hidden)
    return None


def _redacted(text: str, hidden: Sequence[str]) -> str:
    for secret in hidden:
        text = text.replace(secret, "***")
    return text


class _Concealing(logging.Filter):
    """Takes secrets out of what a hook logs. Airflow masks them in task logs only, not where it echoes those."""

    def __init__(self, hidden: Sequence[str]) -> None:
        super().__init__()
        self.hidden = hidden

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args, record.exc_info = _redacted(record.getMessage(), self.hidden), None, None
        return True


def _silence(hook: Any, hidden: Sequence[str]) -> None:
    """Give a hook a log without secrets: its own quotes addresses with tokens when a server does not answer."""
    log = logging.Logger(f"{__name__}.{type(hook).__name__}", logging.INFO)  # noqa: LOG001 - its filter is for this hook only
    log.parent = logging.getLogger(__name__)
    log.addFilter(_Concealing(hidden))
    hook._log = log  # noqa: SLF001 - where Airflow's hooks keep theirs; a test holds this against each of them
    if isinstance(getattr(hook, "extra_client_args", None), dict):
        hook.extra_client_args["logger"] = log  # handed to Slack's client


def secrets_of(connection: Connection, channel: Channel) -> list[str]:
    """Texts of a connection that no log and no error may show, the longest first.

    Addresses of webhooks have tokens in their paths, and Airflow takes no address for a secret. Clients quote addresses
    whole or from the path on.
    """
    texts = {*_parts(connection.password or "")}
    if "address" in channel.secrets:
        host = connection.host or ""
        address = urlsplit(host if "://" in host else f"https://{host}")
        tail = f"{address.path}?{address.query}" if address.query else address.path
        if tail != "/services":  # Slack's own, of everybody
            texts |= {tail.rstrip("/"), *tail.split("/")}
    if "extra" in channel.secrets:
        texts |= {text for text in connection.extra_dejson.values() if isinstance(text, str)}  # headers
    return sorted((text for text in texts if len(text) >= _SHORTEST_SECRET), key=len, reverse=True)


def _parts(secret: str) -> Iterator[str]:
    """A secret; of a URL or path also the path and each of its segments."""
    yield secret
    if "/" in secret:
        path = urlsplit(secret).path if "://" in secret else secret
        yield from (path, *path.split("/"))


_log = logging.getLogger(__name__)


def send(project: Project, notice: Notice, channels: Collection[str] | None = None) -> dict[str, str | None]:
    """Send a notice through its channels. A failing channel does not stop the others.

    Nothing is stored here: two calls send two messages. Notices of a pipeline without a file go to all channels.

    Returns:
        Channel -> None, or why it was not sent, without secrets. Those that the settings don't have are left out.
    """
    alerts = project.settings.alerts
    if alerts is None:
        return {}
    answers: dict[str, str | None] = {}
    for name in told_channels(project, notice) if channels is None else channels:
        if name in alerts.channels:
            answers[name] = deliver(alerts.channels[name], notice)
            if answers[name] is None:
                _log.info("told %s: %s", name, notice.title)
            else:
                _log.warning("channel %s was not notified of %s: %s", name, notice.key, answers[name])
    return answers


def told_channels(project: Project, notice: Notice) -> list[str]:
    """Return the names of the channels that get a notice."""
    pipeline = project.pipelines.find(notice.pipeline)
    alerts = pipeline.alerts if pipeline is not None else Alerts()
    return channels_for(alerts, project.settings.alerts, notice.kind, notice.severity)
