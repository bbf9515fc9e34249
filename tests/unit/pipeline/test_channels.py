"""A notice in the form of each channel, and what is made of a channel's definition."""

from __future__ import annotations

import json
from dataclasses import replace
from pkgutil import resolve_name
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.pipeline.channels import CHANNELS, MAX_TITLE, Notice
from frazil.pipeline.models.alerts import ChannelSettings

NOTICE = Notice("pizzas", "ops", "stale", "critical", "pizzas: stale", "late", "frazil lag pizzas", "http://x/y")


def arguments(name: str, notice: Notice = NOTICE) -> dict[str, Any]:
    """What the notifier of a channel is made with."""
    return CHANNELS[name]("c").arguments(notice)


@given(st.text(max_size=4000), st.text(max_size=400))
def test_record_text_leaves_messages_valid_in_every_channel(cause: str, title: str):
    """Whatever it holds: subjects are one line, HTML has no tag of it, and every size is one that servers take."""
    notice = replace(NOTICE, cause=cause, title=title, owner=title, next_step=cause or None)
    mail, chat = arguments("smtp", notice), arguments("slack", notice)
    plain = arguments("smtp", replace(notice, cause="", title="", owner="", next_step=notice.next_step and "x"))

    assert mail["subject"].isprintable()
    assert len(notice.headline) <= MAX_TITLE
    assert mail["html_content"].count("<") == plain["html_content"].count("<")
    assert "<" not in chat["text"]
    blocks = [block for index, block in enumerate(chat["blocks"]) if index != 2 or notice.next_step is None]
    assert all(len(json.dumps(block, ensure_ascii=False)) < 3_600 for block in blocks)
    assert all(line.isprintable() for line in notice.shown_cause.splitlines())
    json.dumps([arguments("webhook", notice), arguments("pagerduty", notice)])


def test_notice_is_sent_with_its_html_and_text():
    """A notice that brings its HTML is sent with it, and with the text beside."""
    mail = arguments("smtp", replace(NOTICE, html="<h1>Report</h1>"))

    assert mail["html_content"] == "<h1>Report</h1>"
    assert mail["text"].splitlines() == [
        *("critical: pizzas: stale", "", "late", "", "Next:", "", "    frazil lag pizzas", "", "Look: http://x/y"),
        *("Pipeline: pizzas", "Owner: ops", "Kind: stale", "Runbook: docs/runbooks/stale.md"),
    ]


def test_each_report_opens_an_incident_of_its_own():
    """Each report opens one of its own: an incident that nobody closed would swallow the next."""
    first, second = (replace(NOTICE, kind="dead_letters", report=name) for name in ("20261121", "20261122"))

    assert arguments("pagerduty", first)["dedup_key"] == "frazil/dead_letters/pizzas/20261121"
    assert arguments("pagerduty", second)["dedup_key"] != arguments("pagerduty", first)["dedup_key"]


def test_recovery_reads_as_resolved():
    """The first word says that it is over, and an incident is resolved by the key that opened it."""
    over = replace(NOTICE, recovered=True)

    assert arguments("smtp", over)["subject"] == "[Frazil] recovered: pizzas: stale"
    assert arguments("webhook", over)["json"]["status"] == "recovered"
    opened, resolved = arguments("pagerduty"), arguments("pagerduty", over)
    assert (opened["action"], resolved["action"]) == ("trigger", "resolve")
    assert opened["dedup_key"] == resolved["dedup_key"]


@pytest.mark.parametrize("name", CHANNELS)
def test_notifier_of_each_channel_takes_its_arguments(name: str):
    """A misspelled argument would be noticed with the first alert."""
    notifier = resolve_name(CHANNELS[name].notifier)

    notifier(**arguments(name))
    with pytest.raises(TypeError):
        notifier(**arguments(name), misspelled=1)
    assert ChannelSettings.model_fields["type"].annotation.__args__ == tuple(CHANNELS)
