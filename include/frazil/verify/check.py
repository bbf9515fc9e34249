"""The whole check of a pipeline: Kafka against its tables, and the ledger against itself.

It shares no code with what writes, so that a mistake there is not made twice. Memory is bounded by a window of offsets;
values are compared as hashes.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

from confluent_kafka import Message

from frazil.errors import Terminal
from frazil.pipeline.models.changes import DELETED, TOLD
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.project import Project
from frazil.verify.compare import Comparison, Subject
from frazil.verify.facts.coverage import Key, Segments, clip, coverage, given_up, holes
from frazil.verify.facts.ledger import READING, Position, unrecorded
from frazil.verify.facts.result import Difference, Findings, PartitionResult, Verification
from frazil.verify.facts.snapshot_facts import code_differences
from frazil.verify.kafka import PartitionReader, Source, TopicState
from frazil.verify.ledger_check import closing_differences, ledger_differences, total_differences, whole_batches
from frazil.verify.merged import HistoryComparison, LettersAlone, MergedCheck, MergedComparison
from frazil.verify.merged_places import Certainty, PlacedCheck, PlacedComparison, Places
from frazil.verify.model import Model
from frazil.verify.outcomes import Outcomes, RowCounts, Topics, count
from frazil.verify.reading import MeantFor, bounds, read_once, refuse_part_of_merged
from frazil.verify.registries import Registries
from frazil.verify.rules import Rules, exploding, rules_of, unread_because
from frazil.verify.tables import (
    LedgerReads,
    Tables,
    denied_beside,
    kafka_columns_of,
    letters_of_topics,
    open_tables,
    steady,
    with_key,
)
from frazil.verify.values.routes import tables_of
from frazil.verify.values.typed_expectation import TypedExpectation

T = TypeVar("T")

_LARGEST_OFFSET = 2**63 - 1

Asked = tuple[int, int | None]
"""First offset asked for, and one past the last; None stands for no bound."""

_EVERYTHING: Asked = (0, None)
_NOTHING: Asked = (0, 0)


def verify(project: Project, pipeline: Pipeline, from_: str | None = None, to: str | None = None) -> Verification:
    """Compare every committed record that Kafka still holds of what batches read with what became of it.

    Each offset must have exactly one outcome, a row with its values, a dead letter with its bytes, or none where the
    record is filtered; and no outcome may be without its record. From the first offset to the position, each must
    have been read by a batch, given up on record, or jumped over by a reset. Where Kafka holds a record no more (retention,
    compaction), only doubles are found, and per batch more or fewer outcomes than the ledger says. After a backward reset
    that allowed duplicates an offset has one outcome per pass: a pass is a batch, and outcomes carry its number. Rows of
    topics that were recreated or are gone are left alone and counted.

    Each batch is judged by the pipeline file that it ran under. Where values can't be worked out without the code that writes, rows
    are not held against them, a record of an exploded list has several rows, and how many records were filtered is the ledger's
    word, batch by batch.

    Args:
        project: Settings.
        pipeline: The pipeline.
        from_: Where to begin: `earliest`, `latest`, an instant in ISO 8601 or a JSON file of offsets; None for the
            beginning.
        to: Where to end; None for the position.

    Raises:
        Terminal: The tables carry no Kafka columns, were never written, or belong to another cluster; or the bounds name
            no place in the topics.
        Retryable: Kafka, the catalog or the storage is not available now.
    """
    began = time.monotonic()
    source = Source(cluster := pipeline.source.cluster, _entry(project.settings.clusters, cluster, "clusters", project))
    known = LedgerReads(project.pipelines.references, Registries(project.settings.registries))
    pipeline, checks = steady(
        project, pipeline, lambda told: [_opened(project, told, name, source, known) for name in told.tables]
    )
    refuse_part_of_merged(pipeline, from_, to)
    count = _compared(pipeline, [check for check in checks if check.can_compare], source, (from_, to))
    findings, unread = Findings(), unread_because(pipeline)
    for check in checks:
        findings.join(check.findings)
    return Verification(
        pipeline.name,
        checks[0].tables.finished,
        tuple(result for check in checks for result in check.results),
        tuple(findings.kept),
        findings.count,
        sum(check.row_counts.older_incarnation for check in checks),
        sum(check.row_counts.foreign for check in checks),
        round(time.monotonic() - began, 3),
        count,
        values_compared=unread is None,
        values_not_compared_because=unread,
        columns_not_compared={}
        if unread is None
        else {of.tables.destination.name: _unread_columns(of) for of in checks},
        cells_not_compared={check.tables.destination.name: cells for check in checks if (cells := _unjudged(check))},
        batches_not_judged=_not_judged(checks),
        notes=tuple(checks[0].tables.decided.without_manifest()) if checks[0].tables.summary is None else (),
    )


def _unread_columns(check: _Check) -> tuple[str, ...]:
    """Columns of a destination whose values are not worked out: all but those that say where a row came from."""
    pipeline, tables = check.pipeline, check.tables
    own = {*pipeline.destination(tables.destination.name).added_columns, DELETED, *TOLD}
    return tuple(field.name for field in tables.destination.table.schema().fields if field.name not in own)


def _unjudged(check: _Check) -> dict[str, tuple[int, str]]:
    """Column -> values that could not be worked out, and why the first one could not."""
    found: dict[str, tuple[int, str]] = {}
    for of in () if check.rules is None else check.rules.all:
        cells = of.expectation.unjudged if isinstance(of.expectation, TypedExpectation) else {}
        for name, (more, why) in cells.items():
            known, first = found.get(name, (0, why))
            found[name] = known + more, first
    return found


def _not_judged(checks: Sequence[_Check]) -> dict[str, tuple[int, ...]]:
    """Why the file that a batch ran under says nothing -> numbers of these batches."""
    found: dict[str, set[int]] = {}
    for check in checks:
        for batch in check.tables.batches:
            if batch.kind in READING and check.rules is not None and batch.n in check.rules.older:
                file = check.tables.former.files.get(batch.config)
                why = (
                    file
                    if isinstance(file, str)
                    else f"gave {check.tables.destination.name} other columns, key or format"
                )
                found.setdefault(f"pipeline file {batch.config} {why}", set()).add(batch.n)
            elif check.rules is not None and batch.kind in READING and batch.n in check.rules.former:
                unread = check.rules.former[batch.n].unread
                if unread is not None:
                    found.setdefault(f"pipeline file {batch.config}: {unread}", set()).add(batch.n)
    return {why: tuple(sorted(numbers)) for why, numbers in sorted(found.items())}


def _opened(project: Project, pipeline: Pipeline, name: str, source: Source, known: LedgerReads) -> _Check:
    """Open one destination: as if all other tables were no business of the pipeline's."""
    catalogs = {of: _entry(project.settings.catalogs, of, "catalogs", project) for of in pipeline.catalogs}
    tables = open_tables(pipeline, catalogs, name, kafka_columns_of(pipeline, name), known)
    findings = Findings(table=name if pipeline.tables[1:] else None)
    if name == pipeline.tables[0]:
        findings.extend(denied_beside(tables, pipeline, known))
    pipeline = with_key(pipeline, name, tables.destination.table)
    return _Check(pipeline, tables, source, findings, can_compare=_check_books(pipeline, tables, findings))


