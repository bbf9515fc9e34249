"""The log of notices: which channel received which notice of a pipeline, what is still to send, and when to repeat it.

The log has a page per pipeline, as plain data, which each check of the monitor updates. `due_messages` returns the messages
to send and notes an attempt for each; the caller stores the page *before* it sends. `record_attempt` notes the result. So
after a process died in between, the message is sent again, with pauses that grow with each attempt: no message is lost, and
none is repeated forever.

Airflow ensures that only one monitor writes at a time. If a suspended one overwrites a newer page, a notice may be sent twice, but
none is missing.
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
"""Kind -> consecutive checks that must find the problem before a notice is sent, if more than one: a broker may just restart."""

FIRST_WAIT = timedelta(minutes=1)
LONGEST_WAIT = timedelta(hours=1)
"""First and longest wait between attempts to send a message. Each wait is twice as long as the one before."""

GIVE_UP = timedelta(days=1)
"""Time after the end of a problem during which channels that fail are tried again."""

_UNSUBSCRIBED = "This channel no longer gets this alert: the pipeline's file or the settings file was changed."

MAX_INTERVALS = 1_000
"""Spans between runs, at most, whose lag is stored."""

Channels = Callable[[str, Severity], Sequence[str]]
"""Kind and severity of a notice -> names of the channels that take it."""


@dataclass(frozen=True, slots=True)
class ChannelState:
    """What a channel received about one problem.

    Attributes:
        told_at: When the channel last received a message; None if none is known to have arrived.
        severity: The severity in that message.
        tries: Number of attempts to send the present message.
        tried_at: Time of the last attempt.
        left_at: Since when the channel no longer takes this kind of notice; None while it does.
    """

    told_at: Annotated[datetime | None, Field(alias="at")] = None
    severity: Severity | None = None
    tries: int = 0
    tried_at: datetime | None = None
    left_at: datetime | None = None

    def waits(self, now: datetime) -> bool:
        """Whether the next attempt is not due yet."""
        if not self.tries or self.tried_at is None:
            return False
        return now < self.tried_at + min(FIRST_WAIT * (1 << min(self.tries - 1, 16)), LONGEST_WAIT)

    def tried(self, now: datetime) -> ChannelState:
        """The state during a further attempt to send."""
        return replace(self, tries=self.tries + 1, tried_at=now)


@dataclass(frozen=True, slots=True)
class Entry:
    """One problem, from the first check that finds it until every notified channel has received that it is over.

    Attributes:
        notice: The present notice.
        since: When a check first found the problem.
        looks: Number of consecutive checks that found it.
        over_at: When it ended; None while it holds.
        why_over: Why it ended, if not because the problem was solved.
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
    """The page of one pipeline in the log.

    Attributes:
        looked_at: When the last check was.
        entries: Kind -> problem.
        fewest: The fewest unread records in each span between runs, the newest last: (begin in seconds since 1970, records).
        missed: Number of consecutive checks without such a pipeline.
    """

    looked_at: datetime | None = None
    entries: Mapping[str, Entry] = field(default_factory=dict)
    fewest: tuple[tuple[int, int], ...] = ()
    missed: int = 0

    @property
    def finished(self) -> tuple[int, ...]:
        """The fewest unread records in each span that has ended."""
        return tuple(lag for _, lag in self.fewest[:-1])

    def with_lag(self, lag: int | None, span: Span, keep: int) -> Page:
        """The page with a further measurement of the lag, in the present span between runs. At most `keep` spans stay."""
        if lag is None:
            return self
        begin, before = (int(instant.timestamp()) for instant in (span.begin, span.before))
        newest = self.fewest[-1][0] if self.fewest else begin
        # If a span without a check lies in between, or the interval changed, the earlier spans say nothing.
        spans = dict(self.fewest) if newest in (begin, before) else {}
        spans[begin] = min(lag, spans.get(begin, lag))
        newest_spans = sorted(spans.items())[-min(keep, MAX_INTERVALS) :]
        return replace(self, fewest=tuple(newest_spans))


@dataclass(frozen=True, slots=True)
class Message:
    """A notice for one channel."""

    channel: str
    notice: Notice


