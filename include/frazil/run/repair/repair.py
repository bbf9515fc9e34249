"""Repairs a follower or the ledger that lost data: one audited commit, after which the pipeline continues.

A repair is decided like any batch, also after a decided batch that can't be finished. The table keeps its rows and gets the
mark of the repair. The ledger records what it lost at most, as ranges of offsets, and a replay of these fills the table again as
far as Kafka still has the records. A repair of the ledger writes its rows again, from the manifests that still exist.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from frazil.batch.changes import RemovedRange, ranges_from
from frazil.batch.facts import Range
from frazil.batch.manifest import Manifest
from frazil.batch.position import BatchMark, Position, RunRequest, Target
from frazil.batch.reset import Row, lost_ranges, lost_removals, split_readable, unfilled_ranges, union
from frazil.error_codes import NAME_UNKNOWN, NEVER_RAN, POSITION_LOST, RUN_OVERTAKEN
from frazil.errors import Terminal
from frazil.iceberg.catalog.table import read_text
from frazil.iceberg.commit.commit import Refused
from frazil.iceberg.commit.summary_state import (
    BATCH_KEY,
    MANIFEST_KEY,
    RolledBack,
    landed_snapshot,
    manifest_path,
    read_summary,
    summaries,
)
from frazil.iceberg.ledger.ledger import read_ledger
from frazil.kafka.admin.observe import observe
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.run.commit.audit import publish
from frazil.run.commit.commit_batch import lake_of_batch, roll_forward
from frazil.run.commit.commit_followers import send_letters
from frazil.run.commit.manifests import (
    REPAIR_KINDS,
    Batch,
    coordinate_columns,
    entry_rows,
    marks_after,
    refuse_foreign_parts,
)
from frazil.run.repair.replay import refuse_replay
from frazil.run.state.context import EngineNeeded, RunContext, lacks_key, missing_key_error
from frazil.run.state.pipeline_state import (
    STATE_READS,
    PipelineState,
    read_manifest,
    read_state,
    recovered_manifests,
    state_kept_moving,
)
from frazil.run.state.tables import Tables, load_tables, open_tables, to_table_command

StoredManifest = tuple[str, Manifest]
"""Path of a manifest, and the manifest."""


@dataclass(frozen=True)
class Loss:
    """An upper bound of what a table lost.

    Attributes:
        ranges: Offsets whose rows may be missing.
        removed: Ranges whose rows must be removed again: later batches removed them, and a rollback restored them.
        recovers: Paths of the manifests from which the ledger's rows are written again.
        marks: Followers that get the mark of the repair.
        batches: For the ledger: batches whose rows can't be restored.
    """

    ranges: tuple[Range, ...] = ()
    removed: tuple[RemovedRange, ...] = ()
    recovers: tuple[str, ...] = ()
    marks: frozenset[str] = frozenset()
    batches: tuple[int, ...] = ()


@dataclass(frozen=True)
class PlannedRepair:
    """A planned repair, which can be shown before it is done.

    Attributes:
        loss: What the table lost; None if nothing.
        fill: Ranges to restore by a replay, of this loss and of earlier ones.
        unrecoverable: Ranges lost for good, since Kafka no longer has them.
        refusal: Why a replay can't restore `fill`; None if it can.
    """

    table: str
    tables: Tables
    state: PipelineState
    position: Position
    loss: Loss | None
    fill: tuple[Range, ...] = ()
    unrecoverable: tuple[Range, ...] = ()
    refusal: Terminal | None = None

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to do."""
        return self.loss is not None or (bool(self.fill) and self.refusal is None)

    def replay_request(self, request: RunRequest) -> RunRequest | None:
        """The replay that fills the table; None if there is nothing to fill, or a replay can't."""
        if not self.fill or self.refusal is not None:
            return None
        starts: dict[str, dict[int, int]] = {}
        ends: dict[str, dict[int, int]] = {}
        for r in self.fill:  # ascending
            starts.setdefault(r.topic, {}).setdefault(r.partition, r.start)
            ends.setdefault(r.topic, {})[r.partition] = r.end
        start, end = Target("offsets", offsets=starts), Target("offsets", offsets=ends)
        return RunRequest(request.run, request.started_by, "replay", start, end, request.reason)


