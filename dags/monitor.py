"""The Airflow DAG `monitor`: checks all pipelines and sends alerts. It exists only if the settings name an alert channel."""

from __future__ import annotations

from frazil_airflow import dags

dags.load("monitor")
