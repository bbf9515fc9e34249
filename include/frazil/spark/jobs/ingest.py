"""The ingest job: what spark-submit runs, or a process beside a spark connect server. Arguments in, exit code out."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from frazil.batch.plan import RunPlan
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.project import Project
from frazil.run.batches.dry_run import dry_run
from frazil.run.batches.session import Session, ingest, run_session
from frazil.run.state.engine import needs_writer
from frazil.runtime.home import write_atomically
from frazil.spark.jobs.driver import end_with_parent, exit_code, say, session
from frazil.spark.jobs.stage import SparkStage, tasks_of
from frazil.spark.jobs.start import wake_workers
from frazil.spark.submit.configuration import open_catalog
from frazil.spark.writes.apply import SparkApply

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def main(argv: list[str]) -> int:
    """Run the batches of a plan, or preview them in a dry run."""
    end_with_parent()
    parser = argparse.ArgumentParser(prog="ingest")
    parser.add_argument("--pipeline", required=True, help="name of the pipeline")
    parser.add_argument(
        "--plan", required=True, help="plan JSON, the `plan` of `frazil plan PIPELINE --json`; or @FILE that holds it"
    )
    parser.add_argument(
        "--result", type=Path, help="file for what a dry run or a session found; without it that is a line of output"
    )
    arguments = parser.parse_args(argv)

    def work() -> None:
        answer = _run(arguments.pipeline, RunPlan.from_json(_plan(arguments.plan)))
        if answer is not None:
            _hand_back(answer, arguments.result)

    return exit_code(work)


def _plan(argument: str) -> str:
    return Path(argument[1:]).read_text(encoding="utf-8") if argument.startswith("@") else argument


def _run(pipeline: str, plan: RunPlan) -> str | None:
    project = Project.load()
    definition = project.pipeline(pipeline)
    with session(project, writes=needs_writer(definition, plan)) as spark:
        wake_workers(spark, tasks_of(spark, plan.ranges))
        if plan.mode == "dry_run":
            return dry_run(project, definition, plan, SparkStage(spark), say).to_json()
        if plan.until is not None:
            return _run_session(spark, pipeline, plan)
        land(spark, project, definition, plan)
        return None


def land(spark: SparkSession, project: Project, pipeline: Pipeline, plan: RunPlan) -> bool:
    """Land a plan in this job. A `frazil.run.batches.session.Land` of one Spark session."""
    ingest(project, pipeline, plan, SparkStage(spark), say, apply=_apply(spark, project, pipeline, plan))
    return True


def _run_session(spark: SparkSession, pipeline: str, order: RunPlan) -> str:
    """Land batches until the session ends, a batch fails, or the files change: what Spark was started with may not be theirs.

    So a Spark that has ended is never used again: the process that waits for this job starts another.
    """

    def load() -> tuple[Project, Pipeline]:
        project = Project.load()
        return project, project.pipeline(pipeline)

    session = Session(order, load, say, in_job=True)
    run_session(session, partial(land, spark))
    return session.end.to_json()


def _apply(spark: SparkSession, project: Project, pipeline: Pipeline, plan: RunPlan) -> SparkApply | None:
    """The engine for tables that PyIceberg can't write, if the pipeline has such a table, or had one in its last decided
    batch.
    """
    if not needs_writer(pipeline, plan):
        return None
    # A batch that waits may have tables in catalogs that the file names no more.
    for name in project.settings.catalogs if plan.waits else pipeline.catalogs:
        open_catalog(spark, name, project.settings.catalogs[name])
    return SparkApply(spark)


def _hand_back(answer: str, file: Path | None) -> None:
    if file is None:
        say(answer)
    else:
        write_atomically(file, answer)
