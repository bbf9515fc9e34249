"""Reset: moving the position on demand, in one audited commit that begins a new epoch.

Where the closing table was lost, a reset is the way on: then every row of the pipeline is gone, whichever topic it came
from, so all topics move, every letter that will come again goes, and all tables get the new batch's mark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from frazil.batch.facts import ClusterFacts, TopicPartition
from frazil.batch.manifest import Manifest
from frazil.batch.position import Position
from frazil.batch.removal import RemovedRange, at_or_beyond, moved_back
from frazil.batch.request import RunRequest
from frazil.batch.reset import Move, moves, reset_position
from frazil.batch.target import Target
from frazil.errors import Retryable, Terminal
from frazil.iceberg.commit import Refused
from frazil.iceberg.holdings import BATCH_KEY, MANIFEST_KEY
from frazil.iceberg.landed import summaries
from frazil.iceberg.ledger import read_ledger
from frazil.iceberg.table import read_text
from frazil.run.forward import decide, roll_forward
from frazil.run.manifests import write_manifest
from frazil.run.mirror import mirror_position
from frazil.run.reset_batch import batch_of
from frazil.run.reset_look import all_rows_gone, found, lost_follower, may_mend
from frazil.run.scope import Scope
from frazil.run.settled import settled
from frazil.run.source import observe_source, offsets_of, refuse_compacted
from frazil.run.standing import Standing
from frazil.run.tables import Tables


@dataclass(frozen=True)
class ResetOrder:
    """Where a pipeline is to go on.

    Attributes:
        target: The new position.
        topics: Only these topics move; empty for all.
        allow_duplicates: Whether records that come again may stand beside the rows they already have. Otherwise a move
            back takes those rows and dead letters out.
    """

    target: Target
    topics: tuple[str, ...] = ()
    allow_duplicates: bool = False


@dataclass(frozen=True)
class PlannedReset:
    """A reset that can be looked at before it is done.

    Attributes:
        order: What is asked for.
        tables: Of the pipeline; one that is not there is empty.
        now: Where it stands.
        before: The position that moves.
        after: The new one.
        offsets: What the order's target means by now.
        first: What else happens, or must be known, one line each.
        repairs: A follower that was lost, too, and is given the new batch's mark whatever it holds.
        merged: Destinations whose rows are what their last changes made of them.
    """

    order: ResetOrder
    tables: Tables
    now: Standing
    before: Position
    after: Position
    offsets: Mapping[TopicPartition, int]
    first: tuple[str, ...] = ()
    repairs: str | None = None
    merged: frozenset[str] = frozenset()

    @property
    def removed_rows(self) -> Mapping[str, tuple[RemovedRange, ...]]:
        """Rows that go from each destination. An empty one needs no columns to find them by, a merged one loses none."""
        filled = (
            name
            for name, of in self.tables.destinations.items()
            if of.current_snapshot() is not None and name not in self.merged
        )
        return dict.fromkeys(filled, self.removed) if self.removed else {}

    @property
    def removed(self) -> tuple[RemovedRange, ...]:
        """Rows and dead letters that go, because their records come again."""
        if self.order.allow_duplicates:
            return ()
        return at_or_beyond(self.after) if all_rows_gone(self.now) else moved_back(self.before, self.after)

    @property
    def moves(self) -> tuple[Move, ...]:
        """How each partition moves."""
        return moves(self.before, self.after)

    @property
    def pinned(self) -> ResetOrder:
        """The order with the offsets that were shown: what `latest` or an instant means moves on while somebody looks."""
        if self.order.target.kind in ("earliest", "offsets"):
            return self.order
        shown: dict[str, dict[int, int]] = {}
        for (topic, number), offset in self.offsets.items():
            shown.setdefault(topic, {})[number] = offset
        return replace(self.order, target=Target("offsets", offsets=shown))

    def does_as(self, shown: PlannedReset) -> bool:
        """Whether this does what another one showed."""
        return (self.moves, self.removed) == (shown.moves, shown.removed)


def look(scope: Scope, order: ResetOrder) -> PlannedReset:
    """Look at what a reset would do. Commits nothing, makes nothing, finishes nothing.

    Raises:
        Terminal: The pipeline never ran, the target does not fit the topics, or another table must be mended first.
        Retryable: Kafka or the catalog is not available now.
    """
    return _planned(scope, order, *found(scope))


def plan_reset(scope: Scope, order: ResetOrder) -> PlannedReset:
    """Plan a reset that can be done. Finishes a decided batch, follows a rollback and makes lost tables anew.

    Raises:
        Terminal: As `look`, and then nothing was changed; or a table can't take its part of a decided batch.
        Retryable: Kafka or the catalog is not available now.
    """
    seen, pipeline = look(scope, order), scope.pipeline
    names = (*pipeline.tables, pipeline.dead_letters_table, pipeline.ledger_table)
    scope, tables, now = settled(scope, mends=names if may_mend(seen.now) else ())
    return _planned(scope, order, tables, now)


def _planned(scope: Scope, order: ResetOrder, tables: Tables, now: Standing) -> PlannedReset:
    _refuse_never_ran(scope, now)
    facts = observe_source(scope)
    offsets = _chosen(scope, order, facts)
    if all_rows_gone(now):
        _refuse_part(scope, tables, facts, offsets)
    known = _last_known(scope, tables, now) if all_rows_gone(now) else now.position
    before = known or Position(now.newest, now.newest_epoch, facts.cluster_id)
    step = 2 if _rewinds(now) else 1
    after = reset_position(before, facts, offsets, n=now.newest + step, epoch=now.newest_epoch + step)
    repairs = lost_follower(scope.pipeline, tables, now) if all_rows_gone(now) else None
    merged = frozenset(of.table for of in scope.pipeline.destinations if of.is_merged)
    planned = PlannedReset(order, tables, now, before, after, offsets, _first(tables, now), repairs, merged)
    if not all_rows_gone(now):
        refuse_compacted(scope, {r.topic for of in planned.removed_rows.values() for r in of})
    return planned


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
            f"pipeline {scope.pipeline.name}: the rows of all topics are gone from table"
            f" {tables.closing_name}, and what does not move would never land again: {unnamed[0]}"
            + (f" and {len(unnamed) - 1} more" if unnamed[1:] else ""),
            next_step="reset without --topic, to a place that says where every partition goes on: earliest, latest, an"
            " instant, or a file that names them all",
        )


def _rewinds(now: Standing) -> bool:
    return now.rolled_back is not None and not all_rows_gone(now)


def _first(tables: Tables, now: Standing) -> tuple[str, ...]:
    table = tables.closing_name
    if all_rows_gone(now) and table not in tables.destinations:
        return (f"the position is gone from table {table}: what will come again is taken out of all destinations",)
    if all_rows_gone(now):
        return (f"the rows of all topics are gone from table {table}: tables that are gone are made anew first",)
    if _rewinds(now):
        return (f"table {table} was rolled back: a reset follows that first, so it may move from elsewhere",)
    if now.unfinished and now.mark is not None:
        return (f"batch {now.mark.n} is decided and not finished: a reset finishes it first",)
    return ()


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


def _chosen(scope: Scope, order: ResetOrder, facts: ClusterFacts) -> dict[TopicPartition, int]:
    unknown = [name for name in order.topics if name not in facts.topics]
    if unknown:
        raise Terminal(
            f"pipeline {scope.pipeline.name} reads no topic {', '.join(unknown)}",
            next_step=f"its topics: {', '.join(sorted(facts.topics)) or 'none'}",
        )
    offsets = offsets_of(scope, order.target, facts)
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
