"""Links that tasks show in the Airflow UI."""

from __future__ import annotations

from urllib.parse import quote

from airflow.sdk import BaseOperator, BaseOperatorLink

from frazil_airflow.compat import TaskInstanceKey
from frazil_airflow.project.pipelines import REPORT


class TableLink(BaseOperatorLink):
    """Link from the ingest task to its table's asset in Airflow, which has an event for each run with new data."""

    name = "Table"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:  # noqa: ARG002, Airflow's signature
        """Return the address of the assets page, filtered by the table's name; empty for other operators."""
        asset = getattr(operator, "asset_name", "")
        return f"/assets?name_pattern={quote(asset)}" if asset else ""


REPORTS = "/frazil_reports"
"""Path at which Airflow's api-server shows stored reports."""


def report_address(pipeline: str, name: str) -> str:
    """Return the path of a stored report's page on Airflow's server."""
    return f"{REPORTS}/{REPORT}{quote(pipeline)}/{quote(name)}"


class ReportLink(BaseOperatorLink):
    """Link from the task that reports dead letters to its report's page."""

    name = "Report"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:  # noqa: ARG002, Airflow's signature
        """Return the address of the report that the task made; empty if there was nothing to report."""
        pipeline, report = (getattr(operator, field, None) for field in ("pipeline", "report_name"))
        return report_address(pipeline, report) if pipeline and report else ""
