"""A notice in the words of each channel."""

from __future__ import annotations

import json
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from frazil.alerts import messages
from frazil.alerts.notice import Notice

NOTICE = Notice("pizzas", "ops", "stale", "critical", "pizzas: stale", "late", "frazil lag pizzas", "http://x/y")


@given(st.text(max_size=4000), st.text(max_size=400))
def test_record_text_leaves_messages_valid_in_every_channel(cause: str, title: str):
    """Whatever it holds: subjects are one line, HTML has no tag of it, and every size is one that servers take."""
    notice = replace(NOTICE, cause=cause, title=title, owner=title)
    mail, blocks = messages.mail(notice), messages.slack_blocks(notice)

    assert mail.subject.isprintable()
    assert len(messages.title(notice)) <= messages.MAX_TITLE
    assert mail.html.count("<") == messages.mail(NOTICE).html.count("<")
    assert "<" not in messages.slack_text(notice)
    assert all(len(json.dumps(block, ensure_ascii=False)) < 3_600 for block in blocks)
    assert all(line.isprintable() for line in messages.cause(notice).splitlines())
    json.dumps([messages.webhook_body(notice), messages.pagerduty_event(notice)])


def test_notice_is_sent_with_its_html_and_text():
    """A notice that brings its HTML is sent with it, and with the text beside."""
    mail = messages.mail(replace(NOTICE, html="<h1>Report</h1>"))

    assert mail.html == "<h1>Report</h1>"
    assert "frazil lag pizzas" in mail.text


def test_each_report_opens_an_incident_of_its_own():
    """Each report opens one of its own: an incident that nobody closed would swallow the next."""
    first, second = (replace(NOTICE, kind="dead_letters", report=name) for name in ("20261121", "20261122"))

    assert messages.pagerduty_event(first)["dedup_key"] == "frazil/dead_letters/pizzas/20261121"
    assert messages.pagerduty_event(second)["dedup_key"] != messages.pagerduty_event(first)["dedup_key"]


def test_recovery_reads_as_resolved():
    """The first word says that it is over, and an incident is resolved by the key that opened it."""
    over = replace(NOTICE, recovered=True)

    assert messages.mail(over).subject == "[Frazil] recovered: pizzas: stale"
    assert messages.webhook_body(over)["status"] == "recovered"
    opened, resolved = messages.pagerduty_event(NOTICE), messages.pagerduty_event(over)
    assert (opened["action"], resolved["action"]) == ("trigger", "resolve")
    assert opened["dedup_key"] == resolved["dedup_key"]
