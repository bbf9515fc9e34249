"""Pipelines, captures and the monitor become DAGs. Begin with `factory`."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from frazil_airflow.tasks.job_operators import JobOperator

Kind = Literal["ingest", "maintain", "letters", "replay", "capture", "monitor"]


def load(*kinds: Kind) -> None:
    """Make the project's DAGs of these kinds, or of all. Call it in a DAG file, so that Airflow registers them.

    `load_with` makes the ingest DAGs of pipelines whose engine is of type operator.

    A task's process makes only the DAG of the task. Broken pipelines are left out, because an error would remove all DAGs of
    the file. They are logged if all kinds are made; else give them a DAG file of their own, such as
    `dags/broken_pipelines.py`.

    Raises:
        Terminal: There is no project, or its settings can't be used.
    """
    from airflow.sdk import get_parsing_context

    from frazil.errors import Terminal
    from frazil.project import Project
    from frazil_airflow.dags.captures import capture_dags
    from frazil_airflow.dags.dead_letters import letter_dag, replay_dag
    from frazil_airflow.dags.factory import ingest_dag, is_by_operator
    from frazil_airflow.dags.maintenance import maintain_dag
    from frazil_airflow.dags.monitor import monitor_dags
    from frazil_airflow.project.pipelines import INGEST, MAINTAIN, REPLAY, REPORT, refuse_broken, selected_pipelines

    project, only = Project.load(), get_parsing_context().dag_id
    makers = {
        "ingest": (INGEST, ingest_dag),
        "maintain": (MAINTAIN, maintain_dag),
        "letters": (REPORT, letter_dag),
        "replay": (REPLAY, replay_dag),
    }
    for kind in kinds or get_args(Kind):
        if kind == "capture":
            capture_dags(project, only)
        elif kind == "monitor":
            monitor_dags(project, only)
        else:
            prefix, make = makers[kind]
            for pipeline in selected_pipelines(project, prefix, only):
                if kind != "ingest" or not is_by_operator(project, pipeline):
                    make(project, pipeline)
    if not kinds and only is None:
        try:
            refuse_broken(project)
        except Terminal as error:
            logging.getLogger(__name__).warning("%s", error)


def load_with(operators: Mapping[str, JobOperator]) -> None:
    """Make the ingest DAGs of pipelines whose engine is of type operator. Call it in a DAG file of your own.

    `operators`: engine -> function that makes the operator of a job. Pipelines of other engines get no DAG here.

    Raises:
        Terminal: There is no project, its settings can't be used, or a function returns no operator with the job's task id.
    """
    from airflow.sdk import get_parsing_context

    from frazil.project import Project
    from frazil_airflow.dags.factory import ingest_dag, is_by_operator
    from frazil_airflow.project.pipelines import INGEST, selected_pipelines

    project, only = Project.load(), get_parsing_context().dag_id
    for pipeline in selected_pipelines(project, INGEST, only):
        if pipeline.engine in operators and is_by_operator(project, pipeline):
            ingest_dag(project, pipeline, operators)
