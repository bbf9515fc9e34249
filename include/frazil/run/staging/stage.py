"""Staging: the interface of engines, what every engine does with the records it reads, the engine `inline`, and the creation of
tables that records name.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from frazil import shutdown
from frazil.batch.audit import Tolerance
from frazil.batch.facts import LETTERS_NAMED, Counts, DeadSample, NamedLetter, Range, Staged, StagedFile
from frazil.batch.schema_change import MOST_NEW_TABLES
from frazil.errors import FrazilError, Retryable, Terminal
from frazil.failpoints import Failpoint, hit
from frazil.gc_tuning import collecting_rarely
from frazil.iceberg.catalog.table import Table
from frazil.iceberg.commit.summary_state import (
    BATCH_KEY,
    BEGUN_KEY,
    LETTERS_KEY,
    MADE_BY_KEY,
    begun_tables,
    read_summary,
)
from frazil.iceberg.files.data_files import StagingTable, TableWriters
from frazil.iceberg.files.partition_limit import PartitionLimit
from frazil.iceberg.patches.metadata import FORMAT_VERSION, refuse_skew
from frazil.iceberg.schema.comparison import check_destination
from frazil.kafka.client.cluster import Cluster
from frazil.kafka.read.read import ReadLimits, read_ranges
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.records.decoder.decode import Decoder
from frazil.records.decoder.redaction import Payload, redacted
from frazil.records.decoder.route import Route
from frazil.records.model.cells import in_steps
from frazil.records.model.rows import Outcomes, record_ages
from frazil.records.model.spec import RecordSpec
from frazil.run.state.context import RunContext
from frazil.run.state.tables import Tables, create_destination, in_parallel, landed_topics, refuse_same_topics

DEAD_LETTER_BATCH_COLUMN = "_frazil_batch"


@dataclass(frozen=True)
class StageOrder:
    """What to stage: plain data that travels to executors.

    Attributes:
        pipeline: Name of the pipeline, for names of jobs and consumer groups.
        n: Number of the batch; rows carry it.
        cluster: Where to read.
        ranges: What to read.
        records_per_task: Ranges are shared out so that no task has more offsets.
        specs: Table -> how values become rows of it.
        destinations: Tables that rows are written for, by the names of `specs`; empty to count only.
        dead_letters: Table that dead letters are written for; None to count only.
        payload: Which parts of its record a dead letter keeps.
        names_letters: Whether the first dead letters are reported one by one.
        route: How records find their tables; None: each goes to all.
        tolerance: How many dead letters the batch may have: a task that alone has more stops reading. None: no task stops.
        fixed_at: When the ends of the run were fixed, ISO 8601: records are counted by their age then. None: not counted.
        limits: How large records may be, and what readers do with unreadable ones.
        partitions: How many partition values a task may give each table.
    """

    pipeline: str
    n: int
    cluster: Cluster
    ranges: tuple[Range, ...]
    records_per_task: int
    specs: Mapping[str, RecordSpec]
    destinations: Mapping[str, StagingTable]
    dead_letters: StagingTable | None
    payload: Payload = "full"
    names_letters: bool = False
    route: Route | None = None
    tolerance: Tolerance | None = None
    fixed_at: str | None = None
    limits: ReadLimits = field(default_factory=ReadLimits)
    partitions: PartitionLimit = field(default_factory=PartitionLimit)


class Stage(Protocol):
    """An engine: reads the ranges, decodes them, writes data files that no snapshot names yet, and reports the outcome."""

    def __call__(self, order: StageOrder) -> Staged:
        """Stage one batch.

        Raises:
            Retryable: Kafka, the storage or the engine is not available now.
            Terminal: Records in the ranges are gone, or access is refused.
        """


@collecting_rarely()
def stage_records(order: StageOrder, batches: Iterable[pa.RecordBatch]) -> Staged:
    """Decode records and write their rows and dead letters in one pass, holding a bounded part in memory.

    Reading stops early if the batch can no longer be published: this process is asked to stop, or there are more dead letters
    than the order tolerates. If records need columns or tables that don't exist, nothing is written: the outcome has the needs
    of all records, and the ranges of this order, to be staged again.
    """
    decoder = Decoder(order.specs, order.route, order.n, partitions=order.partitions.counters())
    letters_table = order.dead_letters
    writers = TableWriters(
        order.destinations if letters_table is None else {**order.destinations, letters_table.name: letters_table}
    )
    all_staged, needed = Staged(), Staged()
    for batch, outcomes in in_steps(decoder.decode, batches):
        if shutdown.requester():
            return all_staged.merge(needed).merge(Staged(files=writers.abandon(), stopped=True))
        if outcomes.asks or needed.asks:
            needs = Staged(demands=outcomes.demands, new_tables=outcomes.new_tables)
            needed = needed.merge(needs).merge(Staged(void=_paths(writers.abandon())))
            hit(Failpoint.STAGING)
            continue
        for table in order.destinations:
            writers.write(table, outcomes.rows[table])
        letters = redacted(outcomes.dead, order.payload, decoder.declared)
        if letters_table is not None:
            writers.write(letters_table.name, with_batch_columns(letters, order.n))
        shown = Staged(
            samples=_samples(letters, all_staged.samples), named=_named_letters(order, letters, len(all_staged.named))
        )
        read = Staged(bytes=_bytes(batch), untyped=outcomes.untyped_paths, ages=_ages(batch, order.fixed_at))
        all_staged = all_staged.merge(_staged_counts(order, outcomes)).merge(read).merge(shown)
        hit(Failpoint.STAGING)
        if order.tolerance is not None and order.tolerance.is_lost(all_staged.total.dead):
            return all_staged.merge(Staged(files=writers.abandon(), stopped=True))
    if needed.asks:
        return replace(needed, again=order.ranges, void=tuple(dict.fromkeys(needed.void)))
    return all_staged.merge(Staged(files=writers.close()))


def _paths(files: Mapping[str, tuple[StagedFile, ...]]) -> tuple[str, ...]:
    return tuple(file.path for table_files in files.values() for file in table_files)


def _bytes(batch: pa.RecordBatch) -> int:
    lengths = (pc.sum(pc.binary_length(batch.column(name))).as_py() or 0 for name in ("key", "value"))
    return sum(lengths)


def _ages(batch: pa.RecordBatch, fixed_at: str | None) -> dict[int, int]:
    return {} if fixed_at is None else record_ages(batch.column("timestamp"), datetime.fromisoformat(fixed_at))


def with_batch_columns(dead: pa.RecordBatch, n: int) -> pa.RecordBatch:
    """Dead letters with the columns of their batch: its number, one attempt, not landed."""
    size = dead.num_rows
    added = {
        DEAD_LETTER_BATCH_COLUMN: pa.repeat(pa.scalar(n, pa.int64()), size),
        "attempts": pa.repeat(pa.scalar(1, pa.int32()), size),
        "landed_batch": pa.nulls(size, pa.int64()),
    }
    columns = [*dead.columns, *added.values()]
    return pa.RecordBatch.from_arrays(columns, [*dead.schema.names, *added])


def _samples(dead: pa.RecordBatch, known_codes: Collection[str]) -> dict[str, DeadSample]:
    """The first dead letter of every code that is not known yet."""
    codes = dead.column("code")
    first = {code: pc.index(codes, code).as_py() for code in pc.unique(codes).to_pylist() if code not in known_codes}
    sample_columns = dead.select(["topic", "partition", "offset", "message"])
    return {
        code: DeadSample(*(column[index].as_py() for column in sample_columns.columns)) for code, index in first.items()
    }


def _named_letters(order: StageOrder, dead: pa.RecordBatch, named_count: int) -> tuple[NamedLetter, ...]:
    """The next letters to report one by one, up to the limit."""
    if not order.names_letters or not dead.num_rows or named_count >= LETTERS_NAMED:
        return ()
    few = dead.slice(0, LETTERS_NAMED - named_count)
    columns = (few.column(name).to_pylist() for name in NamedLetter._fields if name in few.schema.names)
    return tuple(NamedLetter(*letter_fields) for letter_fields in zip(*columns, strict=True))


def _staged_counts(order: StageOrder, outcomes: Outcomes) -> Staged:
    counts = {}
    codes: dict[str, int] = {}
    for key, outcome in outcomes.counts.items():
        counts[key.topic, key.partition] = Counts(
            outcome.read, outcome.written, sum(outcome.dead.values()), sum(outcome.filtered.values())
        )
        for code, count in outcome.dead.items():
            codes[code.value] = codes.get(code.value, 0) + count
    written = sum(partition_counts.written for partition_counts in counts.values())
    extra = sum(rows.num_rows for rows in outcomes.rows.values()) - written
    # A name may be as secret as a value: of a map that is written as an object it is one.
    unknown_fields, tables = outcomes.unknown_fields, outcomes.tables
    if order.payload != "full":
        unknown_fields = unknown_fields.without_names()
        tables = {
            table: replace(table_counts, unknown_fields=table_counts.unknown_fields.without_names())
            for table, table_counts in tables.items()
        }
    if tables:
        return Staged(counts, codes, tables=tables, whole_dead=outcomes.whole_dead, unknown_fields=unknown_fields)
    return Staged(counts, codes, extra_rows=extra, unknown_fields=unknown_fields)


def stage_inline(order: StageOrder) -> Staged:
    """Stage one batch in this process: the `Stage` of the engine `inline`."""
    return stage_records(order, read_ranges(order.cluster, order.ranges, limits=order.limits))


# Auto-created tables. The ledger lists their names before they are created; from then on they count towards `max_tables`.
# A created table carries the UUID of that ledger as a property. So the next run recognises the tables of a run that was killed
# before its decision, and never takes another writer's table for one of them. With `route.create.existing_tables: write`, records
# may also be written to another writer's table, as if the pipeline file listed it.

FOREIGN = "a table of that name is there, and this pipeline did not make it"

LETTERS = "a table of that name is there, for dead letters"

WRITTEN = "a table of that name is there, with rows of batches that the ledger does not tell of"


@dataclass(frozen=True)
class Refusals:
    """Why tables that records name are not created.

    Attributes:
        names: Name -> why.
        rest: Why no other table is created either; None if records may name further ones.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    rest: str | None = None

    def merged_with(self, later: Refusals) -> Refusals:
        """The refusals of two attempts; a name keeps its earlier reason. Records choose the names, so their number is bounded."""
        names = {**later.names, **self.names}
        return Refusals(dict(islice(names.items(), MOST_NEW_TABLES)), later.rest)


