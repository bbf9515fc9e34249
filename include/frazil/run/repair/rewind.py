"""Rewind: the position goes back to what the closing table holds, on demand (`frazil reset --to-table`).

All batches after the last one that closing table and ledger share are abandoned. Their rows and dead letters are removed wherever
they still are, and the next run lands their records again. So one command ends every state in which closing table and ledger
differ: rolled back, restored, two batches of one number, a decided batch without manifest.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from frazil.batch.changes import RemovedRange, moved_back_ranges, ranges_landed_after
from frazil.batch.facts import ClusterFacts, Range
from frazil.batch.manifest import Manifest
from frazil.batch.position import BatchMark, Position
from frazil.batch.reset import Abandoned, limit_to_log, rewound_position
from frazil.error_codes import BAD_ARGUMENT, TABLE_ROLLED_BACK
from frazil.errors import Terminal
from frazil.iceberg.catalog.table import Table, missing_files, read_text
from frazil.iceberg.commit.summary_state import (
    BATCH_KEY,
    KIND_KEY,
    MANIFEST_KEY,
    POSITION_KEY,
    manifest_path,
    mirrored_property,
    summaries,
    summary_of,
)
from frazil.iceberg.ledger.ledger import first_rows, read_ledger
from frazil.kafka.admin.topics import compacted
from frazil.run.commit.commit_batch import recover
from frazil.run.commit.manifests import REPAIR_KINDS, coordinate_columns
from frazil.run.repair.reset_batch import PlannedReset, ResetOrder, never_ran_error, read_tables
from frazil.run.state.context import RunContext, lost_ends, observe_source
from frazil.run.state.pipeline_state import PipelineState
from frazil.run.state.tables import Tables, open_tables, to_table_command, with_current_columns


@dataclass(frozen=True)
class _History:
    """The known batches of a pipeline.

    Attributes:
        agreed: Position of the last batch that the closing table and the ledger both have.
        abandoned: The batches after it, by number.
        newest: The farthest position that the pipeline reached.
    """

    agreed: Position
    abandoned: tuple[Abandoned, ...]
    newest: Position


def preview_rewind(context: RunContext, order: ResetOrder) -> PlannedReset:
    """Preview a rewind. Commits, creates and finishes nothing.

    Raises:
        Terminal: The closing table was lost, or rows would have to be removed from a table without Kafka columns.
    """
    context, tables, missing, state = _read(context)
    return _plan(context, order, tables, state, missing)


def _read(context: RunContext) -> tuple[RunContext, Tables, list[str], PipelineState]:
    """Read the tables, including auto-created ones, the names of missing ones, and the pipeline's state."""
    tables, missing, state = read_tables(context)
    current_context = context.with_ledger_tables(tables.ledger)
    return (
        (context, tables, missing, state)
        if current_context is context
        else (current_context, *read_tables(current_context))
    )


def plan_rewind(context: RunContext, order: ResetOrder) -> PlannedReset:
    """Plan a rewind that `reset` can carry out. If nothing was rolled back, only the last batch is finished.

    Raises:
        Terminal: As `preview_rewind`; or a table can't take its part of a decided batch.
    """
    if preview_rewind(context, order).is_idle:
        context, tables, state = recover(context)
        return _plan(context, order, tables, state)
    context, tables, missing, state = _read(context)
    pipeline = context.pipeline
    if pipeline.ledger_table in missing:
        names = (*pipeline.tables, pipeline.dead_letters_table, pipeline.ledger_table)
        tables, missing = open_tables(context.lake, pipeline, recreate=names), []
    tables = with_current_columns(pipeline, tables, missing)
    return _plan(context, order, tables, state, missing)


