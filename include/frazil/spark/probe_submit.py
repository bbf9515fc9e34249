"""How the job of `frazil doctor --spark` is started. No pyspark here."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from dataclasses import replace

from frazil.project import Project
from frazil.spark.server import served
from frazil.spark.submit import Submission, bare_submission, run_submission


def probe_submission(project: Project, engine_name: str) -> Submission:
    """How to start the job that asks an engine's executors what they have.

    Raises:
        Terminal: The settings have no such engine, the jars or a Java are missing.
    """
    job = bare_submission(project, engine_name, "probe.py", f"frazil doctor {engine_name}")
    if job.master is None:
        return job
    # Spark's own workers: Frazil's begin with its modules, and would end where they are missing, without a word why.
    return replace(job, conf={**job.conf, "spark.python.daemon.module": "pyspark.daemon"})


def run_probe(
    project: Project, engine_name: str, pipelines: Iterable[str], report: Callable[[str], None]
) -> str | None:
    """Ask an engine's executors what they have and reach, in a Spark job started by this process.

    Args:
        project: Settings and doors.
        engine_name: The engine.
        pipelines: Names of the pipelines whose clusters and storage they try.
        report: Takes the job's own lines; everything else goes to its log.

    Returns:
        What they said, as JSON; see `frazil.spark.probe`.

    Raises:
        Retryable, Terminal: What the job ended with; the message quotes the end of its log.
    """
    job, name = probe_submission(project, engine_name), f"doctor-{engine_name}"
    with served(project, project.engine(engine_name), report):
        return run_submission(project.home, job, name, str(os.getpid()), json.dumps(list(pipelines)), report)
