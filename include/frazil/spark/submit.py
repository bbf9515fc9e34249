"""How the Spark job of a batch is started: the same facts for Airflow's operator and for `frazil run`. No pyspark here."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from frazil.batch.plan import RunPlan
from frazil.errors import EXIT_PARENT_LOST, FrazilError, OutcomeUnknown, Retryable, Terminal
from frazil.local.files import write_atomically
from frazil.local.home import interpreter_bin
from frazil.local.jars import jar_paths
from frazil.local.java import ensure_java
from frazil.pipeline.model import Pipeline
from frazil.project import Project

REPORT_PREFIX = "frazil: "
"""Begins every line of the job that is meant for people; the rest of its output is Spark's."""

SUBMITTER_VARIABLE = "FRAZIL_SUBMITTER"
"""Process id of the `frazil run` that waits for the job: killed, it can't stop the job any more, so the job looks."""

_LAST_LINES = 15
_ERROR_CLASSES: Mapping[int, type[FrazilError]] = {e.exit_code: e for e in (Retryable, Terminal, OutcomeUnknown)}


@dataclass(frozen=True)
class Submission:
    """One spark-submit, but for the master and the arguments.

    Attributes:
        application: The job.
        name: Application name.
        jars: Jars of the Kafka reader.
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


def submission(project: Project, pipeline: Pipeline, run_id: str) -> Submission:
    """How to start the ingest job of a pipeline.

    Raises:
        Terminal: The settings have no such engine, the jars or a Java are missing.
    """
    engine = project.engine(pipeline.engine)
    sources = os.pathsep.join([str(project.root / "include"), *filter(None, [os.environ.get("PYTHONPATH")])])
    python = str(interpreter_bin() / "python")
    conf = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.log.level": "WARN",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
        "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
        "spark.pyspark.python": python,
        "spark.executorEnv.PYTHONPATH": sources,
        **engine.conf,
    }
    env = project.environment() | {
        "PYTHONPATH": sources,
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": python,
        "JAVA_HOME": str(ensure_java().home),
    }
    return Submission(
        application=project.root / "spark_jobs" / "ingest.py",
        name=f"frazil {pipeline.name} {run_id}",
        jars=tuple(str(path) for path in jar_paths(project.home, "spark") if _reads_kafka(path)),
        conf=conf,
        env=env,
        driver_memory=engine.driver_memory,
    )


def _reads_kafka(jar: Path) -> bool:
    """The batch path needs the Kafka source only: PyIceberg commits, and Python workers write the files."""
    return jar.name.startswith(("spark-sql-kafka", "spark-token-provider-kafka", "kafka-clients", "commons-pool2"))


def run_spark(project: Project, pipeline: Pipeline, plan: RunPlan, report: Callable[[str], None]) -> None:
    """Run a plan in a Spark job started by this process, and wait for it.

    Args:
        project: Settings and doors.
        pipeline: The pipeline.
        plan: What to read.
        report: Takes the job's own lines; everything else goes to its log.

    Raises:
        Retryable, Terminal, OutcomeUnknown: What the job ended with; the message quotes the end of its log.
    """
    job = submission(project, pipeline, plan.run)
    master = project.engine(pipeline.engine).master
    command = [str(interpreter_bin() / "spark-submit"), "--master", master, "--name", job.name]
    command += ["--driver-memory", job.driver_memory, "--jars", ",".join(job.jars)]
    command += [part for key, value in job.conf.items() for part in ("--conf", f"{key}={value}")]
    plan_file = project.home.run / f"plan-{pipeline.name}-{plan.run}.json"  # thousands of partitions fit no argument
    write_atomically(plan_file, plan.to_json())
    command += [str(job.application), "--pipeline", pipeline.name, "--plan", f"@{plan_file}"]
    log = project.home.logs / f"spark-{pipeline.name}-{plan.run}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    lines: list[str] = []
    said = ""
    with (
        log.open("w", encoding="utf-8") as kept,
        subprocess.Popen(
            command,
            env=os.environ | job.env | {SUBMITTER_VARIABLE: str(os.getpid())},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as child,
    ):
        try:
            for line in child.stdout or ():
                kept.write(line)
                lines = [*lines[-_LAST_LINES:], line.rstrip()]
                if line.startswith(REPORT_PREFIX):
                    said = line.removeprefix(REPORT_PREFIX).rstrip()
                    report(said)
        except BaseException:
            child.terminate()
            raise
    plan_file.unlink(missing_ok=True)
    if child.returncode:
        raise _failure(child.returncode, said, lines, log)


def _failure(code: int, said: str, lines: list[str], log: Path) -> FrazilError:
    if code in _ERROR_CLASSES and said:
        return _ERROR_CLASSES[code](said, next_step=f"the whole log: {log}")
    kind = Retryable if code == EXIT_PARENT_LOST or code < 0 else _ERROR_CLASSES.get(code, Retryable)
    return kind(
        f"the Spark job ended with exit code {code}; its last lines:\n" + "\n".join(lines),
        next_step=f"the whole log: {log}",
    )