def _compared(
    pipeline: Pipeline, checks: Sequence[_Check], source: Source, asked: tuple[str | None, str | None]
) -> int:
    """Compare all partitions of all destinations, with one reading of each, and return how many records were read."""
    if not checks:
        return 0
    for check in checks:
        check.require_cluster(source.cluster_id())
    states = source.topics(sorted({topic for check in checks for topic in check.position.topics}))
    works = [check.work(states, *asked) for check in checks]
    meant_for, count = _meant_for(pipeline, works), 0
    for key in sorted({key for work in works for key in work.asked}):
        with closing(PartitionReader(source, *key)) as reader:
            log = reader.log() if any(work.is_there(key) for work in works) else (0, 0)
            comparisons = [(work, work.comparison(key, log, reader)) for work in works if key in work.asked]
            named = {work.check.tables.destination.name: comparison for work, comparison in comparisons}
            count += read_once(named, reader, log, meant_for)
            for work, comparison in comparisons:
                work.check.take(comparison.result())
    for work in works:
        work.finish()
    known = {n for work in works for n in work.check.findings.batches}
    whole = [{batch.n: batch for batch in whole_batches(w.check.tables.batches, w.live, w.asked)} for w in works]
    batches = [batch for n, batch in whole[0].items() if all(n in of for of in whole)]
    letters = letters_of_topics(checks[0].tables.letters, works[0].live.keys())
    checks[0].findings.extend(code_differences(batches, letters, known))
    return count