def plan_repair(context: RunContext, table: str) -> PlannedRepair:
    """Plan a repair. Creates missing tables, and finishes a decided batch if that needs no repair.

    Raises:
        Terminal: The table is no follower of the pipeline, or another table must be repaired first.
    """
    for _ in range(STATE_READS):
        tables, state = _read(context, table)
        current_context = context.with_ledger_tables(tables.ledger)
        if current_context is not context:
            context = current_context
            continue
        pipeline = context.pipeline
        _refuse_other_loss(context, state, table)
        decided = _unfinished(context, tables, state)
        if decided and _finish(context, state, decided[-1], table):
            continue
        if state.position is None:
            raise NEVER_RAN.terminal(f"pipeline {pipeline.name} never ran, so no table lacks anything")
        is_lost = bool(decided) or table in state.followers_lost
        if is_lost:
            for destination in filter(lacks_key, pipeline.destinations):
                raise missing_key_error(destination, is_there=destination.table in tables.destinations)
        loss = _loss(context, tables, state, state.position, table, decided) if is_lost else None
        return _plan(context, tables, state, state.position, table, loss)
    raise state_kept_moving(context.pipeline)


def repair(context: RunContext, planned: PlannedRepair, request: RunRequest) -> int | None:
    """Decide a planned repair, and roll it forward. Restoring rows from Kafka is a separate replay: see `replay_request`.

    Returns the batch number of the repair; None if no loss is left to record, so that only the replay remains.

    Raises:
        Retryable: Another command decided a batch first; plan again.
    """
    loss, position = planned.loss, planned.position
    if loss is None:
        return None
    context = context.with_ledger_tables(planned.tables.ledger)
    is_destination = planned.table in planned.tables.destinations
    n = planned.state.newest_batch + 1
    batch = Batch(
        kind="repair",
        run=request.run,
        position=position.at_rest(n),
        planned_at=context.stamp(),
        skipped=loss.ranges,
        removed_letters=() if is_destination else loss.removed,
        removed_from={planned.table: loss.removed} if is_destination and loss.removed else {},
        started_by=request.started_by,
        reason=request.reason,
        repairs=planned.table,
        recovers=loss.recovers,
        abandoned=len(loss.batches),
        marks=loss.marks,
    )
    try:
        publish(context, planned.tables, planned.state, batch)
    except Refused as refusal:
        raise RUN_OVERTAKEN.retryable(
            f"pipeline {context.pipeline.name}: another command was faster ({refusal.message}); nothing was repaired",
            next_step="repair again; it plans from where the pipeline stands now",
        ) from refusal
    except EngineNeeded as need:
        context.report(need.message)  # it is decided: the replay, or the next run, finishes it first
    return n


def _read(context: RunContext, table: str) -> tuple[Tables, PipelineState]:
    pipeline = context.pipeline

    def load() -> Tables:
        # Several tables may have been dropped. All are created again; the others then show as lost, and are repaired next.
        _, closing = load_tables(context.lake, pipeline)
        _refuse_other_table(pipeline, table, closing)
        return open_tables(context.lake, pipeline, recreate=_followers(pipeline, closing))

    return read_state(pipeline, load)


def _followers(pipeline: Pipeline, closing: str) -> tuple[str, ...]:
    names = (*pipeline.tables, pipeline.dead_letters_table, pipeline.ledger_table)
    return tuple(name for name in names if name != closing)


def _refuse_other_table(pipeline: Pipeline, table: str, closing: str) -> None:
    followers = _followers(pipeline, closing)
    if table in followers:
        return
    if table != closing:
        raise NAME_UNKNOWN.terminal(
            f"pipeline {pipeline.name} has no table {table} that could be repaired",
            next_step=f"tables that can be repaired: {', '.join(followers)}",
        )
    raise POSITION_LOST.terminal(
        f"table {table} holds the position of pipeline {pipeline.name}, so its loss can't be determined",
        next_step=f"restore the table. If it was rolled back, continue from what it holds: {to_table_command(pipeline.name)}. If it"
        " was created again, remove all rows and land what Kafka still holds:"
        f" frazil reset {pipeline.name} --to earliest --reason …",
    )


