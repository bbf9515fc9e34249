"""Settling a follower or the ledger that lost what it was given: one audited commit, after which the pipeline goes on.

A settling batch is decided like any other, also on top of a decided batch that could not be finished. It gives the table
what it should hold, in another way than planned, and brings the unfinished batch's rows into the ledger. Whoever comes
after a crash rolls it forward.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from frazil.batch.facts import Range, Staged
from frazil.batch.position import Position
from frazil.batch.request import RunRequest
from frazil.batch.schema_change import Demands
from frazil.errors import Retryable, Terminal
from frazil.iceberg.commit import Refused
from frazil.iceberg.table import delete_files
from frazil.pipeline.model import Pipeline
from frazil.run.evolution import evolved_for
from frazil.run.identifier import lacks_key, no_key
from frazil.run.letter_topic import send_letters
from frazil.run.manifests import Batch
from frazil.run.owed import Debt, ledger_debt, letters_debt
from frazil.run.owed_rows import look_at_rows, restage_rows, rows_debt
from frazil.run.publish import publish
from frazil.run.restage import Restaged, restage
from frazil.run.rewind import decide_rewind
from frazil.run.scope import Scope
from frazil.run.settled import ROUNDS
from frazil.run.standing import Standing, standing
from frazil.run.tables import Tables, load_tables, open_tables
from frazil.run.unfinished import Unfinished, finish, follow_where_possible, unfinished


@dataclass(frozen=True)
class SettleOrder:
    """What is asked for.

    Attributes:
        table: The table that lost something: a destination that follows, the dead letters or the ledger.
        restage: Whether it gets what can be had again.
        abandon: Whether the rest may be given up; without `restage`, all of it.
    """

    table: str
    restage: bool
    abandon: bool


@dataclass(frozen=True)
class PlannedSettle:
    """A settle that can be looked at before it is done.

    Attributes:
        order: What is asked for.
        tables: Of the pipeline.
        now: Where it stands.
        position: Its position.
        debt: What the table lacks.
    """

    order: SettleOrder
    tables: Tables
    now: Standing
    position: Position
    debt: Debt

    @property
    def gone(self) -> tuple[str, ...]:
        """What can't be had again, one line each."""
        return self.debt.gone


@dataclass(frozen=True, slots=True)
class Settled:
    """What a settle did.

    Attributes:
        n: Number of the settling batch.
        restaged: Dead letters or rows that were landed again, or batches whose ledger rows were written again.
        abandoned: Those that were given up, at most.
        remarks: What does not add up, one line each.
    """

    n: int
    restaged: int
    abandoned: int
    remarks: tuple[str, ...]


def plan_settle(scope: Scope, order: SettleOrder) -> PlannedSettle | None:
    """Look at what a settle would do. Makes a missing table, and finishes what can be finished without a settle.

    Returns:
        The plan, or None if the table holds what it should.

    Raises:
        Terminal: The table is no follower of the pipeline, or another one must be mended first; or nothing, the pipeline's
            last batches included, tells the key of a merged table.
        Retryable: Kafka or the catalog is not available now.
    """
    for _ in range(ROUNDS):
        pipeline = scope.pipeline
        # Both may have been dropped; the one that is not asked for shows as lost then, and is settled next.
        _, closing = load_tables(scope.lake, pipeline)
        refuse_other_table(scope, order.table, closing)
        tables = open_tables(scope.lake, pipeline, recreate=_followers(pipeline, closing))
        told = scope.told_by(tables.ledger)
        if told is not scope:
            scope = told
            continue
        now = standing(pipeline, tables)
        _refuse_other_loss(scope, now, order.table)
        if now.rolled_back is not None:
            _follow_rollback(scope, tables, now)
            continue
        last = unfinished(scope, tables, now)
        if last is not None and order.table not in now.followers_lost and finish(scope, last, now, order.table):
            continue
        if last is None and order.table not in now.followers_lost:
            return None
        if now.position is None:
            raise Terminal(f"pipeline {pipeline.name} never ran, so no table lacks anything")
        for of in filter(lacks_key, pipeline.destinations):
            raise no_key(of, is_there=of.table in tables.destinations)
        if last is not None:
            send_letters(scope, last.manifest)  # nobody rolls that batch forward any more
        return PlannedSettle(order, tables, now, now.position, _debt(scope, tables, now, order.table, last))
    raise Retryable(f"pipeline {scope.pipeline.name}: other runs kept moving it over {ROUNDS} looks")


def _followers(pipeline: Pipeline, closing: str) -> tuple[str, ...]:
    names = (*pipeline.tables, pipeline.dead_letters_table, pipeline.ledger_table)
    return tuple(name for name in names if name != closing)


def refuse_other_table(scope: Scope, table: str, closing: str) -> None:
    """Refuse to settle a table that is no follower.

    Raises:
        Terminal: It is the closing table, or not of this pipeline.
    """
    pipeline = scope.pipeline
    if table in _followers(pipeline, closing):
        return
    if table == closing and table in pipeline.tables:
        raise Terminal(
            f"table {table} holds the position of pipeline {pipeline.name}, so there is nothing to settle it by: a rollback"
            " is followed by the next run",
            next_step=f'made anew, it is filled again by: frazil reset {pipeline.name} --to earliest --reason "…"',
        )
    if table == closing:
        raise Terminal(
            f"table {table} holds the position of pipeline {pipeline.name}, so there is nothing to settle it by",
            next_step="restore it from its last metadata file, or take all rows out and land what Kafka still holds:"
            f' frazil reset {pipeline.name} --to earliest --reason "…"',
        )
    raise Terminal(
        f"table {table} is no follower of pipeline {pipeline.name}",
        next_step=f"its followers: {', '.join(_followers(pipeline, closing))}",
    )


