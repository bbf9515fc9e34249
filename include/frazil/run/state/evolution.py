"""Schema evolution of a batch: tables get the columns that its records need, then the records are read again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

import pyarrow as pa

from frazil.batch.schema_change import Demands, UntypedPaths, listed
from frazil.error_codes import TABLE_UNFIT
from frazil.errors import OutcomeUnknown, Retryable, Terminal
from frazil.iceberg.commit.commit import fit_of
from frazil.iceberg.schema.evolution import TableChanges, change_lines, evolve, undecided_changes
from frazil.iceberg.schema.schema import arrow_columns
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.records.evolution.schema_requests import apply_changes, has_column, merge_changes
from frazil.records.model.spec import RecordSpec
from frazil.run.state.context import RunContext
from frazil.run.state.tables import Tables, in_parallel

CHANGES_WAIT: Final = timedelta(hours=1)
"""How long a decided batch waits for a catalog that fails at its changes: some refuse a change with the error of an outage."""

ROUNDS = 4
"""How often the records of a batch are compared with their tables. The first round mostly finds all missing columns."""


def evolve_tables(
    context: RunContext, tables: Tables, demands: Demands, specs: Mapping[str, RecordSpec], n: int
) -> tuple[Tables, Demands]:
    """Make the changes that the records of batch `n` need.

    Returns the changed tables, and the changes that this call made.
    """
    applied = {}
    for name, requests in demands.items():
        spec, destination = specs[name], context.pipeline.destination(name)
        changes = TableChanges(
            destination, merge_changes(requests, spec), context.pipeline.name, n, fold=spec.fold is not None
        )
        applied[name] = evolve(context.lake, changes)
        for line in change_lines(applied[name]):
            context.report(f"batch {n}: table {name}: {line}")
    loaded = dict(zip(applied, in_parallel(context.lake.load_table, applied), strict=True))
    after = replace(tables, destinations={**tables.destinations, **loaded})
    return after, {name: changes for name, changes in applied.items() if changes}


def with_declared_changes(context: RunContext, tables: Tables, changes: Demands, n: int) -> Tables:
    """Make the changes of declared columns that need no `frazil apply`: new columns with their partition fields, and wider types.

    Call this only between batches, as staged files don't fit another layout. Batch `n`, the next one, records the changes.

    Raises:
        Terminal: A table can't be changed so.
    """
    evolved, fold = {}, context.pipeline.value.folds_names
    for name, declared in ((name, declared) for name, declared in changes.items() if declared):
        request = TableChanges(context.pipeline.destination(name), declared, context.pipeline.name, n, fold=fold)
        for line in change_lines(evolve(context.lake, request)):
            context.report(f"table {name}: {line}, as it is declared")
        evolved[name] = context.lake.load_table(name)
    return replace(tables, destinations={**tables.destinations, **evolved})


def make_changes(context: RunContext, changes: Demands, decided_at: datetime, is_over: Callable[[], bool]) -> None:
    """Make the changes that a decided batch records. A change that the table or its catalog refuses is left out: no batch may wait
    for it, and the next comparison shows it.

    Properties get the values of the present file. A table that the file no longer names stays as it is. No change is made once
    `is_over` is true.

    Raises:
        Retryable, OutcomeUnknown: The catalog is not available now, or others changed the table every time; and the batch was
            decided less than `CHANGES_WAIT` ago.
    """
    for name in sorted(changes.keys() & {*context.pipeline.tables}):
        destination, fold = context.pipeline.destination(name), context.pipeline.value.folds_names
        try:
            request = TableChanges(destination, changes[name], fold=fold)
            for line in change_lines(evolve(context.lake, request, is_over)):
                context.report(f"table {name}: {line}, as it is declared")
        except Terminal as refusal:
            context.report(f"table {name} was not changed: {refusal.message_with_code}")
        except (Retryable, OutcomeUnknown) as failure:
            if context.clock() - decided_at < CHANGES_WAIT:
                raise
            context.report(
                f"table {name} was not changed after {CHANGES_WAIT} of failures: {failure.message_with_code}"
            )


DemandFinder = Callable[[Mapping[str, pa.Schema]], tuple[Demands, Mapping[str, RecordSpec]]]
"""Compares records with the columns of their tables; returns the schema changes that they need, and the specs of the tables."""


def evolve_for_records(
    context: RunContext, tables: Tables, n: int, find_demands: DemandFinder
) -> tuple[Tables, Demands]:
    """Change tables until they have all columns that the records of batch `n` need. Gives up if rounds change nothing."""
    changes: Demands = {}
    # Each round adds a column, so there are at most as many rounds as columns, unless somebody drops columns meanwhile.
    most = ROUNDS + sum(context.pipeline.destination(name).max_columns for name in tables.destinations)
    rounds = unchanged = 0
    while True:
        columns = columns_of(context.pipeline, tables)
        demands, specs = find_demands(columns)
        if not demands:
            return tables, changes
        tables, applied = evolve_tables(context, tables, demands, specs, n)
        changes, rounds = merge_demands(changes, applied), rounds + 1
        # A catalog that lags, or somebody who drops columns, may be done by the next round.
        unchanged = unchanged + 1 if columns_of(context.pipeline, tables) == columns else 0
        if rounds == most or unchanged == ROUNDS:
            raise columns_still_missing(context, n, demands, rounds)


def columns_for(columns: Mapping[str, pa.Schema], find_demands: DemandFinder) -> Mapping[str, pa.Schema]:
    """The columns that rows of the records need, without changing any table."""
    while True:
        before = columns
        columns = columns_after(before, *find_demands(before))
        if columns == before:
            return columns


def columns_still_missing(context: RunContext, n: int, demands: Demands, rounds: int = ROUNDS) -> Terminal:
    """The error for a batch whose tables still lack columns after so many rounds."""
    return TABLE_UNFIT.terminal(
        f"batch {n} of pipeline {context.pipeline.name}: its tables were changed {rounds} times and still lack"
        f" {'; '.join(f'{table}: {listed(missing)}' for table, missing in demands.items())}",
        next_step="check whether another program drops columns at the same time. If none does, this is a bug in Frazil: please report it",
    )


def columns_of(pipeline: Pipeline, tables: Tables) -> dict[str, pa.Schema]:
    """Destination -> the columns of its rows, with the types that the table has."""
    return {name: arrow_columns(table, pipeline.destination(name)) for name, table in tables.destinations.items()}


def columns_after(
    columns: Mapping[str, pa.Schema], demands: Demands, specs: Mapping[str, RecordSpec]
) -> dict[str, pa.Schema]:
    """The columns of rows after the demanded changes, without making them."""
    return {
        name: apply_changes(schema, merge_changes(demands.get(name, ()), specs[name])) if demands.get(name) else schema
        for name, schema in columns.items()
    }


def is_stale(pipeline: Pipeline, before: Tables, after: Tables) -> bool:
    """Whether files that were staged for tables no longer fit them.

    An engine reads the columns of one staged file as those of all, so for it no change of the table is allowed.
    """
    for name, table in before.destinations.items():
        staged_fit, current_fit = fit_of(table.metadata), fit_of(after.destinations[name].metadata)
        if staged_fit.mismatch(current_fit) or (pipeline.destination(name).by_engine and staged_fit != current_fit):
            return True
    return False


def has_late_column(untyped: UntypedPaths, columns: Mapping[str, pa.Schema], specs: Mapping[str, RecordSpec]) -> bool:
    """Whether a column was added for a field whose staged rows lack it: their records must be staged again.

    `untyped`: table -> paths of fields whose values have no type, such as `[]`.
    """
    return any(
        has_column(columns[name], path, fold=specs[name].fold is not None)
        for name, paths in untyped.items()
        for path in paths
    )


def merge_demands(first: Demands, second: Demands) -> Demands:
    """Changes of two rounds, in their order."""
    return {table: (*first.get(table, ()), *second.get(table, ())) for table in {**first, **second}}


def reported_changes(pipeline: Pipeline, tables: Tables, newest: int, own_changes: Demands) -> Demands:
    """The schema changes that a batch records: its own, and those of earlier runs that decided no batch after them.

    `newest` is the number of the last decided batch.
    """
    undecided = {
        name: undecided_changes(table.metadata, pipeline.name, name, newest)
        for name, table in tables.destinations.items()
    }
    combined = {
        name: tuple(dict.fromkeys((*changes, *own_changes.get(name, ())))) for name, changes in undecided.items()
    }
    return {name: changes for name, changes in combined.items() if changes}
