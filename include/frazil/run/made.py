"""Tables that records name and that are not there: made while their batch is staged, and told with its decision.

A table that is made and not told yet carries the UUID of the ledger that will tell of it: a run that was killed in between
finds it, and no other writer's table is ever taken for one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from frazil.batch.new_tables import NAMES_TOLD
from frazil.crash_points import CrashPoint, reached
from frazil.errors import Terminal
from frazil.iceberg.holdings import MADE_BY_KEY
from frazil.iceberg.schema import check_destination
from frazil.iceberg.table import Table
from frazil.run.scope import Scope
from frazil.run.tables import Tables, in_parallel, make_destination

FOREIGN = "a table of that name is there, and this pipeline did not make it"


@dataclass(frozen=True)
class Refusals:
    """Why tables that records name are not made.

    Attributes:
        names: Name -> why.
        rest: Why no other is made either; None: others may still be asked for.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    rest: str | None = None


@dataclass(frozen=True)
class Grown:
    """A pipeline with further tables."""

    scope: Scope
    tables: Tables
    refusals: Refusals


def room_for(scope: Scope, before: Sequence[str]) -> int:
    """How many tables a run may still make, if these were made before it began."""
    create = scope.pipeline.create
    return 0 if create is None else max(0, create.max_new_tables - len({*scope.pipeline.made} - {*before}))


def at_first(scope: Scope, room: int) -> Refusals:
    """What is refused before anything is read."""
    return Refusals() if room else Refusals(rest=_enough(scope))


def make_tables(scope: Scope, tables: Tables, names: Sequence[str], room: int, n: int) -> Grown:
    """Make the tables that records of batch `n` name, the first of them as far as there is room.

    Args:
        scope: The pipeline and its doors.
        tables: Its tables.
        names: Names that the route lets through, in their order.
        room: How many may be made.
        n: Number of the batch, for the log.

    Raises:
        Terminal: A table that an earlier attempt made does not fit the pipeline file any more.
        Retryable: The catalog is not available now.
    """
    wide = scope.grown((*scope.pipeline.made, *names))
    owner = {MADE_BY_KEY.format(scope.pipeline.name): str(tables.ledger.metadata.table_uuid)}
    refused = {name: why for name in names if (why := foreign(wide, name, owner)) is not None}
    free = [name for name in names if name not in refused]
    reached(CrashPoint.CREATING)
    outcomes = dict(zip(free[:room], in_parallel(lambda name: _made(wide, name, owner), free[:room]), strict=True))
    reached(CrashPoint.CREATED)
    made = {name: of for name, of in outcomes.items() if not isinstance(of, str)}
    refused |= {name: of for name, of in outcomes.items() if isinstance(of, str)}
    for name in made:
        scope.report(f"batch {n}: table {name} is made, records name it")
    for name, why in sorted(refused.items()):
        scope.report(f"batch {n}: table {name} is not made: {why}")
    if free[room:]:
        scope.report(f"batch {n}: {len(free) - room} further tables are not made: {_enough(scope)}")
    rest = _enough(scope) if free[room:] else f"the batch names more than {NAMES_TOLD:,} tables that are not there"
    grown = scope.grown((*scope.pipeline.made, *made))
    there = {**tables.destinations, **made}
    after = replace(tables, destinations={name: there[name] for name in grown.pipeline.tables if name in there})
    return Grown(grown, after, Refusals(refused, rest))


def _enough(scope: Scope) -> str:
    create = scope.pipeline.create
    most = 0 if create is None else create.max_new_tables
    return f"a run makes {most} tables at most (route.create.max_new_tables)"


def foreign(scope: Scope, name: str, owner: Mapping[str, str]) -> str | None:
    """Why a table is somebody else's; None if it is not there, or was made for this pipeline and is not told yet."""
    found = scope.lake.catalog_of(name).find_table(name)
    return None if found is None or owner.items() <= found.properties.items() else FOREIGN


def _made(scope: Scope, name: str, owner: Mapping[str, str]) -> Table | str:
    """The table, or why there can be none: what a record names must not stop the others."""
    destination = scope.pipeline.destination(name)
    try:
        table = make_destination(scope.lake, destination, owner)
    except Terminal as refusal:
        return f"the catalog refuses it: {refusal.message}"
    if not owner.items() <= table.properties.items():
        return FOREIGN  # made by somebody else at this very moment
    check_destination(table, destination)
    return table
