"""Tables that records name and that are not there: made while their batch is staged, and told with its decision.

Names are on record in the ledger before their tables are made, and count towards `max_tables` from then on.
A table that is made and not told yet carries the UUID of the ledger that will tell of it: a run that was killed in between
finds it, and no other writer's table is ever taken for one.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from frazil.batch.schema_change import NAMES_TOLD
from frazil.crash_points import CrashPoint, reached
from frazil.errors import Terminal
from frazil.iceberg.holdings import BATCH_KEY, BEGUN_KEY, MADE_BY_KEY, begun_tables, lookup
from frazil.iceberg.schema import check_destination
from frazil.iceberg.table import Table
from frazil.run.scope import Scope
from frazil.run.tables import Tables, in_parallel, make_destination

FOREIGN = "a table of that name is there, and this pipeline did not make it"

WRITTEN = "a table of that name is there, with rows of batches that the ledger does not tell of"


@dataclass(frozen=True)
class Refusals:
    """Why tables that records name are not made.

    Attributes:
        names: Name -> why.
        rest: Why no other is made either; None: others may still be asked for.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    rest: str | None = None

    def and_then(self, later: Refusals) -> Refusals:
        """Those of two looks, one after the other. Names come from records, so not all are kept."""
        names = {**later.names, **self.names}
        return Refusals(dict(islice(names.items(), NAMES_TOLD)), later.rest)


@dataclass(frozen=True)
class Grown:
    """A pipeline with further tables."""

    scope: Scope
    tables: Tables
    refusals: Refusals


@dataclass(frozen=True)
class LookedFor:
    """What can be made of names: the tables, why others are not, how many there is no room for, and what was begun before."""

    names: tuple[str, ...]
    refusals: Refusals
    beyond: int
    begun: frozenset[str]


def room_for(scope: Scope, before: Sequence[str]) -> int:
    """How many tables a run may still make, if these were made before it began: its own bound, and that of all runs."""
    create, made = scope.pipeline.create, {*scope.pipeline.auto_created}
    if create is None:
        return 0
    return max(0, min(create.max_new_tables - len(made - {*before}), create.max_tables - len(made)))


def at_first(scope: Scope, room: int, before: Mapping[str, str] | None = None) -> Refusals:
    """What is refused before anything is read: names that earlier batches of the run were refused, and for want of room."""
    names = {name: why for name, why in (before or {}).items() if name not in scope.pipeline.tables}
    return Refusals(names, None if room else _enough(scope, room))


def make_tables(scope: Scope, tables: Tables, names: Sequence[str], room: int, n: int) -> Grown:
    """Make the tables that records of batch `n` name, the first of them as far as there is room.

    Args:
        scope: The pipeline and its doors.
        tables: Its tables.
        names: Names that the route lets through, in their order.
        room: How many may be made.
        n: Number of the batch, for the log.

    Raises:
        Retryable: The catalog is not available now.
    """
    wide, owner = scope.grown((*scope.pipeline.auto_created, *names)), _owner(scope, tables)
    found = looked_for(scope, tables, names, room)
    if not found.begun.issuperset(found.names):
        _note_begun(scope, found.begun.union(found.names))
    reached(CrashPoint.CREATING)
    outcomes = in_parallel(lambda name: _made(wide, name, owner), found.names)
    reached(CrashPoint.CREATED)
    told = _told_apart(tables, dict(zip(found.names, outcomes, strict=True)))
    made = {name: of for name, of in told.items() if not isinstance(of, str)}
    failed = {name: of for name, of in told.items() if isinstance(of, str)}
    if not found.begun.issuperset(failed):  # there is no table of such a name to be counted
        _note_begun(scope, _begun(scope) - (failed.keys() - found.begun))
    refused = {**found.refusals.names, **failed}
    for name in made:
        scope.report(f"batch {n}: table {name} is made, records name it")
    for name, why in sorted(refused.items()):
        scope.report(f"batch {n}: table {name} is not made: {why}")
    if found.beyond:
        scope.report(f"batch {n}: {found.beyond} further tables are not made: {found.refusals.rest}")
    grown = scope.grown((*scope.pipeline.auto_created, *made))
    there = {**tables.destinations, **made}
    after = replace(tables, destinations={name: there[name] for name in grown.pipeline.tables if name in there})
    return Grown(grown, after, replace(found.refusals, names=refused))


