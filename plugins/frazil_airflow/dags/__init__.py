"""Pipelines, captures and the monitor become DAGs. Begin with `factory`."""

from __future__ import annotations

import logging
from typing import Literal


def load(*kinds: Literal["ingest", "maintain", "letters", "replay", "capture", "monitor"]) -> None:
    """Make the project's DAGs, or only some kinds of them, while Airflow parses the file that calls, and so registers them there.

    A task's process only builds the DAG it belongs to. Pipelines that no DAG can be made of are left out: an error would take
    every other DAG of the file along. They are logged, or shown by a file of their own, as `dags/broken_pipelines.py` is.

    Raises:
        Terminal: There is no project, or its settings can't be used.
    """
    from airflow.sdk import get_parsing_context

    from frazil.errors import Terminal
    from frazil.project import Project
    from frazil_airflow.dags.captures import capture_dags
    from frazil_airflow.dags.dead_letter_replay import replay_dags
    from frazil_airflow.dags.dead_letter_reports import letter_dags
    from frazil_airflow.dags.factory import ingest_dags
    from frazil_airflow.dags.maintenance import maintain_dags
    from frazil_airflow.dags.monitor import monitor_dags
    from frazil_airflow.project.pipelines import refuse_broken

    project, only = Project.load(), get_parsing_context().dag_id
    makers = {
        "ingest": ingest_dags,
        "maintain": maintain_dags,
        "letters": letter_dags,
        "replay": replay_dags,
        "capture": capture_dags,
        "monitor": monitor_dags,
    }
    for kind in kinds or makers:
        makers[kind](project, only=only)
    if not kinds and only is None:
        try:
            refuse_broken(project)
        except Terminal as error:
            logging.getLogger(__name__).warning("%s", error)
