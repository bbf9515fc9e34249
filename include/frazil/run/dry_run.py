"""A dry run: what a run would read, and what would become of it. Commits nothing, makes nothing, finishes nothing."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field

from frazil.batch.audit import too_many_dead
from frazil.batch.cut import cut
from frazil.batch.facts import ClusterFacts, Counts, DeadSample, Range, Staged, TopicFacts, TopicPartition
from frazil.batch.plan import PlannedTopic, RunPlan, skipped, start_position
from frazil.batch.position import Position
from frazil.batch.request import RunRequest
from frazil.batch.target import LATEST
from frazil.batch.unknown import UnknownFields
from frazil.errors import Terminal
from frazil.pipeline.model import Pipeline
from frazil.project import Project
from frazil.run.dry_stage import dry_staged
from frazil.run.identifier import refuse_no_key
from frazil.run.plan import planned_topics
from frazil.run.scope import Clock, Report, Scope, unheard, utc_now
from frazil.run.source import observe_source, offsets_of, start_target
from frazil.run.stage import Stage
from frazil.run.standing import Standing, batch_offsets, standing
from frazil.run.tables import find_tables
from frazil.run.tolerance import tolerance_of


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
    for lost in (now.closing_lost, now.rollback, *now.followers_lost.values()):
        if lost is not None:
            raise lost
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