@dataclass(frozen=True)
class TableCreation:
    """The result of creating tables: the pipeline with new ones, all its tables, and why others were not created."""

    context: RunContext
    tables: Tables
    refusals: Refusals


@dataclass(frozen=True)
class CreatableTables:
    """Which of the tables that records name can be created.

    Attributes:
        excess: How many are left out because the budget is used up.
        begun: Tables that earlier runs began to create and that no decided batch lists yet.
    """

    names: tuple[str, ...]
    refusals: Refusals
    excess: int
    begun: frozenset[str]


def table_budget(context: RunContext, before: Sequence[str]) -> int:
    """How many tables a run may still create: bounded per run and over all runs.

    Tables in `before` were created before this run began.
    """
    create, created = context.pipeline.create, {*context.pipeline.auto_created}
    if create is None:
        return 0
    return max(0, min(create.max_new_tables - len(created - {*before}), create.max_tables - len(created)))


def initial_refusals(context: RunContext, budget: int, refused_before: Mapping[str, str] | None = None) -> Refusals:
    """The refusals before anything is read: names that earlier batches of the run refused, and an empty budget."""
    names = {name: why for name, why in (refused_before or {}).items() if name not in context.pipeline.tables}
    return Refusals(names, None if budget else _limit_reason(context, budget))


