"""Compares one partition of one table: every committed record with its outcomes, and every outcome with its record."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from frazil.pipeline.syntax.types import ColumnType, Primitive
from frazil.verify.facts.coverage import Passes, Segment, Segments, Window, clip, gaps, length
from frazil.verify.facts.result import Difference, Findings, Kind, PartitionResult, add_counts, shorten
from frazil.verify.kafka import PartitionReader
from frazil.verify.outcomes import (
    Cells,
    OffsetRange,
    Outcome,
    Outcomes,
    OutcomesByOffset,
    cell_digests,
    header_pairs,
    record_bytes,
    stored_record,
)
from frazil.verify.rules import Rules
from frazil.verify.tables import TABLE_NOT_MADE
from frazil.verify.values.canonical import LONG, Digest, digest, is_lost_in_orc
from frazil.verify.values.column_readers import Bad
from frazil.verify.values.native import EXACT

_MICROSECONDS = 1_000
_LATEST_MILLISECONDS = (2**63 - 1) // _MICROSECONDS

_TOO_LARGE = "RECORD_TOO_LARGE"
_UNREADABLE = "UNREADABLE_BATCH"
_BAD_HEADERS = "INVALID_HEADERS"
_TOO_MANY_NAMES = "TOO_MANY_NAMES"
_CODES_OF_TABLE = ("TOO_MANY_PARTITIONS", "PARTITION_TOO_LONG", "TOO_WIDE")
"""Codes of dead letters that depend on earlier records, or on the former columns or layout of the table."""

_CODES_OF_SCHEMAS = (
    "UNKNOWN_SCHEMA",
    "SCHEMA_NOT_ASKED_FOR",
    "UNUSABLE_SCHEMA",
    "SCHEMA_VIOLATION",
    "INVALID_WIRE",
    "TOO_DEEP",
)
"""Codes of dead letters that depend on the former state of the registry, or on schema rules that are not checked here."""

_SHOWN_BYTES = 1_000
"""Bytes of a value that are turned into text before it is shortened."""


@dataclass(frozen=True, slots=True)
class ComparedPartition:
    """The partition to compare, with the facts known before its records are read.

    Attributes:
        segments: Offsets that batches read.
        log: First offset that Kafka has, and the last stable offset (exclusive).
        is_compacted: Whether Kafka may have removed records from the middle of the log.
        since: First batch number of the topic's present incarnation.
        bounds: Offsets to compare; an end of None means no upper bound.
        outcomes: Number of outcomes that the tables have of the partition.
        given_up: Offsets whose lost outcomes were given up: start, end, number of the batch that recorded it.
        unread_spans: Offsets before the position that no batch read.
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
    unread_spans: Sequence[tuple[int, int]] = ()

    def offset_range(self, start: int, end: int | None) -> OffsetRange:
        """A range of offsets of this partition."""
        return OffsetRange(self.topic, self.partition, start, end, self.since)


