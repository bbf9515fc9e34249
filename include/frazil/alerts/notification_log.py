"""The log of notifications per pipeline: what each channel received, what is still to send, and when to repeat it.

A page of the log is plain data, and each reading of a pipeline updates it. `due_messages` returns the messages to send and
notes the attempt, which is stored *before* anything is sent; `record_attempt` notes the result. So a process that dies in
between sends again, after a pause that grows with every attempt: no message is lost, and none is repeated forever. Only one
monitor writes at a time, which Airflow ensures. If a suspended one overwrites a newer page, a notice may come twice, but none
is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Annotated

from pydantic import Field, TypeAdapter

from frazil.monitor.condition import spoken
from frazil.monitor.freshness import Span
from frazil.pipeline.channels import SEVERITIES, Notice, Severity
from frazil.pipeline.syntax.strict import read_json, write_json

PATIENCE: Mapping[str, int] = {"unreadable": 3}
"""Checks in a row that must find a condition before people are notified: a broker that restarts is no reason to notify."""

FIRST_WAIT = timedelta(minutes=1)
LONGEST_WAIT = timedelta(hours=1)
"""Between tries to tell a channel: each wait is twice as long as the one before."""

GIVE_UP = timedelta(days=1)
"""How long a channel is tried that can't be told that a trouble is over."""

_LEFT = "This channel is told of it no more: the pipeline's file, or the settings file, says so."

MAX_INTERVALS = 1_000

Channels = Callable[[str, Severity], Sequence[str]]
"""Names of the channels that are told of a kind of such severity."""


@dataclass(frozen=True, slots=True)
class ChannelState:
    """The messages about one problem that a channel received.

    Attributes:
        told_at: When the channel last received a message; None if it never did, as far as is known.
        severity: The severity in that message.
        tries: Number of attempts to send the present message.
        tried_at: The last one.
        left_at: Since when the channel no longer gets this kind of notice; None while it does.
    """

    told_at: Annotated[datetime | None, Field(alias="at")] = None
    severity: Severity | None = None
    tries: int = 0
    tried_at: datetime | None = None
    left_at: datetime | None = None

    def waits(self, now: datetime) -> bool:
        """Whether the next try is still to wait."""
        if not self.tries or self.tried_at is None:
            return False
        return now < self.tried_at + min(FIRST_WAIT * (1 << min(self.tries - 1, 16)), LONGEST_WAIT)

    def tried(self, now: datetime) -> ChannelState:
        """The entry while an attempt to send is under way."""
        return replace(self, tries=self.tries + 1, tried_at=now)


@dataclass(frozen=True, slots=True)
class Entry:
    """One problem, from when it is first seen until every notified channel has received that it is over.

    Attributes:
        notice: The present notice.
        since: The first look.
        looks: How many consecutive looks found the problem.
        over_at: Since when it is over; None while it holds.
        why_over: Why, if not because all is well.
        channels: Channels that received the notice, or may have.
    """

    notice: Notice
    since: datetime
    looks: int = 1
    over_at: datetime | None = None
    why_over: str | None = None
    channels: Mapping[str, ChannelState] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Page:
    """The log of one pipeline's notices.

    Attributes:
        entries: Kind -> problem.
        fewest: The fewest unread records of each span between runs, the newest last: (begin in seconds since 1970, records).
        missed: Looks, one after another, at which there was no such pipeline.
    """

    looked_at: datetime | None = None
    entries: Mapping[str, Entry] = field(default_factory=dict)
    fewest: tuple[tuple[int, int], ...] = ()
    missed: int = 0

    @property
    def finished(self) -> tuple[int, ...]:
        """The fewest unread records of each span that is over."""
        return tuple(lag for _, lag in self.fewest[:-1])

    def with_lag(self, lag: int | None, span: Span, keep: int) -> Page:
        """The page with one more measurement of the lag, in the present interval between runs."""
        if lag is None:
            return self
        begin, before = (int(instant.timestamp()) for instant in (span.begin, span.before))
        newest = self.fewest[-1][0] if self.fewest else begin
        # Nobody looked for a while, or the interval is another one now: nothing to compare with.
        spans = dict(self.fewest) if newest in (begin, before) else {}
        spans[begin] = min(lag, spans.get(begin, lag))
        newest_spans = sorted(spans.items())[-min(keep, MAX_INTERVALS) :]
        return replace(self, fewest=tuple(newest_spans))


@dataclass(frozen=True, slots=True)
class Message:
    """A notice to one channel."""

    channel: str
    notice: Notice


def update_page(page: Page, judged: Mapping[str, Notice | None], now: datetime) -> Page:
    """The page after the monitor judged a pipeline: present problems, problems that are over, and problems that were not
    judged, unchanged.
    """
    entries = dict(page.entries)
    for kind, notice in judged.items():
        before = entries.get(kind)
        if notice is not None:
            entries[kind] = _with_trouble(before, notice, now)
        elif before is not None and before.over_at is None:
            entries[kind] = _end_trouble(before, now)
    return replace(_with_entries(page, entries), looked_at=now, missed=0)


def close_page(page: Page, now: datetime, why: str) -> Page:
    """The page of a pipeline that is no longer monitored: every problem on it is over, for the reason `why`."""
    turned_page = update_page(page, dict.fromkeys(page.entries), now)
    entries = {kind: replace(entry, why_over=entry.why_over or why) for kind, entry in turned_page.entries.items()}
    return replace(turned_page, entries=entries, fewest=(), missed=page.missed)