def create_tables(context: RunContext, tables: Tables, names: Sequence[str], budget: int, n: int) -> TableCreation:
    """Create the tables that records of batch `n` name, the first of them up to the budget."""
    candidate_context = context.with_created_tables((*context.pipeline.auto_created, *names))
    owner = _owner_property(context, tables)
    creatable = creatable_tables(context, tables, names, budget)
    if not creatable.begun.issuperset(creatable.names):
        _record_begun(context, creatable.begun.union(creatable.names))
    hit(Failpoint.CREATING)
    outcomes = in_parallel(lambda name: _create_or_refuse(candidate_context, name, owner), creatable.names)
    hit(Failpoint.CREATED)
    distinct = _distinct_tables(tables, dict(zip(creatable.names, outcomes, strict=True)))
    created = {name: outcome for name, outcome in distinct.items() if not isinstance(outcome, str)}
    failed = {name: outcome for name, outcome in distinct.items() if isinstance(outcome, str)}
    if not creatable.begun.issuperset(failed):  # no table has such a name, so it must not count
        _record_begun(context, _begun(context) - (failed.keys() - creatable.begun))
    refused = {**creatable.refusals.names, **failed}
    for name, table in created.items():
        is_own = owner.items() <= table.properties.items()
        context.report(
            f"batch {n}: table {name} {'was created' if is_own else 'existed and fits'}, because records name it"
        )
    for name, why in sorted(refused.items()):
        context.report(f"batch {n}: table {name} was not created: {why}")
    if creatable.excess:
        context.report(f"batch {n}: {creatable.excess} further tables were not created: {creatable.refusals.rest}")
    extended = context.with_created_tables((*context.pipeline.auto_created, *created))
    destinations = {**tables.destinations, **created}
    after = replace(
        tables, destinations={name: destinations[name] for name in extended.pipeline.tables if name in destinations}
    )
    return TableCreation(extended, after, replace(creatable.refusals, names=refused))


