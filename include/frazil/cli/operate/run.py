"""Commands that run a pipeline without Airflow: `frazil plan`; `frazil run`, once, as a session or as a dry run; `frazil
maintain` for its tables.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from frazil.cli.operate.warm_driver import warm_driver
from frazil.cli.output import console
from frazil.cli.output.console import TARGET_FORMS, Engine, Json, PipelineName, Progress, read_target
from frazil.error_codes import BAD_ARGUMENT, MAINTENANCE_FAILED, RUN_FAILED
from frazil.errors import Terminal
from frazil.monitor.condition import Runs
from frazil.runtime.home import PRIVATE_FILE, write_atomically

if TYPE_CHECKING:
    from rich.table import Table

    from frazil.batch.plan import RunPlan
    from frazil.batch.position import RunRequest
    from frazil.maintain.need import Order, Step
    from frazil.maintain.run import MaintenanceResult
    from frazil.pipeline.models.pipeline_file import Pipeline
    from frazil.project import Project
    from frazil.run.batches.dry_run import DryRun
    from frazil.run.batches.plan import PlannedRun, RunResult
    from frazil.run.state.context import ChosenEngine
    from frazil.runtime.home import Home


@contextmanager
def _keep_refusal(home: Home, pipeline: str, engine: str | None) -> Iterator[None]:
    """Keep the error of a run that was refused, for `frazil status`, until a later run is not refused.

    A refusal of a run with --engine is not kept: it says nothing about runs with the pipeline's own engine.
    """
    file = _refusal_file(home, pipeline)
    try:
        yield
    except Terminal as error:
        if engine is not None:
            raise
        text = json.dumps({"at": datetime.now(UTC).isoformat(), "why": error.message_with_code})
        with suppress(OSError):  # the command shows the error in any case
            write_atomically(file, text, mode=PRIVATE_FILE)
        raise
    with suppress(OSError):
        file.unlink()


def _refusal_file(home: Home, pipeline: str) -> Path:
    return home.root / "refused" / f"{pipeline}.json"


def with_refusals(runs: Mapping[str, Runs], home: Home, pipelines: Iterable[str]) -> dict[str, Runs]:
    """The runs of pipelines in Airflow, with refusals of later runs at a terminal."""
    merged = dict(runs)
    for name in pipelines:
        try:
            body = json.loads(_refusal_file(home, name).read_text(encoding="utf-8"))
            refused_at, why = datetime.fromisoformat(body["at"]).astimezone(UTC), str(body["why"])
        except (OSError, ValueError, KeyError, TypeError):  # there is none, or its file is damaged
            continue
        in_airflow = merged.get(name, Runs())
        if in_airflow.last_ended_at is None or in_airflow.last_ended_at < refused_at:
            refusal = f"the manual run of {refused_at:%Y-%m-%d %H:%M} UTC was refused: {why}"
            merged[name] = replace(in_airflow, refusal=refusal, refused_at=refused_at)
    return merged


def _dry_run(project: Project, pipeline: Pipeline, request: RunRequest, progress: Progress) -> DryRun:
    from frazil.run.batches.dry_run import DryRun, dry_run, plan_dry_run

    plan = plan_dry_run(project, pipeline, request, progress.done)
    if _engine(project, pipeline, plan, progress, "look at").is_inline or not plan.ranges:
        from frazil.run.staging.stage import stage_inline

        return dry_run(project, pipeline, plan, stage_inline, progress.done)
    from frazil.spark.submit.submission import run_spark

    result = run_spark(project, pipeline, plan, progress.done)
    if result is None:
        raise RUN_FAILED.retryable("the Spark job succeeded but returned no result")
    return DryRun.from_json(result)


def _show_dry_run(dry_run: DryRun, *, as_json: bool) -> None:
    if as_json:
        console.print_json(dry_run)
        return
    if dry_run.partitions:
        console.show_table(_dry_run_table(dry_run))
    counts = dry_run.counts
    console.say(
        f"{dry_run.pipeline}: dry run, nothing was landed; looked at {dry_run.looked_at:,} of {dry_run.offsets:,} offsets:"
        f" {counts.read:,} read ({dry_run.bytes:,} bytes) = {counts.written:,} rows + {counts.dead:,} dead"
        f" + {counts.filtered:,} filtered, {dry_run.seconds:.1f} s"
    )
    for code, count in sorted(dry_run.dead_codes.items(), key=lambda item: -item[1]):
        console.say(f"  dead letters {code}: {count:,}")
        if code in dry_run.samples:
            sample = dry_run.samples[code]
            console.say(f"    {sample.topic}/{sample.partition}:{sample.offset} {sample.message}")
    if left_out := dry_run.unknown_fields.summary:
        console.say(f"  a run would leave out: {left_out}")
    if dry_run.too_many_dead is not None:
        console.say(f"  a run would not publish this: {dry_run.too_many_dead}")
    for remark in dry_run.remarks:
        console.say(f"  {remark}")


def _dry_run_table(dry_run: DryRun) -> Table:
    columns = ("partition", "from", "to", "looked to", "read", "rows", "dead", "filtered")
    table = console.new_table("topic", numbers=columns)
    for partition in dry_run.partitions:
        counts = partition.counts
        offsets = (partition.start, partition.end, partition.looked_to)
        numbers = (*offsets, counts.read, counts.written, counts.dead, counts.filtered)
        table.add_row(partition.topic, str(partition.partition), *(f"{number:,}" for number in numbers))
    return table


def _session_plan(pipeline: str, length: str) -> RunPlan:
    """The plan of a session that begins now.

    Raises:
        Terminal: The length is not a duration.
    """
    from frazil.batch.plan import session_order
    from frazil.pipeline.syntax.interval import parse_duration

    instant = datetime.now(UTC)
    try:
        until = instant + parse_duration(length)
    except ValueError as error:
        raise BAD_ARGUMENT.terminal(f"--stay: {error}", next_step="give a duration, such as 90s, 10m or 1h") from error
    return session_order(pipeline, manual_request(), instant, until)


def _run_session(order: RunPlan, engine: str | None, progress: Progress) -> RunResult:
    """Land batches until the session ends, and return the result that the ledger shows.

    Raises:
        Stopped: A signal asked it to stop.
        Terminal: A person must act.
        Retryable, OutcomeUnknown: Several batches in a row failed.
    """
    from frazil import shutdown
    from frazil.project import Project
    from frazil.run.batches.plan import run_result
    from frazil.run.batches.session import Session, inline_lander, run_session_with_jobs
    from frazil.spark.submit.job_process import STOP_SECONDS
    from frazil.spark.submit.submission import run_spark

    def load() -> tuple[Project, Pipeline]:
        project = Project.load()
        return project, with_engine(project.pipeline(order.pipeline), engine)

    def submit(plan: RunPlan) -> str | None:
        return run_spark(session.project, session.pipeline, plan, progress.done)

    session = Session(order, load, progress.done)
    progress.done(f"{order.pipeline}: running until {order.until}, a batch every {session.pipeline.interval}")
    progress.doing(f"{order.pipeline}: waiting for records")
    with shutdown.handled(progress.done, STOP_SECONDS):  # also a stop that comes just when a job ends by itself
        run_session_with_jobs(session, inline_lander(progress.done), submit)
    return run_result(session.project, session.pipeline, order.run)


def plan(pipeline: PipelineName, *, as_json: Json = False) -> None:
    """Show what the next run of a pipeline would read. No engine is started.

    Planning may write: the first plan of a pipeline creates its tables and start position, and a plan after a crash finishes
    the batch that was decided. [cyan]frazil run --dry-run[/cyan] changes nothing. With --json, [cyan]plan[/cyan] is null if
    there is nothing new.
    """
    from frazil.project import Project
    from frazil.run.batches.plan import plan_run

    project = Project.load()
    with Progress() as progress:
        planned = plan_run(project, project.pipeline(pipeline), manual_request(), progress.done)
    if as_json:
        console.print_json(_plan_report(pipeline, planned))
    elif planned.plan is None:
        console.say(_nothing_new(pipeline, planned))
    else:
        show_plan(planned.plan)


def run(  # noqa: PLR0913 - the options of a command
    pipeline: PipelineName,
    *,
    engine: Engine = None,
    stay: Annotated[
        str | None,
        typer.Option(
            "--stay",
            metavar="DURATION",
            help="Keep running for this time, such as 10m, and land a batch at each interval of the pipeline.",
            show_default="run once",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Decode and count the records. Create and commit nothing.")
    ] = False,
    from_: Annotated[
        str | None,
        typer.Option("--from", metavar=TARGET_FORMS, help="Where a dry run begins.", show_default="the position"),
    ] = None,
    end: Annotated[
        str | None, typer.Option("--to", metavar=TARGET_FORMS, help="Where a dry run ends.", show_default="latest")
    ] = None,
    as_json: Json = False,
) -> None:
    """Run a pipeline once: plan the end offsets, then land batches until they are reached.

    Without new records it ends at once and starts no engine. With --json, the result is one line on stdout.
    A dry run reads at most the records of one batch. With --stay, Ctrl-C ends the run after the batch that is decided.
    """
    from frazil.project import Project
    from frazil.run.batches.plan import plan_run

    if not dry_run and (from_ or end):
        raise typer.BadParameter(
            "a run always continues at the position: --from and --to need --dry-run (or use frazil replay)"
        )
    if stay is not None and dry_run:
        raise typer.BadParameter("--stay and --dry-run exclude each other")
    project = Project.load()
    chosen = with_engine(project.pipeline(pipeline), engine)
    if stay is not None:
        session_plan = _session_plan(pipeline, stay)
        with _keep_refusal(project.home, pipeline, engine), Progress() as progress:
            result = _run_session(session_plan, engine, progress)
        print_result(result, as_json=as_json)
        return
    request = manual_request()
    if dry_run:
        request = replace(request, mode="dry_run", start=read_target(from_), end=read_target(end))
        with Progress() as progress:
            outcome = _dry_run(project, chosen, request, progress)
        _show_dry_run(outcome, as_json=as_json)
        return
    with _keep_refusal(project.home, pipeline, engine), warm_driver(project, chosen), Progress() as progress:
        planned = plan_run(project, chosen, request, progress.done)
        if planned.plan is None:
            progress.done(_nothing_new(pipeline, planned))
            result = empty_result(pipeline, request.run, planned)
        else:
            result = carry_out(project, chosen, planned.plan, progress)
    print_result(result, as_json=as_json)


def with_engine(pipeline: Pipeline, engine: str | None) -> Pipeline:
    """The pipeline with the engine of the option --engine, if it was given."""
    return pipeline if engine is None else pipeline.model_copy(update={"engine": engine})


def print_result(result: RunResult, *, as_json: bool) -> None:
    """Print what a run did: as a line of JSON, or for people."""
    if as_json:
        typer.echo(result.to_json())
    else:
        show_result(result)


def _new_run_id() -> str:
    """Id of a manual run, in Airflow's form."""
    return f"cli__{datetime.now(UTC).isoformat(timespec='milliseconds')}"


