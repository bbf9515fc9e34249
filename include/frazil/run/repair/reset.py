"""Reset: moves the position on demand, in one audited commit that begins a new epoch.

Without a target it goes back to what a rolled-back closing table holds: see `frazil.run.repair.rewind`.

If the closing table was lost, a reset lets the pipeline begin again: all topics move, rows and letters whose records will be read
again are removed, and all tables get the new batch's mark.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from frazil.batch.changes import moved_back_ranges, ranges_from
from frazil.batch.facts import ClusterFacts, TopicPartition
from frazil.batch.manifest import Manifest
from frazil.batch.position import Position, RunRequest, Target
from frazil.batch.reset import reset_position
from frazil.error_codes import NAME_UNKNOWN, POSITION_LOST, RUN_OVERTAKEN
from frazil.errors import Terminal
from frazil.iceberg.catalog.table import read_text
from frazil.iceberg.commit.commit import Refused
from frazil.iceberg.commit.summary_state import BATCH_KEY, MANIFEST_KEY, summaries
from frazil.iceberg.ledger.ledger import read_ledger
from frazil.run.commit.commit_batch import decide, recover, roll_forward
from frazil.run.commit.manifests import write_manifest
from frazil.run.repair.reset_batch import (
    PlannedReset,
    ResetOrder,
    all_rows_gone,
    batch_of,
    inspect_tables,
    is_closing_lost,
    lost_follower,
    never_ran_error,
)
from frazil.run.repair.rewind import plan_rewind, preview_rewind
from frazil.run.state.context import (
    RunContext,
    lost_ends,
    mirror_to_consumer_group,
    observe_source,
    offsets_of,
    refuse_compacted,
)
from frazil.run.state.pipeline_state import PipelineState
from frazil.run.state.tables import Tables


def preview_reset(context: RunContext, order: ResetOrder) -> PlannedReset:
    """Preview a reset. Commits, creates and finishes nothing.

    Raises:
        Terminal: The pipeline never ran, the target does not fit the topics, or another table must be repaired first.
    """
    if order.target is None:
        return preview_rewind(context, order)
    return _plan(context, order, order.target, *inspect_tables(context))


def plan_reset(context: RunContext, order: ResetOrder) -> PlannedReset:
    """Plan a reset that `reset` can carry out. Finishes a decided batch, and recreates lost tables.

    Raises:
        Terminal: As `preview_reset`, and then nothing was changed; or a table can't take its part of a decided batch.
    """
    if order.target is None:
        return plan_rewind(context, order)
    shown, pipeline = preview_reset(context, order), context.pipeline
    names = (*pipeline.tables, pipeline.dead_letters_table, pipeline.ledger_table)
    context, tables, state = recover(context, mended_tables=names if is_closing_lost(shown.state) else ())
    return _plan(context, order, order.target, tables, state)


def _plan(context: RunContext, order: ResetOrder, target: Target, tables: Tables, state: PipelineState) -> PlannedReset:
    if state.never_ran:
        raise never_ran_error(context.pipeline)
    is_lost = all_rows_gone(state)
    facts = observe_source(context)
    offsets = _target_offsets(context, order, target, facts)
    if is_lost:
        _refuse_partial(context, tables, facts, offsets)
    last_position = _last_position(context, tables, state) if is_lost else state.position
    before = last_position or Position(state.newest_batch, state.newest_epoch, facts.cluster_id)
    lost = {key: end for key, end in lost_ends(context, before, facts).items() if key in offsets}
    after = reset_position(
        before, facts, offsets, n=state.newest_batch + 1, epoch=state.newest_epoch + 1
    ).with_lost_tails(lost)
    repairs = lost_follower(context.pipeline, tables, state) if is_lost else None
    removed = ranges_from(after) if is_lost else moved_back_ranges(before, after)
    if order.allow_duplicates:
        removed = ()
    emptied = _tables_with_rows(context, tables)
    if removed and emptied:
        refuse_compacted(context, {r.topic for r in removed}, _keep_rows_step(context, order, target))
    return PlannedReset(
        order=order,
        tables=tables,
        state=state,
        before=before,
        after=after,
        offsets=offsets,
        remarks=tuple(_remarks(context, tables, state, is_cut=bool(lost))),
        removed_rows=dict.fromkeys(emptied, removed) if removed else {},
        removed=removed,
        repairs=repairs,
        marks=frozenset((*tables.followers, context.pipeline.dead_letters_table) if is_lost else ()),
    )


def _keep_rows_step(context: RunContext, order: ResetOrder, target: Target) -> str:
    """The next step that keeps the rows: the same reset with `--allow-duplicates`."""
    target_text, body = (str(target), "") if target.kind != "offsets" else ("FILE.json", json.dumps(target.offsets))
    topics = "".join(f" --topic {name}" for name in order.topics)
    with_file = f" with {body} in FILE.json" if body else ""
    return (
        f"to keep those rows, and land the records a second time: frazil reset {context.pipeline.name} --to {target_text}{topics}"
        f' --allow-duplicates --reason "rows of a compacted topic stay"{with_file}; or, '
    )


def _tables_with_rows(context: RunContext, tables: Tables) -> list[str]:
    """Destinations that may lose rows: not empty ones, and not merged ones, which keep theirs."""
    merged = _merged_tables(context)
    return [
        name
        for name, table in tables.destinations.items()
        if table.current_snapshot() is not None and name not in merged
    ]


def _merged_tables(context: RunContext) -> list[str]:
    return [destination.table for destination in context.pipeline.destinations if destination.is_merged]


def _refuse_partial(
    context: RunContext, tables: Tables, facts: ClusterFacts, offsets: Mapping[TopicPartition, int]
) -> None:
    """Refuse a target without all partitions: their rows are gone, too, and would never land again."""
    every = [(name, number) for name, topic in sorted(facts.topics.items()) for number in range(len(topic.partitions))]
    unnamed = [f"topic {name}, partition {number}" for name, number in every if (name, number) not in offsets]
    if unnamed:
        raise POSITION_LOST.terminal(
            f"pipeline {context.pipeline.name}: the position is gone from table"
            f" {tables.closing_name}, so partitions without a new offset would never land again: {unnamed[0]}"
            + (f" and {len(unnamed) - 1} more" if unnamed[1:] else ""),
            next_step="reset without --topic, to a target for every partition: earliest, latest, an instant, or a file that"
            " names them all",
        )


def _remarks(context: RunContext, tables: Tables, state: PipelineState, *, is_cut: bool) -> Iterator[str]:
    table, is_empty = tables.closing_name, tables.closing.current_snapshot() is None
    if all_rows_gone(state) and is_empty and table in tables.destinations:
        yield f"the rows of all topics are gone from table {table}: missing tables are created first"
    elif all_rows_gone(state):
        yield f"the position is gone from table {table}: rows that will land again are removed from all destinations"
    elif state.unfinished and state.mark is not None:
        yield f"batch {state.mark.n} is decided and not finished: a reset finishes it first"
    if is_cut and (merged := _merged_tables(context)):
        yield f"rows from records that Kafka lost stay in {', '.join(merged)} until other records of their keys arrive"


def _last_position(context: RunContext, tables: Tables, state: PipelineState) -> Position | None:
    """The last position that any table has, after the closing table was lost or rolled back.

    It has the batch since which each topic exists: records of a topic that was deleted before can't land again.
    """
    rows = read_ledger(context.lake, context.pipeline.ledger_table, context.pipeline.name)
    recorded = [Position.from_json(row["position"]) for row in rows[-1:]]
    held_positions = [state.position] if state.position is not None else []
    return max(
        (*held_positions, *recorded, *_follower_positions(context, tables)),
        key=lambda position: position.n,
        default=None,
    )


def _follower_positions(context: RunContext, tables: Tables) -> Iterator[Position]:
    """The position after the last batch of each follower, if its manifest still exists."""
    key = BATCH_KEY.format(context.pipeline.name)
    for table in (*tables.followers.values(), tables.dead_letters):
        named = (summary.get(MANIFEST_KEY) for summary in summaries(table.metadata) if key in summary)
        path = next(filter(None, named), None)
        if path is None:
            continue
        try:
            yield Manifest.from_json(read_text(table, path)).position
        except Terminal as error:
            context.report(f"manifest {path} can't be read: {error.message}")


def _target_offsets(
    context: RunContext, order: ResetOrder, target: Target, facts: ClusterFacts
) -> dict[TopicPartition, int]:
    unknown_topics = [name for name in order.topics if name not in facts.topics]
    if unknown_topics:
        raise NAME_UNKNOWN.terminal(
            f"pipeline {context.pipeline.name} reads no topic {', '.join(unknown_topics)}",
            next_step=f"its topics: {', '.join(sorted(facts.topics)) or 'none'}",
        )
    offsets = offsets_of(context, target, facts)
    return {key: offset for key, offset in offsets.items() if not order.topics or key[0] in order.topics}


def reset(context: RunContext, planned: PlannedReset, request: RunRequest) -> Position:
    """Do a planned reset: one deciding commit, then the followers, the ledger and the consumer group.

    `planned` must come from `plan_reset`, not from `preview_reset`.

    Raises:
        Terminal: Rows would have to be removed from a table without Kafka columns.
        Retryable: Another run decided a batch first; plan again.
    """
    if planned.is_idle:
        return planned.after
    context = context.with_ledger_tables(planned.tables.ledger)
    manifest, path = write_manifest(context, planned.tables, planned.state, batch_of(context, planned, request))
    try:
        decide(context, manifest, path, planned.state)
    except Refused as refusal:
        raise RUN_OVERTAKEN.retryable(
            f"pipeline {context.pipeline.name}: a run moved the position meanwhile ({refusal.message}); nothing was reset",
            next_step="reset again; it plans from where the pipeline stands now",
        ) from refusal
    roll_forward(context, manifest, path, planned.state)
    mirror_to_consumer_group(context, planned.after)
    return planned.after
