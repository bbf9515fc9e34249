"""`frazil maintain`: the maintenance of a pipeline's tables, without Airflow."""

from typing import TYPE_CHECKING, Annotated

import typer

from frazil.cli.operate.run import new_run_id
from frazil.cli.output import console
from frazil.cli.output.options import Json, PipelineName
from frazil.cli.output.progress import Progress
from frazil.error_codes import MAINTENANCE_FAILED, RUN_FAILED

if TYPE_CHECKING:
    from frazil.maintain.need import Order, Step
    from frazil.maintain.result import MaintenanceResult
    from frazil.pipeline.models.pipeline_file import Pipeline
    from frazil.project import Project


def maintain(
    pipeline: PipelineName,
    *,
    table: Annotated[
        str | None, typer.Option("--table", metavar="TABLE", help="One table.", show_default="all of the pipeline")
    ] = None,
    step: Annotated[
        list[str] | None,
        typer.Option(
            "--step",
            metavar="STEP",
            help="position_deletes, compaction, manifests, expiry, orphans or stats; may be given again.",
            show_default="all, in this order",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Do the steps whether they are due or not.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say which steps are due, and why. No engine is started.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Keep the tables of a pipeline in shape: do the steps that their figures make due.

    Small files become large ones, manifests are merged, old snapshots and orphan files go. With nothing due it ends at
    once, without starting an engine. The position stays where it is, whatever goes.
    """
    from frazil.maintain.need import Order
    from frazil.maintain.run import preview
    from frazil.project import Project
    from frazil.run.state.context import RunContext

    project = Project.load()
    chosen = project.pipeline(pipeline)
    order = Order(table, _steps(step or ()), force)
    planned = preview(RunContext.open(project, chosen), order)
    result = planned if dry_run or not planned.is_due else _carried_out(project, chosen, order)
    if as_json:
        typer.echo(result.to_json())
    else:
        show(result, is_look=result is planned)
    refuse_failed(result)


def _steps(names: "tuple[str, ...] | list[str]") -> "tuple[Step, ...]":
    from frazil.maintain.need import STEPS

    strange = [name for name in names if name not in STEPS]
    if strange:
        raise typer.BadParameter(f"--step {strange[0]}: the steps are {', '.join(STEPS)}")
    return tuple(step for step in STEPS if step in names)


def _carried_out(project: "Project", pipeline: "Pipeline", order: "Order") -> "MaintenanceResult":
    from frazil.maintain.result import MaintenanceResult
    from frazil.spark.submit.submission import maintenance_run, run_maintenance

    with Progress() as progress:
        progress.doing(f"{pipeline.name}: starting {pipeline.maintenance_engine}")
        text = run_maintenance(project, pipeline, maintenance_run(new_run_id()), order.to_json(), progress.done)
    if text is None:
        raise RUN_FAILED.retryable(f"pipeline {pipeline.name}: the maintenance job handed nothing back")
    return MaintenanceResult.from_json(text)


def show(result: "MaintenanceResult", *, is_look: bool) -> None:
    """Print the findings, or the results, table by table."""
    for table in result.tables:
        for line in table.lines:
            console.say(line)
    due = len(result.with_status("due"))
    console.say(f"{result.pipeline}: {due} steps due" if is_look else f"{result.pipeline}: {result.summary}")


def refuse_failed(result: "MaintenanceResult") -> None:
    """End with the exit code of a retryable error if a step failed.

    Raises:
        Retryable: One did.
    """
    failed = result.with_status("failed")
    if failed:
        table, step = failed[0]
        raise MAINTENANCE_FAILED.retryable(
            f"pipeline {result.pipeline}: {len(failed)} steps failed; {table}: {step.line}"
        )
