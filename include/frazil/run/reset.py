"""Reset: moving the position on demand, in one audited commit that begins a new epoch."""

from __future__ import annotations

from dataclasses import dataclass

from frazil.batch.facts import ClusterFacts, TopicPartition
from frazil.batch.position import Position
from frazil.batch.removal import Removal, RemovedRange, moved_back
from frazil.batch.request import RunRequest
from frazil.batch.reset import Move, moves, reset_position
from frazil.batch.target import Target
from frazil.errors import Retryable, Terminal
from frazil.iceberg.commit import Refused
from frazil.iceberg.landed import count_rows
from frazil.iceberg.ledger import read_ledger
from frazil.run.forward import decide, roll_forward
from frazil.run.manifests import LETTER_COLUMNS, Batch, row_removal, write_manifest
from frazil.run.mirror import mirror_position
from frazil.run.scope import Scope
from frazil.run.settled import settled
from frazil.run.source import observe_source, offsets_of
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
    """A reset that can be looked at before it is done."""

    order: ResetOrder
    tables: Tables
    now: Standing
    before: Position
    after: Position

    @property
    def removed(self) -> tuple[RemovedRange, ...]:
        """Rows and dead letters that go, because their records come again."""
        return () if self.order.allow_duplicates else moved_back(self.before, self.after)

    @property
    def moves(self) -> tuple[Move, ...]:
        """How each partition moves."""
        return moves(self.before, self.after)


def plan_reset(scope: Scope, order: ResetOrder) -> PlannedReset:
    """Look at what a reset would do. Commits nothing, but finishes a decided batch first.

    Raises:
        Terminal: The pipeline never ran, or the target does not fit the topics.
        Retryable: Kafka or the catalog is not available now.
    """
    closing = scope.pipeline.destinations[0].table
    tables, now = settled(scope, mends=(closing,))
    facts = observe_source(scope)
    if now.newest == 0 and now.position is None and now.done is None:
        raise Terminal(
            f"pipeline {scope.pipeline.name} never ran, so there is no position to move",
            next_step="`start` in the pipeline file says where the first run begins",
        )
    before = now.position or _recorded(scope) or Position(now.newest, now.newest_epoch, facts.cluster_id)
    offsets = _chosen(scope, order, facts)
    after = reset_position(before, facts, offsets, n=now.newest + 1, epoch=now.newest_epoch + 1)
    return PlannedReset(order, tables, now, before, after)


def _recorded(scope: Scope) -> Position | None:
    """The last position that the ledger knows: the closing table was lost, its letters were not."""
    rows = read_ledger(scope.lake, scope.pipeline.ledger_table, scope.pipeline.name)
    return Position.from_json(rows[-1]["position"]) if rows else None


def _chosen(scope: Scope, order: ResetOrder, facts: ClusterFacts) -> dict[TopicPartition, int]:
    unknown = [name for name in order.topics if name not in facts.topics]
    if unknown:
        raise Terminal(
            f"pipeline {scope.pipeline.name} reads no topic {', '.join(unknown)}",
            next_step=f"its topics: {', '.join(sorted(facts.topics)) or 'none'}",
        )
    offsets = offsets_of(scope, order.target, facts)
    return {key: at for key, at in offsets.items() if not order.topics or key[0] in order.topics}


def count_removed(scope: Scope, planned: PlannedReset) -> tuple[int, int]:
    """How many rows and dead letters a planned reset takes out.

    Raises:
        Terminal: Rows would have to go from a table that does not say where they came from.
        Retryable: The storage can't be read now.
    """
    tables, pipeline = planned.tables, scope.pipeline
    rows = row_removal(pipeline, planned.removed)
    if rows is None:
        return 0, 0
    letters = Removal(LETTER_COLUMNS, planned.removed)
    return (
        count_rows(tables.destination, pipeline.destinations[0].table, rows),
        count_rows(tables.dead_letters, pipeline.dead_letters_table, letters),
    )


def reset(scope: Scope, planned: PlannedReset, request: RunRequest) -> Position:
    """Do a planned reset: one deciding commit, then what follows from it, and the consumer group.

    Args:
        scope: The pipeline and its doors.
        planned: What `plan_reset` found.
        request: Who asks, and why.

    Returns:
        The new position.

    Raises:
        Terminal: Rows would have to go from a table that does not say where they came from.
        Retryable: A run was faster; look again.
    """
    removed = planned.removed
    batch = Batch(
        kind="reset",
        run=request.run,
        position=planned.after,
        planned_at=scope.stamp(),
        removed=removed,
        removed_letters=removed,
        started_by=request.started_by,
        reason=request.reason,
    )
    manifest, path = write_manifest(scope, planned.tables, planned.now, batch)
    try:
        decide(scope, manifest, path, planned.now)
    except Refused as refusal:
        raise Retryable(
            f"pipeline {scope.pipeline.name}: a run moved the position meanwhile ({refusal.message}); nothing was reset",
            next_step="reset again; it plans from where the pipeline stands now",
        ) from refusal
    roll_forward(scope, manifest, path, planned.now)
    mirror_position(scope)
    return planned.after