def manual_request() -> RunRequest:
    """The request of a new run that is started at a terminal: its id, and the user's name."""
    import getpass
    import socket

    from frazil.batch.position import RunRequest

    return RunRequest(_new_run_id(), started_by=f"cli:{getpass.getuser()}@{socket.gethostname()}")


def carry_out(project: Project, pipeline: Pipeline, plan: RunPlan, progress: Progress) -> RunResult:
    """Run a plan with the pipeline's engine, and return the result that the ledger shows."""
    from frazil.run.batches.plan import run_result

    if _engine(project, pipeline, plan, progress, "read").is_inline:
        from frazil.run.batches.session import ingest
        from frazil.run.staging.stage import stage_inline

        ingest(project, pipeline, plan, stage_inline, progress.done)
    else:
        from frazil.spark.submit.submission import run_spark

        run_spark(project, pipeline, plan, progress.done)
    return run_result(project, pipeline, plan.run)


def _engine(project: Project, pipeline: Pipeline, plan: RunPlan, progress: Progress, verb: str) -> ChosenEngine:
    from frazil.run.state.context import chosen_engine

    engine = chosen_engine(pipeline, project.settings.auto, plan)
    progress.done(f"{pipeline.name}: {plan.records:,} offsets to {verb}, engine {engine.description}")
    progress.doing(f"{pipeline.name}: starting {engine.name}")
    return engine


