"""One partition of one table: every committed record against its outcomes, and every outcome against its record."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from frazil.verify.facts.coverage import Passes, Segment, Segments, Window, clip, gaps, length
from frazil.verify.facts.result import Difference, Findings, Kind, PartitionResult, cut
from frazil.verify.kafka import PartitionReader
from frazil.verify.outcomes import Cells, Found, Outcome, Outcomes, Stretch, cell_digests, kept, pairs, record_bytes
from frazil.verify.rules import Rules
from frazil.verify.tables import NOT_MADE
from frazil.verify.values.canonical import Digest, digest
from frazil.verify.values.column_readers import Bad
from frazil.verify.values.timestamps import is_lost_in_orc

_MICROSECONDS = 1_000
_LATEST_MILLISECONDS = (2**63 - 1) // _MICROSECONDS


_TOO_LARGE = "RECORD_TOO_LARGE"
_UNREADABLE = "UNREADABLE_BATCH"
_BAD_HEADERS = "INVALID_HEADERS"
_TOO_MANY_NAMES = "TOO_MANY_NAMES"
_OF_OTHERS = ("TOO_MANY_PARTITIONS", "PARTITION_TOO_LONG", "TOO_WIDE")
"""Codes that depend on the records before, or on the columns or the layout that the table had then."""

_OF_SCHEMAS = (
    "UNKNOWN_SCHEMA",
    "SCHEMA_NOT_ASKED_FOR",
    "UNUSABLE_SCHEMA",
    "SCHEMA_VIOLATION",
    "INVALID_WIRE",
    "TOO_DEEP",
)
"""Codes that depend on what a registry knew then, and on rules of schemas and bounds that are not read here."""

_SHOWN_BYTES = 1_000
"""Bytes of a value that are written out, more than are shown."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What is compared.

    Attributes:
        topic: Topic.
        partition: Partition number.
        segments: Offsets that batches read.
        log: First offset that Kafka holds, and the last stable one (exclusive), as of just before.
        is_compacted: Whether Kafka may have removed records from the middle of the log.
        since: First batch number of the topic's present incarnation.
        bounds: Offsets that were asked for; no end stands for no bound.
        outcomes: How many outcomes the tables hold of the partition.
        given_up: Offsets whose lost dead letters were given up: start, end, number of the batch that says so.
        holes: Offsets that no batch read, although the position is beyond them.
    """

    topic: str
    partition: int
    segments: Segments
    log: tuple[int, int]
    is_compacted: bool
    since: int
    bounds: tuple[int, int | None]
    outcomes: int
    given_up: Sequence[tuple[int, int, int]] = ()
    holes: Sequence[tuple[int, int]] = ()

    def stretch(self, start: int, end: int | None) -> Stretch:
        """Offsets of this partition."""
        return Stretch(self.topic, self.partition, start, end, self.since)


@dataclass
class Comparison:
    """The comparison of one partition: window by window as it is read, then the result.

    Args:
        subject: What is compared.
        rules: How records become outcomes.
        outcomes: The tables.
        reader: Kafka.
        findings: Takes the differences.
    """

    subject: Subject
    rules: Rules
    outcomes: Outcomes
    reader: PartitionReader
    findings: Findings
    records: int = field(default=0, init=False)
    rows: int = field(default=0, init=False)
    letters: int = field(default=0, init=False)
    filtered: int = field(default=0, init=False)
    missing: int = field(default=0, init=False)
    duplicate: int = field(default=0, init=False)
    unexpected: int = field(default=0, init=False)
    changed: int = field(default=0, init=False)
    unchecked: int = field(default=0, init=False)
    given_up: int = field(default=0, init=False)
    lenient: int = field(default=0, init=False)
    _window: Window = field(default=Window(0, 0, ()), init=False)
    _segment: int = field(default=0, init=False)
    _found: Found = field(default_factory=dict, init=False)
    _spans: list[tuple[int, int]] = field(default_factory=list, init=False)

    def result(self) -> PartitionResult:
        """Look at what no window held, and say what was found in all."""
        if self.rows + self.letters < self.subject.outcomes:
            self._find_strays(self._spans)
        for start, end in self.subject.holes:
            self._look_into(start, end)
        counts = {of.name: getattr(self, of.name) for of in fields(PartitionResult) if hasattr(self, of.name)}
        place, segments = (self.subject.topic, self.subject.partition), self.subject.segments
        expired = length(clip(segments, 0, self._low))
        self.rules.left_out.held[place] = self.subject.log[1] if self.subject.is_compacted else self._low
        return PartitionResult(*place, covered=length(segments), expired=expired, **counts)

    @property
    def _low(self) -> int:
        """First offset that Kafka holds: retention may move it while this reads."""
        return max(self.subject.log[0], self.reader.log_start)

    def _look_into(self, start: int, end: int) -> None:
        """Offsets that nobody read. Of those that Kafka holds, records count; there may be none: markers of transactions,
        compaction. Below the log start nobody can tell, so all do.
        """
        asked, (low, high) = self.subject.bounds, self.subject.log
        start, end = max(start, asked[0]), end if asked[1] is None else min(end, asked[1])
        if (gone := min(end, low) - start) > 0:
            wanted = f"a batch that read offsets {start} to {start + gone - 1}, or gave them up on record"
            self._add("missing", start, None, wanted, "none, and Kafka deleted them", times=gone)
        first, last = max(start, low), min(end, high)
        if count := sum(1 for _ in self.reader.read(first, last)):
            wanted = f"a batch that read offsets {first} to {last - 1}"
            self._add("missing", first, None, wanted, f"none, and Kafka holds {count} of these records", times=count)

    def begin(self, start: int, end: int) -> bool:
        """Take up what the tables hold of a window of offsets. Returns whether its records are wanted: batches read it."""
        segments = clip(self.subject.segments, start, end)
        if not segments:
            return False
        self._window = Window(segments[0].start, segments[-1].end, tuple(segments))
        self._segment, self._found = 0, {}
        self._spans.append((self._window.start, self._window.end))
        if self.subject.outcomes:
            stretch = self.subject.stretch(self._window.start, self._window.end)
            self.rows += self.outcomes.rows(stretch, self._found, with_values=self._window.end > self.subject.log[0])
            self.letters += self.outcomes.letters(stretch, self._found)
        return True

    def take(self, message: Message, offset: int) -> None:
        """Compare a record of the window; they come in order."""
        segments = self._window.segments
        while self._segment < len(segments) and offset >= segments[self._segment].end:
            self._segment += 1
        if self._segment < len(segments) and offset >= segments[self._segment].start:
            self.records += 1
            found, passes = self._found.pop(offset, ()), segments[self._segment].passes
            if self.unread_code(message) is None:
                self._record(message, offset, found, passes)
                return
            for n in passes:
                mine = [outcome for outcome in found if outcome.batch == n]
                if (code := self.unread_code(message, self.rules.at(n).max_record_bytes)) is not None:
                    self._unread(message, offset, code, mine, n)
                else:
                    self._record(message, offset, mine, (n,))
            self._not_of(passes, offset, found)

    def unread_code(self, message: Message, most_bytes: int | None = None) -> str | None:
        """Why a record must be a letter without its payload, whatever it holds; None if it need not, for any batch."""
        if message.error() is not None:
            return _UNREADABLE
        size = record_bytes(message.key(), message.value(), pairs(_headers(message)))
        return _TOO_LARGE if size > (self.rules.least_record_bytes if most_bytes is None else most_bytes) else None

    @property
    def offsets(self) -> Collection[int]:
        """Offsets of the window that the tables hold outcomes of."""
        return self._found.keys()

    def pass_over(self, passed: Sequence[int], mine: Sequence[int]) -> None:
        """Count records of the window that have no outcome here and are meant for other tables.

        Args:
            passed: Offsets of records that were handed to some tables only, ascending.
            mine: Those of them that were handed to this one, ascending.
        """
        for segment in self._window.segments:
            (start, end), (first, last) = _within(passed, segment), _within(mine, segment)
            count = (end - start) - (last - first)
            self.records += count
            for n in segment.passes if count else ():
                if not self.rules.is_counted(n):
                    self.filtered += count
                elif self.subject.given_up or self.rules.left_out.room(n) < count:
                    handed = set(mine[first:last])
                    self._account([offset for offset in passed[start:end] if offset not in handed], n)
                else:
                    self.filtered += self.rules.left_out.takes_some(n, count)

    def _account(self, offsets: Sequence[int], n: int) -> None:
        """Say of each of these records, which a batch left out or lost, which of both it was."""
        allowed = self.rules.left_out.allowed.get(n, 0)
        for offset in offsets:
            if any(start <= offset < end and n < of for start, end, of in self.subject.given_up):
                self.given_up += 1
            elif self.rules.left_out.takes(n):
                self.filtered += 1
            else:
                self._add(
                    "missing", offset, n, f"a row or a dead letter: batch {n} left out {allowed} others", "nothing"
                )

    def end(self) -> None:
        """Look at the outcomes for which no record came, and let go of the window."""
        self._left(self._window, self._found)
        self._found = {}

    def _record(self, message: Message, offset: int, found: Sequence[Outcome], passes: Passes) -> None:
        if len(found) == 1 and len(passes) == 1 and found[0].batch == passes[0]:
            self._judge(message, offset, found[0])
            return
        for n in passes:
            mine = [outcome for outcome in found if outcome.batch == n]
            if not mine:
                self._without_outcome(message, offset, n)
            self._doubles(offset, n, mine)
            for outcome in mine:
                self._judge(message, offset, outcome)
        self._not_of(passes, offset, found)

    def _unread(self, message: Message, offset: int, code: str, mine: Sequence[Outcome], n: int) -> None:
        """Compare a record that must be a letter without its payload: it is too large, or the client can't unpack it."""
        is_lenient = n in self.rules.at(n).lenient
        if not mine and not is_lenient:
            self._add("missing", offset, n, f"a dead letter {code}", "nothing")
        self._doubles(offset, n, mine)
        for outcome in mine:
            if outcome.code != code and (code == _UNREADABLE or is_lenient):
                self.unchecked += 1  # another client could unpack it, or another file allowed larger records
            elif outcome.code != code:
                self._add("changed", offset, n, f"a dead letter {code}", _named(outcome))
            elif code == _TOO_LARGE:
                self._hold_letter(message, offset, outcome)

    def _without_outcome(self, message: Message, offset: int, n: int) -> None:
        value, is_counted, rules = message.value(), self.rules.is_counted(n), self.rules.at(n)
        if not is_counted and rules.leaves_out(value, self.subject.topic, message):
            self.filtered += 1
        elif self._is_given_up(message, offset, n):
            self.given_up += 1
        elif (is_counted or value is None or rules.may_leave_out(message)) and self.rules.left_out.takes(n):
            self.filtered += 1
        else:
            allowed = self.rules.left_out.allowed.get(n, 0) if is_counted else 0
            others = f": batch {n} left out {allowed} others" if allowed else ""
            self._add("missing", offset, n, f"a row or a dead letter for {_shown(value)}{others}", "nothing")

    def _is_given_up(self, message: Message, offset: int, n: int) -> bool:
        value = message.value()
        repairs = [of for start, end, of in self.subject.given_up if start <= offset < end and n < of]
        if not repairs or not self.rules.abandoned.isdisjoint(repairs):
            return bool(repairs)
        if value is None or self.rules.is_counted(n):
            return True
        return isinstance(self.rules.at(n).row(value, self.subject.topic, message), Bad)

    def _doubles(self, offset: int, n: int | None, mine: Sequence[Outcome]) -> None:
        if len(mine) > 1 and (n not in self.rules.exploded or any(outcome.code is not None for outcome in mine)):
            said = ", ".join("a row" if outcome.code is None else f"letter {outcome.code}" for outcome in mine)
            self._add("duplicate", offset, n, "one outcome", f"{len(mine)}: {said}", times=len(mine) - 1)

    def _not_of(self, passes: Passes, offset: int, found: Sequence[Outcome]) -> None:
        for outcome in found:
            if outcome.batch in self.rules.unrecorded:
                self.unchecked += 1
            elif outcome.batch not in passes:
                readers = f"an outcome of batch {', '.join(map(str, passes))} only" if passes else "nothing"
                self._add("unexpected", offset, outcome.batch, readers, _named(outcome))

    def _left(self, window: Window, found: Found) -> None:
        """Outcomes for which no record came."""
        low, high = self._low, self.subject.log[1]
        for offset, outcomes in sorted(found.items()):
            passes = next((s.passes for s in window.segments if s.start <= offset < s.end), ())
            self._not_of(passes, offset, outcomes)
            for n in passes:
                mine = [outcome for outcome in outcomes if outcome.batch == n]
                self._doubles(offset, n, mine)
                if offset < low or (self.subject.is_compacted and offset < high):
                    self.unchecked += len(mine)
                    continue
                for outcome in mine:
                    self._add("unexpected", offset, n, "no committed record in Kafka, so nothing", _named(outcome))

    def _find_strays(self, spans: Sequence[tuple[int, int]]) -> None:
        """Outcomes at offsets that no batch read."""
        for start, end in gaps(spans, *self.subject.bounds):
            for table, offset, n in self.outcomes.offsets(self.subject.stretch(start, end)):
                if n in self.rules.unrecorded:
                    self.unchecked += 1
                    continue
                self._add("unexpected", offset, n, "nothing: the ledger knows no batch that read it", f"one in {table}")

    def _judge(self, message: Message, offset: int, outcome: Outcome) -> None:
        if outcome.code is not None:
            self._judge_letter(message, offset, outcome)
        elif (value := message.value()) is None:
            self._judge_tombstone(message, offset, outcome)
        elif isinstance(outcome.digest, tuple) and not self.rules.at(outcome.batch).reading.is_by_cell:
            self._judge_cells(value, micros(message), offset, outcome, outcome.digest)
        else:
            row, stamp = self.rules.at(outcome.batch).row(value, self.subject.topic, message), micros(message)
            if isinstance(row, Bad):
                self._must_be_none(message, offset, outcome, f"a dead letter ({row.why}) for {_shown(value)}")
            elif not _is_equal((*row, stamp), outcome.digest):
                self._changed(offset, outcome, (*row, stamp))

    def _judge_cells(self, value: bytes, stamp: int | None, offset: int, outcome: Outcome, found: Cells) -> None:
        """A row of a batch under another file, or of other columns: it may not have had one; what both say must be right."""
        self.lenient += 1
        row, may_be_null = self.rules.at(outcome.batch).cells(value, self.subject.topic, outcome.batch)
        if isinstance(row, Bad):
            return  # the other file may have had another format
        *wanted, when = cell_digests((*row, stamp))
        cells = zip(row, wanted, found[:-1], may_be_null, strict=True)
        differ = (f != w and not (f is None and null) and not isinstance(cell, Bad) for cell, w, f, null in cells)
        if when != found[-1] or any(differ):
            self._changed(offset, outcome, (*row, stamp))

    def _judge_tombstone(self, message: Message, offset: int, outcome: Outcome) -> None:
        """A row of a record without value, which only transforms and other formats make."""
        wanted = (micros(message),)
        if self.rules.at(outcome.batch).unread is None:
            self._must_be_none(message, offset, outcome, "a dead letter NULL_VALUE")
        elif outcome.digest not in (digest(wanted), cell_digests(wanted)):
            self._changed(offset, outcome, wanted)

    def _must_be_none(self, message: Message, offset: int, outcome: Outcome, otherwise: str) -> None:
        value = message.value()
        is_left_out = self.rules.at(outcome.batch).leaves_out(value, self.subject.topic, message)
        wanted = f"nothing: {_shown(value)} is filtered" if is_left_out else otherwise
        self._add("unexpected" if is_left_out else "changed", offset, outcome.batch, wanted, "a row")

    def _judge_letter(self, message: Message, offset: int, outcome: Outcome) -> None:
        if outcome.code == _UNREADABLE:
            return  # this client can unpack it, that of the batch could not
        value, n = message.value(), outcome.batch
        self._hold_letter(message, offset, outcome)
        if outcome.code == _TOO_MANY_NAMES or (outcome.code == _BAD_HEADERS and not message.headers()):
            return  # names are counted over the records that were decoded together, which nobody knows any more
        rules = self.rules.at(n)
        if rules.reading.is_by_cell and outcome.code in (*_OF_SCHEMAS, *_OF_OTHERS):
            return  # not read at all: it may be made to be large
        is_left_out = rules.leaves_out(value, self.subject.topic, message)
        if n in rules.lenient or rules.unread is not None or (outcome.code == NOT_MADE and is_left_out):
            return  # the table of such a record may have been made since
        if is_left_out:
            self._add("unexpected", offset, n, f"nothing: {_shown(value)} is filtered", _named(outcome))
        elif outcome.code in _OF_OTHERS or (rules.in_orc and is_lost_in_orc(micros(message) or 0)):
            return
        elif value is not None:
            row = rules.row(value, self.subject.topic, message)
            if not isinstance(row, Bad) and not any(isinstance(cell, Bad) for cell in row):
                self._add("changed", offset, n, f"a row for {_shown(value)}", _named(outcome))

    def _hold_letter(self, message: Message, offset: int, outcome: Outcome) -> None:
        """Hold what a letter keeps of its record against the record."""
        record = message.key(), message.value(), pairs(_headers(message)), micros(message)
        if digest(kept(record, outcome.payload)) != outcome.digest:
            wanted = "bytes" if outcome.payload == "full" else "sizes and hashes"  # nothing is left of it in `none`
            said = f"a letter with the record's {wanted}: {_shown(record[1])}"
            self._add("changed", offset, outcome.batch, said, "others")

    def _changed(self, offset: int, outcome: Outcome, wanted: tuple[Any, ...]) -> None:
        expected, found = "the record's values", "others"
        if self.findings.has_room:
            stored = self.outcomes.row(self.subject.stretch(offset, offset + 1), outcome.batch)
            names = (*self.rules.at(outcome.batch).types, "timestamp")
            cells = zip(names, wanted, stored or wanted, strict=True)
            differing = [(name, a, b) for name, a, b in cells if repr(a) != repr(b) and not isinstance(a, Bad)]
            expected = ", ".join(f"{name}={cut(a)}" for name, a, _ in differing) or expected
            found = ", ".join(f"{name}={cut(b)}" for name, _, b in differing) or found
        self._add("changed", offset, outcome.batch, expected, found)

    def _add(self, kind: Kind, offset: int, n: int | None, expected: str, found: str, times: int = 1) -> None:
        setattr(self, kind, getattr(self, kind) + times)
        self.findings.add(Difference(kind, expected, found, self.subject.topic, self.subject.partition, offset, n))


