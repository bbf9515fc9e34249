"""Two Airflow DAGs over the pipeline of the drills: one whose task soon takes too long, one whose runs do."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG

from frazil.project import Project
from frazil_airflow import factory
from frazil_airflow.manual import params

LIMIT = timedelta(seconds=90)
"""Spark starts in 15 s, and in a minute where all is busy; then nobody answers it."""

PROJECT = Project.load()
PIPELINE = PROJECT.pipeline("drills")


def hurried(dag_id: str, *, task: timedelta = factory.INGEST_TIMEOUT, run: timedelta = factory.RUN_TIMEOUT) -> None:
    """The tasks of the pipeline's own DAG under another name and other limits, started by hand, without another try."""
    with DAG(dag_id, schedule=None, dagrun_timeout=run, params=params()):
        ingest = factory._ingest_task(PROJECT, PIPELINE)
        ingest.execution_timeout = task
        factory._plan_task(PIPELINE) >> ingest


hurried("hurried_task", task=LIMIT)
hurried("hurried_run", run=LIMIT)