def _plan(
    context: RunContext, order: ResetOrder, tables: Tables, state: PipelineState, missing: Collection[str] = ()
) -> PlannedReset:
    if state.closing_lost is not None:
        raise state.closing_lost
    existing = {name: table for name, table in tables.destinations.items() if name not in missing}
    tables = replace(tables, destinations=existing)  # the next run creates new ones
    if order.topics:
        raise BAD_ARGUMENT.terminal(
            "--to-table can't be limited to one topic: the position of the table covers all topics",
            next_step=f"reset without --topic: {to_table_command(context.pipeline.name)}",
        )
    if not _is_behind(context, tables, state):
        return _nothing_to_rewind(context, order, tables, state)
    rows = read_ledger(context.lake, context.pipeline.ledger_table, context.pipeline.name)
    past = _history(context, tables, state, rows)
    agreed, number = past.agreed, state.newest_batch + 1
    target = rewound_position(agreed, past.abandoned, n=number, epoch=state.newest_epoch + 1)
    after = _reachable_position(context, order, target, past)
    skipped = tuple(_skipped_ranges(target, after))
    lost = _lost_followers(context, tables, state, rows, agreed.n)
    lost |= {name: "is gone" for name in missing if name == context.pipeline.dead_letters_table}
    planned = PlannedReset(
        order=order,
        tables=tables,
        state=state,
        before=past.newest,
        after=after,
        remarks=tuple(_remarks(tables, state, agreed, skipped, lost)),
        kind="rewind",
        skipped=skipped,
        marks=_marked_followers(context, tables, state, lost, keeps_rows=order.allow_duplicates),
    )
    if order.allow_duplicates:
        return planned
    removed = (*_removed_ranges(past, after, skipped), *moved_back_ranges(agreed, after))
    emptied = _emptied_destinations(context, tables, state, agreed, after) - lost.keys()
    letters = removed if context.pipeline.dead_letters_table not in lost else ()
    return replace(planned, removed_rows=dict.fromkeys(emptied, removed), removed=letters)


def _is_behind(context: RunContext, tables: Tables, state: PipelineState) -> bool:
    """Whether the closing table is behind other tables, or the manifest of its last batch is gone."""
    if state.rolled_back is not None:
        return True
    if not state.unfinished or state.mark is None:
        return False
    path = state.manifest or manifest_path(tables.closing, context.pipeline.name, state.mark)
    return _manifest(tables.closing, path) is None


def _nothing_to_rewind(context: RunContext, order: ResetOrder, tables: Tables, state: PipelineState) -> PlannedReset:
    if state.position is None or state.mark is None:
        raise never_ran_error(context.pipeline)
    remark = f"table {tables.closing_name} already has the last batch, {state.mark.n}: there is nothing to rewind"
    return PlannedReset(
        order, tables, state, state.position, state.position, remarks=(remark,), kind="rewind", is_idle=True
    )


def _history(context: RunContext, tables: Tables, state: PipelineState, rows: list[dict[str, Any]]) -> _History:
    agreed = _agreed_position(context, tables, state, rows)
    recorded = dict(_recorded_batches(rows, agreed.n))
    batches = recorded | dict(_unrecorded_batches(context, tables, state, agreed.n, recorded.keys()))
    positions = [agreed, *(batch.position for _, batch in sorted(batches.items(), key=lambda item: item[0].n))]
    rewinds = {row["n"] for row in rows if row["kind"] == "rewind"}
    for before, after in pairwise(positions):
        # A gap in the numbers before a rewind stands for batches that it undid. Other gaps are batches whose ledger rows were lost.
        if before.n + 1 < after.n and after.n not in rewinds:
            batches[BatchMark(after.n - 1, "", after.epoch)] = _unknown_outcome(after)
    newest = positions[-1]
    if newest.n < state.newest_batch:
        batches[BatchMark(state.newest_batch, "", newest.epoch)] = _unknown_outcome(newest)
    return _History(agreed, tuple(batch for _, batch in sorted(batches.items(), key=lambda item: item[0].n)), newest)


def _agreed_position(context: RunContext, tables: Tables, state: PipelineState, rows: list[dict[str, Any]]) -> Position:
    """Position of the last batch that both the closing table and the ledger have; without a ledger, that of the closing table."""
    recorded = {(row["n"], row["batch"]): row["position"] for row in rows}
    key = BATCH_KEY.format(context.pipeline.name)
    texts = (summary[key] for summary in summaries(tables.closing.metadata) if key in summary)
    held_marks = [*([state.mark] if state.mark is not None else []), *map(BatchMark.from_json, texts)]
    for mark in held_marks:
        if (position := recorded.get((mark.n, mark.batch))) is not None:
            return Position.from_json(position)
    if state.position is not None:
        return state.position
    return _start_position(context, tables, rows)


