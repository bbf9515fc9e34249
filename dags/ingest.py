"""One Airflow DAG per pipeline file: `ingest__<pipeline>` lands its Kafka topics in its Iceberg table.

A task's process only builds the DAG it belongs to. Pipelines that no DAG can be made of are in `broken_pipelines`.
"""

from __future__ import annotations

from airflow.sdk import get_parsing_context

from frazil.project import Project
from frazil_airflow.dags.factory import ingest_dags

ingest_dags(Project.load(), only=get_parsing_context().dag_id)
