"""Airflow's SMTP notifier with one addition: plain text beside the HTML."""

from __future__ import annotations

from email.mime.text import MIMEText
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow.providers.smtp.hooks.smtp import SmtpHook
from airflow.providers.smtp.notifications.smtp import SmtpNotifier

if TYPE_CHECKING:
    from email.mime.multipart import MIMEMultipart


class MailHook(SmtpHook):
    """Airflow's SMTP hook. It also sends plain text, for mail programs, pagers and filters that read no HTML."""

    def __init__(self, connection: str, text: str) -> None:
        super().__init__(smtp_conn_id=connection)
        self.text = text

    def _build_mime_message(self, *args: Any, **kwargs: Any) -> tuple[MIMEMultipart, list[str]]:
        message, recipients = super()._build_mime_message(*args, **kwargs)
        message.set_payload([MIMEText(self.text, "plain", "utf-8"), *message.get_payload()])
        return message, recipients


class MailNotifier(SmtpNotifier):
    """Airflow's SMTP notifier, with this hook."""

    def __init__(self, *, text: str, **kwargs: Any) -> None:
        super().__init__(mime_subtype="alternative", **kwargs)
        self.text = text

    @cached_property
    def hook(self) -> SmtpHook:
        """The hook that the notifier sends with."""
        return MailHook(self.smtp_conn_id, self.text)