def looked_for(scope: Scope, tables: Tables | None, names: Sequence[str], room: int) -> LookedFor:
    """Which of the tables that records name can be made. Makes none.

    Args:
        scope: The pipeline and its doors.
        tables: Its tables; None before its first run.
        names: Names that the route lets through, in their order.
        room: How many may be made.

    Raises:
        Retryable: The catalog is not available now.
    """
    wide, owner = scope.grown((*scope.pipeline.auto_created, *names)), _owner(scope, tables)

    def refusal_of(name: str) -> str | None:
        try:
            table = wide.lake.catalog_of(name).find_table(name)
            return None if table is None else _why_not(wide, table, name, owner)
        except Terminal as refusal:
            return _refused(refusal)

    refusals = dict(zip(names, in_parallel(refusal_of, names), strict=True))
    refused = {name: why for name, why in refusals.items() if why is not None}
    free = [name for name in names if name not in refused]
    begun = _begun(scope)
    chosen = _with_room(scope, free, room, begun)
    all_told = f"the batch names more than {NAMES_TOLD:,} tables that are not there"
    beyond = len(free) - len(chosen)
    # Fewer than the run has room for: those that were begun before leave none in the total.
    counted = len(begun) if len(chosen) < room else 0
    rest = _enough(scope, room, counted) if beyond or not room else all_told
    return LookedFor(chosen, Refusals(refused, rest), beyond, begun)


def _begun(scope: Scope) -> frozenset[str]:
    """Tables that runs began to make and that are not told yet, by the ledger as it is now."""
    name = scope.pipeline.ledger_table
    ledger = scope.lake.find_table(name)
    return frozenset() if ledger is None else begun_tables(ledger.metadata, scope.pipeline.name, name)


def _note_begun(scope: Scope, names: Collection[str]) -> None:
    key = BEGUN_KEY.format(scope.pipeline.name)
    scope.lake.set_property(scope.pipeline.ledger_table, key, json.dumps(sorted(names)))


def _with_room(scope: Scope, names: Sequence[str], room: int, begun: Collection[str]) -> tuple[str, ...]:
    """The first names, as far as there is room: those that were begun are in the total already."""
    most = 0 if scope.pipeline.create is None else scope.pipeline.create.max_tables
    total = most - len({*scope.pipeline.auto_created, *begun})
    new = {*[name for name in names if name not in begun][: max(0, total)]}
    return tuple([name for name in names if name in begun or name in new][:room])


def _owner(scope: Scope, tables: Tables | None) -> dict[str, str]:
    """The property of tables that were made for a pipeline: which ledger tells of them, or will."""
    ledger = "" if tables is None else str(tables.ledger.metadata.table_uuid)
    return {MADE_BY_KEY.format(scope.pipeline.name): ledger}


def _why_not(scope: Scope, table: Table, name: str, owner: Mapping[str, str]) -> str | None:
    """Why a table that is there and not told is none that was made for the pipeline and is still to be told."""
    if not owner.items() <= table.properties.items():
        return FOREIGN
    if lookup(table.metadata, BATCH_KEY.format(scope.pipeline.name), name) is not None:
        return WRITTEN
    try:
        check_destination(table, scope.pipeline.destination(name), fold=scope.pipeline.value.folds_names)
    except Terminal as refusal:
        # Never dropped here: a rival with the file as it was may be about to decide a batch for it.
        return (
            f"an attempt that ended early made it to another template, no batch landed in it: drop it: {_line(refusal)}"
        )
    return None


def _refused(refusal: Terminal) -> str:
    return f"the catalog refuses it: {_line(refusal)}"


def _line(refusal: Terminal) -> str:
    return " ".join(refusal.message.split())


def _told_apart(tables: Tables, found: Mapping[str, Table | str]) -> dict[str, Table | str]:
    """New tables, one name each: a catalog may take names that differ by case for one, which can't have two parts of a batch."""
    known = {of.metadata.table_uuid: name for name, of in tables.destinations.items()}
    told: dict[str, Table | str] = {}
    for name, of in found.items():
        other = name if isinstance(of, str) else known.setdefault(of.metadata.table_uuid, name)
        told[name] = of if other == name else f"the catalog takes it for table {other}"
    return told


def _enough(scope: Scope, room: int, begun: int = 0) -> str:
    """Why there is no room: which of the two bounds leaves none, counting what the ledger says was made, or begun."""
    create, made = scope.pipeline.create, len(scope.pipeline.auto_created) + begun
    if create is not None and made + room >= create.max_tables:
        return f"the pipeline makes {create.max_tables} tables at most, in all its runs (route.create.max_tables)"
    most = 0 if create is None else create.max_new_tables
    return f"a run makes {most} tables at most (route.create.max_new_tables)"


def _made(scope: Scope, name: str, owner: Mapping[str, str]) -> Table | str:
    """The table, or why there can be none: what a record names must not stop the others."""
    try:
        table = make_destination(scope.lake, scope.pipeline.destination(name), owner)
        # Somebody else may have made it, or written to it, at this very moment.
        why = _why_not(scope, table, name, owner)
    except Terminal as refusal:
        return _refused(refusal)
    return table if why is None else why