def _is_equal(row: tuple[Any, ...], found: Digest | Cells) -> bool:
    """Whether a stored row has these values; those that are not known are not compared."""
    if not isinstance(found, tuple):
        return digest(row) == found
    return all(isinstance(cell, Bad) or w == f for cell, w, f in zip(row, cell_digests(row), found, strict=True))


def _within(offsets: Sequence[int], segment: Segment) -> tuple[int, int]:
    """The first place of ascending offsets that is in a segment, and one past the last."""
    return bisect_left(offsets, segment.start), bisect_left(offsets, segment.end)


def _named(outcome: Outcome) -> str:
    return "a row" if outcome.code is None else f"dead letter {outcome.code}"


def _shown(value: bytes | None) -> str:
    return "a tombstone" if value is None else cut(repr(value[:_SHOWN_BYTES]))


def _headers(message: Message) -> list[Any] | None:
    headers = message.headers()
    return list(headers.items()) if isinstance(headers, dict) else headers


def micros(message: Message) -> int | None:
    """Kafka's timestamp in microseconds; None without one, or for a broken clock's that 64 bits can't hold."""
    kind, milliseconds = message.timestamp()
    if kind == TIMESTAMP_NOT_AVAILABLE or abs(milliseconds) > _LATEST_MILLISECONDS:
        return None
    return milliseconds * _MICROSECONDS
