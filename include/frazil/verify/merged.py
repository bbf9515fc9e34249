"""Tables of changes: rows merged by their key, held against a model of them, and logs of all changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from confluent_kafka import Message

from frazil.pipeline.models.pipeline_file import Destination
from frazil.pipeline.models.value import Column
from frazil.pipeline.syntax.types import Primitive
from frazil.verify.compare import Comparison, micros
from frazil.verify.facts.coverage import Passes
from frazil.verify.facts.ledger import MENDING, Batch, Range
from frazil.verify.facts.result import Difference, Findings, Kind, PartitionResult, with_counts
from frazil.verify.model import Held, Model, Place, Wanted
from frazil.verify.outcomes import Found, Outcome, Outcomes, Stretch
from frazil.verify.rules import Rules
from frazil.verify.tables import Held as HeldTable
from frazil.verify.tables import scan
from frazil.verify.values.canonical import Digest, column_values, digest
from frazil.verify.values.cdc_expectation import RowChange
from frazil.verify.values.column_readers import Bad
from frazil.verify.values.evolved_schema import grows, without_empties

Key = tuple[str, int]

_LONG = Primitive("long")


@dataclass
class MergedComparison(Comparison):
    """One partition of a merged table: its dead letters are compared, what other records tell goes to the model."""

    model: Model = field(kw_only=True)

    def _record(self, message: Message, offset: int, found: Sequence[Outcome], passes: Passes) -> None:
        if found:
            super()._record(message, offset, found, passes)
        elif passes:
            self._tell(message, offset, passes[-1])

    def _tell(self, message: Message, offset: int, n: int) -> None:
        value, topic = message.value(), self.subject.topic
        rules = self.rules.at(n)
        told = None if not value or rules.leaves_out(value, topic) else rules.row(value, topic)
        if told is None or isinstance(told, Bad):
            self._without_outcome(message, offset, n)
        elif not told:
            self.filtered += 1
        else:
            place = Place(topic, self.subject.partition, offset, n)
            stamp = micros(message)
            self.model.change(place, stamp, [(of, _digests(of, stamp, self.rules)) for of in told])


class LettersAlone(Outcomes):
    """Of a merged table rows say nothing of a record that is not the last one of its key."""

    def rows(self, _stretch: Stretch, _found: Found, *, with_values: bool) -> int:  # noqa: ARG002 - what outcomes have
        """None."""
        return 0


def _digests(of: RowChange, stamp: int | None, rules: Rules) -> bytes:
    return digests(of.row, stamp, rules) if of.op == "upsert" else b""


def digests(row: Sequence[Any], stamp: int | None, rules: Rules) -> bytes:
    """Hash of a row, and of those of its values whose columns were always there."""
    return digest((*row, stamp)) + digest((*(row[at] for at in rules.steady), stamp))


def _steady(both: bytes) -> bytes:
    return both[len(both) // 2 :]


@dataclass(frozen=True)
class MergedTableCheck:
    """Holds a merged table against what records tell of it.

    Attributes:
        destination: The table, as the file has it.
        columns: Those of it that can be read.
        held: The table.
        rules: How records become changes.
        logs: Per partition the first offset that Kafka holds, or the end of a compacted log.
        live: Topics that are still what the position knows -> first batch number of their present incarnation.
        findings: Takes the differences.
    """

    destination: Destination
    columns: Mapping[str, Column]
    held: HeldTable
    rules: Rules
    logs: Mapping[Key, int]
    live: Mapping[str, int]
    findings: Findings

    def _rows(self, wanted: Sequence[str]) -> Iterator[tuple[Place, int | None, bool, tuple[Any, ...]]]:
        """Of each row of the present topics its record, that one's time, whether it is marked as deleted, and some columns."""
        names, mark = self.held.columns, self.destination.deleted_column
        own = [names.topic, names.partition, names.offset, names.batch]
        read = [*wanted, *own, names.timestamp, *([] if mark is None else [mark])]
        for batch in scan(self.held, None, list(dict.fromkeys(read))):
            cells = [column_values(batch.column(name), self.columns[name].parsed) for name in wanted]
            stamps = column_values(batch.column(names.timestamp), _LONG)
            marks = [False] * batch.num_rows if mark is None else batch.column(mark).to_pylist()
            places = [batch.column(name).to_pylist() for name in own]
            for at, (topic, partition, offset, n) in enumerate(zip(*places, strict=True)):
                if topic in self.live and offset is not None and (n is None or n >= self.live[topic]):
                    row = tuple(of[at] for of in cells)
                    yield Place(topic, partition, offset, n), stamps[at], bool(marks[at]), row

    def _with_counts(
        self, results: Sequence[PartitionResult], kinds: Iterable[tuple[str, Place]]
    ) -> list[PartitionResult]:
        """The results of partitions, with what was found of their records."""
        counts: dict[Key, Counter[str]] = {}
        for kind, place in kinds:
            counts.setdefault((place.topic, place.partition), Counter())[kind] += 1
        return [with_counts(of, counts.pop((of.topic, of.partition), Counter())) for of in results]

    def _is_old(self, place: Place) -> bool:
        return place.offset < self.logs.get((place.topic, place.partition), 0)

    def _add(self, kind: Kind, place: Place, expected: str, found: str) -> Kind:
        self.findings.add(Difference(kind, expected, found, *place))
        return kind


