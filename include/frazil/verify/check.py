"""The whole check of a pipeline: Kafka against its tables, and the ledger against itself.

The check shares no code with the rooms that write, so that it does not repeat their mistakes. Memory is bounded by a window
of offsets; values are compared as hashes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

from confluent_kafka import Message

from frazil.error_codes import BAD_SETTING, CLUSTER_CHANGED, NEVER_RAN
from frazil.pipeline.models.layout import DELETED, HISTORY_COLUMNS
from frazil.pipeline.models.pipeline_file import Destination, Pipeline
from frazil.project import Project
from frazil.verify.compare import ComparedPartition, Comparison
from frazil.verify.facts.coverage import Key, Segments, clip, coverage, given_up_offsets, unread_spans
from frazil.verify.facts.ledger import READ_KINDS, Batch, Position, unrecorded_batches
from frazil.verify.facts.result import Findings, PartitionResult, Verification, ledger_difference
from frazil.verify.facts.snapshot_facts import code_differences
from frazil.verify.kafka import PartitionReader, Registries, Source, TopicState
from frazil.verify.ledger_check import closing_differences, ledger_differences, total_differences, whole_batches
from frazil.verify.merged import HistoryComparison, LetterOutcomes, MergedCheck, MergedComparison
from frazil.verify.merged_places import Certainty, PlacedCheck, PlacedComparison, PlaceStore
from frazil.verify.model import Model
from frazil.verify.outcomes import Outcomes, RowCounts, Topics, count_outcomes
from frazil.verify.reading import NO_OFFSETS, Bounds, RecordRouter, bounds, read_once, refuse_part_of_merged
from frazil.verify.rules import Rules, exploding_batches, not_compared_because, rules_of
from frazil.verify.tables import (
    LedgerReads,
    Tables,
    kafka_columns_of,
    letters_of_topics,
    open_declared,
    open_tables,
    other_contradictions,
    with_key,
)
from frazil.verify.values.column_readers import count_unjudged
from frazil.verify.values.transforms import tables_of
from frazil.verify.values.typed_expectation import TypedChanges, TypedExpectation

T = TypeVar("T")

_LARGEST_OFFSET = 2**63 - 1


def verify(project: Project, pipeline: Pipeline, start: str | None = None, end: str | None = None) -> Verification:
    """Compare every committed record that batches read, and that Kafka still has, with its row or dead letter.

    Each record must have exactly one outcome: a row with its values, or a dead letter with its bytes; a filtered record has
    none. Each outcome must have its record. Each offset from the first one to the position must have been read by a batch,
    recorded as given up, or jumped over by a reset. Where Kafka no longer has a record (retention, compaction), the check only
    finds duplicates, and batches with more or fewer outcomes than the ledger counts. A backward reset with
    `--allow-duplicates` adds an outcome per offset: outcomes differ by their batch. Rows of topics that were recreated or
    deleted are only counted.

    Each batch is judged by the pipeline file that it ran under. Where values can't be derived independently, they are not
    compared, and the number of filtered records is taken from the ledger.

    Args:
        project: The settings and pipelines.
        pipeline: The pipeline to check.
        start: First offset to compare: `earliest`, `latest`, an instant in ISO 8601 or a JSON file of offsets; None: the
            beginning.
        end: Offset to stop before, in the same forms; None: the position.

    Raises:
        Terminal: The tables have no Kafka columns, were never written, or belong to another cluster; or `start` or `end` is
            no place in the topics.
        Retryable: Kafka, the catalog or the storage is not available now.
    """
    began = time.monotonic()
    source = Source(
        cluster := pipeline.source.cluster, _settings_entry(project.settings.clusters, cluster, "clusters", project)
    )
    ledger_reads = LedgerReads(project.pipelines.references, Registries(project.settings.registries))
    pipeline, checks = open_declared(
        project,
        pipeline,
        lambda declared: [_open_destination(project, declared, name, source, ledger_reads) for name in declared.tables],
    )
    refuse_part_of_merged(pipeline, start, end)
    count = _compare_partitions(pipeline, [check for check in checks if check.can_compare], source, (start, end))
    findings, reason = Findings(), not_compared_because(pipeline)
    for check in checks:
        findings.merge(check.findings)
    return Verification(
        pipeline.name,
        checks[0].tables.finished,
        tuple(result for check in checks for result in check.results),
        tuple(findings.described),
        findings.count,
        sum(check.row_counts.older_incarnation for check in checks),
        sum(check.row_counts.foreign for check in checks),
        round(time.monotonic() - began, 3),
        count,
        values_compared=reason is None,
        values_not_compared_because=reason,
        columns_not_compared={} if reason is None else {check.name: _columns_not_compared(check) for check in checks},
        cells_not_compared={check.name: cells for check in checks if (cells := _unjudged_cells(check))},
        batches_not_judged=_batches_not_judged(checks),
        notes=(
            *(checks[0].tables.closing_snapshots.manifest_notes() if checks[0].tables.summary is None else ()),
            *(note for check in checks for note in _later_columns(check)),
        ),
    )


def _columns_not_compared(check: _Check) -> tuple[str, ...]:
    """Columns of a destination whose values are not compared: all but those that Frazil adds."""
    pipeline, tables = check.pipeline, check.tables
    own = {*pipeline.destination(tables.destination.name).added_columns, DELETED, *HISTORY_COLUMNS}
    return tuple(field.name for field in tables.destination.table.schema().fields if field.name not in own)


def _later_columns(check: _Check) -> Iterator[str]:
    """A note on columns that were added, or got fields, after rows had landed: null is accepted in these rows."""
    earlier = {} if check.rules is None or check.rules.not_compared_because else check.rules.earlier
    rows = ((n, changes) for n, changes in earlier.items() if check.row_counts.by_batch[check.name, n])
    if names := sorted({name for _, changes in rows for name in changes.added - changes.renamed}):
        yield f"{check.name}: null was accepted for {', '.join(names)} in rows from before these columns changed"


def _unjudged_cells(check: _Check) -> dict[str, tuple[int, str]]:
    """Column -> number of cells whose expected value could not be derived, and the reason for the first one."""
    per_column: dict[str, tuple[int, str]] = {}
    for rules in () if check.rules is None else check.rules.per_file:
        typed = rules.expectation.unjudged if isinstance(rules.expectation, TypedExpectation | TypedChanges) else {}
        cells = {**typed, **rules.unjudged, **({} if rules.headers is None else rules.headers.unjudged)}
        for name, (count, why) in cells.items():
            count_unjudged(per_column, name, why, count)
    return per_column


def _batches_not_judged(checks: Sequence[_Check]) -> dict[str, tuple[int, ...]]:
    """Reason why a batch can't be judged by its own pipeline file -> numbers of these batches."""
    numbers_by_reason: dict[str, set[int]] = {}
    for check in checks:
        for batch in check.tables.batches:
            if batch.kind not in READ_KINDS or check.rules is None or _is_replaced(check, batch):
                continue
            reason = None
            if batch.n in check.rules.unknown_file_batches:
                former = check.tables.former.files.get(batch.config)
                reason = f" {former if isinstance(former, str) else f'gave {check.name} other columns, key or format'}"
            elif (rules := check.rules.former.get(batch.n)) is not None and rules.not_compared_because is not None:
                reason = f": {rules.not_compared_because}"
            if reason is not None:
                numbers_by_reason.setdefault(f"pipeline file {batch.config}{reason}", set()).add(batch.n)
    return {reason: tuple(sorted(numbers)) for reason, numbers in sorted(numbers_by_reason.items())}


