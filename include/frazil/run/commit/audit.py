"""Stages a batch with an engine, audits the result, and publishes it. No reader sees its files before the batch is decided."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa

from frazil import shutdown
from frazil.batch import audit as batch_audit
from frazil.batch.facts import Range, Staged
from frazil.batch.manifest import Manifest
from frazil.batch.plan import RunPlan
from frazil.batch.position import Position
from frazil.batch.schema_change import Demands
from frazil.error_codes import POSITION_LOST, RUN_OVERTAKEN
from frazil.errors import FrazilError
from frazil.failpoints import Failpoint, hit
from frazil.iceberg.catalog.table import Table, delete_files, staging_table
from frazil.iceberg.commit.commit import Refused, fit_of, refuse_lost_files
from frazil.iceberg.files.data_files import StagingTable
from frazil.iceberg.files.partition_limit import PartitionLimit
from frazil.kafka.read.read import ReadLimits
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.run.commit.commit_batch import decide, roll_forward
from frazil.run.commit.commit_followers import claim_topics, ready_letter_topic
from frazil.run.commit.manifests import Batch, write_manifest
from frazil.run.staging.record_spec import record_specs, route_of, without_new_columns
from frazil.run.staging.stage import Refusals, Stage, StageOrder, create_tables, initial_refusals, table_budget
from frazil.run.state.context import RunContext, observe_source, tolerance_of
from frazil.run.state.evolution import (
    ROUNDS,
    columns_of,
    columns_still_missing,
    evolve_tables,
    has_late_column,
    is_stale,
    merge_demands,
)
from frazil.run.state.pipeline_state import PipelineState
from frazil.run.state.tables import Tables, in_parallel


@dataclass(frozen=True)
class Ingestion:
    """A run: its context, plan and engine.

    Attributes:
        tables_before: Auto-created tables from before the run: they don't count towards its limit.
        refused_tables: Names for which no table was created so far, and why: later batches don't ask for them again.
    """

    context: RunContext
    plan: RunPlan
    stage: Stage
    tables_before: tuple[str, ...] = ()
    refused_tables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class StagedBatch:
    """The result of staging; the tables are as they were created or changed for the records."""

    context: RunContext
    staged: Staged
    tables: Tables
    started_at: str
    phases: dict[str, float]
    changes: Demands = field(default_factory=dict)
    refused_tables: Mapping[str, str] = field(default_factory=dict)


def stage_batch(run: Ingestion, tables: Tables, n: int, ranges: tuple[Range, ...]) -> StagedBatch:
    """Stage ranges and audit the outcome. Files that fail the audit are deleted.

    Raises:
        Terminal: The numbers don't add up, more dead letters than tolerated, or a topic was recreated.
        Stopped: The run was asked to stop.
    """
    context = run.context
    if not ranges:
        return StagedBatch(context, Staged(), tables, context.stamp(), {}, refused_tables=run.refused_tables)
    context.report(f"batch {n}: staging {sum(r.span for r in ranges):,} offsets of {len(ranges)} partitions")
    began = time.monotonic()
    batch = _stage_until_fitting(run, tables, n, ranges)
    context, staged, tables = batch.context, batch.staged, batch.tables
    staged_in = time.monotonic() - began
    total = staged.total
    how = "stopped at" if staged.stopped else "staged"
    context.report(f"batch {n}: {how} {total.written:,} rows, {staged.letters:,} dead letters in {staged_in:.1f} s")
    if (left_out := staged.unknown_fields.summary) is not None:
        context.report(f"batch {n}: {left_out}")
    try:
        _audit(context, run.plan, ranges, staged)
    except FrazilError as failure:
        discard(context, tables, staged, failure)
        raise
    hit(Failpoint.AUDITED)
    refuse_if_stopping(context, tables, n, staged)
    phases = {"stage": round(staged_in, 3), "audit": round(time.monotonic() - began - staged_in, 3)}
    return replace(batch, phases=phases)


def _stage_until_fitting(run: Ingestion, tables: Tables, n: int, ranges: tuple[Range, ...]) -> StagedBatch:
    """Stage ranges; if records need tables or columns that don't exist, create them and stage those ranges again."""
    context, all_staged, staged, pending = run.context, Staged(), Staged(), ranges
    changes: Demands = {}
    started_at = context.stamp()
    budget = table_budget(context, run.tables_before)
    refusals = initial_refusals(context, budget, run.refused_tables)
    for number in range(ROUNDS + 1):  # one more round than for columns: it creates tables
        order = replace(
            stage_order(context, n, pending, columns_of(context.pipeline, tables), refusals),
            destinations=row_targets(context.pipeline, tables),
            dead_letters=staging_table(context.pipeline.dead_letters_table, tables.dead_letters),
            names_letters=context.pipeline.dead_letters.log,
            tolerance=tolerance_of(context.pipeline),
            fixed_at=run.plan.planned_at,
            partitions=partition_limit(context.pipeline, tables),
        )
        if number >= ROUNDS - 1:  # else records with too many fields could ask for columns for ever
            order = replace(order, specs=without_new_columns(order.specs))
        staged = run.stage(order)
        hit(Failpoint.STAGED)
        all_staged = all_staged.merge(staged)
        refuse_if_stopping(context, tables, n, all_staged)
        if staged.stopped or not staged.asks:
            return StagedBatch(context, all_staged, tables, started_at, {}, changes, refusals.names)
        try:
            if staged.new_tables:
                creation = create_tables(context, tables, staged.new_tables, budget, n)
                context, tables, refusals = creation.context, creation.tables, refusals.merged_with(creation.refusals)
            after, applied = evolve_tables(context, tables, staged.demands, order.specs, n)
        except FrazilError as failure:
            discard(context, tables, all_staged, failure)
            raise
        # All files are void if some lack a column or don't fit the changed tables: then all ranges are staged again.
        is_incomplete = has_late_column(all_staged.untyped, columns_of(context.pipeline, after), order.specs)
        changes, is_void = merge_demands(changes, applied), is_incomplete or is_stale(context.pipeline, tables, after)
        discard(context, after, all_staged if is_void else Staged(void=staged.void))
        all_staged = Staged() if is_void else replace(all_staged, demands={}, new_tables=(), again=(), void=())
        tables, pending = after, ranges if is_void else staged.again
        context.report(
            f"batch {n}: staging {sum(r.span for r in pending):,} offsets again, for the tables as they are now"
        )
    discard(context, tables, all_staged)
    raise columns_still_missing(context, n, staged.demands)


