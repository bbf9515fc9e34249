"""The Airflow DAG `monitor`: looks at all pipelines and tells people what is wrong. There is none without channels to tell."""

from __future__ import annotations

from frazil.project import Project
from frazil_airflow.dags.monitor import monitor_dags

monitor_dags(Project.load())