def _refuse_other_loss(scope: Scope, now: Standing, table: str) -> None:
    if now.closing_lost is not None:
        raise now.closing_lost
    ledger = scope.pipeline.ledger_table
    if table != ledger and ledger in now.followers_lost:  # what the letters lack is known from the ledger
        raise now.followers_lost[ledger]


def _follow_rollback(scope: Scope, tables: Tables, now: Standing) -> None:
    """Decide what a rolled-back closing table stands for; its followers are settled on top of it."""
    try:
        decide_rewind(scope, tables, now)
    except Refused as refusal:
        scope.report(f"another run follows the rollback: {refusal.message}")


def _debt(scope: Scope, tables: Tables, now: Standing, table: str, last: Unfinished | None) -> Debt:
    if table == scope.pipeline.ledger_table:
        return ledger_debt(scope, tables, now, last)
    if last is not None:
        follow_where_possible(scope, last, now, table)
    if table in scope.pipeline.tables:
        return rows_debt(scope, now, table, last)
    return letters_debt(scope, now, last)


def settle(scope: Scope, planned: PlannedSettle, request: RunRequest) -> Settled:
    """Do a planned settle: one deciding commit, then what follows from it.

    Args:
        scope: The pipeline and its doors.
        planned: What `plan_settle` found.
        request: Who asks, and why.

    Raises:
        Terminal: Something can't be had again, and the order does not say that it may be given up.
        Retryable: Another command was faster; look again.
    """
    scope, order, debt = scope.told_by(planned.tables.ledger), planned.order, planned.debt
    if order.restage and not order.abandon and debt.gone and debt.must_be_whole:
        raise _can_not(scope, order, debt.gone)
    planned, changes = _evolved(scope, planned)
    staged = _staged(scope, planned)
    if staged.problems and not order.abandon:
        delete_files(planned.tables.dead_letters, [file.path for file in staged.files])
        raise _can_not(scope, order, staged.problems)
    batch = replace(_batch(scope, planned, request, staged), schema_changes=changes)
    try:
        publish(scope, planned.tables, planned.now, batch)
    except Refused as refusal:
        raise Retryable(
            f"pipeline {scope.pipeline.name}: another command was faster ({refusal.message}); nothing was settled",
            next_step="settle again; it plans from where the pipeline stands now",
        ) from refusal
    restaged = len(batch.recovers) if debt.is_ledger else sum(staged.letters.values())
    return Settled(batch.position.n, restaged, batch.abandoned, (*debt.gone, *staged.problems))


def _evolved(scope: Scope, planned: PlannedSettle) -> tuple[PlannedSettle, Demands]:
    """A destination that was made anew has the declared columns only: it gets those that its rows had."""
    debt = planned.debt
    if debt.rows_table is None or not planned.order.restage or not debt.letters:
        return planned, {}
    look = look_at_rows(scope, planned.tables, debt.rows_table, debt.letters)
    tables, changes = evolved_for(scope, planned.tables, planned.now.newest + 1, look)
    return replace(planned, tables=tables), changes


def _staged(scope: Scope, planned: PlannedSettle) -> Restaged:
    debt, tables = planned.debt, planned.tables
    if not planned.order.restage or not debt.letters:
        return Restaged()
    if debt.rows_table is not None:
        return restage_rows(scope, tables, debt.rows_table, debt.letters)
    return restage(scope, tables, debt.letters)


def _can_not(scope: Scope, order: SettleOrder, lines: tuple[str, ...]) -> Terminal:
    return Terminal(
        f"table {order.table} can't get everything again; nothing was changed:\n"
        + "\n".join(f"  {at}" for at in lines),
        next_step="land again what can be had and give up the rest, on record:"
        f" frazil settle {scope.pipeline.name} --table {order.table} --restage --abandon --reason …",
    )


def _batch(scope: Scope, planned: PlannedSettle, request: RunRequest, staged: Restaged) -> Batch:
    position, now, debt, order = planned.position, planned.now, planned.debt, planned.order
    after = {name: replace(at, start=at.next) for name, at in position.topics.items()}
    files = {order.table: staged.files} if staged.files else {}
    read: tuple[Range, ...] = tuple(r for of in debt.letters for r in of.ranges)
    return Batch(
        kind="settle",
        run=request.run,
        position=replace(position, n=now.newest + 1, topics=after),
        planned_at=scope.stamp(),
        staged=Staged(files=files),
        ranges=read if order.restage else (),
        skipped=debt.lost if order.restage else (*debt.lost, *read),
        removed_letters=() if debt.rows_table else debt.removed,
        removed_from={debt.rows_table: debt.removed} if debt.rows_table else {},
        started_by=request.started_by,
        reason=request.reason,
        settles=order.table,
        recovers=debt.recovers if order.restage else debt.unfinished,
        abandoned=_abandoned(planned, staged),
        marks=debt.marks,
    )


def _abandoned(planned: PlannedSettle, staged: Restaged) -> int:
    """What is given up, at most: batches of the ledger, or letters."""
    debt = planned.debt
    if not planned.order.restage:
        return debt.total - (len(debt.unfinished) if debt.is_ledger else 0)
    incomplete = sum(debt.expected[n] - staged.letters.get(n, 0) for n in debt.incomplete)
    return incomplete + sum(missing for n, missing in staged.missing.items() if n not in debt.incomplete)