def _start_position(context: RunContext, tables: Tables, rows: list[dict[str, Any]]) -> Position:
    """The start position in the ledger, for a closing table that was rolled back behind the pipeline's first commit."""
    for row in rows:
        if row["kind"] == "start":
            return Position.from_json(row["position"])
    raise TABLE_ROLLED_BACK.terminal(
        f"pipeline {context.pipeline.name}: table {tables.closing_name} was rolled back behind the"
        " pipeline's first commit, and the ledger does not know where the pipeline began",
        next_step=f'choose where to continue: frazil reset {context.pipeline.name} --to earliest --reason "table was rolled back"',
    )


def _recorded_batches(rows: list[dict[str, Any]], n: int) -> Iterator[tuple[BatchMark, Abandoned]]:
    removing = {row["n"] for row in rows if row.get("removed")}
    repairs = (row["n"] for row in rows if row["kind"] in REPAIR_KINDS and row["role"] == "dead_letters")
    repaired = max(repairs, default=0)
    for row in first_rows(rows):
        if row["n"] > n:
            # Letters that an abandoned batch landed are open again, unless the dead-letter table was repaired since.
            is_lost = row["kind"] == "dead_letters" and row["n"] < repaired
            is_replay = row["kind"] == "replay" or is_lost
            replayed = tuple(Range(*bounds) for bounds in json.loads(row["ranges"])) if is_replay else ()
            mark = BatchMark(row["n"], row["batch"], row["epoch"])
            yield mark, Abandoned(Position.from_json(row["position"]), replayed, is_lost or row["n"] in removing)


def _unrecorded_batches(
    context: RunContext, tables: Tables, state: PipelineState, n: int, recorded: Iterable[BatchMark]
) -> Iterator[tuple[BatchMark, Abandoned]]:
    """Decided batches that the ledger does not have, from their manifests.

    If the manifest of the closing table's last batch is gone, its position and its kind are still known.
    """
    recorded_marks = set(recorded)
    paths = {
        mark: path
        for mark, path in _manifest_paths(context, tables, state).items()
        if mark.n > n and mark not in recorded_marks
    }
    # A batch whose manifest is gone comes last, with the position that it left in the closing table.
    manifests = {mark: read for mark, path in paths.items() if (read := _manifest(tables.closing, path)) is not None}
    for path in [path for manifest in manifests.values() for path in manifest.recovers]:
        earlier = _manifest(tables.closing, path)
        if earlier is not None and earlier.mark.n > n and earlier.mark not in recorded_marks:
            manifests.setdefault(earlier.mark, earlier)
    repaired = max((mark.n for mark, manifest in manifests.items() if manifest.kind in REPAIR_KINDS), default=0)
    for mark, manifest in manifests.items():
        is_lost = manifest.kind == "dead_letters" and mark.n < repaired
        replayed = manifest.ranges if manifest.kind == "replay" or is_lost else ()
        removed = is_lost or any(manifest.removed_for_good(part) for part in manifest.parts)
        yield mark, Abandoned(manifest.position, replayed, removed)
    position, kind = _newest_position(context, tables)
    for mark in paths.keys() - manifests.keys():
        if position is not None and position.n == mark.n:
            context.report(f"manifest {paths[mark]} of batch {mark.n} is gone: the batch is undone")
            # Batches of these kinds land no earlier range again.
            is_forward = kind in ("start", "ingest", "reset", "rewind", "dead_letters", "apply")
            yield mark, Abandoned(position, ()) if is_forward else _unknown_outcome(position)


def _newest_position(context: RunContext, tables: Tables) -> tuple[Position | None, str | None]:
    """The newest position that the closing table had, and the kind of its batch; None for what its metadata no longer has."""
    metadata, key = tables.closing.metadata, POSITION_KEY.format(context.pipeline.name)
    if key not in metadata.properties:
        return None, None
    value, snapshot_id = mirrored_property(metadata, key, tables.closing_name)
    return Position.from_json(value), summary_of(metadata.snapshot_by_id(snapshot_id)).get(KIND_KEY)


