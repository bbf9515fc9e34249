"""Frazil under Airflow: pipelines become DAGs. The only package that imports airflow; it never imports pyspark."""

from __future__ import annotations

from typing import Any


def get_provider_info() -> dict[str, Any]:
    """Describe Frazil as an Airflow provider. Classes are named as text: Airflow calls this before it can be imported itself."""
    return {
        "package-name": "frazil",
        "name": "Frazil",
        "description": "Kafka topics become Apache Iceberg tables, by bounded batches that Airflow starts.",
        "operators": [{"integration-name": "Frazil", "python-modules": ["frazil_airflow.tasks"]}],
        "extra-links": [f"frazil_airflow.outputs.links.{link}" for link in ("TableLink", "ReportLink")],
    }