def update_page(page: Page, judged: Mapping[str, Notice | None], now: datetime) -> Page:
    """The page after a check. `judged`: kind -> notice, or None without that problem. Kinds that are missing stay as they were."""
    entries = dict(page.entries)
    for kind, notice in judged.items():
        before = entries.get(kind)
        if notice is not None:
            entries[kind] = _present_entry(before, notice, now)
        elif before is not None and before.over_at is None:
            entries[kind] = _ended_entry(before, now)
    return replace(_with_entries(page, entries), looked_at=now, missed=0)


def close_page(page: Page, now: datetime, why: str) -> Page:
    """The page of a pipeline that is no longer monitored: every problem on it ends, for the reason `why`."""
    ended = update_page(page, dict.fromkeys(page.entries), now)
    entries = {kind: replace(entry, why_over=entry.why_over or why) for kind, entry in ended.entries.items()}
    return replace(ended, entries=entries, fewest=(), missed=page.missed)


def merge_pages(page: Page, late_page: Page) -> Page:
    """The page merged with the page of late runs, on which callbacks logged notices while the monitor was down."""
    entries = dict(page.entries)
    for kind, late in late_page.entries.items():
        entry = entries.get(kind, late)
        channels = {**entry.channels, **late.channels}
        entries[kind] = replace(late, since=min(entry.since, late.since), channels=channels)
    return replace(page, entries=entries)


def _present_entry(before: Entry | None, notice: Notice, now: datetime) -> Entry:
    if before is None:
        return Entry(notice, now)
    if before.over_at is None:
        return replace(before, notice=notice, looks=before.looks + 1)
    # The problem is back before all channels received its end. Channels that may have received the end get the notice again.
    channel_states = {name: state for name, state in before.channels.items() if not state.tries}
    return Entry(notice, before.since, before.looks + 1, channels=channel_states)


def _ended_entry(before: Entry, now: datetime) -> Entry:
    """The entry after the problem ended: every channel that received the notice, or may have, is to receive the end."""
    channel_states = {
        name: replace(state, tries=0) for name, state in before.channels.items() if state.told_at or state.tries
    }
    return replace(before, over_at=now, channels=channel_states)


def _with_entries(page: Page, entries: Mapping[str, Entry]) -> Page:
    """The page with these problems, except those whose end all channels received."""
    return replace(
        page, entries={kind: entry for kind, entry in entries.items() if not entry.over_at or entry.channels}
    )


def due_messages(
    page: Page, channels: Channels, now: datetime, remind_after: timedelta
) -> tuple[Page, tuple[Message, ...]]:
    """The page with an attempt noted for each due message, to be stored before sending; and the due messages.

    A channel that received a problem also receives its end, even if it no longer takes this kind of notice: nothing else
    would close its incident.
    """
    entries, messages = dict(page.entries), []
    for kind, entry in page.entries.items():
        # Severity `critical`: all channels that take this kind at all.
        states = dict(_informed_channels(entry, channels(kind, "critical"), now))
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
    """Channels that received a notice of the problem, except those that could not be sent its end for longer than `GIVE_UP`."""
    for name, before in entry.channels.items():
        state = before
        if entry.over_at is None and name not in recipients and before.left_at is None:
            state = replace(before, left_at=now, tries=0)
        elif entry.over_at is None and name in recipients and before.left_at is not None:
            continue  # the channel takes the notice again, and may have received the end: so it begins anew
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
        why = _UNSUBSCRIBED if entry.over_at is None else entry.why_over
        cause = f"{lasted if why is None else why} It was:\n{notice.cause}"
        severity = state.severity or notice.severity
        return replace(notice, severity=severity, recovered=True, cause=cause, next_step=None)
    if state.told_at is None:
        return notice
    return replace(notice, cause=f"Lasts for {spoken((now - entry.since).total_seconds())}.\n{notice.cause}")


def record_attempt(page: Page, message: Message, now: datetime, *, was_sent: bool) -> Page:
    """The page after an attempt to send. A message that was not sent is tried again."""
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
    """From JSON. Unknown keys, which a newer Frazil may write, are ignored.

    Raises:
        ValueError: The text is no page.
    """
    return read_json(_PAGE, text)