def _meant_for(pipeline: Pipeline, works: Sequence[_Work]) -> MeantFor | None:
    """Which tables a record is handed to, beside those that hold an outcome of it: all others count it as left out.

    By any pipeline file that batches ran under.
    """
    files = (pipeline, *(of for of in works[0].check.tables.former.files.values() if not isinstance(of, str)))
    routes = [(tables_of(of), of) for of in files]
    of = {work.check.tables.destination.name: work for work in works}
    if any(route is None for route, _ in routes):
        return None
    # Of values that are not read the ledger says how many were left out; of a merged table every place is kept.
    placed = frozenset(name for name, work in of.items() if isinstance(work.model, Places))
    bare, empty = (
        frozenset(name for name, work in of.items() if not all(rules.leaves_out(value, "") for rules in work.rules.all))
        for value in (None, b"")
    )
    read = [
        (route, _filters_unrouted(file)) for route, file in routes if route is not None and unread_because(file) is None
    ]
    if not read:
        return lambda _: placed

    def meant_for(message: Message) -> frozenset[str] | None:
        value = message.value()
        if not value:
            return bare if value is None else empty
        found = placed
        for route, filters_unrouted in read:
            meant = route(message.topic() or "", value)
            if meant is None or not (meant or filters_unrouted):
                return None
            found |= meant
        return found

    return meant_for


def _filters_unrouted(pipeline: Pipeline) -> bool:
    return pipeline.route is not None and pipeline.route.otherwise == "filter"


def _entry(entries: Mapping[str, T], name: str, kind: str, project: Project) -> T:
    if name not in entries:
        known = ", ".join(sorted(entries))
        raise Terminal(f"{project.settings_file}: {kind}.{name} is not there", next_step=f"known under {kind}: {known}")
    return entries[name]


def _check_books(pipeline: Pipeline, tables: Tables, findings: Findings) -> bool:
    """Check what the tables say of batches. Returns whether records can be compared on this ground."""
    n, finished, table = tables.n, tables.finished, tables.closing
    if n is None and finished is None:
        raise Terminal(
            f"pipeline {pipeline.name} has not run yet: {table} holds no position",
            next_step=f"frazil run {pipeline.name}",
        )
    is_merged = pipeline.destination(tables.destination.name).is_merged
    findings.extend(tables.denied)
    findings.extend(
        ledger_differences(
            tables.batches, exploding(pipeline, tables.batches, tables.former.files), is_merged=is_merged
        )
    )
    if tables.done is not None and tables.done > (-1 if finished is None else finished):
        lost = f"rows of batch {tables.done}, which the ledger marks as finished"
        findings.add(Difference("ledger", lost, f"batch {finished} as the last one", batch=tables.done))
    elif finished is None or (n is not None and n > finished):
        todo = f"batch {n} is decided and not finished yet: run `frazil run {pipeline.name}`"
        findings.add(Difference("ledger", f"batch {n} in the ledger, as in {table}", todo, batch=n))
        return False
    if finished is None:
        return False
    findings.extend(closing_differences(tables.batches[-1], table, tables.summary, tables.mirrored))
    return True


@dataclass
class _Check:
    """One destination: what stays the same over all partitions, and what is found."""

    pipeline: Pipeline
    tables: Tables
    source: Source
    findings: Findings
    can_compare: bool
    row_counts: RowCounts = field(default_factory=RowCounts)
    results: list[PartitionResult] = field(default_factory=list)
    rules: Rules | None = None

    @property
    def position(self) -> Position:
        """The position after the last finished batch."""
        return self.tables.batches[-1].position

    def take(self, result: PartitionResult) -> None:
        """Take what was found in a partition."""
        self.results.append(replace(result, table=self.findings.table))

    def require_cluster(self, found: str) -> None:
        """Refuse another cluster than the position's."""
        if found != self.position.cluster:
            raise Terminal(
                f"the position of pipeline {self.pipeline.name} belongs to Kafka cluster {self.position.cluster},"
                f" the settings lead to {found}",
                next_step=f"point clusters.{self.source.name} of the settings to the cluster that was read",
            )

    def work(self, found: Mapping[str, TopicState], from_: str | None, to: str | None) -> _Work:
        """What there is to compare; fills the row_counts."""
        states, batches = self._present(found), self.tables.batches
        covered = {key: of for key, of in coverage(batches, self.position).items() if key[0] in states}
        live = {name: self.position.topics[name].since for name in states}
        self._count(live)
        logs = {(name, n): log for name, state in states.items() for n, log in enumerate(state.offsets)}
        asked = bounds({key: log for key, log in logs.items() if key in covered}, from_, to, self.source)
        rest = _EVERYTHING if from_ is None and to is None else _NOTHING
        keys = {*covered, *self.row_counts.counts}
        destination, columns = self.pipeline.destination(self.tables.destination.name), self.tables.columns
        rules = rules_of(self.pipeline, batches, destination.table, columns, self.tables.earlier, self.tables.former)
        self.rules = rules
        kind = LettersAlone if destination.is_merged else Outcomes
        names = dict.fromkeys(name for of in rules.all for name in of.types)
        outcomes = kind(self.tables.destination, self.tables.letters, lambda n: rules.at(n).reading, names)
        model: Model | Places | None = None
        if destination.is_merged:
            model = Model() if rules.unread is None else Places()
        asked_of = {key: asked.get(key, rest) for key in keys}
        return _Work(self, states, covered, asked_of, rules, outcomes, live, model, destination.is_history)

    def _count(self, live: Mapping[str, int]) -> None:
        batches = self.tables.batches
        read = frozenset(name for batch in batches for name in batch.position.topics)
        topics = Topics(live, read, self.tables.others, unrecorded(batches))
        for held in (self.tables.destination, self.tables.letters):
            count(self.row_counts, held, topics)
        self.findings.extend(self.row_counts.differences())

    def _present(self, found: Mapping[str, TopicState]) -> dict[str, TopicState]:
        """Topics that are still what the position knows. Outcomes of the others can't be compared with anything."""
        known = {name: topic.id for name, topic in self.position.topics.items()}
        return {
            name: state
            for name, state in found.items()
            if name in known and (None in (known[name], state.id) or known[name] == state.id)
        }


