"""Staging without tables: what a dry run's records would become, and what of the tables a run would change first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import pyarrow as pa

from frazil.batch.audit import check_identity
from frazil.batch.facts import Range, Staged
from frazil.batch.plan import RunPlan
from frazil.batch.schema_change import Demands, SchemaChange
from frazil.iceberg.evolution import TableChanges, declared_changes, planned
from frazil.iceberg.ledger import PARTITIONED_LAYOUT
from frazil.iceberg.partition_limit import PartitionLayout, PartitionLimit, folder_bytes, layout_of
from frazil.iceberg.schema import (
    check_destination,
    check_layout,
    declared_columns,
    declared_schema,
    declared_spec,
    schema_columns,
)
from frazil.pipeline.model import Destination
from frazil.records.evolve.asked import together
from frazil.records.spec import RecordSpec
from frazil.run.evolution import ROUNDS, columns_after, too_early
from frazil.run.identifier import refuse_other_key
from frazil.run.made import Refusals, looked_for, room_for
from frazil.run.record_route import route_of
from frazil.run.record_spec import record_specs
from frazil.run.scope import Scope
from frazil.run.source import observe_source, read_limits
from frazil.run.stage import Stage, StageOrder
from frazil.run.staging import forgetful_tables
from frazil.run.tables import find_tables


def dry_staged(scope: Scope, plan: RunPlan, ranges: tuple[Range, ...], stage: Stage) -> tuple[Staged, tuple[str, ...]]:
    """What staging would bring, and what a run would change, or make, first.

    Raises:
        Retryable: Kafka, the catalog or the engine is not available now.
        Terminal: A table does not fit, or a topic is not the one that was planned for.
    """
    if not ranges:
        return Staged(), ()
    scope.report(f"looking at {sum(r.span for r in ranges):,} of {plan.records:,} offsets")
    columns, whole, changes, every = dict[str, pa.Schema](), Staged(), list[str](), ranges
    layouts: dict[str, PartitionLayout] = {}
    for of in scope.pipeline.destinations:
        columns[of.table], coming = _columns(scope, of, layouts)
        changes += _told(of.table, coming)
    refusals = Refusals()
    for _ in range(ROUNDS + 1):
        unlimited = forgetful_tables(scope.pipeline)
        limit = PartitionLimit(scope.pipeline.limits.max_partitions, dict(layouts), unlimited)
        order = replace(_order(scope, ranges, columns, refusals), partitions=limit)
        found = stage(order)
        whole = replace(whole.merge(found), demands={}, new_tables=(), again=())
        if not found.asks:
            break
        changes += _wanted(found.demands, order.specs)
        columns, ranges = columns_after(columns, found.demands, order.specs), found.again
        if too_early(whole.untold, columns, order.specs):
            whole, ranges = Staged(), every
        if found.new_tables:
            new = looked_for(
                scope, find_tables(scope.lake, scope.pipeline), found.new_tables, room_for(scope, scope.pipeline.made)
            )
            scope, refusals = scope.grown((*scope.pipeline.made, *new.names)), new.refusals
            columns |= {name: _columns(scope, scope.pipeline.destination(name), layouts)[0] for name in new.names}
            changes += (f"a run would make table {name}, records name it" for name in new.names)
    check_identity(plan, observe_source(scope), {r.topic for r in plan.ranges}, scope.pipeline.name)
    return whole, tuple(changes)


def _wanted(demands: Demands, specs: Mapping[str, RecordSpec]) -> Iterator[str]:
    for name, wanted in demands.items():
        yield from _told(name, together(wanted, specs[name]))


def _told(table: str, changes: Iterable[SchemaChange]) -> Iterator[str]:
    return (f"a run would change table {table} first: {change}" for change in changes)


def _order(scope: Scope, ranges: tuple[Range, ...], columns: Mapping[str, pa.Schema], refusals: Refusals) -> StageOrder:
    pipeline = scope.pipeline
    return StageOrder(
        pipeline=pipeline.name,
        n=0,  # no batch has this number and rows
        cluster=scope.cluster,
        ranges=ranges,
        records_per_task=pipeline.limits.records_per_task,
        specs=record_specs(pipeline, columns, scope.schemas),
        destinations={},
        dead_letters=None,
        payload=pipeline.dead_letters.payload,
        route=route_of(pipeline, columns, scope.schemas, refused=refusals.names, rest=refusals.rest),
        limits=read_limits(pipeline),
    )


def _columns(
    scope: Scope, destination: Destination, layouts: dict[str, PartitionLayout]
) -> tuple[pa.Schema, tuple[SchemaChange, ...]]:
    """The columns of the rows, and which of them the table gets first; one that is not there is what the file declares.

    How it parts its rows, if it does, goes to `layouts`.
    """
    table = scope.lake.find_table(destination.table)
    schema = declared_schema(destination) if table is None else table.schema()
    properties = PARTITIONED_LAYOUT | destination.properties if table is None else table.properties
    layout = layout_of(
        schema,
        declared_spec(destination, schema) if table is None else table.spec(),
        folder_bytes(properties, by_engine=destination.by_engine),
    )
    layouts |= {} if layout is None else {destination.table: layout}
    if table is None:
        check_layout(destination)
        return declared_columns(destination), ()
    fold = scope.pipeline.value.folds_names
    check_destination(table, destination, fold=fold)
    refuse_other_key(scope.pipeline, destination.table, table.metadata)
    coming = declared_changes(table.schema(), destination, fold=fold)
    after = planned(table, TableChanges(destination, coming, fold=fold)).schema
    return schema_columns(after, destination), coming
