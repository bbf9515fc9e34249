"""Airflow DAGs for the dead letters of each pipeline: one reports what is new, one lands what is good now."""

from __future__ import annotations

from frazil_airflow import dags

dags.load("letters", "replay")
