"""Replay of dead letters: letters that decode under the present pipeline file become rows, in a separate batch.

The position stays. The batch appends the rows and marks their letters as landed; letters that still fail get their
new reason and one more attempt. If the closing table is rolled back to before the batch, its letters are open again.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa

from frazil import shutdown
from frazil.batch.changes import LetterChoice, OpenLetter, Place, Removal, first_letters, letter_ranges, letter_spans
from frazil.batch.facts import Counts, Range, Staged
from frazil.batch.position import Position, RunRequest
from frazil.batch.schema_change import Demands
from frazil.error_codes import AUDIT_FAILED, NEVER_RAN, RUN_OVERTAKEN
from frazil.errors import FrazilError
from frazil.failpoints import Failpoint, hit
from frazil.iceberg.catalog.table import staging_table
from frazil.iceberg.commit.commit import Refused
from frazil.iceberg.files.data_files import DataFileWriter, TableWriters
from frazil.iceberg.ledger.dead_letters import letters_within
from frazil.iceberg.schema.schema import declared_columns
from frazil.records.decoder.decode import Decoder
from frazil.records.model.cells import in_steps
from frazil.records.model.spec import RecordSpec
from frazil.run.commit.audit import discard, partition_limit, publish, refuse_if_stopping, row_targets
from frazil.run.commit.commit_batch import recover
from frazil.run.commit.manifests import LETTER_COLUMNS, Batch
from frazil.run.repair.dead_letter_decode import LetterOutcomes, decode_letters, find_letter_demands, find_open_letters
from frazil.run.repair.replay import refuse_forgotten_deletes, refuse_without_coordinates
from frazil.run.staging.record_spec import NO_TABLES_CREATED, record_specs, route_of, without_fail
from frazil.run.staging.stage import Refusals, creatable_tables, create_tables, initial_refusals, table_budget
from frazil.run.state.context import RunContext
from frazil.run.state.evolution import DemandFinder, columns_for, columns_of, evolve_for_records
from frazil.run.state.pipeline_state import PipelineState
from frazil.run.state.tables import Tables
from frazil.runtime.drivers import registered


@dataclass(frozen=True)
class LetterReplay:
    """The letters that one batch tries again, and the tables and the state that it is planned on."""

    context: RunContext
    tables: Tables
    state: PipelineState
    position: Position
    letters: frozenset[OpenLetter]
    tables_before: tuple[str, ...] = ()
    refusals: Refusals = field(default_factory=lambda: Refusals(rest=NO_TABLES_CREATED))

    @property
    def removal(self) -> Removal:
        """The letters that are rewritten: the tried ones, and those between them."""
        return Removal(LETTER_COLUMNS, letter_spans([letter.place for letter in self.letters]))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The letters to rewrite, in bounded parts."""
        return letters_within(self.tables.dead_letters, self.context.pipeline.dead_letters_table, self.removal)


def decoder_of(work: LetterReplay, columns: Mapping[str, pa.Schema], n: int) -> Decoder:
    """A decoder of the letters into rows of these columns."""
    pipeline, schemas, refusals = work.context.pipeline, work.context.schemas, work.refusals
    route = route_of(pipeline, columns, schemas, refused=refusals.names, rest=refusals.rest)
    counters = partition_limit(pipeline, work.tables).counters()
    return Decoder(without_fail(record_specs(pipeline, columns, schemas)), route, n, partitions=counters)


def demand_finder(work: LetterReplay) -> DemandFinder:
    """Return a function that finds the columns which the letters need and their tables lack."""

    def find_demands(columns: Mapping[str, pa.Schema]) -> tuple[Demands, Mapping[str, RecordSpec]]:
        specs = record_specs(work.context.pipeline, columns, work.context.schemas)
        if not any(spec.evolution for spec in specs.values()):
            return {}, specs
        return _needs(work, columns).demands, specs

    return find_demands


def _needs(work: LetterReplay, columns: Mapping[str, pa.Schema]) -> Staged:
    decoder = decoder_of(work, columns, 0)
    find_needs = partial(find_letter_demands, tried=work.letters, decoder=decoder)
    return Staged.merged(staged for _, staged in in_steps(find_needs, work.batches()))


def _missing_tables(work: LetterReplay, budget: int) -> tuple[str, ...]:
    if not budget:
        return ()
    asking = replace(work, refusals=Refusals())
    return _needs(asking, columns_of(work.context.pipeline, work.tables)).new_tables


def with_new_tables(work: LetterReplay, n: int) -> LetterReplay:
    """Create the missing tables that letters without a destination name, and return the replay with them."""
    if work.context.pipeline.create is None:
        return work
    budget = table_budget(work.context, work.tables_before)
    missing_tables = _missing_tables(work, budget)
    if not missing_tables:
        return replace(work, refusals=initial_refusals(work.context, 0)) if not budget else work
    creation = create_tables(work.context, work.tables, missing_tables, budget, n)
    return replace(work, context=creation.context, tables=creation.tables, refusals=creation.refusals)


