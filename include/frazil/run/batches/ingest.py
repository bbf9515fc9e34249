"""Running the batches of a plan, one after the other, until its ends are reached."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

from frazil import shutdown
from frazil.batch.facts import Range
from frazil.batch.plan import RunPlan, advance, cut, remaining, skipped
from frazil.batch.position import Position
from frazil.batch.refusal import BATCHES_REFUSED
from frazil.error_codes import BAD_HANDOVER, RUN_OVERTAKEN
from frazil.iceberg.commit.commit import Refused
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.project import Project
from frazil.run.commit.audit import Ingestion, planned_position, publish, stage_batch
from frazil.run.commit.manifests import Batch
from frazil.run.commit.recover import recover
from frazil.run.repair.replay import replay
from frazil.run.staging.stage import Stage
from frazil.run.state.context import Apply, Clock, Report, RunContext, utc_now
from frazil.run.state.pipeline_state import PipelineState, batch_offsets
from frazil.run.state.source import mirror_to_consumer_group
from frazil.run.state.tables import Tables
from frazil.runtime.drivers import registered

REFUSALS = 3
"""Batches in a row that may be refused because other runs committed first. Each means that another run made progress."""


def ingest(  # noqa: PLR0913 - the last three are options
    project: Project,
    pipeline: Pipeline,
    plan: RunPlan,
    stage: Stage,
    report: Report,
    clock: Clock = utc_now,
    *,
    apply: Apply | None = None,
) -> int:
    """Run batches until the plan's ends are reached, by this run or another one. Repeating a finished run does nothing.

    `report` takes one line per phase. Only pipelines with tables that PyIceberg can't write need an engine to `apply`.

    Returns how many batches this run published.

    Raises:
        Terminal: A person must act; nothing undecided was published.
        OutcomeUnknown: A commit was sent and the table can't be read; the next run finds out.
        Stopped: A signal asked it to stop. Batches that were decided are finished.
    """
    if plan.pipeline != pipeline.name:
        raise BAD_HANDOVER.terminal(f"the plan is of pipeline {plan.pipeline}, not {pipeline.name}")
    context = RunContext.open(project, pipeline, report, clock, apply)
    if plan.mode == "dry_run":
        raise BAD_HANDOVER.terminal("a dry run lands nothing: its plan is not for ingesting")
    run = Ingestion(context, plan, stage, context.pipeline.auto_created)
    with shutdown.handled(report), registered(project.home, pipeline.name, plan.run, report):
        return replay(run) if plan.mode == "replay" else _ingest(run)


def _ingest(run: Ingestion) -> int:
    plan = run.plan
    published = refused = 0
    wasted = 0.0
    while True:
        began = time.monotonic()
        context, tables, state = recover(run.context)
        run = replace(run, context=context)
        position = planned_position(context, plan, state)
        ranges, skipped_ranges = remaining(plan, position), skipped(plan, position)
        if not ranges and not skipped_ranges:
            mirror_to_consumer_group(context, state.position)
            return published
        if shutdown.requester():
            raise shutdown.stopped(f"pipeline {context.pipeline.name} landed {published} batches of this run")
        chosen = next(cut(ranges, batch_offsets(context.pipeline, state)), ())
        try:
            position, names = _run_batch(run, tables, state, chosen, wasted)
        except Refused as refusal:
            refused, wasted = refused + 1, wasted + time.monotonic() - began
            context.report(f"batch {state.newest_batch + 1} refused, planning again: {refusal.message}")
            if refused > REFUSALS:
                raise RUN_OVERTAKEN.retryable(
                    f"pipeline {context.pipeline.name}: {refused} {BATCHES_REFUSED}: {refusal.message}"
                ) from refusal
            continue
        published, refused, wasted, run = published + 1, 0, 0.0, replace(run, refused_tables=names)
        if not remaining(plan, position) and not skipped(plan, position):
            mirror_to_consumer_group(context, position)  # nothing is left, whoever moved it further since
            return published


def _run_batch(
    run: Ingestion, tables: Tables, state: PipelineState, ranges: tuple[Range, ...], wasted: float
) -> tuple[Position, Mapping[str, str]]:
    """Stage and publish one batch. `wasted`: seconds spent on attempts that were refused.

    Returns the new position, and the names for which no table can be created, each with the reason.
    """
    context, plan = run.context, run.plan
    position = planned_position(context, plan, state)
    following = advance(position, ranges, plan)
    staged = stage_batch(run, tables, following.n, ranges)
    context = staged.context
    skipped_ranges = skipped(plan, position)
    for r in skipped_ranges:
        context.report(f"SKIPPED, gone from Kafka: topic {r.topic}, partition {r.partition}, {r.start} to {r.end - 1}")
    batch = Batch(
        kind="ingest",
        run=plan.run,
        position=following,
        planned_at=plan.planned_at,
        staged=staged.staged,
        ranges=ranges,
        skipped=skipped_ranges,
        started_at=staged.started_at,
        phases=staged.phases | ({"redo": round(wasted, 3)} if wasted else {}),
        started_by=plan.started_by,
        reason=plan.reason,
        schema_changes=staged.changes,
        complete_through=plan.planned_at if plan.complete and not remaining(plan, following) else None,
    )
    publish(context, staged.tables, state, batch)
    return following, staged.refused_tables
