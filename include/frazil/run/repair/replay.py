"""Replay: a range is read again, and its rows and dead letters are replaced atomically."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import reduce
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.batch.changes import Removal, RemovedRange, replayed_ranges
from frazil.batch.facts import Counts, Range, Staged
from frazil.batch.plan import RunPlan, cut
from frazil.error_codes import REPLAY_REFUSED, RUN_OVERTAKEN
from frazil.errors import FrazilError
from frazil.iceberg.catalog.table import Table
from frazil.iceberg.commit.commit import Refused
from frazil.iceberg.commit.removal import count_rows, offsets_held
from frazil.iceberg.commit.summary_state import BATCH_KEY, SummaryValue, mark_of, read_summary
from frazil.iceberg.ledger.ledger import read_ledger
from frazil.kafka.read.read import read_range
from frazil.pipeline.models.pipeline_file import Destination, Pipeline
from frazil.run.commit.audit import Ingestion, StagedBatch, discard, planned_position, publish, stage_batch
from frazil.run.commit.commit_batch import recover
from frazil.run.commit.manifests import LETTER_COLUMNS, Batch, coordinate_columns, row_removal
from frazil.run.state.context import RunContext, refuse_compacted
from frazil.run.state.evolution import is_stale, merge_demands
from frazil.run.state.pipeline_state import PipelineState, batch_offsets
from frazil.run.state.tables import Tables, open_tables

ATTEMPTS = 3
"""How often a replay is staged. Its rows carry its batch number, so it is staged again if another batch was decided meanwhile."""


def replay(run: Ingestion) -> int:
    """Land the plan's ranges again, replacing their earlier rows and dead letters. The position stays.

    A range of any size changes in one commit. It is staged in parts, so memory stays bounded.

    Returns 1, or 0 if this run had finished before.

    Raises:
        Terminal: A table has no Kafka columns, the audit failed, or rows would be removed whose records are gone from Kafka.
        Retryable: Other batches were decided each time, or a part is not available now.
    """
    context, plan = run.context, run.plan
    refuse_replay(context, {r.topic for r in plan.ranges})
    refusal: Refused | None = None
    for _ in range(ATTEMPTS):
        context, tables, state = recover(context)
        if _is_done(context, plan):
            return 0
        try:
            _replay_once(replace(run, context=context), tables, state)
        except Refused as refused:
            refusal = refused
            context.report(f"the replay was refused, staging it again: {refused.message}")
        else:
            return 1
    raise RUN_OVERTAKEN.retryable(
        f"pipeline {context.pipeline.name}: the replay was refused {ATTEMPTS} times: {refusal}",
        next_step=f"pause the DAG ingest__{context.pipeline.name} while the replay runs, or replay at a quiet time: each"
        " batch decided meanwhile restarts the replay",
    ) from refusal


def refuse_replay(context: RunContext, topics: Collection[str]) -> None:
    """Refuse a replay that would not restore every row it removes.

    Raises:
        Terminal: A table has no Kafka columns, or forgets deletes; or one of the topics is compacted.
    """
    refuse_without_coordinates(context)
    refuse_forgotten_deletes(context)
    refuse_compacted(context, topics)


def refuse_without_coordinates(context: RunContext) -> None:
    """Refuse to replay into tables whose rows have no Kafka coordinates.

    Raises:
        Terminal: One has no Kafka columns.
    """
    without_columns = [
        name
        for name, destination in _all_destinations(context.pipeline).items()
        if coordinate_columns(destination) is None
    ]
    if without_columns:
        raise REPLAY_REFUSED.terminal(
            f"pipeline {context.pipeline.name} can't be replayed: {', '.join(without_columns)} has no Kafka"
            " columns (kafka_columns: false), so it is unknown which rows the range landed before",
            next_step="land the topic into a new table with Kafka columns, with a pipeline of its own",
        )


def refuse_forgotten_deletes(context: RunContext, what: str = "pipeline {} can't be replayed") -> None:
    """Refuse to land old changes in tables that keep no trace of deleted rows: such a change would bring a deleted row back.

    Raises:
        Terminal: One keeps none.
    """
    forgetful = [
        name
        for name, destination in _all_destinations(context.pipeline).items()
        if context.pipeline.forgets_deletes(destination)
    ]
    if forgetful:
        raise REPLAY_REFUSED.terminal(
            f"{what.format(context.pipeline.name)}: {', '.join(forgetful)} keeps no trace of deleted rows (deletes: hard), so"
            " an old change of a row would bring it back after its deletion",
            next_step="a table with deletes: soft accepts old changes; this one is right again only if all later changes"
            f" are landed again, too: frazil reset {context.pipeline.name} --to earliest --reason …",
        )


def _all_destinations(pipeline: Pipeline) -> dict[str, Destination]:
    """Destinations by name, and the template of auto-created ones."""
    by_name = {destination.table: destination for destination in pipeline.destinations}
    return by_name if pipeline.create is None else by_name | {"route.create": pipeline.create.destination("any.table")}


def _is_done(context: RunContext, plan: RunPlan) -> bool:
    pipeline = context.pipeline
    rows = read_ledger(context.lake, pipeline.ledger_table, pipeline.name, plan.run)
    return any(row["kind"] == "replay" for row in rows)


def _replay_once(run: Ingestion, tables: Tables, state: PipelineState) -> None:
    context, plan = run.context, run.plan
    position = planned_position(context, plan, state)
    removed = replayed_ranges(plan.ranges, position)
    staged = _stage_parts(run, tables, state, position.n + 1, removed)
    batch = Batch(
        kind="replay",
        run=plan.run,
        position=position.at_rest(position.n + 1),
        planned_at=plan.planned_at,
        staged=staged.staged,
        ranges=plan.ranges,
        removed=removed,
        removed_letters=removed,
        started_at=staged.started_at,
        phases=staged.phases,
        started_by=plan.started_by,
        reason=plan.reason,
        schema_changes=staged.changes,
    )
    publish(staged.context, staged.tables, state, batch)


def _stage_parts(
    run: Ingestion, tables: Tables, state: PipelineState, n: int, removed: Sequence[RemovedRange]
) -> StagedBatch:
    """Stage the whole range in parts of a batch's size. Files that can't be published are deleted."""
    context = run.context
    parts: list[StagedBatch] = []
    try:
        for ranges in cut(run.plan.ranges, batch_offsets(context.pipeline, state)):
            if parts:
                _refuse_moved(context, tables, state)
            parts.append(stage_batch(run, tables, n, ranges))
            _refuse_stale(parts[-1].context, tables, parts)
            context, tables = parts[-1].context, parts[-1].tables
            run = replace(run, context=context, refused_tables=parts[-1].refused_tables)
        whole = _merge_parts(parts)
        _refuse_moved(context, tables, state)
        refuse_losses(context, run.plan.ranges, removed, whole.staged)
    except FrazilError as failure:
        discard(context, tables, Staged.merged(part.staged for part in parts), failure)
        raise
    return whole


def _refuse_moved(context: RunContext, tables: Tables, state: PipelineState) -> None:
    """Refuse to continue if another batch was decided meanwhile: the rest of a large range would be staged in vain."""
    key, table = BATCH_KEY.format(context.pipeline.name), tables.closing_name
    last = read_summary(context.lake.load_table(table).metadata, key, table)
    if not isinstance(last, SummaryValue) or mark_of(last) != state.mark:
        raise Refused(f"table {table}: another batch was decided, or it was rolled back, while the range was staged")


def _refuse_stale(context: RunContext, before: Tables, parts: Sequence[StagedBatch]) -> None:
    """Refuse files of earlier parts if records of a later part changed their table so that they no longer fit."""
    if parts[1:] and is_stale(context.pipeline, before, parts[-1].tables):
        raise Refused("records of the range changed a table, and files of earlier ones don't fit it any more")


def _merge_parts(parts: Sequence[StagedBatch]) -> StagedBatch:
    phases = {key: round(sum(part.phases.get(key, 0.0) for part in parts), 3) for key in ("stage", "audit")}
    staged = Staged.merged(part.staged for part in parts)
    changes = reduce(merge_demands, (part.changes for part in parts))
    return StagedBatch(parts[-1].context, staged, parts[-1].tables, parts[0].started_at, phases, changes)


_SHOWN: Final = 5
"""Lost offsets that a message names per partition."""

_TableRemoval = tuple[Table, str, Removal]
"""A table, its name, and the rows that go from it."""


def refuse_losses(
    context: RunContext, ranges: Sequence[Range], removed: Sequence[RemovedRange], staged: Staged
) -> None:
    """Refuse a staged replay that would remove rows which it can't restore.

    A range with a record for every offset lost none. One with gaps may have: a gap is a transaction marker or an aborted record,
    which never had a row, or a record that compaction or deletion removed, whose row can't land again.

    Rows are counted only where a range has gaps. Where they outnumber the staged ones (records were lost, are filtered now, or
    rows exist twice), Kafka is asked for each of their offsets.

    There is at most one range per partition, and one entry of `removed` for each.

    Raises:
        Terminal: Rows or dead letters would be lost. The message has how many and where.
    """
    losses = []
    tables: Tables | None = None
    for r, removed_range in zip(ranges, removed, strict=True):
        counts = staged.counts.get((r.topic, r.partition), Counts())
        if counts.read == r.span:
            continue
        # Loaded anew: the snapshots of tables that were loaded before staging may be expired.
        tables = tables or open_tables(context.lake, context.pipeline)
        removals = _table_removals(context, tables, removed_range)
        row_counts = [count_rows(*removal) for removal in removals]
        outcomes = sum(row_counts)
        # With several tables, a surplus in one must not hide a loss in another: Kafka is asked about every gap.
        may_lose = outcomes > counts.written + counts.dead if not staged.tables else outcomes > 0
        lost = _lost_offsets(context, r, removals) if may_lose else []
        if lost:
            losses.append(_loss_line(r, outcomes, counts.read, lost))
    if losses:
        raise REPLAY_REFUSED.terminal(
            f"pipeline {context.pipeline.name}: the replay would remove rows that can't land again, because Kafka's"
            " compaction or deletion removed their records; nothing was changed\n" + "\n".join(losses),
            next_step="replay a range without these offsets; to read what Kafka still has of it again, land it into a"
            " new table with a pipeline of its own",
        )


def _table_removals(context: RunContext, tables: Tables, removed_range: RemovedRange) -> tuple[_TableRemoval, ...]:
    pipeline = context.pipeline
    letters = (tables.dead_letters, pipeline.dead_letters_table, Removal(LETTER_COLUMNS, (removed_range,)))
    removals = (
        (name, table, row_removal(pipeline, name, (removed_range,))) for name, table in tables.destinations.items()
    )
    return (*((table, name, rows) for name, table, rows in removals if rows is not None), letters)


def _lost_offsets(context: RunContext, r: Range, removals: Sequence[_TableRemoval]) -> list[int]:
    """Offsets with a row or a dead letter and without a record, ascending."""
    offsets = pc.unique(pa.chunked_array([offsets_held(*removal) for removal in removals]))
    first, last = pc.min_max(offsets).values()
    records = read_range(context.cluster, r.topic, r.partition, first.as_py(), last.as_py() + 1)
    readable = pa.chunked_array([batch.column("offset") for batch in records], pa.int64())
    lost: list[int] = sorted(offsets.filter(pc.invert(pc.is_in(offsets, readable))).to_pylist())
    return lost


def _loss_line(r: Range, outcomes: int, read: int, lost: list[int]) -> str:
    shown = ", ".join(map(str, lost[:_SHOWN])) + (", …" if len(lost) > _SHOWN else "")
    return (
        f"  topic {r.topic}, partition {r.partition}, offsets {r.start} to {r.end - 1}: {outcomes:,} rows and dead letters"
        f" are there, {read:,} records were read; {len(lost):,} are gone: {shown}"
    )
