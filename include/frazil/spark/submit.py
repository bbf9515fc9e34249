"""How the Spark job of a batch is started: the same facts for Airflow's operator and for `frazil run`. No pyspark here."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import quote

from frazil.batch.plan import RunPlan
from frazil.local.drivers import Driver, drivers
from frazil.local.files import private_folder, write_atomically
from frazil.local.home import Home, interpreter_bin
from frazil.local.jars import fetch, jar_paths
from frazil.local.java import ensure_java
from frazil.pipeline.model import Pipeline
from frazil.project import Project
from frazil.run.engine import needs_writer
from frazil.spark.catalog import EXTENSIONS
from frazil.spark.class_archive import archive_options
from frazil.spark.job_logs import log_of
from frazil.spark.watch import watch_job

_JVM_OPTIONS = "spark.driver.extraJavaOptions"
"""An engine's own take the place of ours, but for the archive of classes: a JVM that is told two collectors does not start."""

_WRITING = "-XX:+UseParallelGC"
"""Options of a JVM through whose hands rows go."""

_WAITING = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""Options of a JVM that only hands out tasks: what the second compiler would gain it would never earn back."""

WORKERS = "frazil.spark.workers"
"""The module that Spark's Python workers are forked from."""

SUBMITTER_VARIABLE = "FRAZIL_SUBMITTER"
"""Process id of whoever waits for the job: killed, it can't stop the job any more, so the job looks."""


@dataclass(frozen=True)
class Submission:
    """One spark-submit, but for the master and the arguments.

    Attributes:
        application: The job.
        name: Application name.
        jars: Jars that Spark itself lacks: for tables that it writes. Other batches are read, written and committed by Python.
        conf: Spark configuration.
        env: Environment of the driver.
        driver_memory: Heap of the driver, such as ``1g``.
    """

    application: Path
    name: str
    jars: tuple[str, ...]
    conf: Mapping[str, str]
    env: Mapping[str, str]
    driver_memory: str


def submission(project: Project, pipeline: Pipeline, plan: RunPlan) -> Submission:
    """How to start the ingest job of a pipeline.

    Args:
        project: Settings and doors.
        pipeline: The pipeline.
        plan: What the job is to do.

    Raises:
        Terminal: The settings have no such engine, the jars or a Java are missing.
    """
    name = f"frazil {pipeline.name} {plan.run}"
    return _submission(project, pipeline.engine, "ingest.py", name, writes=needs_writer(pipeline, plan))


def maintenance_submission(project: Project, pipeline: Pipeline, run: str) -> Submission:
    """How to start the maintenance job of a pipeline.

    Args:
        project: Settings and doors.
        pipeline: The pipeline.
        run: Id of the run.

    Raises:
        Terminal: The settings have no such engine, the jars or a Java are missing.
    """
    return _submission(
        project, pipeline.maintenance_engine, "maintain.py", f"frazil {pipeline.name} {run}", writes=True
    )


def _submission(project: Project, engine_name: str, application: str, name: str, *, writes: bool) -> Submission:
    engine = project.engine(engine_name)
    fetch(project.home, "spark")
    sources = os.pathsep.join([str(project.root / "include"), *filter(None, [os.environ.get("PYTHONPATH")])])
    python = str(interpreter_bin() / "python")
    java = ensure_java()
    jvm = (archive_options(project.home, java), engine.conf.get(_JVM_OPTIONS, _WRITING if writes else _WAITING))
    conf = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.log.level": "WARN",
        "spark.sql.session.timeZone": "UTC",
        "spark.pyspark.python": python,
        "spark.python.daemon.module": WORKERS,
        "spark.executorEnv.PYTHONPATH": sources,
        **engine.conf,
        _JVM_OPTIONS: " ".join(filter(None, jvm)),
    }
    if writes:
        conf["spark.sql.extensions"] = ",".join(filter(None, [engine.conf.get("spark.sql.extensions"), EXTENSIONS]))
    env = project.environment() | {
        "PYTHONPATH": sources,
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": python,
        "JAVA_HOME": str(java.home),
        SUBMITTER_VARIABLE: str(os.getpid()),
        "SPARK_LAUNCHER_OPTS": _WAITING,
    }
    return Submission(
        application=project.root / "spark_jobs" / application,
        name=name,
        jars=tuple(str(path) for path in jar_paths(project.home, "spark") if writes),
        conf=conf,
        env=env,
        driver_memory=engine.driver_memory,
    )