@dataclass
class Comparison:
    """The comparison of one partition: for each window `begin`, `take` for each record, and `end`; at last `result`."""

    subject: ComparedPartition
    rules: Rules
    outcomes: Outcomes
    reader: PartitionReader
    findings: Findings
    counts: Counter[str] = field(default_factory=Counter, init=False)
    """Name of an attribute of `PartitionResult` -> count."""
    _window: Window = field(default=Window(0, 0, ()), init=False)
    _segment: int = field(default=0, init=False)
    _outcomes_by_offset: OutcomesByOffset = field(default_factory=dict, init=False)
    _read_spans: list[tuple[int, int]] = field(default_factory=list, init=False)

    def result(self) -> PartitionResult:
        """Report outcomes and offsets outside all windows, and return the counts of the partition."""
        if self.counts["rows"] + self.counts["letters"] < self.subject.outcomes:
            self._report_unread_outcomes(self._read_spans)
        for start, end in self.subject.unread_spans:
            self._report_unread_span(start, end)
        place, segments = (self.subject.topic, self.subject.partition), self.subject.segments
        expired = length(clip(segments, 0, self._low))
        self.rules.filtered_counts.first_held[place] = self.subject.log[1] if self.subject.is_compacted else self._low
        return add_counts(PartitionResult(*place, covered=length(segments), expired=expired), self.counts)

    @property
    def _low(self) -> int:
        """First offset that Kafka has; retention may move it during the comparison."""
        return max(self.subject.log[0], self.reader.log_start)

    def _report_unread_span(self, start: int, end: int) -> None:
        """Report records at offsets that no batch read.

        From the log start on only records count, since an offset may have a transaction marker or be compacted. Before the log
        start this is unknown, so every offset counts as a missing record.
        """
        requested, (low, high) = self.subject.bounds, self.subject.log
        start, end = max(start, requested[0]), end if requested[1] is None else min(end, requested[1])
        if (deleted := min(end, low) - start) > 0:
            expected = f"a batch that read offsets {start} to {start + deleted - 1}, or gave them up on record"
            self._report("missing", start, None, expected, "none, and Kafka deleted them", times=deleted)
        first, last = max(start, low), min(end, high)
        if count := sum(1 for _ in self.reader.read(first, last)):
            expected = f"a batch that read offsets {first} to {last - 1}"
            actual = f"none, and Kafka holds {count} of these records"
            self._report("missing", first, None, expected, actual, times=count)

    def begin(self, start: int, end: int) -> bool:
        """Load the outcomes of a window of offsets. Returns whether a batch read any of them, so that records are to be compared."""
        segments = clip(self.subject.segments, start, end)
        if not segments:
            return False
        self._window = Window(segments[0].start, segments[-1].end, tuple(segments))
        self._segment, self._outcomes_by_offset = 0, {}
        self._read_spans.append((self._window.start, self._window.end))
        if self.subject.outcomes:
            offset_range = self.subject.offset_range(self._window.start, self._window.end)
            self.counts["rows"] += self.outcomes.rows(
                offset_range, self._outcomes_by_offset, with_values=self._window.end > self.subject.log[0]
            )
            self.counts["letters"] += self.outcomes.letters(offset_range, self._outcomes_by_offset)
        return True

    def take(self, message: Message, offset: int) -> None:
        """Compare a record of the window; records come in ascending order."""
        segments = self._window.segments
        while self._segment < len(segments) and offset >= segments[self._segment].end:
            self._segment += 1
        if self._segment < len(segments) and offset >= segments[self._segment].start:
            self.counts["records"] += 1
            outcomes, passes = self._outcomes_by_offset.pop(offset, ()), segments[self._segment].passes
            if self.unreadable_code(message) is None:
                self._compare_record(message, offset, outcomes, passes)
                return
            for n in passes:
                batch_outcomes = [outcome for outcome in outcomes if outcome.batch == n]
                if (code := self.unreadable_code(message, self.rules.for_batch(n).max_record_bytes)) is not None:
                    self._compare_unreadable(message, offset, code, batch_outcomes, n)
                else:
                    self._compare_record(message, offset, batch_outcomes, (n,))
            self._report_other_batches(passes, offset, outcomes)

    def unreadable_code(self, message: Message, most_bytes: int | None = None) -> str | None:
        """Code of the dead letter that a record must be because it is too large or unreadable; None if it is neither."""
        if message.error() is not None:
            return _UNREADABLE
        size = record_bytes(message.key(), message.value(), header_pairs(message.headers()))
        return _TOO_LARGE if size > (self.rules.lowest_record_limit if most_bytes is None else most_bytes) else None

    @property
    def offsets(self) -> Collection[int]:
        """Offsets of the window that have outcomes."""
        return self._outcomes_by_offset.keys()

    def count_routed_elsewhere(self, routed_offsets: Sequence[int], handed_offsets: Sequence[int]) -> None:
        """Count records of the window that were routed to other tables, and so have no outcome in this one.

        Args:
            routed_offsets: Offsets, ascending, of records that went to some of the tables.
            handed_offsets: Those of them, ascending, that went to this table.
        """
        for segment in self._window.segments:
            (start, end), (first, last) = _index_range(routed_offsets, segment), _index_range(handed_offsets, segment)
            count = (end - start) - (last - first)
            self.counts["records"] += count
            for n in segment.passes if count else ():
                if not self.rules.is_counted(n):
                    self.counts["filtered"] += count
                elif self.subject.given_up or self.rules.filtered_counts.remaining(n) < count:
                    handed = set(handed_offsets[first:last])
                    self._classify_missing([offset for offset in routed_offsets[start:end] if offset not in handed], n)
                else:
                    self.rules.filtered_counts.counted[n] += count
                    self.counts["filtered"] += count

    def _classify_missing(self, offsets: Sequence[int], n: int) -> None:
        """Count each of these records without outcome as given up, as filtered, or as missing."""
        allowed = self.rules.filtered_counts.allowed.get(n, 0)
        for offset in offsets:
            if self._later_repairs(offset, n):
                self.counts["given_up"] += 1
            elif self.rules.filtered_counts.count_if_allowed(n):
                self.counts["filtered"] += 1
            else:
                expected = f"a row or a dead letter: batch {n} filtered {allowed} others"
                self._report("missing", offset, n, expected, "nothing")

    def end(self) -> None:
        """Report the outcomes of the window for which no record came, and release the window."""
        self._report_unmatched(self._window, self._outcomes_by_offset)
        self._outcomes_by_offset = {}

    def _compare_record(self, message: Message, offset: int, outcomes: Sequence[Outcome], passes: Passes) -> None:
        if len(outcomes) == 1 and len(passes) == 1 and outcomes[0].batch == passes[0]:
            self._judge(message, offset, outcomes[0])
            return
        for n in passes:
            batch_outcomes = [outcome for outcome in outcomes if outcome.batch == n]
            if not batch_outcomes:
                self._judge_absence(message, offset, n)
            self._report_duplicates(offset, n, batch_outcomes)
            for outcome in batch_outcomes:
                self._judge(message, offset, outcome)
        self._report_other_batches(passes, offset, outcomes)

    def _compare_unreadable(
        self, message: Message, offset: int, code: str, batch_outcomes: Sequence[Outcome], n: int
    ) -> None:
        """Compare a record that must be a dead letter because it is too large, or because the client can't unpack it."""
        is_lenient = n in self.rules.for_batch(n).lenient
        if not batch_outcomes and not is_lenient:
            self._report("missing", offset, n, f"a dead letter {code}", "nothing")
        self._report_duplicates(offset, n, batch_outcomes)
        for outcome in batch_outcomes:
            if outcome.code != code and (code == _UNREADABLE or is_lenient):
                self.counts["unchecked"] += 1  # another client could unpack it, or another file allowed larger records
            elif outcome.code != code:
                self._report("changed", offset, n, f"a dead letter {code}", _describe_outcome(outcome))
            elif code == _TOO_LARGE:
                self._compare_letter(message, offset, outcome)

    def _judge_absence(self, message: Message, offset: int, n: int) -> None:
        value, is_counted, rules = message.value(), self.rules.is_counted(n), self.rules.for_batch(n)
        if not is_counted and rules.filters_record(value, self.subject.topic, message):
            self.counts["filtered"] += 1
        elif self._is_given_up(message, offset, n):
            self.counts["given_up"] += 1
        elif (is_counted or value is None or rules.may_filter(message)) and self.rules.filtered_counts.count_if_allowed(
            n
        ):
            self.counts["filtered"] += 1
        else:
            allowed = self.rules.filtered_counts.allowed.get(n, 0) if is_counted else 0
            note = f": batch {n} filtered {allowed} others" if allowed else ""
            self._report("missing", offset, n, f"a row or a dead letter for {_describe_value(value)}{note}", "nothing")

    def _later_repairs(self, offset: int, n: int) -> list[int]:
        """Numbers of batches that gave up the outcome which batch `n` had of an offset."""
        return [repair for start, end, repair in self.subject.given_up if start <= offset < end and n < repair]

    def _is_given_up(self, message: Message, offset: int, n: int) -> bool:
        value, repairs = message.value(), self._later_repairs(offset, n)
        if not repairs or not self.rules.abandoned.isdisjoint(repairs):
            return bool(repairs)
        if value is None or self.rules.is_counted(n):
            return True
        return isinstance(self.rules.for_batch(n).row(value, self.subject.topic, message), Bad)

    def _report_duplicates(self, offset: int, n: int | None, batch_outcomes: Sequence[Outcome]) -> None:
        count, has_letter = len(batch_outcomes), any(outcome.code is not None for outcome in batch_outcomes)
        if count > 1 and (has_letter or n not in self.rules.exploded):
            actual = f"{count}: {', '.join(map(_describe_outcome, batch_outcomes))}"
            self._report("duplicate", offset, n, "one outcome", actual, times=count - 1)

    def _report_other_batches(self, passes: Passes, offset: int, outcomes: Sequence[Outcome]) -> None:
        for outcome in outcomes:
            if outcome.batch in self.rules.unrecorded:
                self.counts["unchecked"] += 1
            elif outcome.batch not in passes:
                expected = f"an outcome of batch {', '.join(map(str, passes))} only" if passes else "nothing"
                self._report("unexpected", offset, outcome.batch, expected, _describe_outcome(outcome))

    def _report_unmatched(self, window: Window, outcomes: OutcomesByOffset) -> None:
        """Report outcomes for which Kafka has no record."""
        low, high = self._low, self.subject.log[1]
        for offset, offset_outcomes in sorted(outcomes.items()):
            passes = next((s.passes for s in window.segments if s.start <= offset < s.end), ())
            self._report_other_batches(passes, offset, offset_outcomes)
            for n in passes:
                batch_outcomes = [outcome for outcome in offset_outcomes if outcome.batch == n]
                self._report_duplicates(offset, n, batch_outcomes)
                if offset < low or (self.subject.is_compacted and offset < high):
                    self.counts["unchecked"] += len(batch_outcomes)
                    continue
                for outcome in batch_outcomes:
                    expected = "no committed record in Kafka, so nothing"
                    self._report("unexpected", offset, n, expected, _describe_outcome(outcome))

    def _report_unread_outcomes(self, spans: Sequence[tuple[int, int]]) -> None:
        """Report outcomes at offsets that no batch read."""
        expected = "nothing: the ledger knows no batch that read it"
        for start, end in gaps(spans, *self.subject.bounds):
            for table, offset, n in self.outcomes.offsets(self.subject.offset_range(start, end)):
                if n in self.rules.unrecorded:
                    self.counts["unchecked"] += 1
                else:
                    self._report("unexpected", offset, n, expected, f"one in {table}")

    def _judge(self, message: Message, offset: int, outcome: Outcome) -> None:
        if outcome.code is not None:
            self._judge_letter(message, offset, outcome)
        elif (value := message.value()) is None:
            self._judge_tombstone(message, offset, outcome)
        elif isinstance(outcome.digest, tuple) and self.rules.for_batch(outcome.batch).is_lenient(outcome.batch):
            self._judge_cells(message, value, offset, outcome, outcome.digest)
        else:
            row, stamp = self.rules.for_batch(outcome.batch).row(value, self.subject.topic, message), micros(message)
            if isinstance(row, Bad):
                expected = f"a dead letter ({row.why}) for {_describe_value(value)}"
                self._report_unexpected_row(message, offset, outcome, expected)
            elif not _is_equal((*row, stamp), outcome.digest):
                self._report_changed(offset, outcome, (*row, stamp))

    def _judge_cells(self, message: Message, value: bytes, offset: int, outcome: Outcome, stored: Cells) -> None:
        """Compare a row of a batch under another pipeline file or other columns, but only the cells that both derive alike."""
        self.counts["lenient"] += 1
        rules, stamp = self.rules.for_batch(outcome.batch), micros(message)
        row, may_be_null = rules.cells(value, self.subject.topic, message, outcome.batch)
        if isinstance(row, Bad):  # the other file may have had another format, or the columns were others
            is_known = rules.reading.is_by_cell and outcome.batch not in rules.unknown_file_batches
            if is_known and (rules.is_broken(message) or rules.filters_record(value, self.subject.topic, message)):
                self._report_unexpected_row(message, offset, outcome, f"a dead letter for {_describe_value(value)}")
            return
        *expected, timestamp = cell_digests((*row, stamp))
        cells = zip(row, expected, stored[:-1], may_be_null, strict=True)
        differ = (b != a and not (b is None and null) and not isinstance(cell, Bad) for cell, a, b, null in cells)
        if timestamp != stored[-1] or any(differ):
            self._report_changed(offset, outcome, (*row, stamp))

    def _judge_tombstone(self, message: Message, offset: int, outcome: Outcome) -> None:
        """Compare a row whose record has no value: only transforms, and formats that are not read here, make such rows."""
        expected = (micros(message),)
        if self.rules.for_batch(outcome.batch).not_compared_because is None:
            self._report_unexpected_row(message, offset, outcome, "a dead letter NULL_VALUE")
        elif outcome.digest not in (digest(expected), cell_digests(expected)):
            self._report_changed(offset, outcome, expected)

    def _report_unexpected_row(self, message: Message, offset: int, outcome: Outcome, otherwise: str) -> None:
        value = message.value()
        is_filtered = self.rules.for_batch(outcome.batch).filters_record(value, self.subject.topic, message)
        expected = f"nothing: {_describe_value(value)} is filtered" if is_filtered else otherwise
        self._report("unexpected" if is_filtered else "changed", offset, outcome.batch, expected, "a row")

    def _judge_letter(self, message: Message, offset: int, outcome: Outcome) -> None:
        if outcome.code == _UNREADABLE:
            return  # this client can unpack the record, the batch's client could not
        value, n = message.value(), outcome.batch
        self._compare_letter(message, offset, outcome)
        if outcome.code == _TOO_MANY_NAMES or (outcome.code == _BAD_HEADERS and not message.headers()):
            return  # the code depends on which records were decoded together, which is not recorded
        rules = self.rules.for_batch(n)
        if rules.reading.is_by_cell and outcome.code in (*_CODES_OF_SCHEMAS, *_CODES_OF_TABLE):
            return  # not decoded here: its writer may have made the value expensive to decode
        is_filtered = rules.filters_record(value, self.subject.topic, message)
        if (
            n in rules.lenient
            or rules.not_compared_because is not None
            or (outcome.code == TABLE_NOT_MADE and is_filtered)
        ):
            return  # a later batch may have created the record's table
        if is_filtered and value is not None and rules.is_broken(message) is None:
            return  # perhaps the record can't be decoded, which is a dead letter for all tables
        if is_filtered:
            expected = f"nothing: {_describe_value(value)} is filtered"
            self._report("unexpected", offset, n, expected, _describe_outcome(outcome))
        elif outcome.code in _CODES_OF_TABLE or (rules.in_orc and is_lost_in_orc(micros(message) or 0)):
            return
        elif value is not None:
            row = rules.row(value, self.subject.topic, message)
            if not isinstance(row, Bad) and not any(isinstance(cell, Bad) for cell in row):
                self._report("changed", offset, n, f"a row for {_describe_value(value)}", _describe_outcome(outcome))

    def _compare_letter(self, message: Message, offset: int, outcome: Outcome) -> None:
        """Compare the parts of a record that its dead letter keeps with the record."""
        record = message.key(), message.value(), header_pairs(message.headers()), micros(message)
        if digest(stored_record(record, outcome.payload)) != outcome.digest:
            part = "bytes" if outcome.payload == "full" else "sizes and hashes"
            expected = f"a letter with the record's {part}: {_describe_value(record[1])}"
            self._report("changed", offset, outcome.batch, expected, "others")

    def _report_changed(self, offset: int, outcome: Outcome, expected_row: tuple[Any, ...]) -> None:
        expected, actual = "the record's values", "others"
        if self.findings.has_room:
            stored = self.outcomes.row(self.subject.offset_range(offset, offset + 1), outcome.batch)
            columns = (*self.rules.for_batch(outcome.batch).types.items(), ("timestamp", LONG))
            cells = zip(columns, expected_row, stored or expected_row, strict=True)
            differing = [(column, a, b) for column, a, b in cells if repr(a) != repr(b) and not isinstance(a, Bad)]
            expected = ", ".join(_describe_cell(*column, a) for column, a, _ in differing) or expected
            actual = ", ".join(_describe_cell(*column, b) for column, _, b in differing) or actual
        self._report("changed", offset, outcome.batch, expected, actual)

    def _report(self, kind: Kind, offset: int, n: int | None, expected: str, actual: str, times: int = 1) -> None:
        self.counts[kind] += times
        self.findings.add(Difference(kind, expected, actual, self.subject.topic, self.subject.partition, offset, n))


