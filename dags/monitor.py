"""The Airflow DAG `monitor`: looks at all pipelines and tells people what is wrong. There is none without channels to tell."""

from __future__ import annotations

from frazil_airflow import dags

dags.load("monitor")
