"""Registers Frazil with Airflow: what its operators show in the UI."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from airflow.plugins_manager import AirflowPlugin

from frazil_airflow.links import REPORTS, ReportLink, TableLink


class FrazilPlugin(AirflowPlugin):
    """Shown under Admin, Plugins."""

    name = "frazil"
    operator_extra_links = [TableLink(), ReportLink()]  # noqa: RUF012, the loader reads a plain list of the class

    @cached_property
    def fastapi_apps(self) -> list[Any]:  # type: ignore[override]  # a list of the class; only the api-server asks
        """The page of reports. Made when it is asked for: other components need no web framework."""
        from frazil_airflow.report_page import create_app

        return [{"app": create_app(), "url_prefix": REPORTS, "name": "frazil reports"}]
