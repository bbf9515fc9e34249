"""Plans a run without a JVM: reads the tables, finishes an unfinished batch, asks the broker, fixes the end offsets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from frazil.batch.facts import ClusterFacts
from frazil.batch.plan import (
    PlannedTopic,
    RunPlan,
    give_up,
    plan_topics,
    reaches_high_watermarks,
    replay_topics,
    skipped,
    start_position,
)
from frazil.batch.position import Position
from frazil.batch.refusal import changed_leaders, check_position, check_truncations, check_vanished
from frazil.batch.target import LATEST, RunRequest
from frazil.error_codes import BAD_ARGUMENT, RUN_OVERTAKEN
from frazil.failpoints import Failpoint, hit
from frazil.iceberg.commit.commit import Refused
from frazil.kafka.admin.truncations import truncations
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.project import Project
from frazil.run.commit.commit_batch import decide, roll_forward
from frazil.run.commit.manifests import Batch, write_manifest
from frazil.run.commit.recover import recover
from frazil.run.repair.replay import refuse_forgotten_deletes, refuse_without_coordinates
from frazil.run.state.context import Clock, Report, RunContext, no_report, utc_now
from frazil.run.state.source import (
    observe_hidden_topics,
    observe_source,
    offsets_of,
    refuse_compacted,
    start_target,
    vanished_topics,
)


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """The result of planning.

    Attributes:
        plan: What the run will read, or None if there is nothing new, and nothing that waits for the engine.
        complete_through: With nothing new: the instant through which the table holds everything, if that is known.
    """

    plan: RunPlan | None
    position: Position
    complete_through: str | None


def plan_run(
    project: Project, pipeline: Pipeline, request: RunRequest, report: Report = no_report, clock: Clock = utc_now
) -> PlannedRun:
    """Plan a run: the position where it starts, the ranges to read, and the end offsets.

    Raises:
        Terminal: The position does not fit the cluster or the topics, or the tables don't fit the pipeline.
    """
    context = RunContext.open(project, pipeline, report, clock)
    context, _, state = recover(context, leave_waiting=True)
    position = state.position or _write_start_position(context, request)
    # Kafka is asked after the position was read: offsets only grow, so another run's batch can't look like a lost log.
    asked_at = context.stamp()
    facts = observe_hidden_topics(context, position, observe_source(context))
    topics = planned_topics(context, position, facts, request)
    complete = request.mode == "ingest" and reaches_high_watermarks(topics, facts)
    plan = RunPlan(
        pipeline=pipeline.name,
        run=request.run,
        planned_at=asked_at,
        cluster=facts.cluster_id,
        topics=topics,
        complete=complete,
        epoch=position.epoch,
        mode=request.mode,
        started_by=request.started_by,
        reason=request.reason,
        waits=state.unfinished,
    )
    hit(Failpoint.PLANNED)
    # A batch that waits for the engine is work, too; a replay finishes it first, if there is anything to replay.
    is_work = request.mode == "ingest" and (state.unfinished or bool(skipped(plan, position)))
    if not plan.ranges and not is_work:
        return PlannedRun(None, position, asked_at if complete else None)
    return PlannedRun(plan, position, None)


def planned_topics(
    context: RunContext, position: Position, facts: ClusterFacts, request: RunRequest
) -> Mapping[str, PlannedTopic]:
    """The topics and ranges that a run reads, according to its request.

    Raises:
        Terminal: The position does not belong to what the broker shows, or what is asked for can't be had.
    """
    name, source = context.pipeline.name, context.pipeline.source
    if request.mode == "replay":
        return _replayed_topics(context, position, facts, request)
    if request.start is not None:
        raise BAD_ARGUMENT.terminal(
            f"pipeline {name} always goes on at its position; a run can't begin elsewhere",
            next_step=f"to land a range again: frazil replay {name} --from … --to …; to move the position:"
            f" frazil reset {name} --to … --reason …",
        )
    check_truncations(position, facts, truncations(context.cluster, changed_leaders(position, facts)), name)
    check_position(position, facts, name, source.on_data_loss, source.topics)
    vanished = vanished_topics(context.pipeline, position, facts)
    check_vanished(position, vanished, source.on_data_loss)
    until = offsets_of(context, request.end, facts) if request.end is not None else None
    return plan_topics(position, facts, until) | give_up(position, vanished)


def _replayed_topics(
    context: RunContext, position: Position, facts: ClusterFacts, request: RunRequest
) -> Mapping[str, PlannedTopic]:
    name = context.pipeline.name
    refuse_without_coordinates(context)
    refuse_forgotten_deletes(context)
    if request.start is None:
        raise BAD_ARGUMENT.terminal(
            "a replay needs to know where to begin", next_step=f"frazil replay {name} --from … --to …"
        )
    starts, ends = (offsets_of(context, target, facts) for target in (request.start, request.end or LATEST))
    topics = replay_topics(position, facts, starts, ends, name)
    _refuse_other_records(context, position, facts, topics)
    refuse_compacted(context, [topic_name for topic_name, topic in topics.items() if topic.begin != topic.end])
    return topics


def _refuse_other_records(
    context: RunContext, position: Position, facts: ClusterFacts, topics: Mapping[str, PlannedTopic]
) -> None:
    """Refuse a replay of records that are not the ones that were read before. Losses outside its ranges do not matter."""
    ends = {
        (name, n): offset
        for name, topic in topics.items()
        for n, offset in enumerate(topic.end)
        if topic.begin[n] < offset
    }
    leaders = changed_leaders(position, facts, with_idle=True)
    checked_ends = {key: (ends[key], epoch) for key, (_, epoch) in leaders.items() if key in ends}
    check_truncations(position, facts, truncations(context.cluster, checked_ends), context.pipeline.name)

    def is_unchecked(topic: str, partition: int) -> bool:
        # A topic without ids was recreated if any of its logs is too short.
        topic_facts = facts.topics.get(topic)
        has_ids = topic_facts is not None and None not in (topic_facts.id, position.topics[topic].id)
        return not has_ids or (topic, partition) in ends.keys() - checked_ends.keys()

    doubtful = {
        name: replace(topic, next=tuple(offset if is_unchecked(name, n) else 0 for n, offset in enumerate(topic.next)))
        for name, topic in position.topics.items()
    }
    check_position(replace(position, topics=doubtful), facts, context.pipeline.name, "skip_recorded")


def _write_start_position(context: RunContext, request: RunRequest) -> Position:
    """The very first commit: the resolved start position, before any data."""
    facts = observe_source(context)
    context, tables, state = recover(context)
    if state.position is None:
        _report_missing_ids(context, facts)
        batch = Batch(
            kind="start",
            run=request.run,
            position=start_position(facts, offsets_of(context, start_target(context.pipeline), facts)),
            planned_at=context.stamp(),
            started_by=request.started_by,
        )
        manifest, path = write_manifest(context, tables, state, batch)
        try:
            decide(context, manifest, path, state)
        except Refused as refusal:
            # Another run was first. Its start position counts, and is read below like any other.
            context.report(f"another run began the pipeline: {refusal.message}")
        else:
            roll_forward(context, manifest, path, state)
        state = recover(context)[2]
    if state.position is None:
        raise RUN_OVERTAKEN.retryable("the first commit of the pipeline was undone by a concurrent run; try again")
    return state.position


def _report_missing_ids(context: RunContext, facts: ClusterFacts) -> None:
    topics_without_id = [name for name, topic in facts.topics.items() if topic.id is None]
    if topics_without_id:
        context.report(
            f"{context.cluster} gives no topic ids ({', '.join(topics_without_id)}): a topic that is deleted and made anew is noticed"
            " only when its log ends before the position; cluster, log start and log end are checked all the same"
        )