def _nothing_new(pipeline: str, planned: PlannedRun) -> str:
    through = f", complete through {planned.complete_through}" if planned.complete_through else ""
    return f"{pipeline}: nothing new{through}"


def empty_result(pipeline: str, run_id: str, planned: PlannedRun) -> RunResult:
    """The result of a run without records to read."""
    from frazil.run.batches.plan import RunResult

    position = {topic: list(offsets.next) for topic, offsets in planned.position.topics.items()}
    return RunResult(
        pipeline=pipeline,
        run=run_id,
        batches=0,
        read=0,
        written=0,
        dead=0,
        filtered=0,
        dead_codes={},
        position=position,
        snapshots=(),
        seconds=0.0,
    )


def _plan_report(pipeline: str, planned: PlannedRun) -> dict[str, object]:
    return {
        "pipeline": pipeline,
        "complete_through": planned.complete_through,
        "position": {topic: offsets.next for topic, offsets in planned.position.topics.items()},
        "records": planned.plan.records if planned.plan else 0,
        "plan": json.loads(planned.plan.to_json()) if planned.plan else None,
    }


def show_plan(plan: RunPlan) -> None:
    """Print the ranges that a run reads, by partition."""
    table = console.new_table("topic", numbers=("partition", "from", "to", "offsets"))
    for part in plan.ranges:
        offsets = (f"{offset:,}" for offset in (part.start, part.end, part.span))
        table.add_row(part.topic, str(part.partition), *offsets)
    console.show_table(table)
    console.say(f"{plan.pipeline}: {plan.records:,} offsets to read")


