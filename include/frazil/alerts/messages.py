"""A notice as mail, chat message, JSON and incident. Text from records and servers is escaped."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from frazil.alerts.notice import Notice
from frazil.report.dead_letters_page import template_environment, visible

SOURCE = "frazil"

MAX_CAUSE = 2_800
"""Characters of a cause; Slack takes 3,000 of a text, and nobody reads more on a telephone. Logs have the rest."""

MAX_TITLE = 150
"""Characters of a title: what Slack takes of a header. PagerDuty takes 1,024, mail programs show about 80."""


@dataclass(frozen=True, slots=True)
class Mail:
    """A mail: `subject` is one line, `text` and `html` say the same."""

    subject: str
    text: str
    html: str


def title(notice: Notice) -> str:
    """The title on one line, with the severity, or "recovered" if it is over."""
    word = "recovered" if notice.recovered else notice.severity
    return _short(f"{word}: {visible(notice.title)}", MAX_TITLE)


def cause(notice: Notice) -> str:
    """The cause with its line breaks, without control characters and without characters that change the direction of reading."""
    return _short("\n".join(visible(line) for line in notice.cause.splitlines()), MAX_CAUSE)


def mail(notice: Notice) -> Mail:
    """The notice as a mail. A notice with an HTML page of its own uses that page."""
    html = notice.html if notice.html is not None else _rendered("mail.html.j2", notice)
    return Mail(f"[Frazil] {title(notice)}", _rendered("mail.txt.j2", notice), html)


def slack_text(notice: Notice) -> str:
    """The text that Slack shows instead of blocks, such as on a lock screen. Slack's three special characters are escaped."""
    return title(notice).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def slack_blocks(notice: Notice) -> list[dict[str, Any]]:
    """The message as Slack blocks. Text from outside is in plain-text elements, so that it is never markup."""
    blocks: list[dict[str, Any]] = [
        {"type": "header", "text": {"type": "plain_text", "text": title(notice), "emoji": False}},
        _preformatted(cause(notice)),
    ]
    if notice.next_step is not None:
        blocks.append(_preformatted(_short(notice.next_step, MAX_CAUSE)))
    footer = f"pipeline {notice.pipeline}, owner {visible(notice.owner)}, {notice.kind}; runbook {notice.runbook}"
    blocks.append({"type": "context", "elements": [{"type": "plain_text", "text": _short(footer, MAX_CAUSE)}]})
    if notice.link is not None:
        button = {"type": "button", "text": {"type": "plain_text", "text": "Look"}, "url": notice.link}
        blocks.append({"type": "actions", "elements": [button]})
    return blocks


def webhook_body(notice: Notice) -> dict[str, Any]:
    """The notice as JSON for a server of one's own: its fields, `key`, `runbook`, and `status` `firing` or `recovered`."""
    fields = asdict(notice)
    del fields["html"], fields["recovered"], fields["report"]  # the key names it
    status = "recovered" if notice.recovered else "firing"
    details = {"cause": cause(notice), "runbook": notice.runbook}
    return {"source": SOURCE, "key": notice.key, "status": status, **fields, **details}


def pagerduty_event(notice: Notice) -> dict[str, Any]:
    """The notice as arguments of PagerDuty's event: the same `dedup_key` opens an incident and resolves it."""
    return {
        "summary": title(notice),
        "severity": notice.severity,
        "source": notice.pipeline,
        "action": "resolve" if notice.recovered else "trigger",
        "dedup_key": f"{SOURCE}/{notice.key}",
        "component": SOURCE,
        "group": visible(notice.owner),
        "class_type": notice.kind,
        "custom_details": {
            "cause": cause(notice),
            "next step": notice.next_step,
            "runbook": notice.runbook,
            "owner": visible(notice.owner),
        },
        "links": [] if notice.link is None else [{"href": notice.link, "text": "Look"}],
    }


def _preformatted(text: str) -> dict[str, Any]:
    inner = {"type": "rich_text_preformatted", "elements": [{"type": "text", "text": text or "(nothing)"}]}
    return {"type": "rich_text", "elements": [inner]}


def _rendered(template: str, notice: Notice) -> str:
    environment = template_environment("frazil.alerts")
    environment.filters["visible"] = visible
    return environment.get_template(template).render(notice=notice, title=title(notice), cause=cause(notice))


def _short(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"