def _refuse_other_loss(context: RunContext, state: PipelineState, table: str) -> None:
    """Refuse to repair a table before the closing table and the ledger: they show how much it lost."""
    lost = state.closing_lost or state.rollback
    if lost is not None:
        raise lost
    ledger = context.pipeline.ledger_table
    if table != ledger and ledger in state.followers_lost:
        raise state.followers_lost[ledger]


def _unfinished(context: RunContext, tables: Tables, state: PipelineState) -> tuple[StoredManifest, ...]:
    """The decided batches that the ledger does not know yet, the oldest first; empty if the last one is finished."""
    if not state.unfinished or state.mark is None:
        return ()
    manifest, path = read_manifest(tables, context.pipeline, state.mark, state.manifest)
    done = -1 if state.last_finished is None else state.last_finished.n
    earlier = zip(manifest.recovers, recovered_manifests(tables.closing, manifest), strict=True)
    return (
        *(
            (earlier_path, earlier_manifest)
            for earlier_path, earlier_manifest in earlier
            if earlier_manifest.position.n > done
        ),
        (path, manifest),
    )


def _finish(context: RunContext, state: PipelineState, last: StoredManifest, table: str) -> bool:
    """Roll the last batch forward. Returns False if `table` can't take its part, and all other tables have theirs.

    Without an engine, a part that needs one counts as one that can't be taken.

    Raises:
        Terminal: Another table can't take its part, or the dead-letter topic can't.
    """
    path, manifest = last
    refuse_foreign_parts(context, state, manifest)
    try:
        roll_forward(context, manifest, path, state)
    except (Terminal, EngineNeeded) as refusal:
        if table not in state.followers_lost and table not in _without_part(context, manifest):
            raise
        context.report(refusal.message)
    else:
        return True
    send_letters(context, manifest)  # the repair replaces the end of that batch, which would have sent them
    return False


def _without_part(context: RunContext, manifest: Manifest) -> tuple[str, ...]:
    """The followers that lack their parts; if none does, the ledger."""
    key, lake = BATCH_KEY.format(manifest.pipeline), lake_of_batch(context.lake, manifest)
    without_part = (
        part.table
        for part in manifest.followers
        if (table := lake.find_table(part.table)) is None
        or landed_snapshot(table.metadata, key, manifest.mark, part.table) is None
    )
    return tuple(without_part) or (manifest.ledger,)


def _loss(
    context: RunContext,
    tables: Tables,
    state: PipelineState,
    position: Position,
    table: str,
    decided: Sequence[StoredManifest],
) -> Loss:
    if table == context.pipeline.ledger_table:
        return _ledger_loss(context, tables, state, decided)
    mark = state.followers.get(table) if table in tables.destinations else state.dead_letters
    after = -1 if mark is None else mark.n
    rows = [*_ledger_rows(context), *(row for _, manifest in decided for row in _future_rows(context, manifest))]
    ranges = lost_ranges(rows, table, after, position)
    # A rewind leaves a table that lost data as it is, so that table may hold rows beyond the position.
    removed = (*lost_removals(rows, table, after), *ranges_from(position))
    if _ledger_lost_rows(rows, after):
        ranges = union((*ranges, *_all_ranges(position)))
    if table in tables.destinations and coordinate_columns(context.pipeline.destination(table)) is None:
        removed = ()
    return Loss(ranges, removed, tuple(path for path, _ in decided), frozenset({table}))


def _ledger_rows(context: RunContext) -> list[Row]:
    return list(read_ledger(context.lake, context.pipeline.ledger_table, context.pipeline.name))


def _future_rows(context: RunContext, manifest: Manifest) -> list[Row]:
    """The rows that the ledger would get for a batch."""
    snapshots = dict.fromkeys(part.table for part in manifest.parts)
    return list(entry_rows(manifest, snapshots, None, context.clock()))


