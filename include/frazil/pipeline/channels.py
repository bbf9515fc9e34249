"""The alert channels, and the notice that they send. Settings, docs/alerts.md and `frazil plugins` are made from these classes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from html import escape
from textwrap import indent
from types import MappingProxyType
from typing import Any, ClassVar, Final, Literal, get_args

from frazil.records import option

Severity = Literal["info", "warning", "critical"]
SEVERITIES: tuple[str, ...] = get_args(Severity)

MAX_TEXT = 2_800
"""Most characters of a cause. Slack allows 3,000 in a text, and a phone shows no more. Logs have the rest."""

MAX_TITLE = 150
"""Most characters of a title, as Slack allows in a header. PagerDuty allows 1,024; mail programs show about 80."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A message to people about one pipeline.

    Attributes:
        kind: The kind of event, such as `failed_run` or `dead_letters`; the deduplication key begins with it.
        severity: How urgent it is.
        title: One line.
        cause: The cause, with coordinates, expected and found.
        next_step: The next command, or None.
        link: Address of a page with details, or None.
        recovered: Whether this notice reports the end of an earlier problem.
        html: The whole message as HTML, for mail; None: built from the other attributes.
        report: Name of the report in this notice, or None. A notice with another report never counts as a repetition.
    """

    pipeline: str
    owner: str
    kind: str
    severity: Severity
    title: str
    cause: str
    next_step: str | None = None
    link: str | None = None
    recovered: bool = False
    html: str | None = None
    report: str | None = None

    @property
    def key(self) -> str:
        """The key that all notices about one problem share, including the one about its end."""
        subject = f"{self.kind}/{self.pipeline}"
        return subject if self.report is None else f"{subject}/{self.report}"

    @property
    def runbook(self) -> str:
        """Path, within the project, of the runbook for this kind of problem."""
        return f"docs/runbooks/{self.kind}.md"

    @property
    def headline(self) -> str:
        """The title on one line, after the severity, or after "recovered" if the problem is over."""
        word = "recovered" if self.recovered else self.severity
        return shortened(f"{word}: {visible(self.title)}", MAX_TITLE)

    @property
    def shown_cause(self) -> str:
        """The cause with its line breaks, and with other control characters escaped."""
        return shortened("\n".join(visible(line) for line in self.cause.splitlines()))


def shortened(text: str, length: int = MAX_TEXT) -> str:
    """The text, cut to this length with an ellipsis at its end."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


def visible(text: str, spaces: str = "") -> str:
    """The text on one line, with control characters (but for `spaces`) and those that change the reading direction escaped."""
    return "".join(
        sign if sign.isprintable() or sign in spaces else sign.encode("unicode_escape").decode() for sign in text
    )


SOURCE: Final = "frazil"

TIMEOUT_SECONDS: Final = 30
"""Timeout of one answer of a server, so that a silent server does not delay the other channels."""

Secret = Literal["password", "address", "extra"]
"""A secret part of an Airflow connection. `address`: the path of its host. `extra`: the texts in its extra."""


@dataclass(frozen=True, slots=True)
class Channel:
    """A way to notify people. The first paragraph of a subclass says what it sends.

    The second paragraph says what its Airflow `connection` needs. Docs have both, and options are keys of the settings file.
    """

    connection: str

    package: ClassVar[str]
    """Name of the package with the notifier."""
    notifier: ClassVar[str]
    """Class of the Airflow notifier, as `module:name`; `arguments` are those of its constructor."""
    secrets: ClassVar[tuple[Secret, ...]] = ("password", "address", "extra")
    """Parts of the connection that no log and no error may show."""

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield the key and the problem of each option that is missing or does not fit."""
        yield from ()

    def arguments(self, notice: Notice) -> dict[str, Any]:
        """Return the arguments of the notifier."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Smtp(Channel):
    """Mail, text beside HTML.

    Type `smtp`: host, port, login, password; `from_email` in the extra unless the channel has `sender`. `to` says to whom.
    """

    addresses: tuple[str, ...] = option("`smtp`: addresses that the mail goes to.", (), key="to")
    sender: str | None = option(
        "`smtp`: address that the mail comes from. Without: `from_email` of the connection.", None
    )

    package = "apache-airflow-providers-smtp"
    notifier = "frazil_airflow.alerts.mail:MailNotifier"
    secrets = ("password",)

    def problems(self) -> Iterator[tuple[str, str]]:
        """Refuse a channel without addresses."""
        if not self.addresses:
            yield "to", "is required by type smtp: the addresses that mail goes to"

    def arguments(self, notice: Notice) -> dict[str, Any]:
        """Return a mail with text and HTML."""
        return {
            "smtp_conn_id": self.connection,
            "from_email": self.sender,
            "to": list(self.addresses),
            "subject": f"[Frazil] {notice.headline}",
            "html_content": _html(notice) if notice.html is None else notice.html,
            "text": _text(notice),
            "custom_headers": {"Auto-Submitted": "auto-generated"},  # keeps mail servers from sending absence notes
        }


def _text(notice: Notice) -> str:
    lines = [notice.headline, "", notice.shown_cause, ""]
    if notice.next_step:
        lines += ["Next:", "", indent(notice.next_step, "    "), ""]
    if notice.link:
        lines.append(f"Look: {notice.link}")
    origin = {"Pipeline": notice.pipeline, "Owner": visible(notice.owner), "Kind": notice.kind}
    return "\n".join([*lines, *(f"{name}: {value}" for name, value in origin.items()), f"Runbook: {notice.runbook}"])


_BLOCK: Final = (
    "background: rgba(128,128,128,.12); border-radius: 4px; font: 13px/1.5 ui-monospace, monospace;"
    " overflow-wrap: anywhere; padding: .75rem; white-space: pre-wrap;"
)


