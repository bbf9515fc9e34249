"""A dry run: reads and decodes as a run would, but commits, creates and finishes nothing."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import msgspec
import pyarrow as pa

from frazil.batch.audit import check_identity, tolerance_excess
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
from frazil.batch.plan import PlannedTopic, RunPlan, cut, skipped, start_position
from frazil.batch.position import LATEST, Position, RunRequest
from frazil.batch.schema_change import Demands, SchemaChange
from frazil.error_codes import BAD_HANDOVER
from frazil.iceberg.catalog.table import PARTITIONED_LAYOUT
from frazil.iceberg.files.partition_limit import PartitionLayout, PartitionLimit, folder_bytes, layout_of
from frazil.iceberg.schema.comparison import check_destination
from frazil.iceberg.schema.evolution import TableChanges, plan_changes
from frazil.iceberg.schema.schema import check_layout, declared_columns, declared_schema, declared_spec, schema_columns
from frazil.pipeline.models.pipeline_file import Destination, Pipeline
from frazil.project import Project
from frazil.records.evolution.schema_requests import merge_changes
from frazil.records.model.spec import RecordSpec
from frazil.run.batches.plan import planned_topics
from frazil.run.commit.audit import hard_delete_tables, stage_order
from frazil.run.staging.stage import Refusals, Stage, creatable_tables, table_budget
from frazil.run.state.context import (
    Clock,
    Report,
    RunContext,
    no_report,
    observe_source,
    offsets_of,
    refuse_no_key,
    refuse_other_key,
    start_target,
    tolerance_of,
    utc_now,
)
from frazil.run.state.evolution import ROUNDS, columns_after, has_late_column
from frazil.run.state.pipeline_state import PipelineState, batch_offsets, pipeline_state
from frazil.run.state.tables import find_tables


def stage_for_dry_run(
    context: RunContext, plan: RunPlan, ranges: tuple[Range, ...], stage: Stage
) -> tuple[Staged, tuple[str, ...]]:
    """The result of staging, and remarks on the schema changes and tables that a run would make first.

    Raises:
        Terminal: A table does not fit, or a topic is not the one that was planned for.
    """
    columns, all_staged, changes, all_ranges = dict[str, pa.Schema](), Staged(), list[str](), ranges
    layouts: dict[str, PartitionLayout] = {}
    for destination in context.pipeline.destinations:
        columns[destination.table], changes_first = _columns(context, destination, layouts)
        changes += _change_remarks(destination.table, changes_first)
    if not ranges:
        return Staged(), tuple(changes)
    context.report(f"reading {sum(r.span for r in ranges):,} of {plan.records:,} offsets")
    refusals = Refusals()
    for _ in range(ROUNDS + 1):
        unlimited = hard_delete_tables(context.pipeline)
        limit = PartitionLimit(context.pipeline.limits.max_partitions, dict(layouts), unlimited)
        # number 0, which no batch with rows has
        order = replace(stage_order(context, 0, ranges, columns, refusals), partitions=limit)
        staged = stage(order)
        all_staged = replace(all_staged.merge(staged), demands={}, new_tables=(), again=())
        if not staged.asks:
            break
        changes += _requested_changes(staged.demands, order.specs)
        columns, ranges = columns_after(columns, staged.demands, order.specs), staged.again
        # Rows that were counted without a column would have it now, so all ranges are counted again.
        if has_late_column(all_staged.untyped, columns, order.specs):
            all_staged, ranges = Staged(), all_ranges
        if staged.new_tables:
            new = creatable_tables(
                context,
                find_tables(context.lake, context.pipeline),
                staged.new_tables,
                table_budget(context, context.pipeline.auto_created),
            )
            context, refusals = context.with_created_tables((*context.pipeline.auto_created, *new.names)), new.refusals
            columns |= {name: _columns(context, context.pipeline.destination(name), layouts)[0] for name in new.names}
            changes += (f"a run would make table {name}, records name it" for name in new.names)
    check_identity(plan, observe_source(context), {r.topic for r in plan.ranges}, context.pipeline.name)
    return all_staged, tuple(changes)


def _requested_changes(demands: Demands, specs: Mapping[str, RecordSpec]) -> Iterator[str]:
    for name, requests in demands.items():
        yield from _change_remarks(name, merge_changes(requests, specs[name]))


def _change_remarks(table: str, changes: Iterable[SchemaChange]) -> Iterator[str]:
    return (f"a run would change table {table} first: {change}" for change in changes)


def _columns(
    context: RunContext, destination: Destination, layouts: dict[str, PartitionLayout]
) -> tuple[pa.Schema, tuple[SchemaChange, ...]]:
    """The columns of the rows, and the declared columns that the table would get first. A missing table counts as just created.

    The partition layout, if there is one, is added to `layouts`.
    """
    table = context.lake.find_table(destination.table)
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
    fold = context.pipeline.value.folds_names
    declared = check_destination(table, destination, context.pipeline.name, fold=fold)
    refuse_other_key(context.pipeline, destination.table, table.metadata)
    after = plan_changes(table, TableChanges(destination, declared, fold=fold)).schema
    return schema_columns(after, destination), declared


@dataclass(frozen=True, slots=True)
class PartitionOutcome:
    """One partition: the requested offsets, `start` <= o < `end`; where reading stopped; and the counts of their records."""

    topic: str
    partition: int
    start: int
    end: int
    looked_to: int
    counts: Counts


@dataclass(frozen=True, slots=True)
class DryRun:
    """The result of a dry run.

    Attributes:
        offsets: Offsets that were requested.
        looked_at: Offsets that were read: at most as many as one batch may have.
        bytes: Bytes of the keys and values that were read.
        counts: Records that were read, and how many would be rows, dead letters, or left out on purpose.
        samples: Code -> its first dead letter.
        too_many_dead: Why a run would not publish these records; None if it would.
        unknown_fields: Fields that no column takes, of records that would be rows.
    """

    pipeline: str
    run: str
    offsets: int
    looked_at: int
    bytes: int
    counts: Counts
    dead_codes: Mapping[str, int]
    samples: Mapping[str, DeadSample]
    partitions: tuple[PartitionOutcome, ...]
    too_many_dead: str | None
    remarks: tuple[str, ...]
    seconds: float
    unknown_fields: UnknownFields = field(default_factory=UnknownFields)

    def to_json(self) -> str:
        """One line of JSON."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str) -> DryRun:
        """Read what `to_json` wrote."""
        return msgspec.json.decode(text, type=cls)


