"""Plans a run without a JVM: finishes an unfinished batch, reads the tables, asks Kafka, fixes the end offsets. Also reads the
result of a run from the ledger.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any

from frazil.batch.audit import changed_leaders, check_position, check_truncations, check_vanished, tolerance_excess
from frazil.batch.changes import ChangeCounts
from frazil.batch.facts import ClusterFacts, Counts, UnknownFields
from frazil.batch.plan import (
    PlannedTopic,
    RunPlan,
    plan_topics,
    reaches_high_watermarks,
    replay_topics,
    skip_vanished,
    skipped,
    start_position,
)
from frazil.batch.position import LATEST, Position, RunRequest
from frazil.error_codes import BAD_ARGUMENT, RUN_OVERTAKEN
from frazil.failpoints import Failpoint, hit
from frazil.iceberg.commit.commit import Refused
from frazil.iceberg.ledger.ledger import first_rows, read_ledger
from frazil.kafka.admin.observe import truncations
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.project import Project
from frazil.run.commit.commit_batch import decide, recover, roll_forward
from frazil.run.commit.manifests import Batch, write_manifest
from frazil.run.repair.replay import refuse_forgotten_deletes, refuse_without_coordinates
from frazil.run.state.context import (
    Clock,
    Report,
    RunContext,
    no_report,
    observe_hidden_topics,
    observe_source,
    offsets_of,
    refuse_compacted,
    start_target,
    tolerance_of,
    utc_now,
    vanished_topics,
)
from frazil.run.state.pipeline_state import pipeline_state
from frazil.run.state.tables import open_tables


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """The result of planning.

    Attributes:
        plan: What the run will read; None if nothing is new, and no batch waits for the engine.
        complete_through: Without a plan: the instant through which the tables contain everything; None if unknown.
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
    planned_at = context.stamp()
    facts = observe_hidden_topics(context, position, observe_source(context))
    topics = planned_topics(context, position, facts, request)
    complete = request.mode == "ingest" and reaches_high_watermarks(topics, facts)
    plan = RunPlan(
        pipeline=pipeline.name,
        run=request.run,
        planned_at=planned_at,
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
        return PlannedRun(None, position, planned_at if complete else None)
    return PlannedRun(plan, position, None)


def planned_topics(
    context: RunContext, position: Position, facts: ClusterFacts, request: RunRequest
) -> Mapping[str, PlannedTopic]:
    """The topics and ranges that a run reads, according to its request.

    Raises:
        Terminal: The position does not fit what the broker shows, or the request can't be met.
    """
    name, source = context.pipeline.name, context.pipeline.source
    if request.mode == "replay":
        return _replayed_topics(context, position, facts, request)
    if request.start is not None:
        raise BAD_ARGUMENT.terminal(
            f"pipeline {name} always continues at its position; a run can't begin elsewhere",
            next_step=f"to land a range again: frazil replay {name} --from … --to …; to move the position:"
            f" frazil reset {name} --to … --reason …",
        )
    check_truncations(position, facts, truncations(context.cluster, changed_leaders(position, facts)), name)
    check_position(position, facts, name, source.on_data_loss, source.topics)
    vanished = vanished_topics(context.pipeline, position, facts)
    check_vanished(position, vanished, source.on_data_loss)
    until = offsets_of(context, request.end, facts) if request.end is not None else None
    return plan_topics(position, facts, until) | skip_vanished(position, vanished)


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
    """Refuse a replay if Kafka holds other records at its offsets than the pipeline read. Losses outside its ranges don't matter."""
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

    unchecked = {
        name: replace(topic, next=tuple(offset if is_unchecked(name, n) else 0 for n, offset in enumerate(topic.next)))
        for name, topic in position.topics.items()
    }
    check_position(replace(position, topics=unchecked), facts, context.pipeline.name, "skip_recorded")


def _write_start_position(context: RunContext, request: RunRequest) -> Position:
    """Write the start position in the pipeline's first commit, which has no data, and return it."""
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
            context.report(f"another run set the start position of the pipeline: {refusal.message}")
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
            f"{context.cluster} gives no topic ids ({', '.join(topics_without_id)}): a topic that is deleted and recreated is noticed"
            " only when its log ends before the position; cluster, log start and log end are checked all the same"
        )


