"""Tables become what the pipeline file declares, on demand: in one batch that moves no offset and has the changes on record.

The batch is decided before a table is changed, like any other. So a batch that another run staged for the tables as they were is
refused, and staged again; and whatever is killed after the decision, the next command makes the rest of the changes first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from frazil.batch.schema_change import Demands, listed
from frazil.batch.target import RunRequest
from frazil.error_codes import RUN_OVERTAKEN, TABLE_UNFIT
from frazil.errors import Terminal
from frazil.iceberg.catalog.table import Table
from frazil.iceberg.commit.commit import Refused
from frazil.iceberg.commit.summary_state import BATCH_KEY, read_summary
from frazil.iceberg.schema.comparison import Comparison, compare
from frazil.iceberg.schema.evolution import TableChanges, evolve, plan_changes, refuse_unwritable
from frazil.run.commit.audit import publish
from frazil.run.commit.commit_batch import recover
from frazil.run.commit.manifests import Batch
from frazil.run.state.context import RunContext
from frazil.run.state.tables import find_tables, refuse_properties

_ATTEMPTS: Final = 10
"""Batches of other runs that may come first, each of which made progress. An attempt takes a second, a batch mostly longer."""


@dataclass(frozen=True, slots=True)
class AppliedFile:
    """What `frazil apply` did.

    Attributes:
        n: Number of the batch that has the changes on record; None before the first run, whose first batch has them.
        changes: Table -> its changes; empty if there was nothing to change.
    """

    n: int | None = None
    changes: Demands = field(default_factory=dict)


def preview_changes(context: RunContext) -> Demands:
    """The changes that `apply_file` would make now, by table. Changes and finishes nothing.

    Raises:
        Terminal: A table can't become what the file declares.
    """
    tables = find_tables(context.lake, context.pipeline)
    if tables is not None:
        return _changes(context, tables.destinations)
    loaded = {name: context.lake.find_table(name) for name in context.pipeline.tables}
    return _changes(context, {name: table for name, table in loaded.items() if table is not None})


def apply_file(context: RunContext, request: RunRequest) -> AppliedFile:
    """Change the tables as the file declares them, all or none of them. A batch that was decided is finished first.

    Raises:
        Terminal: A table can't become what the file declares; nothing was changed.
        Retryable: Other runs were faster every time.
    """
    for _ in range(_ATTEMPTS):
        context, tables, state = recover(context, is_applying=True)
        changes = _changes(context, tables.destinations)
        if not changes:
            return AppliedFile()
        if state.position is None:
            if _change_at_once(context, tables.closing_name, changes):
                return AppliedFile(None, changes)
            context.report("the first run has begun, comparing again")
            continue
        n = state.newest_batch + 1
        batch = Batch(
            kind="apply",
            run=request.run,
            position=state.position.at_rest(n),
            planned_at=context.stamp(),
            started_by=request.started_by,
            reason=request.reason,
            schema_changes=changes,
        )
        try:
            publish(context, tables, state, batch)
        except Refused as refusal:
            context.report(f"another run was faster, comparing again: {refusal.message}")
            continue
        _refuse_unmade(context, n)
        return AppliedFile(n, changes)
    raise RUN_OVERTAKEN.retryable(
        f"pipeline {context.pipeline.name}: {_ATTEMPTS} times another run was faster; nothing was changed",
        next_step=f"try again; or pause its runs first: frazil pause {context.pipeline.name}",
    )


def _change_at_once(context: RunContext, closing: str, changes: Demands) -> bool:
    """Make changes before the first run: no batch can be at work on the tables. False if one has begun meanwhile."""
    pipeline, lake = context.pipeline, context.lake

    def has_begun() -> bool:
        return read_summary(lake.load_table(closing).metadata, BATCH_KEY.format(pipeline.name), closing) is not None

    for name, table_changes in changes.items():
        destination, fold = pipeline.destination(name), pipeline.value.folds_names
        evolve(lake, TableChanges(destination, table_changes, pipeline.name, 1, fold=fold), has_begun)
    return not has_begun()


def _refuse_unmade(context: RunContext, n: int) -> None:
    """Say what a catalog refused that nothing here could know of before: the batch is decided, and finished without."""
    unmade = preview_changes(context)
    if unmade:
        named = "; ".join(f"{table}: {listed(changes)}" for table, changes in unmade.items())
        raise TABLE_UNFIT.terminal(
            f"pipeline {context.pipeline.name}: batch {n} records changes that were not made: {named}",
            next_step="the lines above have the reasons; if none does, somebody changed the table back: check it, then apply again",
        )


def _changes(context: RunContext, tables: Mapping[str, Table]) -> Demands:
    """The changes by table; refused together if one of them can't be made."""
    fold = context.pipeline.value.folds_names
    comparisons = {
        name: compare(table, context.pipeline.destination(name), fold=fold) for name, table in tables.items()
    }
    if refused := [line for name in tables for line in _refused(context, name, tables[name], comparisons[name])]:
        raise TABLE_UNFIT.terminal(
            f"pipeline {context.pipeline.name}: nothing was changed, because these changes need the table's rows to be"
            " written again:\n" + "\n".join(f"  {line}" for line in refused),
            next_step="declare what the table has; or use another column, or another table",
        )
    return {name: comparison.changes for name, comparison in comparisons.items() if comparison.changes}


def _refused(context: RunContext, name: str, table: Table, comparison: Comparison) -> Iterator[str]:
    """Why a table can't be changed: what it would have to be, and what PyIceberg or the catalog can't do."""
    yield from (f"table {name}: {line}" for line in comparison.refused)
    if comparison.refused or not comparison.changes:
        return
    destination, fold = context.pipeline.destination(name), context.pipeline.value.folds_names
    if any(change.kind == "property" for change in comparison.changes):
        refuse_properties(context.lake, destination, "changed")
    try:
        plan_changes(table, TableChanges(destination, comparison.changes, fold=fold))
        refuse_unwritable(context.lake, table, name)
    except Terminal as refusal:
        yield f"{refusal.message}; next: {refusal.next_step}"
