"""One Airflow DAG per pipeline file: `ingest__<pipeline>` lands its Kafka topics in its Iceberg tables."""

from __future__ import annotations

from frazil_airflow import dags

dags.load("ingest")
