"""Pipelines, captures and the monitor become DAGs. Begin with `factory`."""

from __future__ import annotations

import logging
from typing import Literal, get_args

Kind = Literal["ingest", "maintain", "letters", "replay", "capture", "monitor"]


def load(*kinds: Kind) -> None:
    """Make the project's DAGs, or only some kinds. Call it in a DAG file: Airflow registers them while it parses the file.

    A task's process only builds the DAG it belongs to. Pipelines that no DAG can be made of are left out: an error would take
    every other DAG of the file along. They are logged, or shown by a file of their own, as `dags/broken_pipelines.py` is.

    Raises:
        Terminal: There is no project, or its settings can't be used.
    """
    from airflow.sdk import get_parsing_context

    from frazil.errors import Terminal
    from frazil.project import Project
    from frazil_airflow.dags.captures import capture_dags
    from frazil_airflow.dags.dead_letter_replay import replay_dag
    from frazil_airflow.dags.dead_letter_reports import letter_dag
    from frazil_airflow.dags.factory import ingest_dag
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
                make(project, pipeline)
    if not kinds and only is None:
        try:
            refuse_broken(project)
        except Terminal as error:
            logging.getLogger(__name__).warning("%s", error)