@dataclass(frozen=True, slots=True)
class RunResult:
    """The result of a run.

    Attributes:
        position: Topic -> next offset per partition, after the run.
        snapshots: Snapshots of the destinations, one per batch and table.
        seconds: From the plan to the last row of the ledger; 0 without a batch.
        rows: Destination -> rows that it got.
        unknown_fields: Fields of written records that no column takes.
        changes: Destination that rows are merged into -> changes that were staged for it.
        files: Destination -> data files that it got.
        bytes: Destination -> bytes of these files.
        tolerance_exceeded: One line per batch that was published with more dead letters than tolerated.
    """

    pipeline: str
    run: str
    batches: int
    read: int
    written: int
    dead: int
    filtered: int
    dead_codes: Mapping[str, int]
    position: Mapping[str, list[int]]
    snapshots: tuple[int, ...]
    seconds: float
    tolerance_exceeded: tuple[str, ...] = ()
    rows: Mapping[str, int] = field(default_factory=dict)
    unknown_fields: UnknownFields = field(default_factory=UnknownFields)
    changes: Mapping[str, ChangeCounts] = field(default_factory=dict)
    files: Mapping[str, int] = field(default_factory=dict)
    bytes: Mapping[str, int] = field(default_factory=dict)
    phases: tuple[Mapping[str, float], ...] = ()

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self), separators=(",", ":"))


def run_result(project: Project, pipeline: Pipeline, run_id: str, planned_at: str | None = None) -> RunResult:
    """The result of a run so far, from the ledger's rows with its id.

    With `planned_at`, only batches planned then or later count: a run that is cleared in Airflow plans again.
    """
    ledger = read_ledger(project.lake_of(pipeline), pipeline.ledger_table, pipeline.name, run_id)
    if planned_at is not None:
        ledger = [row for row in ledger if row["planned_at"] >= datetime.fromisoformat(planned_at)]
    rows = [row for row in first_rows(ledger) if row["kind"] != "start"]
    landed = (row["snapshot_id"] for row in ledger if row["kind"] != "start" and row["role"] == "destination")
    codes = Counter[str]()
    for row in rows:
        codes.update(json.loads(row["dead_codes"]))
    return RunResult(
        pipeline=pipeline.name,
        run=run_id,
        batches=len(rows),
        read=_sum(rows, "records_read"),
        written=_sum(rows, "records_written"),
        dead=_sum(rows, "records_dead"),
        filtered=_sum(rows, "records_filtered"),
        dead_codes=dict(codes),
        position=_position(project, pipeline, rows),
        snapshots=tuple(snapshot for snapshot in landed if snapshot is not None),
        seconds=round((rows[-1]["recorded_at"] - rows[0]["planned_at"]).total_seconds(), 3) if rows else 0.0,
        tolerance_exceeded=tuple(_exceeded_tolerance(rows, pipeline)),
        rows=_per_table(ledger, "rows"),
        unknown_fields=sum(
            (row_fields for row in rows if (row_fields := unknown_fields_of(row))), UnknownFields()
        ).shown,
        changes=changes_of(ledger),
        files=_per_table(ledger, "files"),
        bytes=_per_table(ledger, "bytes"),
        phases=tuple(json.loads(row["phases"]) for row in rows),
    )


def unknown_fields_of(row: Mapping[str, Any]) -> UnknownFields | None:
    """Unknown fields in a ledger row; None if an older version did not count them."""
    if row.get("records_unknown") is None:
        return None
    return UnknownFields(row["records_unknown"], json.loads(row.get("unknown_fields") or "{}"))


def changes_of(rows: Iterable[Mapping[str, Any]]) -> dict[str, ChangeCounts]:
    """Change counts per table from ledger rows, without append-only tables."""
    by_table: dict[str, ChangeCounts] = {}
    for row in rows:
        if (upserts := row.get("table_upserts")) is not None:
            deletes = row["table_deletes"]
            counted = ChangeCounts(upserts, deletes, row["rows"] - upserts - deletes)
            by_table[row["table"]] = by_table.get(row["table"], ChangeCounts()) + counted
    return by_table


def _per_table(ledger: list[dict[str, Any]], column: str) -> dict[str, int]:
    """Destination -> sum of a column."""
    counted: Counter[str] = Counter()
    for row in ledger:
        if row["role"] == "destination":
            counted[row["table"]] += row[column]
    return dict(counted)


def _exceeded_tolerance(rows: list[dict[str, Any]], pipeline: Pipeline) -> Iterator[str]:
    tolerance = tolerance_of(pipeline)
    for row in rows:
        counts = Counts(*(row[f"records_{outcome}"] for outcome in ("read", "written", "dead", "filtered")))
        if excess := tolerance_excess(counts, json.loads(row["dead_codes"]), tolerance):
            yield f"batch {row['n']}: {excess}"


def _position(project: Project, pipeline: Pipeline, rows: list[dict[str, Any]]) -> dict[str, list[int]]:
    """The position after the run's last batch; without a batch, the present position."""
    if rows:
        position = Position.from_json(rows[-1]["position"])
    else:
        extended = project.with_auto_created(pipeline)
        stored_position = pipeline_state(extended, open_tables(project.lake_of(extended), extended)).position
        position = stored_position or Position(0, 0, "")
    return {topic: list(topic_position.next) for topic, topic_position in position.topics.items()}


def _sum(rows: list[dict[str, Any]], column: str) -> int:
    return sum(row[column] for row in rows)
