"""`frazil plan` and `frazil run`: a pipeline without Airflow."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from frazil.cli import console
from frazil.cli.options import Json, PipelineName
from frazil.cli.progress import Progress

if TYPE_CHECKING:
    from frazil.batch.plan import RunPlan
    from frazil.pipeline.model import Pipeline
    from frazil.project import Project
    from frazil.run.plan import Planned
    from frazil.run.result import RunResult


def plan(pipeline: PipelineName, *, as_json: Json = False) -> None:
    """Show what the next run of a pipeline would read. No engine is started.

    The first plan of a pipeline makes its tables and writes its start position; a plan after a crash finishes the batch
    that was decided. With --json, [cyan]plan[/cyan] is null if there is nothing new.
    """
    from frazil.project import Project
    from frazil.run.plan import plan_run

    project = Project.load()
    planned = plan_run(project, project.pipeline(pipeline), new_run_id())
    if as_json:
        console.print_json(_planned_json(pipeline, planned))
    elif planned.plan is None:
        console.say(_nothing_new(pipeline, planned))
    else:
        _show_plan(planned.plan)


def run(
    pipeline: PipelineName,
    *,
    engine: Annotated[
        str | None,
        typer.Option(help="Engine of the settings file, or 'inline': this process.", show_default="the pipeline's own"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run a pipeline once: plan it, then batches until the planned ends are reached.

    With nothing new it ends at once, without starting an engine. With --json, one line on stdout tells what was done.
    """
    from frazil.project import Project
    from frazil.run.plan import plan_run

    project = Project.load()
    chosen = project.pipeline(pipeline)
    if engine is not None:
        chosen = chosen.model_copy(update={"engine": engine})
    run_id = new_run_id()
    with Progress() as progress:
        planned = plan_run(project, chosen, run_id)
        if planned.plan is None:
            progress.done(_nothing_new(pipeline, planned))
            result = _empty_result(pipeline, run_id, planned)
        else:
            result = _carry_out(project, chosen, planned.plan, progress)
    if as_json:
        typer.echo(result.to_json())
    else:
        _show_result(result)


def new_run_id() -> str:
    """Id of a run that was started by hand, after Airflow's manner."""
    return f"cli__{datetime.now(UTC).isoformat(timespec='milliseconds')}"


def _carry_out(project: "Project", pipeline: "Pipeline", plan: "RunPlan", progress: Progress) -> "RunResult":
    from frazil.pipeline.settings import INLINE_ENGINE
    from frazil.run.result import run_result

    progress.done(f"{pipeline.name}: {plan.records:,} offsets to read, engine {pipeline.engine}")
    progress.doing(f"{pipeline.name}: starting {pipeline.engine}")
    if pipeline.engine == INLINE_ENGINE:
        from frazil.run.ingest import ingest
        from frazil.run.inline import stage_inline

        ingest(project, pipeline, plan, stage_inline, progress.done)
    else:
        from frazil.spark.submit import run_spark

        run_spark(project, pipeline, plan, progress.done)
    return run_result(project, pipeline, plan.run)


def _nothing_new(pipeline: str, planned: "Planned") -> str:
    through = f", complete through {planned.complete_through}" if planned.complete_through else ""
    return f"{pipeline}: nothing new{through}"


def _empty_result(pipeline: str, run_id: str, planned: "Planned") -> "RunResult":
    from frazil.run.result import RunResult

    position = {topic: list(at.next) for topic, at in planned.position.topics.items()}
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


def _planned_json(pipeline: str, planned: "Planned") -> dict[str, object]:
    import json

    return {
        "pipeline": pipeline,
        "complete_through": planned.complete_through,
        "position": {topic: at.next for topic, at in planned.position.topics.items()},
        "records": planned.plan.records if planned.plan else 0,
        "plan": json.loads(planned.plan.to_json()) if planned.plan else None,
    }


def _show_plan(plan: "RunPlan") -> None:
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("topic", overflow="fold")
    for column in ("partition", "from", "to", "offsets"):
        table.add_column(column, justify="right", no_wrap=True)
    for r in plan.ranges:
        table.add_row(r.topic, str(r.partition), f"{r.start:,}", f"{r.end:,}", f"{r.span:,}")
    console.out().print(table)
    console.say(f"{plan.pipeline}: {plan.records:,} offsets to read")


def _show_result(result: "RunResult") -> None:
    console.say(
        f"{result.pipeline}: {result.batches} batches, {result.read:,} read = {result.written:,} written"
        f" + {result.dead:,} dead + {result.filtered:,} filtered, {result.seconds:.1f} s"
    )
    for code, count in sorted(result.dead_codes.items(), key=lambda item: -item[1]):
        console.say(f"  dead letters {code}: {count:,}")
