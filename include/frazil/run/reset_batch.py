"""A reset before it is decided: what it finds, also where tables were lost, the batch that it is, and what it takes out."""

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
from frazil.errors import Retryable, Terminal
from frazil.iceberg.holdings import BATCH_KEY, DONE_KEY, RolledBack, lookup
from frazil.iceberg.landed import count_rows
from frazil.iceberg.schema import check_destination, check_layout
from frazil.iceberg.table import absent_table
from frazil.pipeline.model import Pipeline
from frazil.run.identifier import lacks_key, no_key
from frazil.run.manifests import LETTER_COLUMNS, Batch, comes_again, row_removal
from frazil.run.scope import Scope
from frazil.run.standing import Standing, read_state
from frazil.run.tables import Tables, find_tables, known_missing, load_tables, tables_of


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


def found(scope: Scope) -> tuple[Tables, Standing]:
    """The tables as they are, and where the pipeline stands. Makes nothing, finishes nothing.

    A table that is not there is an empty one.

    Raises:
        Terminal: The closing table was rolled back, a follower must be repaired first, or a table does not fit the pipeline.
        Retryable: The catalog can't be reached.
    """
    tables, missing, now = read_all(scope)
    if not may_mend(now):
        if now.rollback is not None:
            raise now.rollback
        _refuse_lost(scope, missing, now)
    _refuse_misfit(scope, tables, missing, now)
    return tables, now


def may_mend(now: Standing) -> bool:
    """Whether the closing table was lost, so that a reset may make tables anew."""
    return now.closing_lost is not None or (now.rolled_back is not None and now.position is None)


def all_rows_gone(now: Standing) -> bool:
    """Whether the closing table was lost, and no reset decided in the new one yet."""
    return may_mend(now) and (now.rolled_back is not None or not now.unfinished)


def lost_follower(pipeline: Pipeline, tables: Tables, now: Standing) -> str | None:
    """The follower that was lost together with the closing table, if one was.

    Raises:
        Terminal: All three were lost, and two of them still hold something of before.
    """
    letters, ledger = pipeline.dead_letters_table, pipeline.ledger_table
    closes_elsewhere = tables.closing_name != ledger
    rolled_back = [
        table
        for table, metadata, key in (
            (letters, tables.dead_letters.metadata, BATCH_KEY),
            *(((ledger, tables.ledger.metadata, DONE_KEY),) if closes_elsewhere else ()),
            *((name, table.metadata, BATCH_KEY) for name, table in tables.followers.items()),
        )
        if isinstance(lookup(metadata, key.format(pipeline.name), table), RolledBack)
    ]
    if rolled_back[1:]:
        raise Terminal(
            f"pipeline {pipeline.name}: table {tables.closing_name} was lost, and {' and '.join(rolled_back)} were"
            " rolled back: a reset can mend one of them with it",
            next_step=f"roll the other one forward again, or drop {ledger}: it is made anew; then reset",
        )
    lost = [*rolled_back, *now.followers_lost, *((ledger,) if now.done is None and closes_elsewhere else ())]
    return lost[0] if lost else None


def read_all(scope: Scope) -> tuple[Tables, list[str], Standing]:
    """The tables, empty ones for those that are not there, the names of these, and where the pipeline stands."""
    pipeline, missing = scope.pipeline, list[str]()

    def load() -> Tables:
        there, closing = load_tables(scope.lake, pipeline)
        missing[:] = [name for name, table in there.items() if table is None]
        return tables_of(pipeline, {name: table or absent_table(name) for name, table in there.items()}, closing)

    tables, now = read_state(pipeline, load)
    return tables, missing, now


def _refuse_lost(scope: Scope, missing: list[str], now: Standing) -> None:
    """A follower that was lost alone is repaired, not reset."""
    # Names what is gone, or where the pipeline moved to; says nothing where it never ran.
    if (
        missing
        and find_tables(scope.lake, scope.pipeline) is not None
        and known_missing(scope.pipeline, now.told, missing)
    ):
        raise Retryable(f"pipeline {scope.pipeline.name}: another command made table {', '.join(missing)} meanwhile")
    for lost in now.followers_lost.values():
        raise lost


def _refuse_misfit(scope: Scope, tables: Tables, missing: list[str], now: Standing) -> None:
    fold = scope.pipeline.value.folds_names
    for destination in scope.pipeline.destinations:
        if lacks_key(destination):
            raise no_key(destination, is_there=destination.table not in missing)
        if destination.table in missing:
            check_layout(destination)
        elif not now.unfinished and now.rolled_back is None:  # an edited file must not keep those from being finished
            check_destination(tables.destinations[destination.table], destination, fold=fold)