def _audit(context: RunContext, plan: RunPlan, ranges: tuple[Range, ...], staged: Staged) -> None:
    pipeline = context.pipeline
    for line in named_letters(staged):
        context.report(line)
    too_many = batch_audit.audit(ranges, staged, pipeline.tables, pipeline.dead_letters_table, tolerance_of(pipeline))
    if too_many is not None:
        context.report(f"ALERT: too many dead letters, published nevertheless: {too_many}")
    read = {r.topic for r in ranges}
    batch_audit.check_identity(plan, observe_source(context), read, pipeline.name)


def named_letters(staged: Staged) -> Iterator[str]:
    """Log lines: one for each dead letter that staging names, then one for all others. They hold no record content.

    Letters are counted, not records: a record that does not fit two tables has two letters.
    """
    for letter in staged.named:
        table = "" if letter.destination is None else f" of table {letter.destination}"
        yield f"dead letter {letter.code}{table}: topic {letter.topic}, partition {letter.partition}, offset {letter.offset}"
    more = staged.letters - len(staged.named)
    if staged.named and more > 0:
        yield f"and {more:,} more dead letters"


def refuse_if_stopping(context: RunContext, tables: Tables, n: int, staged: Staged) -> None:
    """Discard an undecided batch if the run was asked to stop.

    Raises:
        Stopped: The run was asked to.
    """
    if shutdown.requester():
        stopped = shutdown.stopped(f"batch {n} of pipeline {context.pipeline.name} was not decided, and is discarded")
        discard(context, tables, staged, stopped)
        raise stopped


def discard(context: RunContext, tables: Tables, staged: Staged, failure: FrazilError | None = None) -> None:
    """Delete files that were never part of a commit request. An error of that is only reported, and noted on `failure`."""
    # Each file is deleted through the storage of its table: catalogs may have different ones.
    by_name = {context.pipeline.dead_letters_table: tables.dead_letters, **tables.destinations}
    try:
        for name, paths in _paths(by_name, staged).items():
            delete_files(by_name[name], paths)
    except FrazilError as error:
        context.report(f"staged files could not be deleted; orphan removal deletes them: {error.message}")
        if failure is not None:
            failure.add_note(f"staged files could not be deleted: {error.message}")


def _paths(by_name: Mapping[str, Table], staged: Staged) -> dict[str, list[str]]:
    """Table -> paths of its staged files."""
    paths_by_table = {name: [file.path for file in files] for name, files in staged.files.items()}
    for path in staged.void:
        owner = next(
            (name for name, table in by_name.items() if path.startswith(table.location())), next(iter(by_name))
        )
        paths_by_table.setdefault(owner, []).append(path)
    return paths_by_table


