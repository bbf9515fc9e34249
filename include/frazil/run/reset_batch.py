"""A planned reset, the batch that it is, and how many rows and dead letters it takes out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from frazil.batch.facts import Range, TopicPartition
from frazil.batch.position import Position
from frazil.batch.removal import Removal, RemovedRange
from frazil.batch.request import RunRequest
from frazil.batch.reset import Move, moves
from frazil.batch.target import Target
from frazil.iceberg.landed import count_rows
from frazil.run.manifests import LETTER_COLUMNS, Batch, comes_again, row_removal
from frazil.run.scope import Scope
from frazil.run.standing import Standing
from frazil.run.tables import Tables


@dataclass(frozen=True)
class ResetOrder:
    """Where a pipeline is to go on.

    Attributes:
        target: The new position; None for the one that the closing table holds.
        topics: Only these topics move; empty for all.
        allow_duplicates: Whether records that come again may stand beside the rows they already have. Otherwise a move
            back takes those rows and dead letters out.
    """

    target: Target | None
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
        kind: Of the batch that it is.
        removed_rows: Rows that go from each destination.
        removed: Rows and dead letters that go, because their records come again.
        skipped: Offsets that should come again and are gone from Kafka: given up.
        repairs: A follower that was lost, too, and is given the new batch's mark whatever it holds.
        marks: Followers that get the new batch's mark although nothing goes from them.
        is_idle: Whether there is nothing to do.
    """

    order: ResetOrder
    tables: Tables
    now: Standing
    before: Position
    after: Position
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    first: tuple[str, ...] = ()
    kind: Literal["reset", "rewind"] = "reset"
    removed_rows: Mapping[str, tuple[RemovedRange, ...]] = field(default_factory=dict)
    removed: tuple[RemovedRange, ...] = ()
    skipped: tuple[Range, ...] = ()
    repairs: str | None = None
    marks: frozenset[str] = frozenset()
    is_idle: bool = False

    @property
    def moves(self) -> tuple[Move, ...]:
        """How each partition moves."""
        return moves(self.before, self.after)

    @property
    def pinned(self) -> ResetOrder:
        """The order with the offsets that were shown: what `latest` or an instant means moves on while somebody looks."""
        if self.order.target is None or self.order.target.kind in ("earliest", "offsets"):
            return self.order
        shown: dict[str, dict[int, int]] = {}
        for (topic, number), offset in self.offsets.items():
            shown.setdefault(topic, {})[number] = offset
        return replace(self.order, target=Target("offsets", offsets=shown))

    def does_as(self, shown: PlannedReset) -> bool:
        """Whether this does what another one showed."""
        return (self.moves, self.removed) == (shown.moves, shown.removed)


@dataclass(frozen=True, slots=True)
class Removed:
    """What a reset takes out.

    Attributes:
        rows: Destination -> rows that go; those that lose none are left out.
        dead_letters: Letters that go.
    """

    rows: Mapping[str, int]
    dead_letters: int


def batch_of(scope: Scope, planned: PlannedReset, request: RunRequest) -> Batch:
    """The batch that does a planned reset."""
    return Batch(
        kind=planned.kind,
        run=request.run,
        position=planned.after,
        planned_at=scope.stamp(),
        removed_from=planned.removed_rows,
        removed_letters=planned.removed,
        started_by=request.started_by,
        reason=request.reason,
        repairs=planned.repairs,
        skipped=planned.skipped,
        marks=planned.marks,
    )


def count_removed(scope: Scope, planned: PlannedReset) -> Removed:
    """How many rows and dead letters a planned reset takes out, also of tables that earlier resets passed by.

    Raises:
        Terminal: Rows would have to go from a table that does not say where they came from.
        Retryable: The storage can't be read now.
    """
    scope = scope.told_by(planned.tables.ledger)
    tables, pipeline, batch = planned.tables, scope.pipeline, batch_of(scope, planned, RunRequest(""))
    rows = {}
    for name, table in tables.destinations.items():
        gone = (*batch.removed_from.get(name, ()), *comes_again(pipeline, planned.now, name, batch))
        removal = row_removal(pipeline, name, gone)
        rows[name] = count_rows(table, name, removal) if removal is not None else 0
    letters = Removal(LETTER_COLUMNS, batch.removed_letters) if batch.removed_letters else None
    dead = count_rows(tables.dead_letters, pipeline.dead_letters_table, letters) if letters is not None else 0
    return Removed({name: count for name, count in rows.items() if count}, dead)
