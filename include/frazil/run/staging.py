"""Staging a batch with an engine, and auditing what came back. Nobody can see its files before it is decided."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from frazil import stopping
from frazil.batch import audit as batch_audit
from frazil.batch.facts import Range, Staged
from frazil.batch.manifest import Manifest
from frazil.batch.plan import RunPlan
from frazil.batch.position import Position
from frazil.batch.schema_change import Demands
from frazil.crash_points import CrashPoint, reached
from frazil.errors import FrazilError, Retryable, Terminal
from frazil.iceberg.commit import Refused, fit_of, refuse_lost_files
from frazil.iceberg.data_files import StagingTable
from frazil.iceberg.partition_limit import PartitionLimit
from frazil.iceberg.table import Table, delete_files, staging_table
from frazil.pipeline.model import Pipeline
from frazil.run.evolution import ROUNDS, columns_of, evolve_tables, is_stale, joined, still_lacking, too_early
from frazil.run.follow import claim_topics
from frazil.run.forward import decide, roll_forward
from frazil.run.letter_topic import ready_letter_topic
from frazil.run.made import Refusals, at_first, make_tables, room_for
from frazil.run.manifests import Batch, write_manifest
from frazil.run.record_spec import record_specs, route_of, without_new_columns
from frazil.run.scope import Scope
from frazil.run.source import observe_source, read_limits, tolerance_of
from frazil.run.stage import Stage, StageOrder
from frazil.run.standing import Standing
from frazil.run.tables import Tables, in_parallel


@dataclass(frozen=True)
class Ingestion:
    """A run under way.

    Attributes:
        scope: Its pipeline and doors.
        plan: What it was planned to read.
        stage: The engine.
        before: Tables that were made before it began.
        refused: Names that no table was made of so far, and why: no batch asks for them again.
    """

    scope: Scope
    plan: RunPlan
    stage: Stage
    before: tuple[str, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class StagedBatch:
    """What staging brought.

    Attributes:
        scope: The pipeline, with the tables that were made for these records.
        staged: Files and counts.
        tables: The tables that they were staged for, as they are since.
        started_at: When it began.
        phases: Seconds per phase.
        changes: What of the tables' schemas was changed for these records.
        refused: Names that no table is made of, and why.
    """

    scope: Scope
    staged: Staged
    tables: Tables
    started_at: str
    phases: dict[str, float]
    changes: Demands = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)


def stage_batch(run: Ingestion, tables: Tables, n: int, ranges: tuple[Range, ...]) -> StagedBatch:
    """Stage ranges and audit the outcome. What fails the audit is deleted.

    Raises:
        Retryable: Kafka, the storage or the engine is not available now.
        Terminal: The numbers don't add up, more dead letters than tolerated, or a topic was recreated.
        Stopped: The run was asked to stop.
    """
    scope = run.scope
    if not ranges:
        return StagedBatch(scope, Staged(), tables, scope.stamp(), {}, refused=run.refused)
    scope.report(f"batch {n}: staging {sum(r.span for r in ranges):,} offsets of {len(ranges)} partitions")
    began = time.monotonic()
    fitted = _fitted(run, tables, n, ranges)
    scope, staged, tables = fitted.scope, fitted.staged, fitted.tables
    staged_in = time.monotonic() - began
    total = staged.total
    how = "stopped at" if staged.stopped else "staged"
    scope.report(f"batch {n}: {how} {total.written:,} rows, {staged.letters:,} dead letters in {staged_in:.1f} s")
    if (left_out := staged.unknown_fields.summary) is not None:
        scope.report(f"batch {n}: {left_out}")
    try:
        _audit(scope, run.plan, ranges, staged)
    except FrazilError as failure:
        discard(scope, tables, staged, failure)
        raise
    reached(CrashPoint.AUDITED)
    refuse_if_asked(scope, tables, n, staged)
    phases = {"stage": round(staged_in, 3), "audit": round(time.monotonic() - began - staged_in, 3)}
    return replace(fitted, phases=phases)


def _fitted(run: Ingestion, tables: Tables, n: int, ranges: tuple[Range, ...]) -> StagedBatch:
    """Stage ranges; if records need tables or columns that are not there, make them and stage again those ranges."""
    scope, whole, found, pending = run.scope, Staged(), Staged(), ranges
    changes: Demands = {}
    started_at = scope.stamp()
    room = room_for(scope, run.before)
    refusals = at_first(scope, room, run.refused)
    for number in range(ROUNDS + 1):  # tables are made in a round of their own
        order = replace(stage_order(scope, tables, n, pending, refusals), fixed_at=run.plan.planned_at)
        if number >= ROUNDS - 1:  # fields beyond those that are remembered may ask for columns for ever
            order = replace(order, specs=without_new_columns(order.specs))
        found = run.stage(order)
        reached(CrashPoint.STAGED)
        whole = whole.merge(found)
        refuse_if_asked(scope, tables, n, whole)
        if found.stopped or not found.asks:
            return StagedBatch(scope, whole, tables, started_at, {}, changes, refusals.names)
        try:
            if found.new_tables:
                grown = make_tables(scope, tables, found.new_tables, room, n)
                scope, tables, refusals = grown.scope, grown.tables, refusals.and_then(grown.refusals)
            after, made = evolve_tables(scope, tables, found.demands, order.specs, n)
        except FrazilError as failure:
            discard(scope, tables, whole, failure)
            raise
        is_early = too_early(whole.untold, columns_of(scope.pipeline, after), order.specs)
        changes, is_void = joined(changes, made), is_early or is_stale(scope.pipeline, tables, after)
        discard(scope, after, whole if is_void else Staged(void=found.void))
        whole = Staged() if is_void else replace(whole, demands={}, new_tables=(), again=(), void=())
        tables, pending = after, ranges if is_void else found.again
        scope.report(
            f"batch {n}: staging {sum(r.span for r in pending):,} offsets again, for the tables as they are now"
        )
    discard(scope, tables, whole)
    raise still_lacking(scope, n, found.demands)


def _audit(scope: Scope, plan: RunPlan, ranges: tuple[Range, ...], staged: Staged) -> None:
    pipeline = scope.pipeline
    for line in named_letters(staged):
        scope.report(line)
    too_many = batch_audit.audit(ranges, staged, pipeline.tables, pipeline.dead_letters_table, tolerance_of(pipeline))
    if too_many is not None:
        scope.report(f"ALERT: too many dead letters, published nevertheless: {too_many}")
    read = {r.topic for r in ranges}
    batch_audit.check_identity(plan, observe_source(scope), read, pipeline.name)


def named_letters(staged: Staged) -> Iterator[str]:
    """A line for each dead letter that staging names, then one for all others. Nothing of a record is in them.

    These are letters: a record that does not fit two tables has two. A tolerance counts records.
    """
    for of in staged.named:
        table = "" if of.destination is None else f" of table {of.destination}"
        yield f"dead letter {of.code}{table}: topic {of.topic}, partition {of.partition}, offset {of.offset}"
    more = staged.letters - len(staged.named)
    if staged.named and more > 0:
        yield f"and {more:,} more dead letters"


def refuse_if_asked(scope: Scope, tables: Tables, n: int, staged: Staged) -> None:
    """Discard a batch that is not decided if the run was asked to stop.

    Raises:
        Stopped: It was.
    """
    if stopping.requester():
        stopped = stopping.stopped(f"batch {n} of pipeline {scope.pipeline.name} was not decided, and is discarded")
        discard(scope, tables, staged, stopped)
        raise stopped


def discard(scope: Scope, tables: Tables, staged: Staged, failure: FrazilError | None = None) -> None:
    """Remove files that were never part of a commit request. A failure that led here is told whatever happens."""
    # Each by its own table's way to the storage: catalogs may have different ones.
    by_name = {scope.pipeline.dead_letters_table: tables.dead_letters, **tables.destinations}
    try:
        for name, paths in _paths(by_name, staged).items():
            delete_files(by_name[name], paths)
    except FrazilError as error:
        scope.report(f"staged files are left to orphan removal: {error.message}")
        if failure is not None:
            failure.add_note(f"staged files could not be deleted: {error.message}")


def _paths(by_name: Mapping[str, Table], staged: Staged) -> dict[str, list[str]]:
    """Files by the table below which they lie."""
    found = {name: [file.path for file in files] for name, files in staged.files.items()}
    for path in staged.void:
        owner = next(
            (name for name, table in by_name.items() if path.startswith(table.location())), next(iter(by_name))
        )
        found.setdefault(owner, []).append(path)
    return found


def stage_order(scope: Scope, tables: Tables, n: int, ranges: tuple[Range, ...], refusals: Refusals) -> StageOrder:
    """What is asked of the engine for one batch."""
    pipeline = scope.pipeline
    columns, schemas = columns_of(pipeline, tables), scope.schemas
    return StageOrder(
        pipeline=pipeline.name,
        n=n,
        cluster=scope.cluster,
        ranges=ranges,
        records_per_task=pipeline.limits.records_per_task,
        specs=record_specs(pipeline, columns, schemas),
        destinations=row_targets(pipeline, tables),
        dead_letters=staging_table(pipeline.dead_letters_table, tables.dead_letters),
        payload=pipeline.dead_letters.payload,
        names_letters=pipeline.dead_letters.log,
        route=route_of(pipeline, columns, schemas, refused=refusals.names, rest=refusals.rest),
        tolerance=tolerance_of(pipeline),
        limits=read_limits(pipeline),
        partitions=partition_limit(pipeline, tables),
    )


def partition_limit(pipeline: Pipeline, tables: Tables) -> PartitionLimit:
    """How many partition values a task may give each of the tables, and how long they may be."""
    found = {name: table.metadata for name, table in tables.destinations.items()}
    by_engine = {name for name in found if pipeline.destination(name).by_engine}
    return PartitionLimit.of_tables(pipeline.limits.max_partitions, found, by_engine, forgetful_tables(pipeline))


def forgetful_tables(pipeline: Pipeline) -> frozenset[str]:
    """Tables that no dead letter can come back to: they keep nothing of deleted rows."""
    return frozenset(name for name in pipeline.tables if pipeline.forgets_deletes(pipeline.destination(name)))


def row_targets(pipeline: Pipeline, tables: Tables) -> dict[str, StagingTable]:
    """Destination -> what a task needs to write its rows."""
    return {
        name: staging_table(name, table, by_engine=pipeline.destination(name).by_engine)
        for name, table in tables.destinations.items()
    }


def planned_position(scope: Scope, plan: RunPlan, now: Standing) -> Position:
    """The position, if the plan is still meant for it.

    Raises:
        Terminal: There is none any more.
        Retryable: It was reset since the plan.
    """
    if now.position is None:
        raise Terminal(f"pipeline {scope.pipeline.name} was planned, but its table holds no position any more")
    if now.position.epoch != plan.epoch:
        raise Retryable(
            f"pipeline {scope.pipeline.name} was planned in epoch {plan.epoch} and is in epoch {now.position.epoch}:"
            " it was reset or rolled back meanwhile",
            next_step="start a new run; it plans from where the pipeline stands now",
        )
    return now.position


def publish(scope: Scope, tables: Tables, now: Standing, batch: Batch) -> None:
    """Write the manifest of a staged batch, decide it, roll it forward.

    Raises:
        Refused: A rival was first, a table no longer takes its files, or they lay so long that an orphan removal may have
            taken some of them.
        Retryable: Kafka, the catalog or the storage is not available now.
        Terminal: A person must act; the dead-letter topic is looked at before the decision.
        Stopped: The run was asked to stop, before the decision.
    """
    topic = ready_letter_topic(scope, batch)
    manifest, path = write_manifest(scope, tables, now, replace(batch, letter_topic=topic))
    _refuse_changed_followers(scope, manifest)
    refuse_if_asked(scope, tables, batch.position.n, batch.staged)
    with stopping.finishing():
        snapshot = decide(scope, manifest, path, now)
        scope.report(f"batch {batch.position.n}: decided, snapshot {snapshot}")
        roll_forward(scope, manifest, path, now)
        scope.report(f"batch {batch.position.n}: finished")


def _refuse_changed_followers(scope: Scope, manifest: Manifest) -> None:
    """After the decision a follower that can't take its files blocks the pipeline; before it, they are staged again."""
    names = [part.table for part in manifest.followers]
    found = in_parallel(scope.lake.load_table, names)
    for part, table in zip(manifest.followers, found, strict=True):
        mismatch = part.fit.mismatch(fit_of(table.metadata))
        if mismatch is not None:
            raise Refused(f"table {part.table}: {mismatch}")
        refuse_lost_files(part.table, part.files, table)
    there = dict(zip(names, found, strict=True))
    for part in sorted(
        manifest.followers, key=lambda of: of.table
    ):  # in one order: of two pipelines one has all it needs
        if part.role == "destination":
            claim_topics(scope.lake, manifest, part, there[part.table].metadata)