def _is_replaced(check: _Check, batch: Batch) -> bool:
    """Whether a replay replaced all outcomes of a batch, so that there is nothing to judge."""
    tables = (check.name, check.tables.letters.name)
    has_outcomes = any(check.row_counts.by_batch[table, batch.n] for table in tables)
    return not has_outcomes and batch.written + batch.dead > 0 and not check.destination.is_merged


def _open_destination(
    project: Project, pipeline: Pipeline, name: str, source: Source, ledger_reads: LedgerReads
) -> _Check:
    """Open one destination and check its ledger, as if the pipeline had no other destination."""
    catalogs = {
        catalog: _settings_entry(project.settings.catalogs, catalog, "catalogs", project)
        for catalog in pipeline.catalogs
    }
    tables = open_tables(pipeline, catalogs, name, kafka_columns_of(pipeline, name), ledger_reads)
    findings = Findings(table=name if pipeline.tables[1:] else None)
    if name == pipeline.tables[0]:
        findings.add(*other_contradictions(tables, pipeline, ledger_reads))
    pipeline = with_key(pipeline, name, tables.destination.table)
    return _Check(pipeline, tables, source, findings, can_compare=_check_ledger(pipeline, tables, findings))


def _compare_partitions(
    pipeline: Pipeline, checks: Sequence[_Check], source: Source, requested: tuple[str | None, str | None]
) -> int:
    """Compare all partitions of all destinations, each read once, and return how many records were read."""
    if not checks:
        return 0
    for check in checks:
        check.require_cluster(source.cluster_id())
    states = source.topics(sorted({topic for check in checks for topic in check.position.topics}))
    tasks = [check.task(states, *requested) for check in checks]
    router, count = _record_router(pipeline, tasks), 0
    for key in sorted({key for task in tasks for key in task.requested}):
        with closing(PartitionReader(source, *key)) as reader:
            log = reader.log() if any(task.has_partition(key) for task in tasks) else (0, 0)
            comparisons = [(task, task.comparison(key, log, reader)) for task in tasks if key in task.requested]
            named = {task.check.name: comparison for task, comparison in comparisons}
            count += read_once(named, reader, log, router)
            for task, comparison in comparisons:
                task.check.results.append(replace(comparison.result(), table=task.check.findings.table))
    for task in tasks:
        task.finish()
    differing = {n for task in tasks for n in task.check.findings.batches}
    whole = [{batch.n: batch for batch in whole_batches(t.check.tables.batches, t.live, t.requested)} for t in tasks]
    batches = [batch for n, batch in whole[0].items() if all(n in batches_of_table for batches_of_table in whole)]
    letters = letters_of_topics(checks[0].tables.letters, tasks[0].live.keys())
    checks[0].findings.add(*code_differences(batches, letters, differing))
    return count