@dataclass(frozen=True)
class MergedCheck(MergedTableCheck):
    """Holds the model against the table.

    Attributes:
        batches: The ledger.
    """

    batches: Mapping[int, Batch] = field(default_factory=dict)
    _ranges: dict[int, dict[Key, list[Range]]] = field(default_factory=dict, init=False)

    def results(self, model: Model, results: Sequence[PartitionResult]) -> list[PartitionResult]:
        """Compare, and add to the results of partitions what was found."""
        return self._with_counts(results, chain(self._read(model), self._compared(model)))

    def _read(self, model: Model) -> Iterator[tuple[str, Place]]:
        """Hand the rows of the present topics to the model."""
        of, names = self.destination, self.rules.columns
        keys, is_grown = len(of.identifier), grows(of)
        wanted = [*names, *of.identifier, *([] if of.order_by is None else [of.order_by])]
        for place, stamp, is_deleted, row in self._rows(wanted):
            values, key = row[: len(names)], row[len(names) : len(names) + keys]
            values = tuple(map(without_empties, values)) if is_grown else values
            order = None if of.order_by is None else row[-1]
            model.row(key, order, stamp, Held(place, digests(values, stamp, self.rules), is_deleted))
            yield "rows", place

    def _compared(self, model: Model) -> Iterator[tuple[Kind | str, Place]]:
        for wanted in model.wanted():
            kind = self._judged(wanted)
            if kind is not None:
                yield kind, wanted.place
        for shown, place, count in model.doubles():
            yield self._add("duplicate", place, f"one row of key {shown}", f"{count}"), place
        for shown, place in model.others():
            if self._is_old(place) or place.batch in self.rules.unrecorded:
                yield "unchecked", place
            else:
                yield self._add("unexpected", place, "a key that records tell of", f"a row of key {shown}"), place

    def _judged(self, wanted: Wanted) -> Kind | str | None:
        place, held = wanted.place, wanted.held
        if self._is_excused(wanted):
            return "unchecked"
        if not wanted.is_there or held is None or held.is_deleted:
            return self._of_presence(wanted)
        if held.place[:3] != place[:3] or not self._is_read(held.place):
            return self._add("changed", place, f"the row of key {wanted.shown} as this record left it", _last(held))
        if place.batch in self.rules.older:
            return "lenient"
        is_earlier = place.batch in self.rules.earlier
        differs = held.digest != wanted.digest
        if differs and not (is_earlier and _steady(held.digest) == _steady(wanted.digest)):
            return self._add("changed", place, f"values of key {wanted.shown} as the record says", "others")
        return "lenient" if is_earlier else None

    def _is_read(self, place: Place) -> bool:
        """Whether the batch that a row names read its record, as far as the ledger knows that batch."""
        batch = None if place.batch is None else self.batches.get(place.batch)
        if batch is None or batch.kind in MENDING:
            return True
        if batch.n not in self._ranges:
            ranges = self._ranges[batch.n] = {}
            for r in batch.ranges:
                ranges.setdefault((r.topic, r.partition), []).append(r)
        return any(r.start <= place.offset < r.end for r in self._ranges[batch.n].get(place[:2], ()))

    def _of_presence(self, wanted: Wanted) -> Kind | None:
        held = wanted.held
        is_there = held is not None and not held.is_deleted
        if wanted.is_there == is_there:
            return None
        if is_there:
            asked = f"no row of key {wanted.shown}: this record deleted it"
            return self._add("unexpected", wanted.place, asked, "one")
        found = "none" if held is None else f"one that {_named(held.place)} marked as deleted"
        return self._add("missing", wanted.place, f"the row of key {wanted.shown} as this record left it", found)

    def _is_excused(self, wanted: Wanted) -> bool:
        """Whether the model can't know: what was given up, what the cut of batches decided, a delete without a trace, or a
        later change of another partition, which Kafka holds no more.
        """
        held = wanted.held
        if self.rules.abandoned or wanted.depends:
            return True
        if held is None:
            return False
        if wanted.is_late:
            return self.destination.deleted_column is None and not wanted.is_there
        return self._is_old(held.place) and held.place[:2] != wanted.place[:2]


def _named(place: Place) -> str:
    return f"topic {place.topic}, partition {place.partition}, offset {place.offset}"


def _last(held: Held) -> str:
    return f"one whose last change is {_named(held.place)}, of batch {held.place.batch}"


@dataclass
class HistoryComparison(Comparison):
    """One partition of a log of changes."""

    def _record(self, message: Message, offset: int, found: Sequence[Outcome], passes: Passes) -> None:
        value, topic = message.value(), self.subject.topic
        for n in passes:
            mine, rules = [outcome for outcome in found if outcome.batch == n], self.rules.at(n)
            if rules.unread is not None or not value or rules.leaves_out(value, topic):
                super()._record(message, offset, mine, (n,))
                continue
            told = rules.row(value, topic)
            if n in rules.older or isinstance(told, Bad) or any(outcome.code is not None for outcome in mine):
                super()._record(message, offset, mine, (n,))
            elif not told and not mine:
                self.filtered += 1
            else:
                stamp = micros(message)
                wanted = Counter(digest((*of.row, of.op, at, stamp)) for at, of in enumerate(told))
                self._hold(offset, n, wanted, mine)
        self._not_of(passes, offset, found)

    def _hold(self, offset: int, n: int, wanted: Counter[Digest], mine: Sequence[Outcome]) -> None:
        """Hold the rows of a record and a batch against what the record tells."""
        there = Counter(outcome.digest for outcome in mine if isinstance(outcome.digest, bytes))
        lacking, strange = (wanted - there).total(), (there - wanted).total()
        rows = f"{wanted.total()} rows of changes"
        if changed := min(lacking, strange):
            self._add("changed", offset, n, rows, f"{changed} with other values", times=changed)
        if lacking > strange:
            self._add("missing", offset, n, rows, f"{there.total()}", times=lacking - strange)
        if strange > lacking:
            self._add("duplicate", offset, n, rows, f"{there.total()}", times=strange - lacking)
