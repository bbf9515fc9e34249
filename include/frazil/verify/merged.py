"""Compares a table whose rows are merged by key with a model of it, and a history table with the changes in its records."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from confluent_kafka import Message

from frazil.pipeline.models.pipeline_file import Destination
from frazil.pipeline.models.value import Column
from frazil.verify.compare import Comparison, micros
from frazil.verify.facts.coverage import Key, Passes
from frazil.verify.facts.ledger import REPAIR_KINDS, Batch, Range
from frazil.verify.facts.result import Difference, Findings, Kind, PartitionResult, add_counts
from frazil.verify.model import ExpectedRow, Model, RecordPlace, TableRow
from frazil.verify.outcomes import OffsetRange, Outcome, Outcomes, OutcomesByOffset
from frazil.verify.rules import Rules
from frazil.verify.tables import ScannedTable, scan
from frazil.verify.values.canonical import LONG, Digest, column_values, digest, null_empty_values
from frazil.verify.values.cdc_expectation import RowChange
from frazil.verify.values.column_readers import Bad, has_undeclared_columns
from frazil.verify.values.typed_expectation import TypedChanges


@dataclass
class MergedComparison(Comparison):
    """The comparison of one partition of a merged table: compares dead letters, and adds the changes in records to the model."""

    model: Model = field(kw_only=True)

    def _compare_record(self, message: Message, offset: int, outcomes: Sequence[Outcome], passes: Passes) -> None:
        if outcomes:
            super()._compare_record(message, offset, outcomes, passes)
        elif passes:
            self._add_changes(message, offset, passes[-1])

    def _add_changes(self, message: Message, offset: int, n: int) -> None:
        value, topic = message.value(), self.subject.topic
        rules = self.rules.for_batch(n)
        is_absent = not value or rules.filters_record(value, topic, message)
        changes = None if is_absent or value is None else rules.row(value, topic, message)
        if changes is None or isinstance(changes, Bad):
            self._judge_absence(message, offset, n)
        elif not changes:
            self.counts["filtered"] += 1
        elif not (changes := tuple(change for change in changes if not isinstance(change, Bad))):
            self.counts["unchecked"] += 1  # without a dead letter, the record changed rows that can't be derived here
            if isinstance(rules.expectation, TypedChanges):
                rules.expectation.is_unsure = True
        else:
            place = RecordPlace(topic, self.subject.partition, offset, n)
            stamp = micros(message)
            self.model.add_change(place, stamp, [(change, _digests(change, stamp, self.rules)) for change in changes])


class LetterOutcomes(Outcomes):
    """The outcomes of a merged table: only its dead letters, because a row names only the last record of its key."""

    def rows(self, _offset_range: OffsetRange, _outcomes: OutcomesByOffset, *, with_values: bool) -> int:  # noqa: ARG002 - the signature of Outcomes.rows
        """Add no rows: the model compares them."""
        return 0


def _digests(change: RowChange, stamp: int | None, rules: Rules) -> bytes:
    return digests(change.row, stamp, rules) if change.op == "upsert" and change.row else b""


def digests(row: Sequence[Any], stamp: int | None, rules: Rules) -> bytes:
    """Hash of a row, followed by the hash of its values in columns that the table always had."""
    return digest((*row, stamp)) + digest((*(row[index] for index in rules.always_present), stamp))


def _always_present_hash(hashes: bytes) -> bytes:
    return hashes[len(hashes) // 2 :]


@dataclass(frozen=True)
class MergedTableCheck:
    """Compares a merged table with the changes of its records.

    Attributes:
        destination: The table, as the pipeline file defines it.
        columns: The columns that can be compared.
        rules: How records become changes.
        logs: Partition -> first offset from which on Kafka has every record.
        live: Topics that still have the id of the position -> first batch number of their present incarnation.
        findings: Collects the differences.
    """

    destination: Destination
    columns: Mapping[str, Column]
    table: ScannedTable
    rules: Rules
    logs: Mapping[Key, int]
    live: Mapping[str, int]
    findings: Findings

    def _rows(self, column_names: Sequence[str]) -> Iterator[tuple[RecordPlace, int | None, bool, tuple[Any, ...]]]:
        """Each row of the live topics: its record, the record's timestamp, whether the row is marked as deleted, and its cells."""
        names, mark = self.table.columns, self.destination.deleted_column
        place_columns = [names.topic, names.partition, names.offset, names.batch]
        read = [*column_names, *place_columns, names.timestamp, *([] if mark is None else [mark])]
        for batch in scan(self.table, None, list(dict.fromkeys(read))):
            cells = [column_values(batch.column(name), self.columns[name].parsed) for name in column_names]
            stamps = column_values(batch.column(names.timestamp), LONG)
            marks = [False] * batch.num_rows if mark is None else batch.column(mark).to_pylist()
            places = zip(*(batch.column(name).to_pylist() for name in place_columns), strict=True)
            for index, (topic, partition, offset, n) in enumerate(places):
                if topic in self.live and offset is not None and (n is None or n >= self.live[topic]):
                    row = tuple(column_cells[index] for column_cells in cells)
                    yield RecordPlace(topic, partition, offset, n), stamps[index], bool(marks[index]), row

    @staticmethod
    def _with_counts(
        results: Sequence[PartitionResult], kinds: Iterable[tuple[str, RecordPlace]]
    ) -> list[PartitionResult]:
        """The results of partitions, with one added to the count of each kind for each record that has it."""
        counts: defaultdict[Key, Counter[str]] = defaultdict(Counter)
        for kind, place in kinds:
            counts[place.topic, place.partition][kind] += 1
        return [add_counts(result, counts[result.topic, result.partition]) for result in results]

    def _is_old(self, place: RecordPlace) -> bool:
        return place.offset < self.logs.get((place.topic, place.partition), 0)

    def _report(self, kind: Kind, place: RecordPlace, expected: str, actual: str) -> Kind:
        self.findings.add(Difference(kind, expected, actual, *place))
        return kind


