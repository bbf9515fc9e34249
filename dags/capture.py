"""One Airflow DAG per capture file: `capture__<capture>` sends new lines of files, or rows of a database, to a topic.

A task's process only builds the DAG it belongs to. Captures that no DAG can be made of are in `broken_pipelines`.
"""

from __future__ import annotations

from airflow.sdk import get_parsing_context

from frazil.project import Project
from frazil_airflow.dags.captures import capture_dags

capture_dags(Project.load(), only=get_parsing_context().dag_id)
