"""What a reset finds before it changes anything, also where tables were lost."""

from __future__ import annotations

from frazil.errors import Retryable, Terminal
from frazil.iceberg.absent import absent_table
from frazil.iceberg.holdings import BATCH_KEY, DONE_KEY, RolledBack, lookup
from frazil.iceberg.schema import check_destination, check_layout
from frazil.pipeline.model import Pipeline
from frazil.run.identifier import lacks_key, no_key
from frazil.run.scope import Scope
from frazil.run.standing import Standing, standing
from frazil.run.tables import Tables, find_tables, known_missing, load_tables, tables_of


def found(scope: Scope) -> tuple[Tables, Standing]:
    """The tables as they are, and where the pipeline stands. Makes nothing, finishes nothing.

    A table that is not there is an empty one.

    Raises:
        Terminal: The closing table was rolled back, a follower must be repaired first, or a table does not fit the pipeline.
        Retryable: The catalog can't be reached.
    """
    tables, missing, now = read_twice(scope)
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


def read_twice(scope: Scope) -> tuple[Tables, list[str], Standing]:
    """The tables, empty ones for those that are not there, the names of these, and where the pipeline stands."""
    tables, missing, now = _read(scope)
    seen: tuple[object, ...] | None = None
    # The tables are read one after another: a rival between them looks like a loss, but not twice alike.
    while now.is_hurt and now.seen != seen:
        seen = now.seen
        tables, missing, now = _read(scope)
    return tables, missing, now


def _read(scope: Scope) -> tuple[Tables, list[str], Standing]:
    """The tables, the names of those that are not there, and where the pipeline stands."""
    pipeline = scope.pipeline
    there, closing = load_tables(scope.lake, pipeline)
    tables = tables_of(pipeline, {name: table or absent_table(name) for name, table in there.items()}, closing)
    return tables, [name for name, table in there.items() if table is None], standing(pipeline, tables)


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