def show_result(result: RunResult) -> None:
    """Print what a run did, in a few lines."""
    console.say(
        f"{result.pipeline}: {result.batches} {'batch' if result.batches == 1 else 'batches'}, {result.read:,} read = {result.written:,} written"
        f" + {result.dead:,} dead + {result.filtered:,} filtered, {result.seconds:.1f} s"
    )
    for code, count in sorted(result.dead_codes.items(), key=lambda item: -item[1]):
        console.say(f"  dead letters {code}: {count:,}")
    for table, counts in result.changes.items():
        console.say(f"  merged into {table}: {counts.summary}")
    if left_out := result.unknown_fields.summary:
        console.say(f"  {left_out}")
    for warning in result.tolerance_exceeded:
        console.say(f"  more dead letters than tolerated, published nevertheless: {warning}")


def maintain(
    pipeline: PipelineName,
    *,
    table: Annotated[
        str | None,
        typer.Option("--table", metavar="TABLE", help="Maintain only this table.", show_default="all of the pipeline"),
    ] = None,
    step: Annotated[
        list[str] | None,
        typer.Option(
            "--step",
            metavar="STEP",
            help="position_deletes, compaction, manifests, expiry, orphans or stats. May be repeated.",
            show_default="all, in this order",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Do the steps even if they are not due.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show which steps are due, and why. No engine is started.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Maintain the tables of a pipeline: do each step that a table's figures make due.

    The steps merge small files and manifests, and remove old snapshots and orphan files. If nothing is due, the command ends
    at once and starts no engine. No step changes the pipeline's position.
    """
    from frazil.maintain.need import Order
    from frazil.maintain.run import preview
    from frazil.project import Project
    from frazil.run.state.context import RunContext

    project = Project.load()
    chosen = project.pipeline(pipeline)
    order = Order(table, _steps(step or ()), force)
    planned = preview(RunContext.open(project, chosen), order)
    result = planned if dry_run or not planned.is_due else _run_maintenance(project, chosen, order)
    if as_json:
        typer.echo(result.to_json())
    else:
        for line in (line for maintained in result.tables for line in maintained.lines):
            console.say(line)
        due = len(result.with_status("due"))
        console.say(f"{pipeline}: {f'{due} steps due' if result is planned else result.summary}")
    if failed := result.with_status("failed"):
        failed_table, failed_step = failed[0]
        raise MAINTENANCE_FAILED.retryable(
            f"pipeline {pipeline}: {len(failed)} steps failed; {failed_table}: {failed_step.line}"
        )


def _steps(names: Sequence[str]) -> tuple[Step, ...]:
    """The named steps, in the order in which maintenance does them."""
    from frazil.maintain.need import STEPS

    if wrong_names := [name for name in names if name not in STEPS]:
        raise typer.BadParameter(f"--step {wrong_names[0]}: the steps are {', '.join(STEPS)}")
    return tuple(step for step in STEPS if step in names)


def _run_maintenance(project: Project, pipeline: Pipeline, order: Order) -> MaintenanceResult:
    from frazil.maintain.run import MaintenanceResult
    from frazil.spark.submit.submission import maintenance_run, run_maintenance

    with Progress() as progress:
        progress.doing(f"{pipeline.name}: starting {pipeline.maintenance_engine}")
        text = run_maintenance(project, pipeline, maintenance_run(_new_run_id()), order.to_json(), progress.done)
    if text is None:
        raise RUN_FAILED.retryable(f"pipeline {pipeline.name}: the maintenance job returned no result")
    return MaintenanceResult.from_json(text)
