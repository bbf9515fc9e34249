"""Between two looks at the same records: their tables get what they need."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pyarrow as pa

from frazil.batch.schema_change import Demands, Untold, listed
from frazil.errors import Terminal
from frazil.iceberg.commit import fit_of
from frazil.iceberg.evolution import TableChanges, declared_changes, evolve, said, undecided_changes
from frazil.iceberg.schema import arrow_columns
from frazil.pipeline.model import Pipeline
from frazil.records.evolve.asked import changed, has, together
from frazil.records.spec import RecordSpec
from frazil.run.scope import Scope
from frazil.run.tables import Tables, in_parallel

ROUNDS = 4
"""How often records are looked at for what their tables lack. The first time tells all of it; rivals that drop columns
meanwhile may make it a few more."""


def evolve_tables(
    scope: Scope, tables: Tables, demands: Demands, specs: Mapping[str, RecordSpec], n: int
) -> tuple[Tables, Demands]:
    """Make the changes that the records of batch `n` need.

    Args:
        scope: The pipeline and its doors.
        tables: As they were when the records were read.
        demands: What tasks asked for, one by one.
        specs: What the tasks had.
        n: Number of the batch, for the log.

    Returns:
        The tables as they are now, and the changes that this call made.

    Raises:
        Terminal: A table can't be changed so.
        Retryable: The catalog is not available now.
    """
    made = {}
    for name, wanted in demands.items():
        spec, to = specs[name], scope.pipeline.destination(name)
        changes = TableChanges(to, together(wanted, spec), scope.pipeline.name, n, fold=spec.fold is not None)
        made[name] = evolve(scope.lake, changes)
        for line in said(made[name]):
            scope.report(f"batch {n}: table {name}: {line}")
    loaded = dict(zip(made, in_parallel(scope.lake.load_table, made), strict=True))
    after = replace(tables, destinations={**tables.destinations, **loaded})
    return after, {name: changes for name, changes in made.items() if changes}


def with_declared_columns(scope: Scope, tables: Tables, n: int) -> Tables:
    """Give tables that evolve the declared columns that they lack, and the partition fields of these.

    Args:
        scope: The pipeline and its doors.
        tables: As they are, at rest: staged files don't fit another layout.
        n: Number of the next batch, which has the changes on record.

    Raises:
        Terminal: A table can't be changed so.
        Retryable: The catalog is not available now.
    """
    made = {}
    for name, table in tables.destinations.items():
        to, fold = scope.pipeline.destination(name), scope.pipeline.value.folds_names
        if changes := declared_changes(table.schema(), to, fold=fold):
            for line in said(evolve(scope.lake, TableChanges(to, changes, scope.pipeline.name, n, fold=fold))):
                scope.report(f"table {name}: {line}, as it is declared")
            made[name] = scope.lake.load_table(name)
    return replace(tables, destinations={**tables.destinations, **made})


Look = Callable[[Mapping[str, pa.Schema]], tuple[Demands, Mapping[str, RecordSpec]]]
"""Holds records against columns of rows: what they need beside those, and how they were read."""


def evolved_for(scope: Scope, tables: Tables, n: int, look: Look) -> tuple[Tables, Demands]:
    """Change tables until the records of batch `n` need nothing any more that they lack.

    Args:
        scope: The pipeline and its doors.
        tables: As they are.
        n: Number of the batch.
        look: Looks at the records; as often as they are to be looked at.

    Raises:
        Terminal, Retryable: As `evolve_tables`.
    """
    changes: Demands = {}
    demands: Demands = {}
    for _ in range(ROUNDS):
        demands, specs = look(columns_of(scope.pipeline, tables))
        if not demands:
            return tables, changes
        tables, made = evolve_tables(scope, tables, demands, specs, n)
        changes = joined(changes, made)
    raise still_lacking(scope, n, demands)


def columns_for(columns: Mapping[str, pa.Schema], look: Look) -> Mapping[str, pa.Schema]:
    """The columns of rows that the records need; no table is changed."""
    for _ in range(ROUNDS):
        demands, specs = look(columns)
        if not demands:
            break
        columns = columns_after(columns, demands, specs)
    return columns


def still_lacking(scope: Scope, n: int, demands: Demands) -> Terminal:
    """Why a batch is given up whose tables never become what its records need."""
    return Terminal(
        f"batch {n} of pipeline {scope.pipeline.name}: its tables were changed {ROUNDS} times and still lack"
        f" {'; '.join(f'{table}: {listed(of)}' for table, of in demands.items())}",
        next_step="does somebody else take columns away from them at the same time? Otherwise this is a fault of Frazil:"
        " please report it",
    )


def columns_of(pipeline: Pipeline, tables: Tables) -> dict[str, pa.Schema]:
    """Destination -> the columns of its rows, with the types that the table has."""
    return {name: arrow_columns(table, pipeline.destination(name)) for name, table in tables.destinations.items()}


def columns_after(
    columns: Mapping[str, pa.Schema], demands: Demands, specs: Mapping[str, RecordSpec]
) -> dict[str, pa.Schema]:
    """The columns of rows as they would be after changes that nobody makes."""
    return {
        name: changed(schema, together(demands.get(name, ()), specs[name])) if demands.get(name) else schema
        for name, schema in columns.items()
    }


def is_stale(pipeline: Pipeline, before: Tables, after: Tables) -> bool:
    """Whether files that were staged for tables don't fit them any more.

    Rows for an engine have all one shape: it takes the columns of one of their files for those of all.
    """
    for name, table in before.destinations.items():
        was, now = fit_of(table.metadata), fit_of(after.destinations[name].metadata)
        if was.mismatch(now) or (pipeline.destination(name).by_engine and was != now):
            return True
    return False


def too_early(untold: Untold, columns: Mapping[str, pa.Schema], specs: Mapping[str, RecordSpec]) -> bool:
    """Whether something landed without a column, since it told no type, that has one now: its record is of that column.

    Args:
        untold: What landed so.
        columns: Destination -> the columns of its rows, as they are now.
        specs: How records became rows.
    """
    return any(
        has(columns[name], path, fold=specs[name].fold is not None) for name, paths in untold.items() for path in paths
    )


def joined(first: Demands, then: Demands) -> Demands:
    """Changes of two rounds, in their order."""
    return {table: (*first.get(table, ()), *then.get(table, ())) for table in {**first, **then}}


def told_changes(pipeline: Pipeline, tables: Tables, newest: int, made: Demands) -> Demands:
    """The changes that a batch tells of: its own, and those of runs before it that ended behind the change.

    Args:
        pipeline: The pipeline.
        tables: Its tables, as they are now.
        newest: Number of the last decided batch.
        made: What was changed for the batch's records.
    """
    undecided = {
        name: undecided_changes(table.metadata, pipeline.name, newest) for name, table in tables.destinations.items()
    }
    found = {name: tuple(dict.fromkeys((*of, *made.get(name, ())))) for name, of in undecided.items()}
    return {name: of for name, of in found.items() if of}
