"""Running the batches of a plan, one after the other, until its ends are reached."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from frazil import __version__
from frazil.batch import audit as batch_audit
from frazil.batch.facts import Range, Staged
from frazil.batch.manifest import Manifest, TablePart
from frazil.batch.plan import RunPlan, advance, cut, remaining
from frazil.batch.position import Position
from frazil.errors import FrazilError, Retryable, Terminal
from frazil.iceberg.catalog import Lake
from frazil.iceberg.commit import Refused, fit_of
from frazil.iceberg.schema import arrow_columns
from frazil.iceberg.table import delete_files, staging_table, write_text
from frazil.kafka.observe import observe
from frazil.pipeline.model import Pipeline
from frazil.project import Project
from frazil.records.spec import KafkaColumns, RecordSpec
from frazil.run.forward import Clock, decide, roll_forward, utc_now
from frazil.run.plan import manifest_path, settled
from frazil.run.stage import Stage, StageOrder
from frazil.run.tables import Standing, Tables

REFUSALS = 3
"""Batches in a row that rivals may take from a run before it gives up. Each means that another run made progress."""

Report = Callable[[str], None]


@dataclass(frozen=True)
class _Run:
    """What stays the same over the batches of a run."""

    project: Project
    pipeline: Pipeline
    lake: Lake
    plan: RunPlan
    stage: Stage
    report: Report
    clock: Clock


@dataclass(frozen=True)
class _Work:
    """What one batch did before it was decided: the position it leads to, its files, its times."""

    following: Position
    staged: Staged
    started_at: str
    phases: dict[str, float]


def ingest(
    project: Project, pipeline: Pipeline, plan: RunPlan, stage: Stage, report: Report, clock: Clock = utc_now
) -> int:
    """Run batches until the plan's ends are reached, by this run or by a rival. Repeating a finished run does nothing.

    Args:
        project: Settings and doors.
        pipeline: The pipeline.
        plan: What to read; made by `frazil.run.plan.plan_run`.
        stage: The engine.
        report: Takes one line per phase, for people who watch.
        clock: Tells the time, UTC.

    Returns:
        Number of batches this run published.

    Raises:
        Retryable: Kafka, the catalog, the storage or the engine is not available now.
        Terminal: A person must act; nothing undecided was published.
        OutcomeUnknown: A commit was sent and the table can't be read; the next run finds out.
    """
    if plan.pipeline != pipeline.name:
        raise Terminal(f"the plan is of pipeline {plan.pipeline}, not {pipeline.name}")
    lake = project.lake(pipeline.catalog)
    run = _Run(project, pipeline, lake, plan, stage, report, clock)
    published = refused = 0
    while True:
        tables, now = settled(lake, pipeline, clock)
        if now.position is None:
            raise Terminal(f"pipeline {pipeline.name} was planned, but its table holds no position any more")
        ranges = remaining(plan, now.position)
        if not ranges:
            return published
        try:
            _run_batch(run, tables, now, now.position, next(cut(ranges, pipeline.limits.max_records)))
        except Refused as refusal:
            refused += 1
            report(f"batch {now.position.n + 1} refused, planning again: {refusal.message}")
            if refused > REFUSALS:
                raise Retryable(
                    f"pipeline {pipeline.name}: {refused} batches were refused: {refusal.message}"
                ) from refusal
            continue
        published, refused = published + 1, 0


def _run_batch(run: _Run, tables: Tables, now: Standing, position: Position, ranges: tuple[Range, ...]) -> None:
    following = advance(position, ranges, run.plan)
    started_at = run.clock().isoformat(timespec="milliseconds")
    run.report(f"batch {following.n}: staging {sum(r.span for r in ranges):,} offsets of {len(ranges)} partitions")
    began = time.monotonic()
    staged = run.stage(_order(run, tables, following.n, ranges))
    staged_in = time.monotonic() - began
    total = staged.total
    run.report(f"batch {following.n}: staged {total.written:,} rows, {total.dead:,} dead letters in {staged_in:.1f} s")
    try:
        _audit(run, ranges, staged)
    except FrazilError as failure:
        _delete(run, tables, staged, failure)
        raise
    phases = {"stage": round(staged_in, 3), "audit": round(time.monotonic() - began - staged_in, 3)}
    manifest = _manifest(run, tables, now, _Work(following, staged, started_at, phases))
    path = manifest_path(tables, run.pipeline, following.n, manifest.batch)
    write_text(tables.destination, path, manifest.to_json())
    snapshot = decide(run.lake, manifest, path, before=position)
    run.report(f"batch {following.n}: decided, snapshot {snapshot}")
    roll_forward(run.lake, manifest, path, run.clock)
    run.report(f"batch {following.n}: finished")


def _delete(run: _Run, tables: Tables, staged: Staged, failure: FrazilError) -> None:
    """Remove files that were never part of a commit request. The failure that led here is told whatever happens."""
    try:
        delete_files(tables.destination, [file.path for files in staged.files.values() for file in files])
    except FrazilError as error:
        run.report(f"staged files are left to orphan removal: {error.message}")
        failure.add_note(f"staged files could not be deleted: {error.message}")


def _order(run: _Run, tables: Tables, n: int, ranges: tuple[Range, ...]) -> StageOrder:
    pipeline = run.pipeline
    destination = pipeline.destinations[0]
    names = destination.kafka_columns
    spec = RecordSpec(
        columns=arrow_columns(tables.destination, destination),
        value_format=pipeline.value.format,
        tombstone=pipeline.value.null_value,
        kafka_columns=KafkaColumns(**names.model_dump()) if names else None,
    )
    return StageOrder(
        pipeline=pipeline.name,
        n=n,
        cluster=run.project.cluster(pipeline.source.cluster),
        ranges=ranges,
        records_per_task=pipeline.limits.records_per_task,
        spec=spec,
        destination=staging_table(destination.table, tables.destination),
        dead_letters=staging_table(pipeline.dead_letters_table, tables.dead_letters),
    )


def _audit(run: _Run, ranges: tuple[Range, ...], staged: Staged) -> None:
    """Counts, tolerance, and that the topics read are still the topics planned."""
    pipeline = run.pipeline
    tolerance = pipeline.dead_letters.tolerance
    batch_audit.audit(
        ranges,
        staged,
        pipeline.destinations[0].table,
        pipeline.dead_letters_table,
        batch_audit.Tolerance(tolerance.max_rate, tolerance.min_records, tolerance.max_count),
    )
    facts = observe(run.project.cluster(pipeline.source.cluster), tuple(run.plan.topics))
    batch_audit.check_identity(run.plan, facts)


def _manifest(run: _Run, tables: Tables, now: Standing, work: _Work) -> Manifest:
    pipeline = run.pipeline
    destination, letters = pipeline.destinations[0].table, pipeline.dead_letters_table
    dead = TablePart(
        letters,
        "dead_letters",
        fit_of(tables.dead_letters.metadata),
        now.dead_letters,
        work.staged.files.get(letters, ()),
    )
    return Manifest(
        pipeline=pipeline.name,
        kind="ingest",
        batch=str(uuid.uuid4()),
        run=run.plan.run,
        position=work.following,
        closing=TablePart(
            destination,
            "destination",
            fit_of(tables.destination.metadata),
            now.mark,
            work.staged.files.get(destination, ()),
        ),
        followers=(dead,) if dead.files else (),
        ledger=pipeline.ledger_table,
        ledger_after=now.done,
        counts=work.staged.total,
        dead_codes=work.staged.dead_codes,
        planned_at=run.plan.planned_at,
        started_at=work.started_at,
        written_at=run.clock().isoformat(timespec="milliseconds"),
        phases=work.phases,
        version=__version__,
        config=pipeline.fingerprint,
        complete_through=run.plan.planned_at if run.plan.complete and not remaining(run.plan, work.following) else None,
    )