def with_supposed_tables(work: LetterReplay) -> tuple[LetterReplay, Mapping[str, pa.Schema]]:
    """For a dry run: the replay as if its missing tables had been created, and the columns of all tables."""
    columns, budget = columns_of(work.context.pipeline, work.tables), table_budget(work.context, work.tables_before)
    creatable = creatable_tables(work.context, work.tables, _missing_tables(work, budget), budget)
    context = work.context.with_created_tables((*work.context.pipeline.auto_created, *creatable.names))
    columns |= {name: declared_columns(context.pipeline.destination(name)) for name in creatable.names}
    return replace(work, context=context, refusals=creatable.refusals), columns


LETTERS_PER_BATCH = 100_000
RANGES_PER_BATCH = 1_000
"""Most letters that one batch tries, and most ranges of adjacent offsets that they form: bounds the batch's rows in the ledger."""

ATTEMPTS = 3
"""How often letters are staged. Rows carry their batch number, so letters are staged again if another batch was decided meanwhile."""


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """The result of a replay of dead letters.

    Attributes:
        filtered: How many the present pipeline file leaves out on purpose.
        dead_codes: How many are still dead, by reason code.
        bare: How many hold nothing of their records (`dead_letters.payload`), and stay as they are.
    """

    tried: int = 0
    landed: int = 0
    filtered: int = 0
    dead_codes: Mapping[str, int] = field(default_factory=dict)
    bare: int = 0
    batches: tuple[int, ...] = ()

    def __add__(self, addend: ReplayResult) -> ReplayResult:
        return ReplayResult(
            self.tried + addend.tried,
            self.landed + addend.landed,
            self.filtered + addend.filtered,
            dict(Counter(self.dead_codes) + Counter(addend.dead_codes)),
            self.bare + addend.bare,
            self.batches + addend.batches,
        )


_Progress = tuple[frozenset[OpenLetter], tuple[str, ...]]
"""Letters that earlier batches of the replay tried; and the auto-created tables from before the replay."""


def replay_dead_letters(
    context: RunContext, choice: LetterChoice, request: RunRequest, *, dry_run: bool = False
) -> ReplayResult:
    """Decode letters again, and land those that now fit, exactly once. A dry run only reports their outcomes.

    Raises:
        Terminal: The pipeline never ran, or a destination has no Kafka columns.
        Retryable: Other batches were decided each time, or a part is not available now.
        Stopped: A signal asked it to stop. Batches that were decided are finished.
    """
    refuse_without_coordinates(context)
    refuse_forgotten_deletes(context, "the dead letters of pipeline {} can't be replayed")
    if dry_run:
        return _replay_all(context, choice, request, dry_run=True)
    with (
        shutdown.handled(context.report),
        registered(context.project.home, context.pipeline.name, request.run, context.report),
    ):
        return _replay_all(context, choice, request, dry_run=False)


def _replay_all(context: RunContext, choice: LetterChoice, request: RunRequest, *, dry_run: bool) -> ReplayResult:
    """Run batch after batch until every letter was tried."""
    total, tried = ReplayResult(), frozenset[OpenLetter]()
    while True:
        letters, batch_result = _replay_batch(
            context, choice, request, (tried, context.pipeline.auto_created), dry_run=dry_run
        )
        if not letters:
            return total
        total, tried = total + batch_result, tried | letters


def _replay_batch(
    context: RunContext, choice: LetterChoice, request: RunRequest, progress: _Progress, *, dry_run: bool
) -> tuple[frozenset[OpenLetter], ReplayResult]:
    """Land or preview one batch; it is staged again if another batch is decided meanwhile."""
    tried, before = progress
    refusal: Refused | None = None
    for _ in range(ATTEMPTS):
        context, tables, state = recover(context)
        if state.position is None:
            raise NEVER_RAN.terminal(f"pipeline {context.pipeline.name} never ran: it has no dead letters")
        open_letters = find_open_letters(context, tables, state.position, choice, tried)
        letters = frozenset(first_letters(open_letters, LETTERS_PER_BATCH, RANGES_PER_BATCH))
        if not letters:
            return letters, ReplayResult()
        if shutdown.requester():
            raise shutdown.stopped(
                f"pipeline {context.pipeline.name}: {len(tried):,} dead letters were tried, others wait"
            )
        work = LetterReplay(context, tables, state, state.position, letters, before)
        try:
            return letters, _preview_batch(work) if dry_run else _land_batch(work, request)
        except Refused as refused:
            refusal = refused
            context.report(f"refused, staging the dead letters again: {refused.message}")
    raise RUN_OVERTAKEN.retryable(
        f"pipeline {context.pipeline.name}: landing dead letters was refused {ATTEMPTS} times: {refusal}",
        next_step=f"pause the DAG ingest__{context.pipeline.name} meanwhile, or do it at a quiet time",
    ) from refusal


def _preview_batch(work: LetterReplay) -> ReplayResult:
    work, columns = with_supposed_tables(work)
    decoder, total = decoder_of(work, columns_for(columns, demand_finder(work)), 0), ReplayResult()
    decode = partial(decode_letters, tried=work.letters, decoder=decoder, n=0)
    for _, outcomes in in_steps(decode, work.batches()):
        total += _result_of(outcomes, ())
    return total