@dataclass(frozen=True)
class MergedCheck(MergedTableCheck):
    """Compares the model of a merged table with its rows."""

    batches: Mapping[int, Batch] = field(default_factory=dict)
    _ranges: dict[int, dict[Key, list[Range]]] = field(default_factory=dict, init=False)

    def results(self, model: Model, results: Sequence[PartitionResult]) -> list[PartitionResult]:
        """Compare, and return the results of partitions with the counts added."""
        return self._with_counts(results, chain(self._add_rows(model), self._compare_rows(model)))

    def _add_rows(self, model: Model) -> Iterator[tuple[str, RecordPlace]]:
        """Add the rows of the live topics to the model."""
        destination, names = self.destination, self.rules.columns
        keys, is_evolving = len(destination.identifier), has_undeclared_columns(destination)
        order = [] if destination.order_by is None else [destination.order_by]
        for place, stamp, is_deleted, row in self._rows([*names, *destination.identifier, *order]):
            values, key = row[: len(names)], row[len(names) : len(names) + keys]
            values = tuple(map(null_empty_values, values)) if is_evolving else values
            table_row = TableRow(place, digests(values, stamp, self.rules), is_deleted)
            model.add_row(key, row[-1] if order else None, stamp, table_row)
            yield "rows", place

    def _compare_rows(self, model: Model) -> Iterator[tuple[Kind | str, RecordPlace]]:
        for expected in model.expected_rows():
            kind = self._judge_row(expected)
            if kind is not None:
                yield kind, expected.place
        for shown, place, count in model.duplicate_keys():
            yield self._report("duplicate", place, f"one row of key {shown}", f"{count}"), place
        for shown, place in model.rows_without_change():
            if self._is_old(place) or place.batch in self.rules.unrecorded or self.rules.is_unsure:
                yield "unchecked", place
            else:
                yield self._report("unexpected", place, "a key that a record has", f"a row of key {shown}"), place

    def _judge_row(self, expected: ExpectedRow) -> Kind | str | None:
        place, table_row = expected.place, expected.table_row
        if self._is_uncertain(expected):
            return "unchecked"
        if not expected.is_there or table_row is None or table_row.is_deleted:
            return self._judge_presence(expected)
        if table_row.place[:3] != place[:3] or not self._is_read(table_row.place):
            actual = f"one whose last change is {_describe_place(table_row.place)}, of batch {table_row.place.batch}"
            return self._report("changed", place, f"the row of key {expected.shown} as this record left it", actual)
        if place.batch in self.rules.unknown_file_batches:
            return "lenient"
        is_earlier = place.batch in self.rules.earlier
        # If some values of a record can't be derived, there is no digest.
        differs = bool(expected.digest) and table_row.digest != expected.digest
        is_excused = is_earlier and _always_present_hash(table_row.digest) == _always_present_hash(expected.digest)
        if differs and not is_excused:
            return self._report("changed", place, f"values of key {expected.shown} as the record says", "others")
        return "lenient" if is_earlier else None

    def _is_read(self, place: RecordPlace) -> bool:
        """Whether the batch that a row names read its record; true for batches that the ledger does not have."""
        batch = None if place.batch is None else self.batches.get(place.batch)
        if batch is None or batch.kind in REPAIR_KINDS:
            return True
        if batch.n not in self._ranges:
            ranges = self._ranges[batch.n] = {}
            for r in batch.ranges:
                ranges.setdefault((r.topic, r.partition), []).append(r)
        return any(r.start <= place.offset < r.end for r in self._ranges[batch.n].get(place[:2], ()))

    def _judge_presence(self, expected: ExpectedRow) -> Kind | None:
        table_row = expected.table_row
        is_there = table_row is not None and not table_row.is_deleted
        if expected.is_there == is_there:
            return None
        if is_there:
            expectation = f"no row of key {expected.shown}: this record deleted it"
            return self._report("unexpected", expected.place, expectation, "one")
        actual = "none" if table_row is None else f"one that {_describe_place(table_row.place)} marked as deleted"
        return self._report(
            "missing", expected.place, f"the row of key {expected.shown} as this record left it", actual
        )

    def _is_uncertain(self, expected: ExpectedRow) -> bool:
        """Whether the model can't know the row: it was given up, depends on how records were split into batches, was deleted
        without a trace, or was changed later by a record of another partition that Kafka deleted.
        """
        table_row = expected.table_row
        if self.rules.abandoned or self.rules.is_unsure or expected.depends_on_batches:
            return True
        if table_row is None:
            return False
        if expected.is_late:
            return self.destination.deleted_column is None and not expected.is_there
        return self._is_old(table_row.place) and table_row.place[:2] != expected.place[:2]


