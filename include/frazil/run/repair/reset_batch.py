"""A planned reset: the order, the tables and the state that it is planned on, its batch, and the rows that it removes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from frazil.batch.changes import Removal, RemovedRange
from frazil.batch.facts import Range, TopicPartition
from frazil.batch.position import Position, RunRequest, Target
from frazil.batch.reset import Move, moves
from frazil.error_codes import NEVER_RAN, RUN_OVERTAKEN, TABLE_ROLLED_BACK
from frazil.errors import Terminal
from frazil.iceberg.catalog.table import absent_table
from frazil.iceberg.commit.removal import count_rows
from frazil.iceberg.commit.summary_state import BATCH_KEY, DONE_KEY, RolledBack, read_summary
from frazil.iceberg.schema.comparison import check_destination
from frazil.iceberg.schema.schema import check_layout
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.run.commit.manifests import LETTER_COLUMNS, Batch, removed_on_return, row_removal
from frazil.run.state.context import RunContext, lacks_key, missing_key_error
from frazil.run.state.pipeline_state import PipelineState, read_state
from frazil.run.state.tables import Tables, find_tables, load_tables, tables_of


@dataclass(frozen=True)
class ResetOrder:
    """The request for a reset: the new position of a pipeline.

    Attributes:
        target: The new position; None for the one that the closing table contains.
        topics: Only these topics move; empty for all.
        allow_duplicates: Whether rows and dead letters stay whose records will be read again. Otherwise they are removed.
    """

    target: Target | None
    topics: tuple[str, ...] = ()
    allow_duplicates: bool = False


@dataclass(frozen=True)
class PlannedReset:
    """A planned reset, which can be shown before it is done.

    Attributes:
        tables: Tables of the pipeline, with an empty one in place of each that does not exist.
        remarks: Further effects, one line each, for the user to confirm.
        removed_rows: Destination -> ranges whose rows are removed from it.
        removed: Ranges whose rows and dead letters are removed, because their records will be read again.
        skipped: Offsets that should be read again but are gone from Kafka.
        repairs: A follower that was lost, too: it gets the new batch's mark, whatever it holds.
        marks: Followers that get the new batch's mark although they lose no rows.
        is_idle: Whether there is nothing to do.
    """

    order: ResetOrder
    tables: Tables
    state: PipelineState
    before: Position
    after: Position
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
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
    def with_fixed_offsets(self) -> ResetOrder:
        """The order with the shown offsets as its target: `latest` or an instant could mean others after the confirmation."""
        if self.order.target is None or self.order.target.kind in ("earliest", "offsets"):
            return self.order
        shown: dict[str, dict[int, int]] = {}
        for (topic, number), offset in self.offsets.items():
            shown.setdefault(topic, {})[number] = offset
        return replace(self.order, target=Target("offsets", offsets=shown))

    def has_same_effect(self, shown: PlannedReset) -> bool:
        """Whether this reset moves and removes the same as the one that was shown."""
        return (self.moves, self.removed) == (shown.moves, shown.removed)


@dataclass(frozen=True, slots=True)
class RemovalCounts:
    """Counts of the rows and dead letters that a reset removes.

    Destinations that lose none are left out.
    """

    rows: Mapping[str, int]
    dead_letters: int


def batch_of(context: RunContext, planned: PlannedReset, request: RunRequest) -> Batch:
    """The batch that does a planned reset."""
    return Batch(
        kind=planned.kind,
        run=request.run,
        position=planned.after,
        planned_at=context.stamp(),
        removed_from=planned.removed_rows,
        removed_letters=planned.removed,
        started_by=request.started_by,
        reason=request.reason,
        repairs=planned.repairs,
        skipped=planned.skipped,
        marks=planned.marks,
    )


def count_removed(context: RunContext, planned: PlannedReset) -> RemovalCounts:
    """Count the rows and dead letters that a planned reset removes, including tables that earlier resets skipped.

    Raises:
        Terminal: Rows would have to be removed from a table without Kafka columns.
    """
    context = context.with_ledger_tables(planned.tables.ledger)
    tables, pipeline, batch = planned.tables, context.pipeline, batch_of(context, planned, RunRequest(""))
    rows = {}
    for name, table in tables.destinations.items():
        ranges = (*batch.removed_from.get(name, ()), *removed_on_return(pipeline, planned.state, name, batch))
        removal = row_removal(pipeline, name, ranges)
        rows[name] = count_rows(table, name, removal) if removal is not None else 0
    letters = Removal(LETTER_COLUMNS, batch.removed_letters) if batch.removed_letters else None
    dead = count_rows(tables.dead_letters, pipeline.dead_letters_table, letters) if letters is not None else 0
    return RemovalCounts({name: count for name, count in rows.items() if count}, dead)


def never_ran_error(pipeline: Pipeline) -> Terminal:
    """The error if a pipeline without any batch is to be reset."""
    return NEVER_RAN.terminal(
        f"pipeline {pipeline.name} never ran, so there is no position to move",
        next_step="`start` in the pipeline file says where the first run begins",
    )


def inspect_tables(context: RunContext) -> tuple[Tables, PipelineState]:
    """Read the tables, with empty ones in place of missing ones, and the pipeline's state. Changes nothing.

    Raises:
        Terminal: The closing table was rolled back, a follower must be repaired first, or a table does not fit the pipeline.
    """
    tables, missing, state = read_tables(context)
    if not is_closing_lost(state):
        if state.rollback is not None:
            raise state.rollback
        _refuse_lost(context, missing, state)
    _refuse_misfit(context, tables, missing, state)
    return tables, state


def is_closing_lost(state: PipelineState) -> bool:
    """Whether the closing table was lost, so that a reset may create tables again."""
    return state.closing_lost is not None or (state.rolled_back is not None and state.position is None)


def all_rows_gone(state: PipelineState) -> bool:
    """Whether the closing table was lost, and no reset was decided in the new one yet."""
    return is_closing_lost(state) and (state.rolled_back is not None or not state.unfinished)


def lost_follower(pipeline: Pipeline, tables: Tables, state: PipelineState) -> str | None:
    """The follower that was lost together with the closing table, if one was.

    Raises:
        Terminal: Two or more followers were rolled back: a reset can repair only one.
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
        if isinstance(read_summary(metadata, key.format(pipeline.name), table), RolledBack)
    ]
    if rolled_back[1:]:
        raise TABLE_ROLLED_BACK.terminal(
            f"pipeline {pipeline.name}: table {tables.closing_name} was lost, and {' and '.join(rolled_back)} were"
            " rolled back: a reset can repair only one of them",
            next_step=f"roll the other one forward again, or drop {ledger}: it is recreated; then reset",
        )
    lost = [
        *rolled_back,
        *state.followers_lost,
        *((ledger,) if state.last_finished is None and closes_elsewhere else ()),
    ]
    return lost[0] if lost else None