def _land_batch(work: LetterReplay, request: RunRequest) -> ReplayResult:
    n = work.position.n + 1
    started_at, began = work.context.stamp(), time.monotonic()
    work.context.report(f"batch {n}: decoding {len(work.letters):,} dead letters again")
    work = with_new_tables(work, n)
    context = work.context
    tables, changes = evolve_for_records(context, work.tables, n, demand_finder(work))
    work = replace(work, tables=tables)
    staged, landed_places, result, letters_read = _stage_letters(work, n)
    hit(Failpoint.STAGED)
    if not result.tried:
        discard(context, work.tables, staged)
        return replace(result, batches=())
    refuse_if_stopping(context, work.tables, n, staged)
    try:
        _audit(context, work, staged, result, letters_read)
        batch = Batch(
            kind="dead_letters",
            run=request.run,
            position=work.position.at_rest(n),
            planned_at=started_at,
            staged=staged,
            ranges=letter_ranges(landed_places.places),
            table_ranges=landed_places.by_table(context.pipeline.tables),
            removed_letters=work.removal.ranges,
            started_at=started_at,
            phases={"stage": round(time.monotonic() - began, 3)},
            started_by=request.started_by,
            reason=request.reason,
            schema_changes=changes,
        )
    except FrazilError as failure:
        discard(context, work.tables, staged, failure)
        raise
    publish(context, work.tables, work.state, batch)
    return result


@dataclass(frozen=True)
class _LandedPlaces:
    """Records whose letters are closed.

    Attributes:
        of_tables: Table -> records whose letters for it are closed; None: letters of a record as a whole.
    """

    places: set[Place] = field(default_factory=set)
    of_tables: dict[str | None, set[Place]] = field(default_factory=dict)

    def add(self, outcomes: LetterOutcomes) -> None:
        self.places.update(outcomes.landed)
        for table, places in outcomes.landed_in.items():
            self.of_tables.setdefault(table, set()).update(places)

    def by_table(self, tables: tuple[str, ...]) -> dict[str, tuple[Range, ...]]:
        """Destination -> offsets whose letters for it, or for the record as a whole, are closed. Empty if there is only one table."""
        whole = self.of_tables.get(None, set())
        return (
            {table: letter_ranges(whole | self.of_tables.get(table, set())) for table in tables} if tables[1:] else {}
        )


def _stage_letters(work: LetterReplay, n: int) -> tuple[Staged, _LandedPlaces, ReplayResult, int]:
    pipeline, tables = work.context.pipeline, work.tables
    rows = TableWriters(row_targets(pipeline, tables))
    letters = DataFileWriter(staging_table(pipeline.dead_letters_table, tables.dead_letters))
    decoder = decoder_of(work, columns_of(pipeline, tables), n)
    staged, landed, result, letters_read = Staged(), _LandedPlaces(), ReplayResult(), 0
    decode = partial(decode_letters, tried=work.letters, decoder=decoder, n=n, payload=pipeline.dead_letters.payload)
    for batch, outcomes in in_steps(decode, work.batches()):
        for table, table_rows in outcomes.rows.items():
            rows.write(table, table_rows)
        letters.write(outcomes.letters)
        landed.add(outcomes)
        result += _result_of(outcomes, (n,) if not result.batches else ())
        part = Staged(outcomes.counts, bytes=outcomes.bytes, unknown_fields=outcomes.unknown_fields)
        row_count = sum(table_rows.num_rows for table_rows in outcomes.rows.values())
        staged = staged.merge(replace(part, extra_rows=row_count - part.total.written))
        letters_read += batch.num_rows
        hit(Failpoint.STAGING)
    return replace(staged, files=rows.close() | {letters.name: letters.close()}), landed, result, letters_read


def _result_of(outcomes: LetterOutcomes, batches: tuple[int, ...]) -> ReplayResult:
    total = sum(outcomes.counts.values(), Counts())
    tried = total.read + sum(outcomes.dead_codes.values())
    return ReplayResult(tried, total.written, total.filtered, outcomes.dead_codes, outcomes.bare, batches)


def _audit(context: RunContext, work: LetterReplay, staged: Staged, result: ReplayResult, letters_read: int) -> None:
    """Refuse a result whose counts before and after decoding differ.

    `letters_read` includes the letters between the tried ones.
    """
    pipeline = context.pipeline
    expected = {
        "letters tried": (len(work.letters), result.tried + result.bare),
        "their outcomes": (result.tried, result.landed + result.filtered + sum(result.dead_codes.values())),
        "rows": (result.landed + staged.extra_rows, sum(staged.rows(table) for table in pipeline.tables)),
        "letters written anew": (letters_read, staged.rows(pipeline.dead_letters_table)),
    }
    wrong = [
        f"{what}: {planned} expected, {counted} found"
        for what, (planned, counted) in expected.items()
        if planned != counted
    ]
    if wrong:
        raise AUDIT_FAILED.terminal(
            f"the audit failed, nothing was published: {'; '.join(wrong)}",
            next_step="this is a fault of Frazil, not of the data: please report these numbers",
        )
