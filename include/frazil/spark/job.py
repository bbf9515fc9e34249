"""The ingest job: what spark-submit runs, or a process beside a spark connect server. Arguments in, exit code out."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from frazil.batch.plan import RunPlan
from frazil.local.files import write_atomically
from frazil.pipeline.model import Pipeline
from frazil.project import Project
from frazil.run.dry_run import DryRun, dry_run
from frazil.run.ingest import ingest
from frazil.spark.apply import SparkApply
from frazil.spark.catalog import open_catalog
from frazil.spark.driver import end_with_parent, exit_code, say, session
from frazil.spark.stage import SparkStage
from frazil.spark.submit import needs_writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def main(argv: list[str]) -> int:
    """Run the batches of a plan, or look at what they would be.

    Returns:
        See `frazil.spark.driver.exit_code`.
    """
    end_with_parent()
    parser = argparse.ArgumentParser(prog="ingest")
    parser.add_argument("--pipeline", required=True, help="name of the pipeline")
    parser.add_argument(
        "--plan", required=True, help="plan JSON, the `plan` of `frazil plan PIPELINE --json`; or @FILE that holds it"
    )
    parser.add_argument(
        "--result", type=Path, help="file for what a dry run found; without it that is a line of output"
    )
    arguments = parser.parse_args(argv)

    def work() -> None:
        found = _run(arguments.pipeline, RunPlan.from_json(_plan(arguments.plan)))
        if found is not None:
            _hand_back(found, arguments.result)

    return exit_code(work)


def _plan(argument: str) -> str:
    return Path(argument[1:]).read_text(encoding="utf-8") if argument.startswith("@") else argument


def _run(pipeline: str, plan: RunPlan) -> DryRun | None:
    project = Project.load()
    known = project.pipeline(pipeline)
    with session(project, writes=needs_writer(known, plan)) as spark:
        if plan.mode == "dry_run":
            return dry_run(project, known, plan, SparkStage(spark), say)
        ingest(project, known, plan, SparkStage(spark), say, apply=_apply(spark, project, known, plan))
        return None


def _apply(spark: SparkSession, project: Project, pipeline: Pipeline, plan: RunPlan) -> SparkApply | None:
    """The engine for tables that PyIceberg can't write, if the pipeline has one, or had when its last batch was decided."""
    if not needs_writer(pipeline, plan):
        return None
    # A batch that waits may have tables in catalogs that the file names no more.
    for name in project.settings.catalogs if plan.waits else pipeline.catalogs:
        open_catalog(spark, name, project.settings.catalogs[name])
    return SparkApply(spark)


def _hand_back(found: DryRun, file: Path | None) -> None:
    if file is None:
        say(found.to_json())
    else:
        write_atomically(file, found.to_json())
