"""Sends a notice by Airflow's notifiers through every channel that the pipeline file allows. Secrets never reach logs or
errors.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from email.mime.text import MIMEText
from functools import cached_property
from typing import TYPE_CHECKING, Any, assert_never
from urllib.parse import urlsplit

from airflow.providers.http.notifications.http import HttpNotifier
from airflow.providers.pagerduty.hooks.pagerduty_events import PagerdutyEventsHook, prepare_event_data
from airflow.providers.pagerduty.notifications.pagerduty import PagerdutyNotifier
from airflow.providers.slack.hooks.slack_webhook import SlackWebhookHook
from airflow.providers.slack.notifications.slack_webhook import SlackWebhookNotifier
from airflow.providers.smtp.hooks.smtp import SmtpHook
from airflow.providers.smtp.notifications.smtp import SmtpNotifier
from airflow.sdk import Connection
from airflow.sdk.log import mask_secret

from frazil.alerts import messages
from frazil.alerts.notice import Notice
from frazil.pipeline.models.alerts import Alerts, ChannelSettings, channels_for
from frazil.project import Project

if TYPE_CHECKING:
    from email.mime.multipart import MIMEMultipart


TIMEOUT_SECONDS = 30
"""Bounds one answer of a server: without, a silent one would hold up what the other channels are told."""

_SHORTEST_SECRET = 5
"""Shorter texts, such as a port or `true`, are no secrets; blotting them out would garble every line."""


class MailHook(SmtpHook):
    """Airflow's SMTP hook, which sends plain text with the HTML, for mail programs, pagers and filters without HTML."""

    def __init__(self, connection: str, text: str) -> None:
        super().__init__(smtp_conn_id=connection)
        self.text = text

    def _build_mime_message(self, *args: Any, **kwargs: Any) -> tuple[MIMEMultipart, list[str]]:
        message, recipients = super()._build_mime_message(*args, **kwargs)
        message.set_payload([MIMEText(self.text, "plain", "utf-8"), *message.get_payload()])
        return message, recipients


class MailNotifier(SmtpNotifier):
    """Airflow's SMTP notifier, with text and HTML."""

    def __init__(self, *, text: str, **kwargs: Any) -> None:
        super().__init__(mime_subtype="alternative", **kwargs)
        self.text = text

    @cached_property
    def hook(self) -> SmtpHook:
        """The hook with the text."""
        return MailHook(self.smtp_conn_id, self.text)


class IncidentHook(PagerdutyEventsHook):
    """Airflow's PagerDuty hook, at the address of the connection if it has one: accounts in Europe have another."""

    def __init__(self, connection: str) -> None:
        super().__init__(pagerduty_events_conn_id=connection)
        self.address = Connection.get(connection).host or None

    def send_event(self, **event: Any) -> str:  # type: ignore[override]  # the same arguments, by name
        """Send the event."""
        from pagerduty import EventsApiV2Client

        client = EventsApiV2Client(self.integration_key, base_url=self.address)
        client.timeout = TIMEOUT_SECONDS
        return client.send_event(**prepare_event_data(**event))


class IncidentNotifier(PagerdutyNotifier):
    """Airflow's PagerDuty notifier, at the address of the connection."""

    @cached_property
    def hook(self) -> PagerdutyEventsHook:
        """The hook with the address."""
        return IncidentHook(str(self.pagerduty_events_conn_id))


def notifier(
    channel: ChannelSettings, notice: Notice
) -> MailNotifier | SlackWebhookNotifier | IncidentNotifier | HttpNotifier:
    """Return the notifier of a channel; its `notify` sends the notice."""
    connection = channel.connection
    match channel.type:
        case "smtp":
            mail = messages.mail(notice)
            return MailNotifier(
                smtp_conn_id=connection,
                from_email=channel.sender,
                to=list(channel.to),
                subject=mail.subject,
                html_content=mail.html,
                text=mail.text,
                custom_headers={"Auto-Submitted": "auto-generated"},  # else absence notes come back
            )
        case "slack":
            return SlackWebhookNotifier(
                slack_webhook_conn_id=connection,
                text=messages.slack_text(notice),
                blocks=messages.slack_blocks(notice),
                unfurl_links=False,
                timeout=TIMEOUT_SECONDS,
            )
        case "pagerduty":
            return IncidentNotifier(pagerduty_events_conn_id=connection, **messages.pagerduty_event(notice))
        case "webhook":
            return HttpNotifier(
                http_conn_id=connection,
                json=messages.webhook_body(notice),
                headers={"Content-Type": "application/json"},
                extra_options={"timeout": TIMEOUT_SECONDS},
            )
    assert_never(channel.type)


def deliver(channel: ChannelSettings, notice: Notice) -> str | None:
    """Send a notice through one channel.

    Returns:
        None, or why it was not sent, without what is secret of the connection.
    """
    hidden: list[str] = []
    try:
        hidden += secrets_of(Connection.get(channel.connection), channel.type)
        for secret in hidden:
            mask_secret(secret)
        sending = notifier(channel, notice)
        _silence(sending.hook, hidden)
        sending.notify({})
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
    if isinstance(hook, SlackWebhookHook):
        hook.extra_client_args["logger"] = log  # handed to Slack's client


def secrets_of(connection: Connection, kind: str) -> list[str]:
    """Texts of a connection that no log and no error may show, the longest first.

    Addresses of webhooks have tokens in their paths, and Airflow takes no address for a secret. Clients quote addresses
    whole or from the path on.
    """
    texts = {*_parts(connection.password or "")}
    if kind in ("webhook", "slack"):
        host = connection.host or ""
        address = urlsplit(host if "://" in host else f"https://{host}")
        tail = f"{address.path}?{address.query}" if address.query else address.path
        if tail != "/services":  # Slack's own, of everybody
            texts |= {tail.rstrip("/"), *tail.split("/")}
    if kind == "webhook":
        texts |= {text for text in connection.extra_dejson.values() if isinstance(text, str)}  # headers
    return sorted((text for text in texts if len(text) >= _SHORTEST_SECRET), key=len, reverse=True)


def _parts(secret: str) -> Iterator[str]:
    """A secret, and of an address its path and the parts of that."""
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
                _log.warning("channel %s was not told of %s: %s", name, notice.key, answers[name])
    return answers


def told_channels(project: Project, notice: Notice) -> list[str]:
    """Return the names of the channels that get a notice."""
    pipeline = project.pipelines.find(notice.pipeline)
    alerts = pipeline.alerts if pipeline is not None else Alerts()
    return channels_for(alerts, project.settings.alerts, notice.kind, notice.severity)