def _manifest_paths(context: RunContext, tables: Tables, state: PipelineState) -> dict[BatchMark, str]:
    """Paths of batch manifests from the snapshots of all tables, on main or not."""
    key, named = BATCH_KEY.format(context.pipeline.name), {}
    for table in (tables.closing, tables.dead_letters, *tables.followers.values()):
        for summary in map(summary_of, table.metadata.snapshots):
            if key in summary and MANIFEST_KEY in summary:
                named[BatchMark.from_json(summary[key])] = summary[MANIFEST_KEY]
    for mark in (state.mark, state.rolled_back):
        if mark is not None and mark not in named:
            named[mark] = manifest_path(tables.closing, context.pipeline.name, mark)
    return named


def _manifest(table: Table, path: str) -> Manifest | None:
    """Read a manifest; None if the file is missing or is no manifest."""
    if missing_files(table, [path]):
        return None
    text = read_text(table, path)
    try:
        return Manifest.from_json(text)
    except Terminal:
        return None


def _unknown_outcome(position: Position) -> Abandoned:
    """Stands for a batch without manifest and ledger rows: it may have replaced any row before its position."""
    whole = (
        Range(name, number, 0, offset)
        for name, topic in position.topics.items()
        for number, offset in enumerate(topic.next)
    )
    return Abandoned(position, tuple(whole))


def _reachable_position(context: RunContext, order: ResetOrder, position: Position, past: _History) -> Position:
    """The position, moved on to where Kafka's logs start: rows whose records can't be read again must stay."""
    reached = (past.agreed, *(batch.position for batch in past.abandoned))
    farthest = limit_to_log(position, reached, ClusterFacts(position.cluster, {}))
    if farthest == position:
        return position  # no record has to be read again, so Kafka is not asked
    facts = observe_source(context)
    if facts.cluster_id != position.cluster:
        return limit_to_log(position, reached, replace(facts, topics={}))
    # Any record of a compacted topic may be gone, so none of its rows are removed.
    gaps = compacted(context.cluster, facts.topics) if not order.allow_duplicates else ()
    whole = {name: topic for name, topic in facts.topics.items() if name not in gaps}
    return limit_to_log(position, reached, replace(facts, topics=whole)).with_lost_tails(
        lost_ends(context, farthest, facts)
    )


def _skipped_ranges(target: Position, reached: Position) -> Iterator[Range]:
    for name, topic in target.topics.items():
        for number, (start, end) in enumerate(zip(topic.next, reached.topics[name].next, strict=True)):
            if start < end:
                yield Range(name, number, start, end)


def _removed_ranges(past: _History, after: Position, skipped: Iterable[Range]) -> Iterator[RemovedRange]:
    """Ranges whose rows of abandoned batches are removed. Rows of skipped offsets stay, as their records can't be read again.

    Each topic has a range of all partitions, however short: by it the ledger records that these batches are undone.
    """
    since, positions = past.agreed.n + 1, [batch.position for batch in past.abandoned]
    for name in sorted({*after.topics, *(name for position in positions for name in position.topics)}):
        stays = {r.partition: r for r in skipped if r.topic == name}
        if not stays:
            yield from ranges_landed_after({name: None}, past.agreed.n)
            continue
        low = min(r.start for r in stays.values())
        yield RemovedRange(name, None, 0, low, since)
        for number in range(len(after.topics[name].next)):
            gap = stays.get(number, Range(name, number, low, low))
            if low < gap.start:
                yield RemovedRange(name, number, low, gap.start, since)
            yield RemovedRange(name, number, gap.end, None, since)
        # No offset was skipped of an incarnation of the topic that only abandoned batches read.
        last_since = max(position.topics[name].since for position in positions if name in position.topics)
        if last_since > after.topics[name].since:
            yield RemovedRange(name, None, 0, None, last_since)


