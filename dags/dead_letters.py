"""Airflow DAGs for the dead letters of each pipeline: one reports new ones, one replays those that now decode."""

from __future__ import annotations

from frazil_airflow import dags

dags.load("letters", "replay")
