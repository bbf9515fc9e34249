"""What was said already: nobody is told twice, nobody is left untold, whatever fails, dies or comes back."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.alerts.notification_log import (
    GIVE_UP,
    LONGEST_WAIT,
    PATIENCE,
    Message,
    Page,
    close_page,
    due_messages,
    from_json,
    merge_pages,
    record_attempt,
    to_json,
    update_page,
)
from frazil.pipeline.channels import Notice

START = datetime(2026, 5, 1, tzinfo=UTC)
LOOK = timedelta(minutes=2)
REMIND = timedelta(hours=4)
STALE = Notice("pizzas", "ops", "stale", "warning", "pizzas: stale", "late", "frazil lag pizzas")
WORSE = Notice("pizzas", "ops", "stale", "critical", "pizzas: stale", "later", "frazil lag pizzas")


@dataclass
class Desk:
    """A monitor with a clock of its own, a page that is stored, and channels that can fail."""

    channels: tuple[str, ...] = ("mail", "chat")
    now: datetime = START
    stored: str = field(default_factory=lambda: to_json(Page()))
    away: set[str] = field(default_factory=set)
    sent: list[tuple[str, str]] = field(default_factory=list)
    critical_only: set[str] = field(default_factory=set)

    def told_of(self, _kind: str, severity: str) -> list[str]:
        """The channels that such a severity goes to."""
        return [name for name in self.channels if severity == "critical" or name not in self.critical_only]

    def look(self, *holds: Notice, after: timedelta = LOOK, dies: bool = False) -> list[tuple[str, str]]:
        """A look some time later; returns what it sent: (channel, what). `dies`: after sending, before noting it."""
        self.now += after
        before = len(self.sent)
        notices = {"stale": None, "unreadable": None} | {notice.kind: notice for notice in holds}
        page = update_page(from_json(self.stored), notices, self.now)
        page, messages = due_messages(page, self.told_of, self.now, REMIND)
        self.stored = to_json(page)
        for message in messages:
            page = record_attempt(page, message, self.now, was_sent=self._send(message))
        if not dies:
            self.stored = to_json(page)
        return self.sent[before:]

    def _send(self, message: Message) -> bool:
        notice = message.notice
        assert notice.recovered or message.channel in self.told_of(notice.kind, notice.severity)
        if message.channel in self.away:
            return False
        self.sent.append((message.channel, "over" if message.notice.recovered else message.notice.severity))
        return True


def test_lasting_problem_is_notified_once_and_again_when_over():
    """Once to each channel, again when it is over, and then no more."""
    desk = Desk()

    assert desk.look(STALE) == [("mail", "warning"), ("chat", "warning")]
    assert [desk.look(STALE) for _ in range(50)] == [[]] * 50
    assert desk.look() == [("chat", "over"), ("mail", "over")]
    assert desk.look() == []
    assert from_json(desk.stored).entries == {}


def test_lasting_problem_is_reminded_after_a_while_and_when_worse():
    """Told again after a while, with how long it lasts; told again at once when it gets worse."""
    desk = Desk(("mail",))
    desk.look(STALE)

    assert desk.look(STALE, after=REMIND - timedelta(seconds=1)) == []
    assert desk.look(STALE, after=timedelta(seconds=1)) == [("mail", "warning")]
    assert desk.look(WORSE) == [("mail", "critical")]
    assert desk.look(STALE) == []


@pytest.mark.parametrize("dies", [False, True])
def test_resolved_notice_keeps_highest_severity_that_channel_received(dies: bool):
    """Whoever was told, or may have been, is told that it is over, as urgently: else its channel would not take it."""
    desk = Desk(("mail", "pager"), critical_only={"pager"})
    desk.look(WORSE, dies=dies)
    desk.look(STALE, after=LONGEST_WAIT)

    assert desk.look() == [("mail", "over"), ("pager", "over")]
    assert from_json(desk.stored).entries == {}


def test_failed_send_is_retried_until_channel_has_it():
    """The channel that was away is tried again until it is told; the other is not told again."""
    desk = Desk(away={"mail"})

    assert desk.look(STALE) == [("chat", "warning")]
    assert desk.look(STALE) == []
    desk.away.clear()
    assert desk.look(STALE) == [("mail", "warning")]
    assert desk.look(STALE) == []


def test_problem_of_failed_send_is_reported_once_over():
    """Whoever was tried hears of it afterwards, with what it was."""
    desk = Desk(("mail",), away={"mail"})
    desk.look(STALE)
    desk.away.clear()

    assert desk.look() == [("mail", "over")]
    assert desk.look() == []


def test_unreachable_channel_is_retried_less_and_less_often():
    """Each wait is twice as long as the one before, an hour at most; that it is over is given up after a day."""
    desk = Desk(("mail",), away={"mail"})
    tries = 0
    for _ in range(720):  # a day of looks
        desk.look(STALE)
        tries = next(iter(from_json(desk.stored).entries["stale"].channels.values())).tries
    assert 24 <= tries <= 36

    for _ in range(760):
        desk.look()
    assert from_json(desk.stored).entries == {}


def test_monitor_that_dies_while_sending_repeats_notices_at_growing_intervals():
    """The try was noted before: it comes once more, later each time, never at every look."""
    desk = Desk(("mail",))
    for _ in range(720):
        desk.look(STALE, dies=True)

    assert 24 <= len(desk.sent) <= 36


@pytest.mark.parametrize("away", [False, True])
def test_incident_of_removed_channel_is_closed_there(away: bool):
    """It is told that it is over for it, though the trouble lasts, and tried for a day; if it is told again, it is anew."""
    desk = Desk(away={"chat"} if away else set())
    desk.look(STALE)
    desk.channels = ("mail",)

    assert desk.look(STALE) == ([] if away else [("chat", "over")])
    assert desk.look(STALE) == []
    desk.look(STALE, after=GIVE_UP + LOOK)
    assert set(from_json(desk.stored).entries["stale"].channels) == {"mail"}
    desk.away.clear()
    desk.channels = ("mail", "chat")
    assert desk.look(STALE) == [("chat", "warning")]


def test_removed_channel_is_notified_once_that_problem_is_over():
    """Told so when it was taken out, it hears no more when the trouble is."""
    desk = Desk(("mail",))
    desk.look(STALE)
    desk.channels = ()

    assert [desk.look(STALE), desk.look()] == [[("mail", "over")], []]
    assert from_json(desk.stored).entries == {}


def test_problems_of_unwatched_pipeline_are_closed():
    """All that held is over, and the notice says why; nothing is left to be forgotten."""
    desk = Desk(("mail",))
    desk.look(STALE)
    page = close_page(from_json(desk.stored), desk.now, "There is no such pipeline.")
    page, (message,) = due_messages(page, desk.told_of, desk.now, REMIND)

    assert (message.notice.recovered, message.notice.key) == (True, "stale/pizzas")
    assert message.notice.cause == "There is no such pipeline. It was:\nlate"
    assert record_attempt(page, message, desk.now, was_sent=True).entries == {}


@pytest.mark.parametrize("is_known_page", [False, True])
def test_problems_of_another_page_continue_here_with_their_channels(is_known_page: bool):
    """A trouble of another page goes on in this one, with who was told."""
    elsewhere, desk = Desk(("mail",)), Desk(("mail",))
    elsewhere.look(STALE)
    if is_known_page:
        desk.look(STALE)
        desk.away = {"mail"}
        desk.look()
        desk.away.clear()
    desk.stored = to_json(merge_pages(from_json(desk.stored), from_json(elsewhere.stored)))

    assert desk.look(STALE) == []
    assert desk.look() == [("mail", "over")]


def test_recurring_problem_is_notified_again():
    """Who was told that it is over, or may have been, hears of it anew; who was not tried yet still knows of it."""
    desk = Desk(("mail", "chat", "hook"))
    desk.look(STALE)
    desk.away = {"mail"}
    assert desk.look() == [("chat", "over"), ("hook", "over")]
    desk.away.clear()

    assert desk.look(STALE) == [("mail", "warning"), ("chat", "warning"), ("hook", "warning")]
    assert desk.look(STALE) == []


def test_unreadable_condition_is_reported_at_third_failure_in_row():
    """What can't be read is told when it can't be read three times, one after another."""
    away = Notice("pizzas", "ops", "unreadable", "warning", "pizzas: no answer", "no answer")
    desk = Desk(("mail",))

    assert [desk.look(away) for _ in range(PATIENCE["unreadable"] - 1)] == [[], []]
    assert desk.look() == []
    assert [desk.look(away) for _ in range(PATIENCE["unreadable"])][-1] == [("mail", "warning")]


def test_unknown_condition_leaves_open_problems_as_they_are():
    """A kind that is not judged stands as it was."""
    page = update_page(Page(), {"stale": STALE}, START)

    assert update_page(page, {}, START + LOOK).entries["stale"].over_at is None


@given(st.lists(st.tuples(st.sampled_from([None, STALE, WORSE]), st.integers(1, 300)), max_size=60))
def test_pager_incident_is_resolved_once_problem_is_over(story: list[tuple[Notice | None, int]]):
    """However a trouble rises and falls: once it is over the last word to everybody who was told is that it is."""
    desk = Desk(("mail", "pager"), critical_only={"pager"})
    for holds, minutes in story:
        desk.look(*([holds] if holds else []), after=timedelta(minutes=minutes))
    desk.look()

    assert set(dict(desk.sent).values()) <= {"over"}


@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans(), st.integers(1, 300)), max_size=60))
def test_every_channel_knows_final_state_after_any_failure(story: list[tuple[bool, bool, bool, int]]):
    """Whatever fails, dies and comes back: once all works again everybody knows how it stands, and the last word is true."""
    desk = Desk()
    for holds, away, dies, minutes in story:
        desk.away = {"mail"} if away else set()
        desk.look(*([STALE] if holds else []), after=timedelta(minutes=minutes), dies=dies)
    desk.away = set()
    holds = [STALE] if story and story[-1][0] else []
    for _ in range(2):
        desk.look(*holds, after=LONGEST_WAIT)

    last = dict(desk.sent)
    for channel in desk.channels:
        assert last.get(channel) in (("warning",) if holds else (None, "over"))
    assert not desk.look(*holds)


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 30)), max_size=60))
def test_working_channel_gets_one_notice_per_begin_and_end(story: list[tuple[bool, int]]):
    """Without failures: one word for each begin, one for each end, and reminders no nearer than they should be."""
    desk = Desk(("mail",))
    for holds, minutes in story:
        desk.look(*([STALE] if holds else []), after=timedelta(minutes=minutes))

    changes = [holds for look, (holds, _) in enumerate(story) if holds != (look > 0 and story[look - 1][0])]
    counts = Counter(what for _, what in desk.sent)
    lasted = sum((timedelta(minutes=minutes) for _, minutes in story), timedelta())
    assert counts["over"] == changes.count(False)
    assert changes.count(True) <= counts["warning"] <= changes.count(True) + lasted // REMIND


@pytest.mark.parametrize("text", ["", "null", "[]", '{"entries": 3}', '{"entries": {}, "looked_at": 1, "fewest": []}'])
def test_edited_page_that_is_unreadable_is_an_error(text: str):
    """It is an error that the caller sees."""
    with pytest.raises(ValueError, match=r"."):
        from_json(text)


def test_page_of_newer_frazil_is_readable():
    """Keys that are not known are left out."""
    desk = Desk()
    desk.look(STALE)
    newer = desk.stored.replace('"looks": 1', '"looks": 1, "colour": "red"')
    assert newer != desk.stored

    assert to_json(from_json(newer)) == desk.stored
