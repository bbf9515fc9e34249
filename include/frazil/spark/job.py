"""The ingest job: what spark-submit runs. Arguments in, exit code out."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from frazil import stopping
from frazil.batch.plan import RunPlan
from frazil.errors import FrazilError, Retryable
from frazil.local.files import write_atomically
from frazil.local.proc import stat_of
from frazil.pipeline.model import Pipeline
from frazil.project import Project
from frazil.run.dry_run import DryRun, dry_run
from frazil.run.ingest import ingest
from frazil.spark.apply import SparkApply
from frazil.spark.catalog import open_catalog
from frazil.spark.faults import SPARK_FAILED
from frazil.spark.stage import SparkStage
from frazil.spark.submit import SUBMITTER_VARIABLE, needs_writer
from frazil.spark.watch import REPORT_PREFIX


def end_with_parent() -> None:
    """End this process once the JVM that started it is gone, or whoever started the JVM: a killed task leaves both behind.

    A batch that it decides at this moment is finished first: it needs the catalog, not the JVM.
    """
    # Who kills the JVM together with its group, as Airflow does, means the run; the driver sees it and ends by itself.
    if os.getsid(0) != os.getpid():
        os.setpgid(0, 0)
    submitter = os.environ.get(SUBMITTER_VARIABLE)
    stopping.end_with_parent(lambda: submitter is not None and _has_ended(int(submitter)))


def _has_ended(pid: int) -> bool:
    # In a container whose first process reaps nobody, a killed task stays in /proc.
    found = stat_of(pid)
    return found is None or found.has_ended


def main(argv: list[str]) -> int:
    """Run the batches of a plan, or look at what they would be.

    Returns:
        0, or the exit code of the error's class; its message is the last reported line.
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
    try:
        found = _run(arguments.pipeline, RunPlan.from_json(_plan(arguments.plan)))
        if found is not None:
            _hand_back(found, arguments.result)
    except FrazilError as error:
        say(f"{error.label}: {' '.join(str(error).split())}")
        return error.exit_code
    except SPARK_FAILED as error:
        say(f"{Retryable.label}: Spark failed: {' '.join(str(error).split())[:2000]}")
        return Retryable.exit_code
    return 0


def _plan(argument: str) -> str:
    return Path(argument[1:]).read_text(encoding="utf-8") if argument.startswith("@") else argument


def _run(pipeline: str, plan: RunPlan) -> DryRun | None:
    project = Project.load()
    known = project.pipeline(pipeline)
    spark = SparkSession.builder.getOrCreate()
    try:
        if plan.mode == "dry_run":
            return dry_run(project, known, plan, SparkStage(spark), say)
        ingest(project, known, plan, SparkStage(spark), say, apply=_apply(spark, project, known, plan))
        return None
    finally:
        spark.stop()


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


def say(line: str) -> None:
    """Report one line to whoever watches the job, if anybody still does."""
    try:
        sys.stdout.write(f"{REPORT_PREFIX}{line}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # A batch that is decided must not stay half done because nobody listens any more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
