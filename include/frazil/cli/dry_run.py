"""`frazil run --dry-run`: what a run would land, without landing it."""

from typing import TYPE_CHECKING

from frazil.cli import console
from frazil.cli.progress import Progress

if TYPE_CHECKING:
    from rich.table import Table

    from frazil.batch.plan import RunPlan
    from frazil.batch.request import RunRequest
    from frazil.pipeline.model import Pipeline
    from frazil.project import Project
    from frazil.run.dry_run import DryRun


def look(project: "Project", pipeline: "Pipeline", request: "RunRequest", *, as_json: bool) -> None:
    """Carry out a dry run with the pipeline's engine and show what it found."""
    from frazil.run.dry_run import plan_dry_run

    with Progress() as progress:
        plan = plan_dry_run(project, pipeline, request, progress.done)
        found = _carry_out(project, pipeline, plan, progress)
    if as_json:
        console.print_json(_report(found))
    else:
        _show(found)


def _carry_out(project: "Project", pipeline: "Pipeline", plan: "RunPlan", progress: Progress) -> "DryRun":
    from frazil.run.dry_run import DryRun, dry_run
    from frazil.run.engine import chosen_engine

    engine = chosen_engine(pipeline, project.settings.auto, plan)
    progress.done(f"{pipeline.name}: {plan.records:,} offsets to look at, engine {engine.said}")
    progress.doing(f"{pipeline.name}: starting {engine.name}")
    if engine.is_inline or not plan.ranges:
        from frazil.run.inline import stage_inline

        return dry_run(project, pipeline, plan, stage_inline, progress.done)
    from frazil.errors import Retryable
    from frazil.spark.submit.submission import run_spark

    handed_back = run_spark(project, pipeline, plan, progress.done)
    if handed_back is None:
        raise Retryable("the Spark job ended well and handed nothing back")
    return DryRun.from_json(handed_back)


def _report(found: "DryRun") -> dict[str, object]:
    from dataclasses import asdict

    return asdict(found)


def _show(found: "DryRun") -> None:
    if found.partitions:
        console.show_table(_partitions(found))
    counts = found.counts
    console.say(
        f"{found.pipeline}: dry run, nothing was landed; looked at {found.looked_at:,} of {found.offsets:,} offsets:"
        f" {counts.read:,} read ({found.bytes:,} bytes) = {counts.written:,} rows + {counts.dead:,} dead"
        f" + {counts.filtered:,} filtered, {found.seconds:.1f} s"
    )
    for code, count in sorted(found.dead_codes.items(), key=lambda item: -item[1]):
        console.say(f"  dead letters {code}: {count:,}")
        if code in found.samples:
            sample = found.samples[code]
            console.say(f"    {sample.topic}/{sample.partition}:{sample.offset} {sample.message}")
    if left_out := found.unknown_fields.said:
        console.say(f"  a run would leave out: {left_out}")
    if found.too_many_dead is not None:
        console.say(f"  a run would not publish this: {found.too_many_dead}")


def _partitions(found: "DryRun") -> "Table":
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("topic", overflow="fold")
    for column in ("partition", "from", "to", "looked to", "read", "rows", "dead", "filtered"):
        table.add_column(column, justify="right", no_wrap=True)
    for p in found.partitions:
        of = p.counts
        numbers = (p.start, p.end, p.looked_to, of.read, of.written, of.dead, of.filtered)
        table.add_row(p.topic, str(p.partition), *(f"{number:,}" for number in numbers))
    return table
