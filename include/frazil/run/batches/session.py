"""Runs the batches of a plan, one after the other, until its ends are reached. Also runs a session: a long run that lands a batch
at every tick of the interval.

At each tick a session asks Kafka where the partitions end. Only if one has grown since the last batch, it plans as any run does:
reads the tables, finishes an unfinished batch, fixes the ends. All batches of a session carry one run id.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from frazil import shutdown
from frazil.batch.audit import BATCHES_REFUSED
from frazil.batch.facts import Range
from frazil.batch.plan import RunPlan, SessionEnd, advance, cut, next_tick, remaining, skipped
from frazil.batch.position import Position, RunRequest
from frazil.error_codes import BAD_ARGUMENT, BAD_HANDOVER, FILES_OUTDATED, RUN_OVERTAKEN
from frazil.errors import FrazilError, OutcomeUnknown, Retryable, Terminal
from frazil.iceberg.commit.commit import Refused
from frazil.kafka.admin.observe import log_ends
from frazil.kafka.client.errors import Changed
from frazil.pipeline.files.load import SCHEMAS
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.project import Project
from frazil.run.batches.plan import PlannedRun, plan_run
from frazil.run.commit.audit import Ingestion, planned_position, publish, stage_batch
from frazil.run.commit.commit_batch import recover
from frazil.run.commit.manifests import Batch
from frazil.run.repair.replay import replay
from frazil.run.staging.stage import Stage, stage_inline
from frazil.run.state.context import (
    Apply,
    Clock,
    Report,
    RunContext,
    chosen_engine,
    keeps_engine,
    mirror_to_consumer_group,
    utc_now,
)
from frazil.run.state.pipeline_state import PipelineState, batch_offsets
from frazil.run.state.tables import Tables
from frazil.runtime.drivers import registered

REFUSALS = 3
"""Batches in a row that may be refused because other runs committed first. Each refusal means that another run made progress."""


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

    Only pipelines with tables that PyIceberg can't write need `apply`, the engine that writes them.

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
            position, refused_tables = _run_batch(run, tables, state, chosen, wasted)
        except Refused as refusal:
            refused, wasted = refused + 1, wasted + time.monotonic() - began
            context.report(f"batch {state.newest_batch + 1} refused, planning again: {refusal.message}")
            if refused > REFUSALS:
                raise RUN_OVERTAKEN.retryable(
                    f"pipeline {context.pipeline.name}: {refused} {BATCHES_REFUSED}: {refusal.message}"
                ) from refusal
            continue
        published, refused, wasted, run = published + 1, 0, 0.0, replace(run, refused_tables=refused_tables)
        if not remaining(plan, position) and not skipped(plan, position):
            mirror_to_consumer_group(
                context, position
            )  # the plan is done, even if another run moved the position further
            return published


def _run_batch(
    run: Ingestion, tables: Tables, state: PipelineState, ranges: tuple[Range, ...], wasted: float
) -> tuple[Position, Mapping[str, str]]:
    """Stage and publish one batch. `wasted`: seconds spent on attempts that were refused.

    Returns the new position, and the tables that records name and that can't be created, each with the reason.
    """
    context, plan = run.context, run.plan
    position = planned_position(context, plan, state)
    following = advance(position, ranges, plan)
    staged = stage_batch(run, tables, following.n, ranges)
    context = staged.context
    skipped_ranges = skipped(plan, position)
    for r in skipped_ranges:
        context.report(f"SKIPPED, deleted in Kafka: topic {r.topic}, partition {r.partition}, {r.start} to {r.end - 1}")
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


FileStamps = Mapping[str, tuple[int, int, int]]
"""Path -> inode, size and modification time of a file: they differ once it was written or replaced."""


def file_stamps(project: Project) -> FileStamps:
    """Return the stamps of existing settings, pipeline and schema files."""
    folder, stamps = project.pipelines_folder, {}
    for file in (project.settings_file, *_files(folder), *_files(folder.parent / SCHEMAS)):
        with suppress(FileNotFoundError):  # deleted at this moment: the next comparison shows it
            status = file.stat()
            stamps[str(file)] = (status.st_ino, status.st_size, status.st_mtime_ns)
    return stamps


def _files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*")) if folder.is_dir() else []


PLAN_EVERY = timedelta(minutes=5)
"""How old a plan may get while no partition grows: only a new plan shows new topics and resets."""

PAUSES_SECONDS = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Pauses between the tries of a tick that fails with a temporary error. Together they cover a broker's restart, or the time that a
person needs to correct a file. Then the run fails."""

