"""A dry run: what a run would read, and what would become of it. Commits nothing, makes nothing, finishes nothing."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace

import pyarrow as pa

from frazil.batch.audit import check_identity, too_many_dead
from frazil.batch.cut import cut
from frazil.batch.facts import (
    ClusterFacts,
    Counts,
    DeadSample,
    Range,
    Staged,
    TopicFacts,
    TopicPartition,
    UnknownFields,
)
from frazil.batch.plan import PlannedTopic, RunPlan, skipped, start_position
from frazil.batch.position import Position
from frazil.batch.request import RunRequest
from frazil.batch.schema_change import Demands, SchemaChange
from frazil.batch.target import LATEST
from frazil.errors import Terminal
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
from frazil.pipeline.model import Destination, Pipeline
from frazil.project import Project
from frazil.records.evolve.asked import together
from frazil.records.spec import RecordSpec
from frazil.run.evolution import ROUNDS, columns_after, too_early
from frazil.run.identifier import refuse_no_key, refuse_other_key
from frazil.run.made import Refusals, looked_for, room_for
from frazil.run.plan import planned_topics
from frazil.run.record_spec import record_specs, route_of
from frazil.run.scope import Clock, Report, Scope, unheard, utc_now
from frazil.run.source import observe_source, offsets_of, read_limits, start_target, tolerance_of
from frazil.run.stage import Stage, StageOrder
from frazil.run.staging import forgetful_tables
from frazil.run.standing import Standing, batch_offsets, standing
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
                scope,
                find_tables(scope.lake, scope.pipeline),
                found.new_tables,
                room_for(scope, scope.pipeline.auto_created),
            )
            scope, refusals = scope.grown((*scope.pipeline.auto_created, *new.names)), new.refusals
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


@dataclass(frozen=True, slots=True)
class PartitionLook:
    """One partition: the offsets asked for, `start` <= o < `end`, up to where they were read, and what they became."""

    topic: str
    partition: int
    start: int
    end: int
    looked_to: int
    counts: Counts


@dataclass(frozen=True, slots=True)
class DryRun:
    """What a dry run found.

    Attributes:
        pipeline: Name of the pipeline.
        run: Id of the run.
        offsets: Offsets that were asked for.
        looked_at: Offsets of them that were read: no more than one batch may have.
        bytes: Bytes of the keys and values that were read.
        counts: Records that were read, and how many would be rows, dead letters, or left out on purpose.
        dead_codes: Dead letters per reason code.
        samples: The first dead letter found of each code.
        partitions: The same, partition by partition.
        too_many_dead: Why a run would not publish these records; None if it would.
        remarks: What else the next run does or says.
        seconds: How long it took.
        unknown_fields: Fields of the records that would be rows which no column takes.
    """

    pipeline: str
    run: str
    offsets: int
    looked_at: int
    bytes: int
    counts: Counts
    dead_codes: Mapping[str, int]
    samples: Mapping[str, DeadSample]
    partitions: tuple[PartitionLook, ...]
    too_many_dead: str | None
    remarks: tuple[str, ...]
    seconds: float
    unknown_fields: UnknownFields = field(default_factory=UnknownFields)

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> DryRun:
        """Read what `to_json` wrote."""
        body = json.loads(text)
        body["counts"] = Counts(**body["counts"])
        body["samples"] = {code: DeadSample(**sample) for code, sample in body["samples"].items()}
        body["partitions"] = tuple(PartitionLook(**p | {"counts": Counts(**p["counts"])}) for p in body["partitions"])
        body["unknown_fields"] = UnknownFields(**body["unknown_fields"])
        return cls(**body | {"remarks": tuple(body["remarks"])})


def plan_dry_run(
    project: Project, pipeline: Pipeline, request: RunRequest, report: Report = unheard, clock: Clock = utc_now
) -> RunPlan:
    """What a dry run looks at: between the places that were named, else what the next run would read.

    Returns:
        A plan, of no ranges if there is nothing to look at.

    Raises:
        Retryable: Kafka or the catalog is not available now.
        Terminal: What would stop the next run, too; or what is asked for can't be had.
    """
    scope = Scope.of(project, pipeline, report, clock)
    now = _standing(scope)
    for remark in _remarks(now, pipeline):
        report(remark)
    asked_at = scope.stamp()
    facts = observe_source(scope)
    position = _position(scope, now, facts)
    plan = RunPlan(
        pipeline=pipeline.name,
        run=request.run,
        planned_at=asked_at,
        cluster=facts.cluster_id,
        topics=_asked_for(scope, position, facts, request),
        complete=False,
        epoch=position.epoch,
        mode="dry_run",
        started_by=request.started_by,
        reason=request.reason,
    )
    for r in skipped(plan, position) if request.start is None else ():
        report(f"gone from Kafka, a run skips them: topic {r.topic}, partition {r.partition}, {r.start} to {r.end - 1}")
    return plan


def _standing(scope: Scope) -> Standing | None:
    """Where the pipeline stands, or None if it never ran. What would stop the next run stops this one."""
    pipeline = scope.pipeline
    tables = find_tables(scope.lake, pipeline)
    there = {} if tables is None else tables.destinations
    for name in pipeline.tables:
        refuse_no_key(pipeline, name, there[name] if name in there else scope.lake.find_table(name))
    if tables is None:
        return None
    now = standing(pipeline, tables)
    if now.loss is not None:
        raise now.loss
    return now


def _remarks(now: Standing | None, pipeline: Pipeline) -> tuple[str, ...]:
    if now is None or now.position is None:
        return (f"pipeline {pipeline.name} never ran: the next run writes its start position first",)
    if now.unfinished and now.mark is not None:
        return (f"batch {now.mark.n} is decided and not finished: the next run finishes it first",)
    return ()


def _position(scope: Scope, now: Standing | None, facts: ClusterFacts) -> Position:
    if now is not None and now.position is not None:
        return now.position
    return start_position(facts, offsets_of(scope, start_target(scope.pipeline), facts))


def _asked_for(
    scope: Scope, position: Position, facts: ClusterFacts, request: RunRequest
) -> Mapping[str, PlannedTopic]:
    if request.start is None:
        return planned_topics(scope, position, facts, request)
    starts, ends = (offsets_of(scope, of, facts) for of in (request.start, request.end or LATEST))
    return {name: _between(name, topic, starts, ends) for name, topic in facts.topics.items()}


def _between(
    name: str, topic: TopicFacts, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> PlannedTopic:
    """Partitions that only one of both names rest."""
    keys = [(name, number) for number in range(len(topic.partitions))]
    begin = tuple(starts.get(key, ends.get(key, 0)) for key in keys)
    return PlannedTopic(topic.id, begin, tuple(max(at, ends.get(key, at)) for key, at in zip(keys, begin, strict=True)))


def dry_run(
    project: Project,
    pipeline: Pipeline,
    plan: RunPlan,
    stage: Stage,
    report: Report = unheard,
    clock: Clock = utc_now,
) -> DryRun:
    """Read and decode what a dry run looks at, and count. Of a large range only what one batch would have.

    Raises:
        Retryable: Kafka, the catalog or the engine is not available now.
        Terminal: What would stop a run, too: the table does not fit, records are gone, a topic was recreated.
    """
    if (plan.pipeline, plan.mode) != (pipeline.name, "dry_run"):
        raise Terminal(f"the plan is a {plan.mode} of pipeline {plan.pipeline}, not a dry run of {pipeline.name}")
    scope = Scope.of(project, pipeline, report, clock)
    began = time.monotonic()
    now = _standing(scope)
    ranges = next(cut(plan.ranges, batch_offsets(pipeline, now)), ())
    staged, changes = dry_staged(scope, plan, ranges, stage)
    tolerance = tolerance_of(pipeline)
    too_many = too_many_dead(staged, tolerance)
    alert = [f"a run would publish this and say loudly: {too_many}"] if too_many and not tolerance.fails else []
    return DryRun(
        pipeline=pipeline.name,
        run=plan.run,
        offsets=plan.records,
        looked_at=sum(r.span for r in ranges),
        bytes=staged.bytes,
        counts=staged.total,
        dead_codes=dict(sorted(staged.dead_codes.items())),
        samples=dict(sorted(staged.samples.items())),
        partitions=tuple(_looks(plan, ranges, staged)),
        too_many_dead=too_many if tolerance.fails else None,
        remarks=(*_remarks(now, pipeline), *changes, *alert),
        seconds=round(time.monotonic() - began, 3),
        unknown_fields=staged.unknown_fields.shown,
    )


def _looks(plan: RunPlan, ranges: tuple[Range, ...], staged: Staged) -> Iterator[PartitionLook]:
    looked = {(r.topic, r.partition): r.end for r in ranges}
    for r in plan.ranges:
        key = r.topic, r.partition
        counts = staged.counts.get(key, Counts())
        yield PartitionLook(r.topic, r.partition, r.start, r.end, looked.get(key, r.start), counts)
