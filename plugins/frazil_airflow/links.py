"""Links that tasks show in the Airflow UI."""

from __future__ import annotations

from urllib.parse import quote

from airflow.sdk import BaseOperator, BaseOperatorLink
from airflow.sdk.types import TaskInstanceKey


class TableLink(BaseOperatorLink):
    """From the ingest task to its table among Airflow's assets, where every batch left an event."""

    name = "Table"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:  # noqa: ARG002, Airflow's signature
        """Return the address of the assets page, filtered by the table's name; empty for other operators."""
        asset = getattr(operator, "asset_name", "")
        return f"/assets?name_pattern={quote(asset)}" if asset else ""
