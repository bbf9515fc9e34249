"""Registers Frazil in Airflow: the links of its operators, the page, and the reports on dead letters."""

from __future__ import annotations

from typing import Any, ClassVar

from airflow.plugins_manager import AirflowPlugin

from frazil_airflow.dags.dag_defaults import FairOrder
from frazil_airflow.outputs.links import REPORTS, ReportLink, TableLink

_PREFIX = "/frazil"
"""Where Airflow mounts the page."""


class FrazilPlugin(AirflowPlugin):
    """Shown under Admin, Plugins."""

    name = "frazil"
    operator_extra_links = [TableLink(), ReportLink()]  # noqa: RUF012, the loader reads a plain list of the class
    priority_weight_strategies = [FairOrder]  # noqa: RUF012
    external_views = [  # noqa: RUF012
        {"name": "Frazil", "href": f"{_PREFIX}/", "destination": "nav", "url_route": "frazil"},
        {
            "name": "Frazil",
            "href": f"{_PREFIX}/dag?dag_id={{DAG_ID}}",
            "destination": "dag",
            "url_route": "frazil-pipeline",
        },
    ]
    _apps: ClassVar[list[dict[str, Any]]] = []

    @property
    def fastapi_apps(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """Page, reports and REST API. A property, so that FastAPI is loaded only in the api-server, which alone reads it."""
        if not self._apps:
            from frazil_airflow.outputs import report_page
            from frazil_airflow.page.app import create_app
            from frazil_airflow.rest import app as rest
            from frazil_airflow.rest.request import PREFIX

            self._apps.append({"app": report_page.create_app(), "url_prefix": REPORTS, "name": "frazil reports"})
            # Before the page, because its prefix begins with the page's: the first application that fits gets the request.
            self._apps.append({"app": rest.create_app(), "url_prefix": PREFIX, "name": "frazil connect"})
            self._apps.append({"app": create_app(), "url_prefix": _PREFIX, "name": "frazil"})
        return self._apps