def plan_dry_run(
    project: Project, pipeline: Pipeline, request: RunRequest, report: Report = no_report, clock: Clock = utc_now
) -> RunPlan:
    """The plan of a dry run: the range that the request names, else what the next run would read.

    It has no ranges if there is nothing to read.

    Raises:
        Terminal: What would stop the next run, too; or the request can't be met.
    """
    context = RunContext.open(project, pipeline, report, clock)
    state = _current_state(context)
    planned_at = context.stamp()
    facts = observe_source(context)
    position = _position(context, state, facts)
    plan = RunPlan(
        pipeline=pipeline.name,
        run=request.run,
        planned_at=planned_at,
        cluster=facts.cluster_id,
        topics=_requested_topics(context, position, facts, request),
        complete=False,
        epoch=position.epoch,
        mode="dry_run",
        started_by=request.started_by,
        reason=request.reason,
    )
    for r in skipped(plan, position) if request.start is None else ():
        report(
            f"deleted in Kafka, a run would skip them: topic {r.topic}, partition {r.partition}, {r.start} to {r.end - 1}"
        )
    return plan


def _current_state(context: RunContext) -> PipelineState | None:
    """The pipeline's state, or None if it never ran. Errors that would stop the next run stop the dry run."""
    pipeline = context.pipeline
    tables = find_tables(context.lake, pipeline)
    existing = {} if tables is None else tables.destinations
    for name in pipeline.tables:
        refuse_no_key(pipeline, name, existing[name] if name in existing else context.lake.find_table(name))
    if tables is None:
        return None
    state = pipeline_state(pipeline, tables)
    if state.loss is not None:
        raise state.loss
    return state


