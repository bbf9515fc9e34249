"""Airflow's notifiers with what channels need of them and they don't have: text beside HTML, another address, a time limit."""

from __future__ import annotations

from email.mime.text import MIMEText
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow.providers.pagerduty.hooks.pagerduty_events import PagerdutyEventsHook, prepare_event_data
from airflow.providers.pagerduty.notifications.pagerduty import PagerdutyNotifier
from airflow.providers.smtp.hooks.smtp import SmtpHook
from airflow.providers.smtp.notifications.smtp import SmtpNotifier
from airflow.sdk import Connection

from frazil.pipeline.channels.channels import TIMEOUT_SECONDS

if TYPE_CHECKING:
    from email.mime.multipart import MIMEMultipart


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