def merge_pages(page: Page, second: Page) -> Page:
    """The page merged with another one, on which callbacks logged notices while the monitor was down."""
    entries = dict(page.entries)
    for kind, theirs in second.entries.items():
        own_entry = entries.get(kind, theirs)
        channels = {**own_entry.channels, **theirs.channels}
        entries[kind] = replace(theirs, since=min(own_entry.since, theirs.since), channels=channels)
    return replace(page, entries=entries)


def _with_trouble(before: Entry | None, notice: Notice, now: datetime) -> Entry:
    if before is None:
        return Entry(notice, now)
    if before.over_at is None:
        return replace(before, notice=notice, looks=before.looks + 1)
    # It is back before all knew that it was over. Who may have been told that must hear of it anew.
    channel_states = {name: state for name, state in before.channels.items() if not state.tries}
    return Entry(notice, before.since, before.looks + 1, channels=channel_states)


def _end_trouble(before: Entry, now: datetime) -> Entry:
    """Schedule the message that it is over, for every channel that received the notice or may have."""
    channel_states = {
        name: replace(state, tries=0) for name, state in before.channels.items() if state.told_at or state.tries
    }
    return replace(before, over_at=now, channels=channel_states)


def _with_entries(page: Page, entries: Mapping[str, Entry]) -> Page:
    """The page with these problems, without those that are over and whose end was sent to all channels."""
    return replace(
        page, entries={kind: entry for kind, entry in entries.items() if not entry.over_at or entry.channels}
    )


def due_messages(
    page: Page, channels: Channels, now: datetime, remind_after: timedelta
) -> tuple[Page, tuple[Message, ...]]:
    """The messages to send now, and the page that notes the attempts: store it before sending.

    A channel that received a problem also receives its end, even if the settings no longer send it this kind of notice:
    nothing else would close its incident.
    """
    entries, messages = dict(page.entries), []
    for kind, entry in page.entries.items():
        states = dict(
            _informed_channels(entry, channels(kind, "critical"), now)
        )  # lets through whoever is told of anything
        ended = [name for name, state in states.items() if (entry.over_at or state.left_at) and not state.waits(now)]
        names = channels(kind, entry.notice.severity) if entry.over_at is None else ()
        names_due = ended + [
            name for name in names if _is_due(entry, states.get(name, ChannelState()), now, remind_after)
        ]
        messages += [Message(name, _message(entry, states.get(name, ChannelState()), now)) for name in names_due]
        states |= {name: states.get(name, ChannelState()).tried(now) for name in names_due}
        entries[kind] = replace(entry, channels=states)
    return _with_entries(page, entries), tuple(messages)


def _informed_channels(entry: Entry, recipients: Sequence[str], now: datetime) -> Iterator[tuple[str, ChannelState]]:
    """Channels that received a notice of the problem, without those that failed for too long to still get its recovery."""
    for name, before in entry.channels.items():
        state = before
        if entry.over_at is None and name not in recipients and before.left_at is None:
            state = replace(before, left_at=now, tries=0)
        elif entry.over_at is None and name in recipients and before.left_at is not None:
            continue  # it is told again, and may have been told that it is over: so anew
        end = entry.over_at or state.left_at
        if end is None or now < end + GIVE_UP:
            yield name, state


def _is_due(entry: Entry, state: ChannelState, now: datetime, remind_after: timedelta) -> bool:
    if entry.looks < PATIENCE.get(entry.notice.kind, 1) or state.waits(now):
        return False
    if state.told_at is None or state.severity is None:
        return True
    is_worse = SEVERITIES.index(entry.notice.severity) > SEVERITIES.index(state.severity)
    return is_worse or now >= state.told_at + remind_after


def _message(entry: Entry, state: ChannelState, now: datetime) -> Notice:
    notice = entry.notice
    if end := entry.over_at or state.left_at:
        lasted = f"Over since {end:%Y-%m-%d %H:%M} UTC, after {spoken((end - entry.since).total_seconds())}."
        why = _LEFT if entry.over_at is None else entry.why_over
        cause = f"{lasted if why is None else why} It was:\n{notice.cause}"
        severity = state.severity or notice.severity
        return replace(notice, severity=severity, recovered=True, cause=cause, next_step=None)
    if state.told_at is None:
        return notice
    return replace(notice, cause=f"Lasts for {spoken((now - entry.since).total_seconds())}.\n{notice.cause}")


def record_attempt(page: Page, message: Message, now: datetime, *, was_sent: bool) -> Page:
    """The page after an attempt to send: a channel that got the message is noted, one that did not is tried again."""
    kind = message.notice.kind
    entry = page.entries.get(kind)
    if entry is None or not was_sent:
        return page
    states = dict(entry.channels)
    if message.notice.recovered:
        states.pop(message.channel, None)
    else:
        states[message.channel] = ChannelState(now, message.notice.severity)
    return _with_entries(page, {**page.entries, kind: replace(entry, channels=states)})


_PAGE = TypeAdapter(Page)


def to_json(page: Page) -> str:
    """As JSON."""
    return write_json(_PAGE, page)


def from_json(text: str) -> Page:
    """From JSON. A key that this Frazil does not know is left out: a newer one wrote it.

    Raises:
        ValueError: It is no page.
    """
    return read_json(_PAGE, text)