def stage_order(
    context: RunContext, n: int, ranges: tuple[Range, ...], columns: Mapping[str, pa.Schema], refusals: Refusals
) -> StageOrder:
    """The order to the engine to decode a batch and count the outcomes; without tables to write to."""
    pipeline, schemas = context.pipeline, context.schemas
    return StageOrder(
        pipeline=pipeline.name,
        n=n,
        cluster=context.cluster,
        ranges=ranges,
        records_per_task=pipeline.limits.records_per_task,
        specs=record_specs(pipeline, columns, schemas),
        destinations={},
        dead_letters=None,
        payload=pipeline.dead_letters.payload,
        route=route_of(pipeline, columns, schemas, refused=refusals.names, rest=refusals.rest),
        limits=ReadLimits(record_bytes=pipeline.limits.max_record_bytes, unreadable=pipeline.source.on_unreadable),
    )


def partition_limit(pipeline: Pipeline, tables: Tables) -> PartitionLimit:
    """How many partition values a task may write to each table, and how long they may be."""
    table_metadata = {name: table.metadata for name, table in tables.destinations.items()}
    by_engine = {name for name in table_metadata if pipeline.destination(name).by_engine}
    return PartitionLimit.of_tables(
        pipeline.limits.max_partitions, table_metadata, by_engine, hard_delete_tables(pipeline)
    )


def hard_delete_tables(pipeline: Pipeline) -> frozenset[str]:
    """Tables that keep no trace of deleted rows, so that their dead letters can't be replayed."""
    return frozenset(name for name in pipeline.tables if pipeline.forgets_deletes(pipeline.destination(name)))


def row_targets(pipeline: Pipeline, tables: Tables) -> dict[str, StagingTable]:
    """Destination -> what a task needs to write its rows."""
    return {
        name: staging_table(name, table, by_engine=pipeline.destination(name).by_engine)
        for name, table in tables.destinations.items()
    }


def planned_position(context: RunContext, plan: RunPlan, state: PipelineState) -> Position:
    """The present position, if the plan still applies.

    Raises:
        Terminal: The pipeline no longer has a position.
        Retryable: The position was reset after the plan.
    """
    if state.position is None:
        raise POSITION_LOST.terminal(
            f"pipeline {context.pipeline.name} was planned, but its table has no position any more"
        )
    if state.position.epoch != plan.epoch:
        raise RUN_OVERTAKEN.retryable(
            f"pipeline {context.pipeline.name} was planned in epoch {plan.epoch} and is in epoch {state.position.epoch}:"
            " it was reset or rolled back meanwhile",
            next_step="start a new run; it plans from where the pipeline stands now",
        )
    return state.position


def publish(context: RunContext, tables: Tables, state: PipelineState, batch: Batch) -> None:
    """Write the manifest of a staged batch, decide it, roll it forward.

    Raises:
        Refused: Another run was first, a table no longer accepts the files, or orphan removal may have deleted some.
        Terminal: A person must act. An unusable dead-letter topic shows before the decision.
        Stopped: The run was asked to stop, before the decision.
    """
    topic = ready_letter_topic(context, batch)
    manifest, path = write_manifest(context, tables, state, replace(batch, letter_topic=topic))
    _refuse_changed_followers(context, manifest)
    refuse_if_stopping(context, tables, batch.position.n, batch.staged)
    with shutdown.finishing():
        snapshot = decide(context, manifest, path, state)
        context.report(f"batch {batch.position.n}: decided, snapshot {snapshot}")
        roll_forward(context, manifest, path, state)
        context.report(f"batch {batch.position.n}: finished")


def _refuse_changed_followers(context: RunContext, manifest: Manifest) -> None:
    """Refuse a batch whose files no longer fit a follower, and claim its topics there. Before the decision files can be staged
    again; after it such a follower would block the pipeline.
    """
    names = [part.table for part in manifest.followers]
    loaded = in_parallel(context.lake.load_table, names)
    for part, table in zip(manifest.followers, loaded, strict=True):
        mismatch = part.fit.mismatch(fit_of(table.metadata))
        if mismatch is not None:
            raise Refused(f"table {part.table}: {mismatch}")
        refuse_lost_files(part.table, part.files, table)
    metadata_by_table = {name: table.metadata for name, table in zip(names, loaded, strict=True)}
    # All pipelines claim in the same order: if two claim the same tables, one gets all of them.
    for part in sorted(manifest.followers, key=lambda part: part.table):
        if part.role == "destination":
            claim_topics(context.lake, manifest, part, metadata_by_table[part.table])