def run_spark(project: Project, pipeline: Pipeline, plan: RunPlan, report: Callable[[str], None]) -> str | None:
    """Run a plan in a Spark job started by this process, and wait for it.

    Args:
        project: Settings and doors.
        pipeline: The pipeline.
        plan: What to read.
        report: Takes the job's own lines; everything else goes to its log.

    Returns:
        What the job handed back: of a dry run or a session its result as JSON, else None.

    Raises:
        Retryable, Terminal, OutcomeUnknown: What the job ended with; the message quotes the end of its log.
        Stopped: A signal asked this process to stop. The job finished what it had decided, and has ended.
    """
    job, master = submission(project, pipeline, plan), project.engine(pipeline.engine).master
    log = log_of(project.home, pipeline.name, plan.run)
    with handed_over(project.home, pipeline.name, plan.run, plan.to_json()) as handover:
        at_work = partial(drivers, project.home, pipeline.name, plan.run)
        return _waited_for(job, master, handover, log, report, at_work)


def run_maintenance(
    project: Project, pipeline: Pipeline, run: str, order: str, report: Callable[[str], None]
) -> str | None:
    """Maintain the tables of a pipeline in a Spark job started by this process, and wait for it.

    Args:
        project: Settings and doors.
        pipeline: The pipeline.
        run: Id of the run, by `maintenance_run`.
        order: What is asked for, as JSON.
        report: Takes the job's own lines; everything else goes to its log.

    Returns:
        What was done, as JSON.

    Raises:
        Retryable, Terminal, OutcomeUnknown: What the job ended with; the message quotes the end of its log.
    """
    job, master = maintenance_submission(project, pipeline, run), project.engine(pipeline.maintenance_engine).master
    log = log_of(project.home, pipeline.name, run)
    with handed_over(project.home, pipeline.name, run, order) as handover:
        return _waited_for(job, master, handover, log, report)


def maintenance_run(run: str) -> str:
    """Id of a maintenance run. An ingest run may be scheduled for the same instant."""
    return f"maintain__{run}"


def _waited_for(
    job: Submission,
    master: str,
    handover: Handover,
    log: Path,
    report: Callable[[str], None],
    at_work: Callable[[], list[Driver]] = list,
) -> str | None:
    watch_job(_command(job, master, handover), job.env, log, report, at_work)
    return handover.found()


@dataclass(frozen=True, slots=True)
class Handover:
    """Files between a job and whoever waits for it: a plan of thousands of partitions fits no argument of a process.

    Attributes:
        pipeline: Name of the pipeline.
        plan: Where the plan is.
        result: Where a dry run or a session writes what it found.
    """

    pipeline: str
    plan: Path
    result: Path

    @property
    def arguments(self) -> list[str]:
        """What the job is started with."""
        return ["--result", str(self.result), "--pipeline", self.pipeline, "--plan", f"@{self.plan}"]

    def found(self) -> str | None:
        """What the job wrote; None if it handed nothing back."""
        return self.result.read_text(encoding="utf-8") if self.result.exists() else None


@contextmanager
def handed_over(home: Home, pipeline: str, run_id: str, plan_json: str) -> Iterator[Handover]:
    """Write a plan where the job reads it. At the end both files are gone."""
    folder, name = private_folder(home.root / "plans"), f"{pipeline}-{quote(run_id, safe=':+')}"
    handover = Handover(pipeline, folder / f"{name}.json", folder / f"{name}.result.json")
    handover.result.unlink(missing_ok=True)  # of a run that was killed
    write_atomically(handover.plan, plan_json)
    try:
        yield handover
    finally:
        handover.plan.unlink(missing_ok=True)
        handover.result.unlink(missing_ok=True)


def _command(job: Submission, master: str, handover: Handover) -> list[str]:
    command = [str(interpreter_bin() / "spark-submit"), "--master", master, "--name", job.name]
    command += ["--driver-memory", job.driver_memory, "--jars", ",".join(job.jars)]
    command += [part for key, value in job.conf.items() for part in ("--conf", f"{key}={value}")]
    return [*command, str(job.application), *handover.arguments]