def _html(notice: Notice) -> str:
    title, color = escape(notice.headline), "#b42318" if notice.severity == "critical" else "#b7791f"
    bar = f"5px solid {'#1a7f4b' if notice.recovered else color}"
    origin = f"Pipeline {notice.pipeline} · owner {visible(notice.owner)} · {notice.kind} · runbook {notice.runbook}"
    parts = [
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        f"<title>{title}</title>\n</head>",
        '<body style="font: 15px/1.55 system-ui, sans-serif; margin: 0 auto; max-width: 44rem; padding: 1.25rem;">',
        f'<h1 style="font-size: 1.2rem; border-left: {bar}; margin: 0 0 1rem; padding-left: .75rem;">{title}</h1>',
        f'<pre style="{_BLOCK}">{escape(notice.shown_cause)}</pre>',
    ]
    if notice.next_step:
        parts.append('<p style="margin: 1rem 0 .25rem;">What to do next:</p>')
        parts.append(f'<pre style="{_BLOCK}">{escape(notice.next_step)}</pre>')
    if notice.link:
        parts.append(f'<p><a href="{escape(notice.link)}">Look in Airflow</a></p>')
    parts.append(f'<p style="color: #70757d; font-size: .87em;">{escape(origin)}</p>\n</body>\n</html>')
    return "\n".join(parts)


@dataclass(frozen=True, slots=True)
class Slack(Channel):
    """An incoming webhook of Slack.

    Type `slackwebhook`: host `https://hooks.slack.com/services`, the rest of the webhook's address as password.
    """

    package = "apache-airflow-providers-slack"
    notifier = "airflow.providers.slack.notifications.slack_webhook:SlackWebhookNotifier"
    secrets = ("password", "address")

    def arguments(self, notice: Notice) -> dict[str, Any]:
        """Return blocks, and a text for where Slack shows no blocks, such as a lock screen. Foreign text is never markup."""
        blocks: list[dict[str, Any]] = [
            {"type": "header", "text": {"type": "plain_text", "text": notice.headline, "emoji": False}},
            _preformatted(notice.shown_cause),
        ]
        if notice.next_step is not None:
            blocks.append(_preformatted(shortened(notice.next_step)))
        owner = visible(notice.owner)
        footer = f"pipeline {notice.pipeline}, owner {owner}, {notice.kind}; runbook {notice.runbook}"
        blocks.append({"type": "context", "elements": [{"type": "plain_text", "text": shortened(footer)}]})
        if notice.link is not None:
            button = {"type": "button", "text": {"type": "plain_text", "text": "Look"}, "url": notice.link}
            blocks.append({"type": "actions", "elements": [button]})
        return {
            "slack_webhook_conn_id": self.connection,
            "text": escape(notice.headline, quote=False),  # escapes Slack's three special characters
            "blocks": blocks,
            "unfurl_links": False,
            "timeout": TIMEOUT_SECONDS,
        }


def _preformatted(text: str) -> dict[str, Any]:
    inner = {"type": "rich_text_preformatted", "elements": [{"type": "text", "text": text or "(nothing)"}]}
    return {"type": "rich_text", "elements": [inner]}


@dataclass(frozen=True, slots=True)
class Webhook(Channel):
    """JSON by POST, to any server.

    Type `http`: the whole address as host; headers, such as `Authorization`, in the extra.
    """

    package = "apache-airflow-providers-http"
    notifier = "airflow.providers.http.notifications.http:HttpNotifier"

    def arguments(self, notice: Notice) -> dict[str, Any]:
        """Return the notice's fields, its `key`, its `runbook`, and the `status` `firing` or `recovered`."""
        fields = asdict(notice)
        del fields["html"], fields["recovered"], fields["report"]  # status and key have the latter two
        status = "recovered" if notice.recovered else "firing"
        details = {"cause": notice.shown_cause, "runbook": notice.runbook}
        return {
            "http_conn_id": self.connection,
            "json": {"source": SOURCE, "key": notice.key, "status": status, **fields, **details},
            "headers": {"Content-Type": "application/json"},
            "extra_options": {"timeout": TIMEOUT_SECONDS},
        }


@dataclass(frozen=True, slots=True)
class PagerDuty(Channel):
    """Events that open and resolve an incident.

    Type `pagerduty_events`: the integration key as password; as host, for accounts in Europe, `https://events.eu.pagerduty.com`.
    """

    package = "apache-airflow-providers-pagerduty"
    notifier = "frazil_airflow.alerts.incidents:IncidentNotifier"
    secrets = ("password",)

    def arguments(self, notice: Notice) -> dict[str, Any]:
        """Return an event whose `dedup_key` is the same for the start and the end of a problem."""
        owner = visible(notice.owner)
        return {
            "pagerduty_events_conn_id": self.connection,
            "summary": notice.headline,
            "severity": notice.severity,
            "source": notice.pipeline,
            "action": "resolve" if notice.recovered else "trigger",
            "dedup_key": f"{SOURCE}/{notice.key}",
            "component": SOURCE,
            "group": owner,
            "class_type": notice.kind,
            "custom_details": {
                "cause": notice.shown_cause,
                "next step": notice.next_step,
                "runbook": notice.runbook,
                "owner": owner,
            },
            "links": [] if notice.link is None else [{"href": notice.link, "text": "Look"}],
        }


CHANNELS: Final[Mapping[str, type[Channel]]] = MappingProxyType(
    {"smtp": Smtp, "slack": Slack, "webhook": Webhook, "pagerduty": PagerDuty}
)
"""Type of a channel in the settings file -> class."""