@dataclass(frozen=True)
class _Work:
    """What there is to compare of one destination: what was read, what was asked for, and by which rules."""

    check: _Check
    states: Mapping[str, TopicState]
    covered: Mapping[Key, Segments]
    asked: Mapping[Key, Asked]
    rules: Rules
    outcomes: Outcomes
    live: Mapping[str, int]
    model: Model | Places | None = None
    is_log: bool = False

    def is_there(self, key: Key) -> bool:
        """Whether the topic has such a partition."""
        return key[0] in self.states and key[1] < len(self.states[key[0]].offsets)

    @cached_property
    def _holes(self) -> Mapping[Key, list[tuple[int, int]]]:
        return holes(self.check.tables.batches, self.covered, self.check.position)

    @cached_property
    def _given_up(self) -> Mapping[Key, list[tuple[int, int, int]]]:
        return given_up(self.check.tables.batches)

    def comparison(self, key: Key, log: tuple[int, int], reader: PartitionReader) -> Comparison:
        """The comparison of one partition."""
        start, end = self.asked[key]
        subject = Subject(
            *key,
            clip(self.covered.get(key, []), start, _LARGEST_OFFSET if end is None else end),
            log,
            self.states[key[0]].is_compacted,
            self.live[key[0]],
            (start, end),
            self.check.row_counts.counts[key],
            self._given_up.get(key, ()),
            self._holes.get(key, ()),
        )
        parts = subject, self.rules, self.outcomes, reader, self.check.findings
        if self.is_log:
            return HistoryComparison(*parts)
        if isinstance(self.model, Places):
            return PlacedComparison(*parts, places=self.model, certainty=self._certainty)
        return Comparison(*parts) if self.model is None else MergedComparison(*parts, model=self.model)

    @cached_property
    def _certainty(self) -> Certainty:
        return Certainty.of(self.check.pipeline, self.check.pipeline.destination(self.check.tables.destination.name))

    def finish(self) -> None:
        """Hold the totals against the ledger, and a model against its table, once all partitions were compared."""
        check, batches, asked = self.check, self.check.tables.batches, self.asked
        if self.model is not None:
            with closing(self.model) as model:
                of, tables = check.pipeline.destination(check.tables.destination.name), check.tables
                held, logs = (of, tables.columns, tables.destination, self.rules), self.rules.left_out.held
                if isinstance(model, Places):
                    placed = PlacedCheck(*held, logs, self.live, check.findings, certainty=self._certainty)
                    check.results[:] = placed.results(model, check.results)
                else:
                    merged = MergedCheck(*held, logs, self.live, check.findings, {of.n: of for of in batches})
                    check.results[:] = merged.results(model, check.results)
        # A row of a merged table says nothing of the records before its last one: how many were left out can't be counted.
        is_countable = not isinstance(self.model, Places)
        counted = {
            batch.n for batch in batches if is_countable and self.rules.is_counted(batch.n)
        } - check.findings.batches
        check.findings.extend(self.rules.left_out.differences([*whole_batches(batches, self.live, asked)], counted))
        name = None if self.model is not None else check.tables.destination.name
        named = name, check.tables.letters.name
        check.findings.extend(
            total_differences(batches, named, check.row_counts.by_batch, self.live, asked, check.findings.batches)
        )
