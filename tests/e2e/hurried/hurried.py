"""Airflow DAGs over the pipelines of the drills: of each one whose task soon takes too long, and one whose runs do."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG

from frazil.project import Project
from frazil_airflow.dags import factory
from frazil_airflow.project.run_request import params
from frazil_airflow.tasks import ingest_tasks

LIMITS = {"drills": timedelta(seconds=180), "inline_drills": timedelta(seconds=90)}
"""Enough to be in the middle of it, Spark's start of 15 s included; then nobody answers."""

PROJECT = Project.load()


def hurried(
    what: str, pipeline: str, *, task: timedelta = factory.INGEST_TIMEOUT, run: timedelta = factory.RUN_TIMEOUT
) -> None:
    """The tasks of the pipeline's own DAG under another name and other limits, started by hand, without another try."""
    definition = PROJECT.pipeline(pipeline)
    with DAG(f"hurried_{what}__{pipeline}", schedule=None, dagrun_timeout=run, params=params()):
        ingest = factory._ingest_task(PROJECT, definition)
        ingest.execution_timeout = task
        factory._plan_task(definition, ingest_tasks.plan) >> ingest


for name, limit in LIMITS.items():
    hurried("task", name, task=limit)
    hurried("run", name, run=limit)