def _is_equal(row: tuple[Any, ...], stored: Digest | Cells) -> bool:
    """Whether a stored row has these values, by hashes; values that can't be derived (`Bad`) are not compared."""
    if not isinstance(stored, tuple):
        return digest(row) == stored
    return all(isinstance(cell, Bad) or a == b for cell, a, b in zip(row, cell_digests(row), stored, strict=True))


def _index_range(offsets: Sequence[int], segment: Segment) -> tuple[int, int]:
    """Indexes of the first of the ascending offsets within a segment, and of the first one after it."""
    return bisect_left(offsets, segment.start), bisect_left(offsets, segment.end)


def _describe_outcome(outcome: Outcome) -> str:
    return "a row" if outcome.code is None else f"dead letter {outcome.code}"


def _describe_value(value: bytes | None) -> str:
    return "a tombstone" if value is None else shorten(repr(value[:_SHOWN_BYTES]))


def _describe_cell(name: str, column_type: ColumnType, cell: Any) -> str:
    """A column with its value as text."""
    match column_type:
        case Primitive("decimal", (_, scale)) if isinstance(cell, int):
            return f"{name}={Decimal(cell).scaleb(-scale, EXACT):f}"
    return f"{name}={shorten(cell)}"


def micros(message: Message) -> int | None:
    """Kafka's timestamp in microseconds; None if there is none, or if 64 bits can't hold it."""
    kind, milliseconds = message.timestamp()
    if kind == TIMESTAMP_NOT_AVAILABLE or abs(milliseconds) > _LATEST_MILLISECONDS:
        return None
    return milliseconds * _MICROSECONDS