Load = Callable[[], tuple[Project, Pipeline]]
"""Reads settings and pipeline again."""

Land = Callable[[Project, Pipeline, RunPlan], bool]
"""Lands a plan and returns True; or returns False if another process must land it."""

Submit = Callable[[RunPlan], str | None]
"""Lands a plan in a job, and returns the job's result. If the plan has `until`, the job goes on with the session until then."""


class Session:
    """The state of a long run between its ticks.

    Args:
        order: Names pipeline, run, and the end of the session.
        load: Reads settings and pipeline: at once, and when their files have changed.
        report: Takes one line per phase, for people who watch.
        clock: Tells the time, UTC.
        in_job: Whether the session runs in a job that another session started and waits for. Such a session ends when files
            changed or a batch failed: the job may not fit the files any more, and the waiting session starts another job.

    Attributes:
        complete_through: Everything that Kafka had accepted by this instant, ISO 8601, has landed; None if unknown.
    """

    def __init__(
        self, order: RunPlan, load: Load, report: Report, clock: Clock = utc_now, *, in_job: bool = False
    ) -> None:
        self.order, self.report, self.in_job = order, report, in_job
        self.complete_through: str | None = None
        self.plans = 0
        self._load, self._clock = load, clock
        self.project, self.pipeline = load()
        if order.until is None or self.pipeline.every.every is None:
            raise BAD_ARGUMENT.terminal(
                f"pipeline {self.pipeline.name}: a session needs an end, and an interval that is a duration",
                next_step="set interval, such as 10s, and session_for, such as 10m",
            )
        self._until = datetime.fromisoformat(order.until)
        self._files: FileStamps = {}  # they may have changed since they were read: the first tick reads them again
        self._due: datetime | None = clock()
        self._landed: Mapping[tuple[str, int], int] | None = None
        self._planned_at = datetime.min.replace(tzinfo=UTC)
        self._failures, self._n = 0, 0

    def next_plan(self) -> RunPlan | None:
        """Wait for a tick at which there is something to do, and plan it.

        Returns None at the end of the session.

        Raises:
            Stopped: A signal asked it to stop.
            Terminal: A person must act.
            Retryable, OutcomeUnknown: A tick failed repeatedly.
        """
        while self._wait_for_tick():
            try:
                plan = self._tick()
            except (Retryable, OutcomeUnknown) as error:
                self.retry_later(error)
                continue
            if plan is not None:
                self._raise_if_stopping()
                return plan
            self._schedule_next_tick()
        return None

    def note_landed(self, plan: RunPlan) -> None:
        """Take note that a plan was landed, and schedule the next tick."""
        if plan.complete:
            self.complete_through = plan.planned_at
        self._landed = {
            (name, partition): end for name, topic in plan.topics.items() for partition, end in enumerate(topic.end)
        }
        self._schedule_next_tick()

    def note_handed_over(self, plan: RunPlan, end_json: str | None) -> None:
        """Take note that another process landed a plan. The next tick plans anew.

        `end_json` is the `SessionEnd` of that process if it went on with the session; None if it only landed the plan.
        """
        through = plan.planned_at if plan.complete else None
        if end_json is not None:
            through = SessionEnd.from_json(end_json).complete_through
        self.complete_through = through or self.complete_through
        self._landed = None
        self._schedule_next_tick()

    @property
    def end(self) -> SessionEnd:
        """The result of the session."""
        return SessionEnd(self.complete_through)

    def retry_later(self, error: FrazilError) -> None:
        """Schedule another try of the tick, after a pause.

        Raises:
            FrazilError: The given error, after the last try.
        """
        if self._failures == len(PAUSES_SECONDS):
            raise error
        pause = PAUSES_SECONDS[self._failures]
        self._failures, self._landed = self._failures + 1, None
        self.report(f"trying again in {pause:.0f} s: {error.message}")
        self._due = self._clock() + timedelta(seconds=pause)

    def _schedule_next_tick(self) -> None:
        self._failures = 0
        every = self.pipeline.every.every
        self._due = None if every is None else next_tick(self._clock(), every, self._until)

    def _wait_for_tick(self) -> bool:
        """Wait for the next tick. Returns False if the session has none any more."""
        if self._due is not None:
            shutdown.wait(self._due, self._clock)
            self._raise_if_stopping()
        return self._due is not None

    def _raise_if_stopping(self) -> None:
        if shutdown.requester():
            raise shutdown.stopped(f"the session of pipeline {self.pipeline.name} ended between two batches")

    def _tick(self) -> RunPlan | None:
        if not self._is_up_to_date():
            self._until = self._clock()
            return None
        if not self._has_moved():
            return None
        planned = self._plan()
        if planned.position.n != self._n:
            # Something landed after the failures, such as batches of a job that failed later.
            self._n, self._failures = planned.position.n, 0
        if planned.plan is None:
            self.complete_through = planned.complete_through or self.complete_through
            topics = planned.position.topics
            self._landed = {
                (name, number): end for name, topic in topics.items() for number, end in enumerate(topic.next)
            }
        return planned.plan

    def _plan(self) -> PlannedRun:
        order = self.order
        request = RunRequest(order.run, started_by=order.started_by, reason=order.reason)
        self.plans, self._planned_at = self.plans + 1, self._clock()
        return plan_run(self.project, self.pipeline, request, self.report, self._clock)

    def _has_moved(self) -> bool:
        """Whether a plan may find unread records. The tables are not read."""
        landed = self._landed
        if landed is None or self._clock() - self._planned_at >= PLAN_EVERY:
            return True
        cluster = self.project.cluster(self.pipeline.source.cluster)
        try:
            return log_ends(cluster, landed.keys()) != landed
        except (Changed, Terminal):
            return True  # a topic changed: the plan reports in full what is wrong

    def _is_up_to_date(self) -> bool:
        """Reload changed files; return whether the session can continue with them.

        Raises:
            Retryable: They are invalid, for example half written.
        """
        current_stamps = file_stamps(self.project)
        if current_stamps == self._files:
            return True
        try:
            project, pipeline = self._load()
        except Terminal as error:
            raise FILES_OUTDATED.retryable(f"files changed: {error.message}", next_step=error.next_step) from error
        self._files = current_stamps
        if pipeline == self.pipeline and project.settings == self.project.settings:
            return True
        what_changed = "the pipeline file or the settings changed"
        if self.in_job or pipeline.every.every is None:
            self.report(f"{what_changed}: the session ends here, the next one uses the new files")
            return False
        self.report(f"{what_changed}: the new files are used from now on")
        self.project.close()
        self.project, self.pipeline, self._landed = project, pipeline, None
        return True


