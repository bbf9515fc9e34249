"""One Airflow DAG per capture file: `capture__<capture>` sends new lines of files, or rows of a database, to a topic."""

from __future__ import annotations

from frazil_airflow import dags

dags.load("capture")
