"""One Airflow DAG per pipeline file: `maintain__<pipeline>` keeps its tables in shape.

A task's process only builds the DAG it belongs to. Pipelines that no DAG can be made of are in `broken_pipelines`.
"""

from __future__ import annotations

from airflow.sdk import get_parsing_context

from frazil.project import Project
from frazil_airflow.dags.maintenance import maintain_dags

maintain_dags(Project.load(), only=get_parsing_context().dag_id)
