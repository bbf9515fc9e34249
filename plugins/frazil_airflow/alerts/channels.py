"""Sends a notice through channels, by Airflow's notifiers. No secret of a channel reaches a log or an error."""

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
"""Characters of the shortest secret. Shorter texts, such as a port or `true`, are none: masking them would garble lines."""


def deliver(settings: ChannelSettings, notice: Notice) -> str | None:
    """Send a notice through one channel.

    Returns:
        None, or why the notice was not sent, without secrets of the connection.
    """
    secrets = list[str]()
    try:
        channel = settings.channel
        secrets += secrets_of(Connection.get(channel.connection), channel)
        for secret in secrets:
            mask_secret(secret)
        notifier = resolve_name(channel.notifier)(**channel.arguments(notice))
        _mask_log(notifier.hook, secrets)
        notifier.notify({})
    except Exception as error:  # noqa: BLE001 - an error of one channel must not stop the others
        return _masked(f"{type(error).__name__}: {error}", secrets)
    return None


def _masked(text: str, secrets: Sequence[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, "***")
    return text


class _SecretFilter(logging.Filter):
    """Masks secrets in log records. Airflow itself masks them in task logs only, not in logs of its other processes."""

    def __init__(self, secrets: Sequence[str]) -> None:
        super().__init__()
        self.secrets = secrets

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args, record.exc_info = _masked(record.getMessage(), self.secrets), None, None
        return True


def _mask_log(hook: Any, secrets: Sequence[str]) -> None:
    """Give a hook a logger that masks secrets: its own logs addresses with tokens when a server does not answer."""
    log = logging.Logger(f"{__name__}.{type(hook).__name__}", logging.INFO)  # noqa: LOG001 - its filter is for this hook only
    log.parent = logging.getLogger(__name__)
    log.addFilter(_SecretFilter(secrets))
    hook._log = log  # noqa: SLF001 - where Airflow's hooks keep theirs; a test holds this against each of them
    if isinstance(getattr(hook, "extra_client_args", None), dict):
        hook.extra_client_args["logger"] = log  # for Slack's client


def secrets_of(connection: Connection, channel: Channel) -> list[str]:
    """Texts of a connection that no log and no error may show, the longest first.

    Addresses of webhooks have tokens in their paths, which Airflow does not mask. Errors quote an address whole, or only its path.
    """
    texts = {*_parts(connection.password or "")}
    if "address" in channel.secrets:
        host = connection.host or ""
        address = urlsplit(host if "://" in host else f"https://{host}")
        tail = f"{address.path}?{address.query}" if address.query else address.path
        if tail != "/services":  # the same for all users of Slack
            texts |= {tail.rstrip("/"), *tail.split("/")}
    if "extra" in channel.secrets:
        texts |= {text for text in connection.extra_dejson.values() if isinstance(text, str)}  # headers
    return sorted((text for text in texts if len(text) >= _SHORTEST_SECRET), key=len, reverse=True)


def _parts(secret: str) -> Iterator[str]:
    """A secret, and, if it is a URL or a path, its path and each segment of that."""
    yield secret
    if "/" in secret:
        path = urlsplit(secret).path if "://" in secret else secret
        yield from (path, *path.split("/"))


_log = logging.getLogger(__name__)


def send(project: Project, notice: Notice, channels: Collection[str]) -> dict[str, str | None]:
    """Send a notice through channels. A failing channel does not stop the others. Two calls send two messages.

    Returns:
        Channel -> None, or why the notice was not sent, without secrets. Channels that the settings don't have are left out.
    """
    alerts = project.settings.alerts
    if alerts is None:
        return {}
    answers: dict[str, str | None] = {}
    for name in channels:
        if name in alerts.channels:
            answers[name] = deliver(alerts.channels[name], notice)
            if answers[name] is None:
                _log.info("channel %s was notified: %s", name, notice.title)
            else:
                _log.warning("channel %s was not notified of %s: %s", name, notice.key, answers[name])
    return answers


def channels_of(project: Project, notice: Notice) -> list[str]:
    """Return the names of the channels that take a notice of a pipeline: all of the settings, if the pipeline has no valid file."""
    pipeline = project.pipelines.find(notice.pipeline)
    alerts = pipeline.alerts if pipeline is not None else Alerts()
    return channels_for(alerts, project.settings.alerts, notice.kind, notice.severity)