def read_tables(context: RunContext) -> tuple[Tables, list[str], PipelineState]:
    """Read the tables, with empty ones in place of missing ones; return also the missing names and the pipeline's state."""
    pipeline, missing = context.pipeline, list[str]()

    def load() -> Tables:
        loaded_tables, closing = load_tables(context.lake, pipeline)
        missing[:] = [name for name, table in loaded_tables.items() if table is None]
        return tables_of(
            pipeline, {name: table or absent_table(name) for name, table in loaded_tables.items()}, closing
        )

    tables, state = read_state(pipeline, load)
    return tables, missing, state


def _refuse_lost(context: RunContext, missing: list[str], state: PipelineState) -> None:
    """Refuse to reset if only a follower was lost: a repair restores it."""
    # Raises if the pipeline ran, naming the lost tables or where its tables moved. Otherwise other commands created tables.
    tables = find_tables(context.lake, context.pipeline) if missing else None
    if tables is not None and any(
        name in tables.destinations or name not in context.pipeline.tables for name in missing
    ):
        raise RUN_OVERTAKEN.retryable(
            f"pipeline {context.pipeline.name}: another command made table {', '.join(missing)} meanwhile"
        )
    for lost in state.followers_lost.values():
        raise lost


def _refuse_misfit(context: RunContext, tables: Tables, missing: list[str], state: PipelineState) -> None:
    fold = context.pipeline.value.folds_names
    for destination in context.pipeline.destinations:
        if lacks_key(destination):
            raise missing_key_error(destination, is_there=destination.table not in missing)
        if destination.table in missing:
            check_layout(destination)
        elif not state.unfinished and state.rolled_back is None:
            # Only between batches: an edited file must not block the end of a decided batch, or of a rollback.
            check_destination(tables.destinations[destination.table], destination, context.pipeline.name, fold=fold)
