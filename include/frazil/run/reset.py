"""Reset: moving the position on demand, in one audited commit that begins a new epoch.

Without a target it goes back to what a rolled-back closing table holds: see `frazil.run.rewind`.

Where the closing table was lost, a reset is the way on: then every row of the pipeline is gone, whichever topic it came
from, so all topics move, every letter that will come again goes, and all tables get the new batch's mark.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from frazil.batch.facts import ClusterFacts, TopicPartition
from frazil.batch.manifest import Manifest
from frazil.batch.position import Position
from frazil.batch.removal import RemovedRange, at_or_beyond, moved_back
from frazil.batch.request import RunRequest
from frazil.batch.reset import reset_position
from frazil.batch.target import Target
from frazil.errors import Retryable, Terminal
from frazil.iceberg.commit import Refused
from frazil.iceberg.holdings import BATCH_KEY, MANIFEST_KEY
from frazil.iceberg.landed import summaries
from frazil.iceberg.ledger import read_ledger
from frazil.iceberg.table import read_text
from frazil.run.forward import decide, roll_forward
from frazil.run.manifests import write_manifest
from frazil.run.reset_batch import PlannedReset, ResetOrder, all_rows_gone, batch_of, found, lost_follower, may_mend
from frazil.run.rewind import look_at_rewind, plan_rewind
from frazil.run.scope import Scope
from frazil.run.settled import settled
from frazil.run.source import lost_ends, mirror_position, observe_source, offsets_of, refuse_compacted
from frazil.run.standing import Standing
from frazil.run.tables import Tables


def look(scope: Scope, order: ResetOrder) -> PlannedReset:
    """Look at what a reset would do. Commits nothing, makes nothing, finishes nothing.

    Raises:
        Terminal: The pipeline never ran, the target does not fit the topics, or another table must be mended first.
        Retryable: Kafka or the catalog is not available now.
    """
    if order.target is None:
        return look_at_rewind(scope, order)
    return _planned(scope, order, order.target, *found(scope))


def plan_reset(scope: Scope, order: ResetOrder) -> PlannedReset:
    """Plan a reset that can be done. Finishes a decided batch, and makes lost tables anew.

    Raises:
        Terminal: As `look`, and then nothing was changed; or a table can't take its part of a decided batch.
        Retryable: Kafka or the catalog is not available now.
    """
    if order.target is None:
        return plan_rewind(scope, order)
    seen, pipeline = look(scope, order), scope.pipeline
    names = (*pipeline.tables, pipeline.dead_letters_table, pipeline.ledger_table)
    scope, tables, now = settled(scope, mends=names if may_mend(seen.now) else ())
    return _planned(scope, order, order.target, tables, now)


def _planned(scope: Scope, order: ResetOrder, target: Target, tables: Tables, now: Standing) -> PlannedReset:
    _refuse_never_ran(scope, now)
    facts = observe_source(scope)
    offsets = _chosen(scope, order, target, facts)
    if all_rows_gone(now):
        _refuse_part(scope, tables, facts, offsets)
    known = _last_known(scope, tables, now) if all_rows_gone(now) else now.position
    before = known or Position(now.newest, now.newest_epoch, facts.cluster_id)
    lost = {key: end for key, end in lost_ends(scope, before, facts).items() if key in offsets}
    after = reset_position(before, facts, offsets, n=now.newest + 1, epoch=now.newest_epoch + 1).with_lost(lost)
    repairs = lost_follower(scope.pipeline, tables, now) if all_rows_gone(now) else None
    removed = _removed(order, now, before, after)
    emptied = _filled(scope, tables)
    if removed and emptied:
        refuse_compacted(scope, {of.topic for of in removed}, _beside(scope, order, target))
    return PlannedReset(
        order=order,
        tables=tables,
        now=now,
        before=before,
        after=after,
        offsets=offsets,
        first=tuple(_first(scope, tables, now, is_cut=bool(lost))),
        removed_rows=dict.fromkeys(emptied, removed) if removed else {},
        removed=removed,
        repairs=repairs,
        marks=frozenset((*tables.followers, scope.pipeline.dead_letters_table)) if all_rows_gone(now) else frozenset(),
    )


def _removed(order: ResetOrder, now: Standing, before: Position, after: Position) -> tuple[RemovedRange, ...]:
    """Rows and dead letters that go, because their records come again."""
    if order.allow_duplicates:
        return ()
    return at_or_beyond(after) if all_rows_gone(now) else moved_back(before, after)


def _beside(scope: Scope, order: ResetOrder, target: Target) -> str:
    """The same reset without a removal, as a person types it."""
    to, body = (str(target), "") if target.kind != "offsets" else ("FILE.json", json.dumps(target.offsets))
    words = ["frazil", "reset", scope.pipeline.name, "--to", to, *(f"--topic {name}" for name in order.topics)]
    with_file = f" with {body} in FILE.json" if body else ""
    return (
        f"to leave those rows, and land records that come again beside them: {' '.join(words)} --allow-duplicates"
        f' --reason "rows of a compacted topic stay"{with_file}; or, '
    )


def _filled(scope: Scope, tables: Tables) -> list[str]:
    """Destinations that lose rows. An empty one needs no columns to find them by, a merged one loses none."""
    merged = _merged(scope)
    return [
        name for name, of in tables.destinations.items() if of.current_snapshot() is not None and name not in merged
    ]


def _merged(scope: Scope) -> list[str]:
    return [of.table for of in scope.pipeline.destinations if of.is_merged]


def _refuse_never_ran(scope: Scope, now: Standing) -> None:
    marks = (now.mark, now.done, now.dead_letters, now.rolled_back, *now.followers.values())
    if all(mark is None for mark in marks):
        raise Terminal(
            f"pipeline {scope.pipeline.name} never ran, so there is no position to move",
            next_step="`start` in the pipeline file says where the first run begins",
        )


def _refuse_part(scope: Scope, tables: Tables, facts: ClusterFacts, offsets: Mapping[TopicPartition, int]) -> None:
    """Rows of what does not move would never land again."""
    every = [(name, number) for name, topic in sorted(facts.topics.items()) for number in range(len(topic.partitions))]
    unnamed = [f"topic {name}, partition {number}" for name, number in every if (name, number) not in offsets]
    if unnamed:
        raise Terminal(
            f"pipeline {scope.pipeline.name}: the position is gone from table"
            f" {tables.closing_name}, and what does not move would never land again: {unnamed[0]}"
            + (f" and {len(unnamed) - 1} more" if unnamed[1:] else ""),
            next_step="reset without --topic, to a place that says where every partition goes on: earliest, latest, an"
            " instant, or a file that names them all",
        )


def _first(scope: Scope, tables: Tables, now: Standing, *, is_cut: bool) -> Iterator[str]:
    table, is_empty = tables.closing_name, tables.closing.current_snapshot() is None
    if all_rows_gone(now) and is_empty and table in tables.destinations:
        yield f"the rows of all topics are gone from table {table}: tables that are gone are made anew first"
    elif all_rows_gone(now):
        yield f"the position is gone from table {table}: what will come again is taken out of all destinations"
    elif now.unfinished and now.mark is not None:
        yield f"batch {now.mark.n} is decided and not finished: a reset finishes it first"
    if is_cut and (merged := _merged(scope)):
        yield f"what records that Kafka lost made of rows stays in {', '.join(merged)} until other records of their keys come"


def _last_known(scope: Scope, tables: Tables, now: Standing) -> Position | None:
    """The last position that any table knows: the closing table was lost or rolled back, others were not.

    It tells since which batch a topic is the present one: rows of an earlier one can't come again.
    """
    rows = read_ledger(scope.lake, scope.pipeline.ledger_table, scope.pipeline.name)
    recorded = [Position.from_json(row["position"]) for row in rows[-1:]]
    held = [now.position] if now.position is not None else []
    return max((*held, *recorded, *_followed(scope, tables)), key=lambda of: of.n, default=None)


def _followed(scope: Scope, tables: Tables) -> Iterator[Position]:
    """Where the last batch of each follower led, as far as its manifest is still there."""
    of_pipeline = BATCH_KEY.format(scope.pipeline.name)
    for table in (*tables.followers.values(), tables.dead_letters):
        named = (of.get(MANIFEST_KEY) for of in summaries(table.metadata) if of_pipeline in of)
        path = next(filter(None, named), None)
        if path is None:
            continue
        try:
            yield Manifest.from_json(read_text(table, path)).position
        except Terminal as error:
            scope.report(f"manifest {path} can't be read: {error.message}")


def _chosen(scope: Scope, order: ResetOrder, target: Target, facts: ClusterFacts) -> dict[TopicPartition, int]:
    unknown = [name for name in order.topics if name not in facts.topics]
    if unknown:
        raise Terminal(
            f"pipeline {scope.pipeline.name} reads no topic {', '.join(unknown)}",
            next_step=f"its topics: {', '.join(sorted(facts.topics)) or 'none'}",
        )
    offsets = offsets_of(scope, target, facts)
    return {key: at for key, at in offsets.items() if not order.topics or key[0] in order.topics}


def reset(scope: Scope, planned: PlannedReset, request: RunRequest) -> Position:
    """Do a planned reset: one deciding commit, then what follows from it, and the consumer group.

    Args:
        scope: The pipeline and its doors.
        planned: What `plan_reset` found; what `look` found can't be done.
        request: Who asks, and why.

    Returns:
        The new position.

    Raises:
        Terminal: Rows would have to go from a table that does not say where they came from.
        Retryable: A run was faster; look again.
    """
    if planned.is_idle:
        return planned.after
    scope = scope.told_by(planned.tables.ledger)
    manifest, path = write_manifest(scope, planned.tables, planned.now, batch_of(scope, planned, request))
    try:
        decide(scope, manifest, path, planned.now)
    except Refused as refusal:
        raise Retryable(
            f"pipeline {scope.pipeline.name}: a run moved the position meanwhile ({refusal.message}); nothing was reset",
            next_step="reset again; it plans from where the pipeline stands now",
        ) from refusal
    roll_forward(scope, manifest, path, planned.now)
    mirror_position(scope, planned.after)
    return planned.after
