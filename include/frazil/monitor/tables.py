"""What a pipeline's tables say of it, as each plan reads them, and why a plan would refuse; nothing is changed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime

from frazil.errors import Terminal
from frazil.iceberg.holdings import BATCH_KEY, Held, lookup, lookup_position, still_held
from frazil.iceberg.schema import check_destination
from frazil.run.identifier import refuse_no_key, refuse_other_key
from frazil.run.scope import Scope
from frazil.run.shared import refuse_shared
from frazil.run.standing import Standing, standing
from frazil.run.tables import Tables, find_tables

_LOOKS = 3
"""How often a loss is looked at: tables are read one after another, and a run between them looks like one."""


@dataclass(frozen=True)
class Told:
    """What the tables say.

    Attributes:
        position: What holds the position; None before the first run.
        unfinished: Number of the decided batch that is not finished; None if all are.
        unfinished_since: When it was decided, as far as its snapshot is still there.
        refusal: Why a plan would refuse; None if it would not.
    """

    position: Held | None = None
    unfinished: int | None = None
    unfinished_since: datetime | None = None
    refusal: Terminal | None = None


def told(scope: Scope) -> Told:
    """Read the tables of a pipeline.

    Raises:
        Terminal: They can't be the tables of this pipeline; a plan refuses likewise.
        Retryable: The catalog can't be reached.
    """
    seen: Standing | None = None
    found = Told()
    for _ in range(_LOOKS):
        tables = find_tables(scope.lake, scope.pipeline)
        if tables is None:
            return found
        grown = scope.told_by(tables.ledger)
        if grown is not scope:  # a batch made tables meanwhile
            scope = grown
            continue
        now = standing(scope.pipeline, tables)
        lost = now.closing_lost or now.rollback or next(iter(now.followers_lost.values()), None)
        found = _told(scope, tables, now, lost or _refusal(scope, tables, now))
        if lost is None or (seen is not None and seen.seen == now.seen):
            return found
        seen = now
    return replace(found, refusal=None)  # other runs keep moving it: that is no loss


def _told(scope: Scope, tables: Tables, now: Standing, refusal: Terminal | None) -> Told:
    name, metadata = scope.pipeline.name, tables.closing.metadata
    # A position that can't be told is the refusal.
    position = None if now.position is None else still_held(lookup_position(tables.closing, name, tables.closing_name))
    if not now.unfinished or now.mark is None:
        return Told(position, refusal=refusal)
    last = still_held(lookup(metadata, BATCH_KEY.format(name), tables.closing_name))
    snapshot = metadata.snapshot_by_id(last.snapshot_id) if last is not None else None
    since = datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC) if snapshot is not None else None
    return Told(position, now.mark.n, since, refusal)


def _refusal(scope: Scope, tables: Tables, now: Standing) -> Terminal | None:
    """What a plan holds against tables that are sound. What is decided is finished before the file is looked at."""
    pipeline = scope.pipeline
    try:
        refuse_shared(pipeline, tables)
        if now.unfinished:
            return None
        for name, table in tables.destinations.items():
            refuse_no_key(pipeline, name, table)
            check_destination(table, pipeline.destination(name), fold=pipeline.value.folds_names)
            refuse_other_key(pipeline, name, table.metadata)
    except Terminal as refusal:
        return refusal
    return None