def _record_router(pipeline: Pipeline, tasks: Sequence[_Task]) -> RecordRouter | None:
    """Returns the function that names the tables whose comparisons need a record; other tables count it as filtered.

    A table needs a record if any pipeline file of the batches routes it there. None: all tables need all records.
    """
    files = (pipeline, *(file for file in tasks[0].check.tables.former.files.values() if not isinstance(file, str)))
    routes = [(tables_of(file), file) for file in files]
    if any(route is None for route, _ in routes):
        return None
    # Where values are not compared, the ledger counts the filtered records; a PlaceStore needs every record of its table.
    placed = frozenset(task.check.name for task in tasks if isinstance(task.model, PlaceStore))
    for_null, for_empty = (
        frozenset(
            task.check.name for task in tasks if not all(rules.filters_absent(value) for rules in task.rules.per_file)
        )
        for value in (None, b"")
    )
    compared = [
        (route, file.route is not None and file.route.otherwise == "filter")
        for route, file in routes
        if route is not None and not_compared_because(file) is None
    ]
    # A value that can't be decoded is a dead letter for all tables, whatever the route.
    decoders = [rules.expectation for rules in tasks[0].rules.per_file]
    typed = [expectation for expectation in decoders if isinstance(expectation, TypedExpectation)]
    if not compared:
        return lambda _: placed

    def tables_for(message: Message) -> frozenset[str] | None:
        value = message.value()
        if not value:
            return for_null if value is None else for_empty
        if any(expectation.is_broken(message) is not False for expectation in typed):
            return None
        names = placed
        for route, filters_unrouted in compared:
            routed = route(message.topic() or "", value, message)
            if routed is None or not (routed or filters_unrouted):
                return None
            names |= routed
        return names

    return tables_for


def _settings_entry(entries: Mapping[str, T], name: str, kind: str, project: Project) -> T:
    if name not in entries:
        known_names = ", ".join(sorted(entries))
        raise BAD_SETTING.terminal(
            f"{project.settings_file}: {kind}.{name} is missing", next_step=f"defined under {kind}: {known_names}"
        )
    return entries[name]