def run_session(session: Session, land: Land) -> RunPlan | None:
    """Land batches until the session ends.

    Returns:
        A plan that another process must land, with `until` if that process is to go on with the session: see
        `Session.note_handed_over`. None at the end of the session.

    Raises:
        Stopped: A signal asked it to stop. Batches that were decided are finished.
        Terminal: A person must act.
        Retryable, OutcomeUnknown: A tick failed repeatedly; in a job, a batch failed.
    """
    home, order = session.project.home, session.order
    with shutdown.handled(session.report), registered(home, order.pipeline, order.run, session.report):
        while (plan := session.next_plan()) is not None:
            try:
                if not land(session.project, session.pipeline, plan):
                    return replace(plan, until=order.until) if keeps_engine(session.pipeline) else plan
            except (Retryable, OutcomeUnknown) as error:
                if session.in_job:
                    raise
                session.retry_later(error)
            else:
                session.note_landed(plan)
    return None


def run_session_with_jobs(session: Session, land: Land, submit: Submit) -> None:
    """Land batches until the session ends: in this process, or in jobs that it starts and waits for.

    Plans that `land` can't land go to a job. A job that fails is tried again later, as another job.

    Raises:
        Stopped: A signal asked it to stop. Batches that were decided are finished.
        Terminal: A person must act.
        Retryable, OutcomeUnknown: A tick or a job failed repeatedly.
    """
    while (plan := run_session(session, land)) is not None:
        try:
            end_json = submit(plan)
        except (Retryable, OutcomeUnknown) as error:
            session.retry_later(error)
        else:
            session.note_handed_over(plan, end_json)


def inline_lander(report: Report, clock: Clock = utc_now) -> Land:
    """Return a function that lands only plans for the engine `inline`."""

    def land(project: Project, pipeline: Pipeline, plan: RunPlan) -> bool:
        engine = chosen_engine(pipeline, project.settings.auto, plan)
        report(f"{pipeline.name}: {plan.records:,} offsets to read, engine {engine.description}")
        if engine.is_inline:
            ingest(project, pipeline, plan, stage_inline, report, clock)
        return engine.is_inline

    return land