def creatable_tables(context: RunContext, tables: Tables | None, names: Sequence[str], budget: int) -> CreatableTables:
    """Which of the tables that records name can be created. Creates none."""
    candidate_context = context.with_created_tables((*context.pipeline.auto_created, *names))
    owner = _owner_property(context, tables)

    def refusal_of(name: str) -> str | None:
        try:
            table = candidate_context.lake.catalog_of(name).find_table(name)
            return None if table is None else _foreign_reason(candidate_context, table, name, owner)
        except Terminal as refusal:
            return _catalog_refusal(refusal)

    refusals = dict(zip(names, in_parallel(refusal_of, names), strict=True))
    refused = {name: why for name, why in refusals.items() if why is not None}
    free = [name for name in names if name not in refused]
    begun = _begun(context)
    chosen = _within_budget(context, free, budget, begun)
    too_many_names = f"the batch names more than {MOST_NEW_TABLES:,} tables that are not there"
    beyond = len(free) - len(chosen)
    # Fewer were chosen than the run may create: begun tables use up the total.
    counted = len(begun) if len(chosen) < budget else 0
    rest = _limit_reason(context, budget, counted) if beyond or not budget else too_many_names
    return CreatableTables(chosen, Refusals(refused, rest), beyond, begun)


def _begun(context: RunContext) -> frozenset[str]:
    """Tables that runs began to create and that no decided batch lists yet, by the present ledger."""
    name = context.pipeline.ledger_table
    ledger = context.lake.find_table(name)
    return frozenset() if ledger is None else begun_tables(ledger.metadata, context.pipeline.name, name)


def _record_begun(context: RunContext, names: Collection[str]) -> None:
    key = BEGUN_KEY.format(context.pipeline.name)
    context.lake.set_property(context.pipeline.ledger_table, key, json.dumps(sorted(names)))


def _within_budget(context: RunContext, names: Sequence[str], budget: int, begun: Collection[str]) -> tuple[str, ...]:
    """The first names, up to the budget. Begun tables count in the pipeline's total already."""
    most = 0 if context.pipeline.create is None else context.pipeline.create.max_tables
    total = most - len({*context.pipeline.auto_created, *begun})
    new = {*[name for name in names if name not in begun][: max(0, total)]}
    return tuple([name for name in names if name in begun or name in new][:budget])


def _owner_property(context: RunContext, tables: Tables | None) -> dict[str, str]:
    """The property of tables that a pipeline created: the UUID of its ledger."""
    ledger = "" if tables is None else str(tables.ledger.metadata.table_uuid)
    return {MADE_BY_KEY.format(context.pipeline.name): ledger}


