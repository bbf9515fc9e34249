"""The whole check of a pipeline: Kafka against its tables, and the ledger against itself.

It shares no code with what writes, so that a mistake there is not made twice. Memory is bounded by a window of offsets;
values are compared as hashes.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TypeVar

from frazil.errors import Terminal
from frazil.pipeline.model import KafkaColumns, Pipeline
from frazil.project import Project
from frazil.verify.books import closing_differences, ledger_differences
from frazil.verify.bounds import bounds
from frazil.verify.census import Census, Topics, count
from frazil.verify.compare import Comparison, Subject
from frazil.verify.coverage import Key, coverage, given_up
from frazil.verify.holes import holes
from frazil.verify.kafka import PartitionReader, Source, TopicState
from frazil.verify.lake import Tables, open_tables
from frazil.verify.ledger import Position, unrecorded
from frazil.verify.outcomes import Outcomes
from frazil.verify.result import Difference, Findings, PartitionResult, Verification
from frazil.verify.rules import Rules, exploding, rules_of, unread_because
from frazil.verify.spans import Segments, clip
from frazil.verify.totals import total_differences, whole_batches

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

    What other formats than JSON and transforms make of values can't be worked out without the code that writes. There
    rows are not held against values, a record of an exploded list has several rows, and how many records were filtered is
    the ledger's word, batch by batch.

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
    unread, census = unread_because(pipeline), Census()
    findings, results = Findings(), list[PartitionResult]()
    finished: list[int | None] = []
    for name in pipeline.tables:
        of_table = Findings(table=name if pipeline.tables[1:] else None)
        n, found = _verified(project, pipeline, name, (from_, to), of_table, census)
        finished.append(n)
        results += found if not pipeline.tables[1:] else [replace(of, table=name) for of in found]
        findings.join(of_table)
    return Verification(
        pipeline.name,
        finished[0],
        tuple(results),
        tuple(findings.kept),
        findings.count,
        census.older_incarnation,
        census.foreign,
        round(time.monotonic() - began, 3),
        values_compared=unread is None,
        values_not_compared_because=unread,
    )


def _verified(
    project: Project,
    pipeline: Pipeline,
    name: str,
    asked: tuple[str | None, str | None],
    findings: Findings,
    whole: Census,
) -> tuple[int | None, tuple[PartitionResult, ...]]:
    """Verify one destination: as if all other tables were no business of the pipeline's."""
    columns = _kafka_columns(pipeline, name)
    catalog = _entry(project.settings.catalogs, pipeline.catalog, "catalogs", project)
    tables, census = open_tables(pipeline, catalog, name, columns), Census()
    if not _check_books(pipeline, tables, findings):
        return tables.finished, ()
    cluster = pipeline.source.cluster
    source = Source(cluster, _entry(project.settings.clusters, cluster, "clusters", project))
    results = _Check(pipeline, tables, tables.batches[-1].position, source, findings).results(census, *asked)
    whole.older_incarnation += census.older_incarnation
    whole.foreign += census.foreign
    return tables.finished, results


def _kafka_columns(pipeline: Pipeline, name: str) -> KafkaColumns:
    destination = pipeline.destination(name)
    if not destination.kafka_columns:
        raise Terminal(
            f"pipeline {pipeline.name} lands rows without Kafka columns (kafka_columns: false), so no row of"
            f" {destination.table} can be told to be a record's",
            next_step=f"compare the counts per batch (frazil history {pipeline.name}), or land into a table with them",
        )
    return destination.kafka_columns


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
    findings.extend(ledger_differences(tables.batches, exploding(pipeline, tables.batches)))
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


@dataclass(frozen=True)
class _Work:
    """What there is to compare: per partition what was read, what was not, and how many outcomes there are."""

    covered: Mapping[Key, Segments]
    holes: Mapping[Key, list[tuple[int, int]]]
    given_up: Mapping[Key, list[tuple[int, int, int]]]
    states: Mapping[str, TopicState]
    outcomes: Counter[Key]


@dataclass(frozen=True)
class _Check:
    """What stays the same over all partitions."""

    pipeline: Pipeline
    tables: Tables
    position: Position
    source: Source
    findings: Findings

    def results(self, census: Census, from_: str | None, to: str | None) -> tuple[PartitionResult, ...]:
        """Compare all partitions, and fill the census."""
        states, batches = self._present(), self.tables.batches
        covered = {key: of for key, of in coverage(batches, self.position).items() if key[0] in states}
        live = {name: self.position.topics[name].since for name in states}
        self._count(census, live)
        logs = {(name, n): log for name, state in states.items() for n, log in enumerate(state.offsets)}
        asked = bounds({key: log for key, log in logs.items() if key in covered}, from_, to, self.source)
        rest = _EVERYTHING if from_ is None and to is None else _NOTHING
        work = _Work(covered, holes(batches, covered, self.position), given_up(batches), states, census.counts)
        keys = sorted({*covered, *census.counts})
        rules = rules_of(self.pipeline, batches, self.tables.destination.name)
        results = tuple(self._compared({key: asked.get(key, rest) for key in keys}, work, rules))
        counted = {batch.n for batch in batches if rules.is_counted(batch.n)} - self.findings.batches
        self.findings.extend(rules.left_out.differences([*whole_batches(batches, live, asked)], counted))
        tables = self.tables.destination.name, self.tables.letters.name
        self.findings.extend(total_differences(batches, tables, census.by_batch, live, asked, self.findings.batches))
        return results

    def _count(self, census: Census, live: Mapping[str, int]) -> None:
        batches = self.tables.batches
        read = frozenset(name for batch in batches for name in batch.position.topics)
        topics = Topics(live, read, self.tables.others, unrecorded(batches))
        for held in (self.tables.destination, self.tables.letters):
            count(census, held, topics)
        self.findings.extend(census.differences())

    def _present(self) -> dict[str, TopicState]:
        """Topics that are still what the position knows. Outcomes of the others can't be compared with anything."""
        if (found := self.source.cluster_id()) != self.position.cluster:
            raise Terminal(
                f"the position of pipeline {self.pipeline.name} belongs to Kafka cluster {self.position.cluster},"
                f" the settings lead to {found}",
                next_step=f"point clusters.{self.source.name} of the settings to the cluster that was read",
            )
        states = self.source.topics(sorted(self.position.topics))
        known = {name: topic.id for name, topic in self.position.topics.items()}
        return {
            name: state for name, state in states.items() if None in (known[name], state.id) or known[name] == state.id
        }

    def _subject(self, key: Key, asked: Asked, work: _Work, reader: PartitionReader) -> Subject:
        topic, partition = key
        state = work.states[topic]
        start, end = asked
        return Subject(
            topic,
            partition,
            clip(work.covered.get(key, []), start, _LARGEST_OFFSET if end is None else end),
            reader.log() if partition < len(state.offsets) else (0, 0),
            state.is_compacted,
            self.position.topics[topic].since,
            asked,
            work.outcomes[key],
            work.given_up.get(key, ()),
            work.holes.get(key, ()),
        )

    def _compared(self, asked: Mapping[Key, Asked], work: _Work, rules: Rules) -> Iterator[PartitionResult]:
        declared = self.pipeline.destination(self.tables.destination.name).columns
        types = {name: declared[name].parsed for name in rules.columns}
        outcomes = Outcomes(self.tables.destination, self.tables.letters, types, rules.older)
        for key, of in asked.items():
            with closing(PartitionReader(self.source, *key)) as reader:
                subject = self._subject(key, of, work, reader)
                yield Comparison(subject, rules, outcomes, reader, self.findings).result()
