"""One Airflow DAG per pipeline file: `maintain__<pipeline>` keeps its tables in shape."""

from __future__ import annotations

from frazil_airflow import dags

dags.load("maintain")