def _remarks(state: PipelineState | None, pipeline: Pipeline) -> tuple[str, ...]:
    if state is None or state.position is None:
        return (f"pipeline {pipeline.name} never ran: the next run writes its start position first",)
    if state.unfinished and state.mark is not None:
        return (f"batch {state.mark.n} is decided and not finished: the next run finishes it first",)
    return ()


def _position(context: RunContext, state: PipelineState | None, facts: ClusterFacts) -> Position:
    if state is not None and state.position is not None:
        return state.position
    return start_position(facts, offsets_of(context, start_target(context.pipeline), facts))


def _requested_topics(
    context: RunContext, position: Position, facts: ClusterFacts, request: RunRequest
) -> Mapping[str, PlannedTopic]:
    if request.start is None:
        return planned_topics(context, position, facts, request)
    starts, ends = (offsets_of(context, target, facts) for target in (request.start, request.end or LATEST))
    return {name: _topic_between(name, topic, starts, ends) for name, topic in facts.topics.items()}


def _topic_between(
    name: str, topic: TopicFacts, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> PlannedTopic:
    """The range of each partition; empty for one that only `starts` or only `ends` has."""
    keys = [(name, number) for number in range(len(topic.partitions))]
    begin = tuple(starts.get(key, ends.get(key, 0)) for key in keys)
    return PlannedTopic(
        topic.id, begin, tuple(max(first, ends.get(key, first)) for key, first in zip(keys, begin, strict=True))
    )


def dry_run(
    project: Project,
    pipeline: Pipeline,
    plan: RunPlan,
    stage: Stage,
    report: Report = no_report,
    clock: Clock = utc_now,
) -> DryRun:
    """Read, decode and count the records of a dry run. Of a large range, only as many as one batch would have.

    Raises:
        Terminal: What would stop a run, too: the table does not fit, records are gone, a topic was recreated.
    """
    if (plan.pipeline, plan.mode) != (pipeline.name, "dry_run"):
        raise BAD_HANDOVER.terminal(
            f"the plan is a {plan.mode} of pipeline {plan.pipeline}, not a dry run of {pipeline.name}"
        )
    context = RunContext.open(project, pipeline, report, clock)
    began = time.monotonic()
    state = _current_state(context)
    ranges = next(cut(plan.ranges, batch_offsets(pipeline, state)), ())
    staged, changes = stage_for_dry_run(context, plan, ranges, stage)
    tolerance = tolerance_of(pipeline)
    too_many = tolerance_excess(staged.total, staged.dead_codes, tolerance)
    alert = [f"a run would publish this, with an alert: {too_many}"] if too_many and not tolerance.fails else []
    return DryRun(
        pipeline=pipeline.name,
        run=plan.run,
        offsets=plan.records,
        looked_at=sum(r.span for r in ranges),
        bytes=staged.bytes,
        counts=staged.total,
        dead_codes=dict(sorted(staged.dead_codes.items())),
        samples=dict(sorted(staged.samples.items())),
        partitions=tuple(_partition_outcomes(plan, ranges, staged)),
        too_many_dead=too_many if tolerance.fails else None,
        remarks=(*_remarks(state, pipeline), *changes, *alert),
        seconds=round(time.monotonic() - began, 3),
        unknown_fields=staged.unknown_fields.shown,
    )


def _partition_outcomes(plan: RunPlan, ranges: tuple[Range, ...], staged: Staged) -> Iterator[PartitionOutcome]:
    read_to = {(r.topic, r.partition): r.end for r in ranges}
    for r in plan.ranges:
        key = r.topic, r.partition
        counts = staged.counts.get(key, Counts())
        yield PartitionOutcome(r.topic, r.partition, r.start, r.end, read_to.get(key, r.start), counts)
