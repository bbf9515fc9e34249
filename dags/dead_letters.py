"""Airflow DAGs for the dead letters of each pipeline: one reports what is new, one lands what is good now.

A task's process only builds the DAG it belongs to. Pipelines that no DAG can be made of are in `broken_pipelines`.
"""

from __future__ import annotations

from airflow.sdk import get_parsing_context

from frazil.project import Project
from frazil_airflow.dags.dead_letter_replay import replay_dags
from frazil_airflow.dags.dead_letter_reports import letter_dags

project = Project.load()
letter_dags(project, only=get_parsing_context().dag_id)
replay_dags(project, only=get_parsing_context().dag_id)