def _ledger_lost_rows(rows: Sequence[Row], after: int) -> bool:
    """Whether the ledger itself lost rows of batches after `after`: then any offset may be lost."""
    repairs = (row for row in rows if row["n"] > after and row["kind"] in REPAIR_KINDS)
    return any(row.get("abandoned") and row.get("skipped") in (None, "[]") for row in repairs)


def _all_ranges(position: Position) -> Iterator[Range]:
    for name, topic in position.topics.items():
        yield from (Range(name, number, 0, end) for number, end in enumerate(topic.next))


def _ledger_loss(context: RunContext, tables: Tables, state: PipelineState, decided: Sequence[StoredManifest]) -> Loss:
    """The loss of the ledger: rows of the batches after its last one, which their manifests can restore."""
    done = -1 if state.last_finished is None else state.last_finished.n
    manifests_by_n = {
        manifest.position.n: (path, manifest)
        for path, manifest in (*_manifests(context, tables, state.mark, done), *decided)
    }
    manifests = [manifests_by_n[n] for n in sorted(manifests_by_n)]
    newest = state.mark.n if state.mark is not None else done
    return Loss(
        recovers=tuple(path for path, _ in manifests),
        marks=_followers_ahead(context, state, [manifest for _, manifest in manifests]),
        batches=tuple(n for n in range(done + 1, newest + 1) if n not in manifests_by_n),
    )


def _manifests(context: RunContext, tables: Tables, mark: BatchMark | None, done: int) -> Iterator[StoredManifest]:
    """Existing manifests of the closing table's batches after `done`, newest first.

    Each manifest names the batch before it. If one is gone, the search continues with the next older batch that a snapshot names.
    """
    key, name = BATCH_KEY.format(context.pipeline.name), context.pipeline.name
    named = {
        BatchMark.from_json(summary[key]): summary[MANIFEST_KEY]
        for summary in summaries(tables.closing.metadata)
        if key in summary and MANIFEST_KEY in summary
    }
    while mark is not None and mark.n > done:
        path = named.get(mark) or manifest_path(tables.closing, name, mark)
        try:
            manifest = Manifest.from_json(read_text(tables.closing, path))
        except Terminal as error:
            context.report(f"manifest {path} can't be read: {error.message}")
            mark = next((earlier for earlier in named if earlier.n < mark.n), None)
            continue
        yield path, manifest
        mark = manifest.closing.after


def _followers_ahead(context: RunContext, state: PipelineState, manifests: list[Manifest]) -> frozenset[str]:
    """Followers with a later batch than the restored ledger shows: they get the repair's mark and no rows."""
    marks = marks_after(state.ledger_marks, *manifests)
    held_marks = {context.pipeline.dead_letters_table: state.dead_letters, **state.followers}
    return frozenset(
        table
        for table, mark in held_marks.items()
        if mark is not None and _holds_batch(context, table) and (table not in marks or marks[table].mark.n < mark.n)
    )


def _holds_batch(context: RunContext, table: str) -> bool:
    last = read_summary(context.lake.load_table(table).metadata, BATCH_KEY.format(context.pipeline.name), table)
    return last is not None and not isinstance(last, RolledBack)


def _plan(
    context: RunContext, tables: Tables, state: PipelineState, position: Position, table: str, loss: Loss | None
) -> PlannedRepair:
    """The plan, with the lost ranges that Kafka still has, also those of earlier losses whose replay was killed."""
    lost = union((*unfilled_ranges(_ledger_rows(context), table), *(loss.ranges if loss is not None else ())))
    topics = sorted({r.topic for r in lost if context.pipeline.source.reads(r.topic)})
    fill, unrecoverable = (
        split_readable(lost, position, observe(context.cluster, topics, absent_ok=True)) if lost else ((), ())
    )
    return PlannedRepair(table, tables, state, position, loss, fill, unrecoverable, _replay_refusal(context, fill))


def _replay_refusal(context: RunContext, ranges: Sequence[Range]) -> Terminal | None:
    if not ranges:
        return None
    try:
        refuse_replay(context, {r.topic for r in ranges})
    except Terminal as refusal:
        return refusal
    return None