def _foreign_reason(context: RunContext, table: Table, name: str, owner: Mapping[str, str]) -> str | None:
    """Why records can't be written to an existing table; None if they can.

    They can if an earlier attempt of this pipeline created it, and it is unused; or if the file allows existing tables, and this
    one could be a listed destination.
    """
    pipeline = context.pipeline
    is_own = owner.items() <= table.properties.items()
    if not is_own and (pipeline.create is None or pipeline.create.existing_tables == "refuse"):
        return FOREIGN
    if LETTERS_KEY in table.properties or name == pipeline.dead_letters_table:
        return LETTERS
    if read_summary(table.metadata, BATCH_KEY.format(pipeline.name), name) is not None:
        return WRITTEN
    return _unfit_reason(pipeline, table, name, is_own=is_own)


def _unfit_reason(pipeline: Pipeline, table: Table, name: str, *, is_own: bool) -> str | None:
    """Why an existing table can't be a destination; None if it can."""
    is_unused = is_own
    try:
        landed = landed_topics(table.metadata, name)
        is_unused = is_own and landed.keys() <= {pipeline.name}  # at most a claim of this pipeline, without rows
        if not is_own:
            # The creating pipeline claims topics just before it decides its first batch for the table: see `claim_topics`.
            if (creator := min(_creators(table) - landed.keys(), default=None)) is not None:
                return f"a table of that name is there: pipeline {creator} made it, and has landed nothing in it yet"
            if table.metadata.format_version >= FORMAT_VERSION:
                return "a table of that name is there, of format version 3, in which no topic can be claimed: list it under destinations"
            refuse_skew(table)  # else the next plan would be refused, with all other tables
        refuse_same_topics(pipeline, name, table.metadata)
        check_destination(table, pipeline.destination(name), pipeline.name, fold=pipeline.value.folds_names)
    except (Terminal, Retryable) as refusal:
        if not is_unused:
            return f"a table of that name is there: {_one_line(refusal)}"
        # Not dropped here: another run with the old pipeline file may be about to decide a batch for it.
        return f"an earlier run made it from another template, and no batch landed in it: drop it: {_one_line(refusal)}"
    return None


def _creators(table: Table) -> frozenset[str]:
    """The pipelines that created a table because records name it."""
    prefix = MADE_BY_KEY.format("")
    return frozenset(key.removeprefix(prefix) for key in table.properties if key.startswith(prefix))


def _catalog_refusal(refusal: Terminal) -> str:
    return f"the catalog refuses it: {_one_line(refusal)}"


def _one_line(refusal: FrazilError) -> str:
    return " ".join(refusal.message.split())


def _distinct_tables(tables: Tables, outcomes: Mapping[str, Table | str]) -> dict[str, Table | str]:
    """New tables, one name per UUID. A catalog may open one table by names that differ in case; a batch has one part per table."""
    names_by_uuid = {table.metadata.table_uuid: name for name, table in tables.destinations.items()}
    distinct: dict[str, Table | str] = {}
    for name, outcome in outcomes.items():
        first_name = name if isinstance(outcome, str) else names_by_uuid.setdefault(outcome.metadata.table_uuid, name)
        distinct[name] = outcome if first_name == name else f"the catalog takes it for table {first_name}"
    return distinct


def _limit_reason(context: RunContext, budget: int, begun: int = 0) -> str:
    """The reason for an empty budget: the limit of the pipeline, or that of a run."""
    create, created = context.pipeline.create, len(context.pipeline.auto_created) + begun
    if create is not None and created + budget >= create.max_tables:
        return f"the pipeline makes {create.max_tables} tables at most, in all its runs (route.create.max_tables)"
    most = 0 if create is None else create.max_new_tables
    return f"a run makes {most} tables at most (route.create.max_new_tables)"


def _create_or_refuse(context: RunContext, name: str, owner: Mapping[str, str]) -> Table | str:
    """The created table, or why it can't be created. A refusal is no error: a bad name must not stop other records."""
    try:
        table = create_destination(context.lake, context.pipeline.destination(name), owner)
        # Somebody else may have created it, or written to it, at the same moment.
        why = _foreign_reason(context, table, name, owner)
    except Terminal as refusal:
        return _catalog_refusal(refusal)
    return table if why is None else why