def _check_ledger(pipeline: Pipeline, tables: Tables, findings: Findings) -> bool:
    """Check the ledger against itself and the tables. Returns whether it is complete, so that records can be compared."""
    n, finished, table = tables.n, tables.finished, tables.closing
    if n is None and finished is None:
        raise NEVER_RAN.terminal(
            f"pipeline {pipeline.name} has not run yet: {table} holds no position",
            next_step=f"frazil run {pipeline.name}",
        )
    is_merged = pipeline.destination(tables.destination.name).is_merged
    exploding = exploding_batches(pipeline, tables.batches, tables.former.files)
    findings.add(*tables.contradictions, *ledger_differences(tables.batches, exploding, is_merged=is_merged))
    if tables.finished_by_mark is not None and tables.finished_by_mark > (-1 if finished is None else finished):
        expected = f"rows of batch {tables.finished_by_mark}, which the ledger marks as finished"
        findings.add(ledger_difference(tables.finished_by_mark, expected, f"batch {finished} as the last one"))
    elif n is not None and (finished is None or n > finished):
        actual = f"batch {n} is decided and not finished yet: run `frazil run {pipeline.name}`"
        findings.add(ledger_difference(n, f"batch {n} in the ledger, as in {table}", actual))
        return False
    if finished is None:
        return False
    findings.add(*closing_differences(tables.batches[-1], table, tables.summary, tables.property_position))
    return True


@dataclass
class _Check:
    """The check of one destination: its tables, and the results of all its partitions."""

    pipeline: Pipeline
    tables: Tables
    source: Source
    findings: Findings
    can_compare: bool
    row_counts: RowCounts = field(default_factory=RowCounts)
    results: list[PartitionResult] = field(default_factory=list)
    rules: Rules | None = None

    @property
    def name(self) -> str:
        """Name of the table."""
        return self.tables.destination.name

    @property
    def destination(self) -> Destination:
        """The destination, as the pipeline file defines it."""
        return self.pipeline.destination(self.name)

    @property
    def position(self) -> Position:
        """The position after the last finished batch."""
        return self.tables.batches[-1].position

    def require_cluster(self, cluster_id: str) -> None:
        """Refuse another Kafka cluster than that of the position."""
        if cluster_id != self.position.cluster:
            raise CLUSTER_CHANGED.terminal(
                f"the position of pipeline {self.pipeline.name} belongs to Kafka cluster {self.position.cluster},"
                f" the settings lead to {cluster_id}",
                next_step=f"point clusters.{self.source.name} of the settings to the cluster that was read",
            )

    def task(self, topic_states: Mapping[str, TopicState], start: str | None, end: str | None) -> _Task:
        """Prepare the comparison of this destination, and count the outcomes in its tables."""
        states, batches = self._unchanged_topics(topic_states), self.tables.batches
        covered = {key: segments for key, segments in coverage(batches, self.position).items() if key[0] in states}
        live = {name: self.position.topics[name].since for name in states}
        self._count_outcomes(live)
        logs = {(name, n): log for name, state in states.items() for n, log in enumerate(state.offsets)}
        requested = bounds({key: log for key, log in logs.items() if key in covered}, start, end, self.source)
        rest = (0, None) if start is None and end is None else NO_OFFSETS
        keys = {*covered, *self.row_counts.counts}
        destination, columns = self.destination, self.tables.columns
        rules = rules_of(self.pipeline, batches, destination.table, columns, self.tables.earlier, self.tables.former)
        self.rules = rules
        kind = LetterOutcomes if destination.is_merged else Outcomes
        names = dict.fromkeys(name for file_rules in rules.per_file for name in file_rules.types)
        outcomes = kind(self.tables.destination, self.tables.letters, lambda n: rules.for_batch(n).reading, names)
        model: Model | PlaceStore | None = None
        if destination.is_merged:
            model = Model() if rules.not_compared_because is None else PlaceStore()
        requested_of = {key: requested.get(key, rest) for key in keys}
        return _Task(self, states, covered, requested_of, rules, outcomes, live, model, destination.is_history)

    def _count_outcomes(self, live: Mapping[str, int]) -> None:
        batches = self.tables.batches
        read = frozenset(name for batch in batches for name in batch.position.topics)
        topics = Topics(live, read, self.tables.foreign_topics, unrecorded_batches(batches))
        for table in (self.tables.destination, self.tables.letters):
            count_outcomes(self.row_counts, table, topics)
        self.findings.add(*self.row_counts.differences())

    def _unchanged_topics(self, topic_states: Mapping[str, TopicState]) -> dict[str, TopicState]:
        """Topics whose Kafka id is still that of the position: outcomes of a recreated topic have no records."""
        known_ids = {name: topic.id for name, topic in self.position.topics.items()}
        return {
            name: state
            for name, state in topic_states.items()
            if name in known_ids and (None in (known_ids[name], state.id) or known_ids[name] == state.id)
        }


