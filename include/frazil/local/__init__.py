"""The embedded stack: jars, Java, a Kafka broker, and Airflow's processes, all under one folder."""

from __future__ import annotations