def _lost_followers(
    context: RunContext, tables: Tables, state: PipelineState, rows: list[dict[str, Any]], n: int
) -> dict[str, str]:
    """Follower -> why it lacks batches up to `n`. A rewind leaves these followers as they are, for a repair."""
    expected: dict[str, int] = {}
    for row in rows:
        if row["n"] <= n and row["snapshot_id"] is not None:
            expected[row["table"]] = max(row["n"], expected.get(row["table"], 0))
    followers = {**tables.followers, context.pipeline.dead_letters_table: tables.dead_letters}
    marks = {**state.followers, context.pipeline.dead_letters_table: state.dead_letters}
    lost = {}
    for name, table in followers.items():
        ledger_mark, mark = state.ledger_marks.get(name), marks.get(name)
        is_new = ledger_mark is not None and ledger_mark.uuid != str(table.metadata.table_uuid)
        if is_new or (name in expected and (mark is None or mark.n < expected[name])):
            lost[name] = "was made anew" if is_new else f"lacks batch {expected[name]}"
    return lost


def _emptied_destinations(
    context: RunContext, tables: Tables, state: PipelineState, agreed: Position, after: Position
) -> set[str]:
    """The destinations from which rows are removed.

    Raises:
        Terminal: One without Kafka columns has rows to remove.
    """
    closing, marks = tables.closing_name, dict(state.followers)
    holders = {name for name, mark in marks.items() if mark is not None and mark.n > agreed.n}
    if closing in tables.destinations and (
        (state.mark is not None and state.mark.n > agreed.n) or moved_back_ranges(agreed, after)
    ):
        holders.add(closing)
    emptied = holders | tables.followers.keys()
    bare = {name for name in emptied if coordinate_columns(context.pipeline.destination(name)) is None}
    for name in sorted(bare & holders):
        raise TABLE_ROLLED_BACK.terminal(
            f"pipeline {context.pipeline.name}: the position of table {closing} goes back to batch {agreed.n}, but table {name} holds"
            " rows of later batches. It has no Kafka columns (kafka_columns: false), so rows that land again can't be removed there",
            next_step=f"restore {closing} as it was, then run; or keep these rows and land their records a second time:"
            f' frazil reset {context.pipeline.name} --to-table --allow-duplicates --reason "table was rolled back"',
        )
    return emptied - bare


def _marked_followers(
    context: RunContext, tables: Tables, state: PipelineState, lost: Mapping[str, str], *, keeps_rows: bool
) -> frozenset[str]:
    """Followers that get the mark although they lose no rows, so that a late run can't give them an abandoned batch.

    A merged table loses no rows: changes that land again are merged into them. A mark there needs an engine, so it gets one only
    if it holds another batch than the ledger records.
    """
    marked = {context.pipeline.dead_letters_table} if keeps_rows or not state.ledger_marks else set()
    for name in tables.followers:
        destination, ledger_mark = context.pipeline.destination(name), state.ledger_marks.get(name)
        differs = ledger_mark is not None and state.followers.get(name) != ledger_mark.mark
        if (
            differs
            if destination.by_engine
            else keeps_rows or not state.ledger_marks or coordinate_columns(destination) is None
        ):
            marked.add(name)
    return frozenset(marked - lost.keys())


def _remarks(
    tables: Tables, state: PipelineState, agreed: Position, skipped: Iterable[Range], lost: Mapping[str, str]
) -> Iterator[str]:
    newest = state.rolled_back or state.mark
    yield (
        f"table {tables.closing_name} continues from batch {agreed.n}; the pipeline was at batch {newest.n if newest else '?'}:"
        " the records of the batches between land again"
    )
    for r in skipped:
        yield (
            f"topic {r.topic}, partition {r.partition}: {r.start} to {r.end - 1} are gone from Kafka, or may be, as the topic"
            " is compacted: rows and dead letters that a table has of them stay, what is missing is given up (of a"
            " compacted topic, --allow-duplicates reads again what Kafka has)"
        )
    for table, why in sorted(lost.items()):
        yield f"table {table} {why}, too: it stays as it is, and the next run says how it is mended"