@dataclass(frozen=True)
class _Task:
    """The comparison of one destination: offsets to compare, rules, outcomes.

    Attributes:
        states: Topics that still have the id of the position.
        live: These topics -> first batch number of their present incarnation.
        model: Collects the changes, or the places, of records of a merged table; None for other tables.
    """

    check: _Check
    states: Mapping[str, TopicState]
    covered: Mapping[Key, Segments]
    requested: Bounds
    rules: Rules
    outcomes: Outcomes
    live: Mapping[str, int]
    model: Model | PlaceStore | None = None
    is_history: bool = False

    def has_partition(self, key: Key) -> bool:
        """Whether Kafka has this partition."""
        return key[0] in self.states and key[1] < len(self.states[key[0]].offsets)

    @cached_property
    def _unread_spans(self) -> Mapping[Key, list[tuple[int, int]]]:
        return unread_spans(self.check.tables.batches, self.covered, self.check.position)

    @cached_property
    def _given_up(self) -> Mapping[Key, list[tuple[int, int, int]]]:
        return given_up_offsets(self.check.tables.batches)

    def comparison(self, key: Key, log: tuple[int, int], reader: PartitionReader) -> Comparison:
        """The comparison of one partition, of the class for this kind of table."""
        start, end = self.requested[key]
        subject = ComparedPartition(
            *key,
            clip(self.covered.get(key, []), start, _LARGEST_OFFSET if end is None else end),
            log,
            self.states[key[0]].is_compacted,
            self.live[key[0]],
            (start, end),
            self.check.row_counts.counts[key],
            self._given_up.get(key, ()),
            self._unread_spans.get(key, ()),
        )
        parts = subject, self.rules, self.outcomes, reader, self.check.findings
        if self.is_history:
            return HistoryComparison(*parts)
        if isinstance(self.model, PlaceStore):
            return PlacedComparison(*parts, places=self.model, certainty=self._certainty)
        return Comparison(*parts) if self.model is None else MergedComparison(*parts, model=self.model)

    @cached_property
    def _certainty(self) -> Certainty:
        return Certainty.from_pipeline(self.check.pipeline, self.check.destination)

    def finish(self) -> None:
        """Compare totals with the ledger, and a merged table with its model, once all partitions were compared."""
        check, batches, requested = self.check, self.check.tables.batches, self.requested
        with closing(self.model) if self.model is not None else nullcontext() as model:
            table = check.destination, check.tables.columns, check.tables.destination
            common = *table, self.rules, self.rules.filtered_counts.first_held, self.live, check.findings
            if isinstance(model, PlaceStore):
                check.results[:] = PlacedCheck(*common, certainty=self._certainty).results(model, check.results)
            elif model is not None:
                merged = MergedCheck(*common, {batch.n: batch for batch in batches})
                check.results[:] = merged.results(model, check.results)
        # A row of a merged table names only its last record: filtered records can't be counted by their absence.
        is_countable = not isinstance(self.model, PlaceStore)
        numbers = {batch.n for batch in batches if is_countable and self.rules.is_counted(batch.n)}
        whole = [*whole_batches(batches, self.live, requested)]
        check.findings.add(*self.rules.filtered_counts.differences(whole, numbers - check.findings.batches))
        names = None if self.model is not None else check.name, check.tables.letters.name
        differing, counted = check.findings.batches, check.row_counts.by_batch
        check.findings.add(*total_differences(batches, names, counted, self.live, requested, differing))