def _describe_place(place: RecordPlace) -> str:
    return f"topic {place.topic}, partition {place.partition}, offset {place.offset}"


@dataclass
class HistoryComparison(Comparison):
    """The comparison of one partition of a history table."""

    def _compare_record(self, message: Message, offset: int, outcomes: Sequence[Outcome], passes: Passes) -> None:
        value, topic = message.value(), self.subject.topic
        for n in passes:
            batch_outcomes, rules = [outcome for outcome in outcomes if outcome.batch == n], self.rules.for_batch(n)
            if rules.not_compared_because is not None or not value or rules.filters_record(value, topic, message):
                super()._compare_record(message, offset, batch_outcomes, (n,))
                continue
            changes = rules.row(value, topic, message)
            if (
                n in rules.unknown_file_batches
                or isinstance(changes, Bad)
                or any(outcome.code is not None for outcome in batch_outcomes)
            ):
                super()._compare_record(message, offset, batch_outcomes, (n,))
            elif not changes and not batch_outcomes:
                self.counts["filtered"] += 1
            else:
                stamp = micros(message)
                expected = Counter(
                    digest((*change.row, change.op, index, stamp)) for index, change in enumerate(changes)
                )
                self._compare_changes(offset, n, expected, batch_outcomes)
        self._report_other_batches(passes, offset, outcomes)

    def _compare_changes(
        self, offset: int, n: int, expected: Counter[Digest], batch_outcomes: Sequence[Outcome]
    ) -> None:
        """Compare the rows that a batch wrote for a record with the changes in the record."""
        present = Counter(outcome.digest for outcome in batch_outcomes if isinstance(outcome.digest, bytes))
        missing, surplus = (expected - present).total(), (present - expected).total()
        rows = f"{expected.total()} rows of changes"
        if changed := min(missing, surplus):
            self._report("changed", offset, n, rows, f"{changed} with other values", times=changed)
        if missing > surplus:
            self._report("missing", offset, n, rows, f"{present.total()}", times=missing - surplus)
        if surplus > missing:
            self._report("duplicate", offset, n, rows, f"{present.total()}", times=surplus - missing)
