"""The batch that a planned reset is, and how many rows and dead letters it takes out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from frazil.batch.removal import Removal
from frazil.batch.request import RunRequest
from frazil.iceberg.landed import count_rows
from frazil.run.manifests import LETTER_COLUMNS, Batch, comes_again, row_removal
from frazil.run.reset_look import all_rows_gone
from frazil.run.scope import Scope

if TYPE_CHECKING:
    from frazil.run.reset import PlannedReset


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
        kind="reset",
        run=request.run,
        position=planned.after,
        planned_at=scope.stamp(),
        removed_from=planned.removed_rows,
        removed_letters=planned.removed,
        started_by=request.started_by,
        reason=request.reason,
        repairs=planned.repairs,
        marks=_marked(scope, planned) if all_rows_gone(planned.now) else frozenset(),
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


def _marked(scope: Scope, planned: PlannedReset) -> frozenset[str]:
    """The followers of lost tables: all of them get the new batch's mark."""
    return frozenset((*planned.tables.followers, scope.pipeline.dead_letters_table))
