"""The ingest job, which spark-submit starts, or which uses a session on a Spark Connect server."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from frazil.batch.plan import RunPlan
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.project import Project
from frazil.run.batches.dry_run import dry_run
from frazil.run.batches.session import Session, ingest, run_session
from frazil.run.state.context import needs_writer
from frazil.spark.jobs.driver import carry_out, say, session
from frazil.spark.jobs.stage import SparkStage, tasks_of
from frazil.spark.jobs.start import wake_workers
from frazil.spark.submit.configuration import open_catalog
from frazil.spark.writes.apply import SparkApply

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def main(argv: list[str]) -> int:
    """Run the batches of a plan, or preview them in a dry run."""
    return carry_out("ingest", argv, _run)


def _run(project: Project, name: str, order: str) -> str | None:
    plan, pipeline = RunPlan.from_json(order), project.pipeline(name)
    with session(project, writes=needs_writer(pipeline, plan)) as spark:
        wake_workers(spark, tasks_of(spark, plan.ranges))
        if plan.mode == "dry_run":
            return dry_run(project, pipeline, plan, SparkStage(spark), say).to_json()
        if plan.until is not None:
            return _run_session(spark, name, plan)
        land(spark, project, pipeline, plan)
        return None


def land(spark: SparkSession, project: Project, pipeline: Pipeline, plan: RunPlan) -> bool:
    """Land a plan in this job: a `frazil.run.batches.session.Land` with one Spark session."""
    ingest(project, pipeline, plan, SparkStage(spark), say, apply=_apply(spark, project, pipeline, plan))
    return True


def _run_session(spark: SparkSession, pipeline: str, order: RunPlan) -> str:
    """Land batches until the session ends, a batch fails, or the project's files change, for which Spark may lack settings.

    Then the process that waits for this job starts another job.
    """

    def load() -> tuple[Project, Pipeline]:
        project = Project.load()
        return project, project.pipeline(pipeline)

    session = Session(order, load, say, in_job=True)
    run_session(session, partial(land, spark))
    return session.end.to_json()


def _apply(spark: SparkSession, project: Project, pipeline: Pipeline, plan: RunPlan) -> SparkApply | None:
    """The engine for tables that PyIceberg can't write; None if neither pipeline nor last decided batch has such a table."""
    if not needs_writer(pipeline, plan):
        return None
    # A batch that waits may have tables in catalogs that the pipeline file no longer names.
    for name in project.settings.catalogs if plan.waits else pipeline.catalogs:
        open_catalog(spark, name, project.settings.catalogs[name])
    return SparkApply(spark)
