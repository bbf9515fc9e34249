"""Registers Frazil with Airflow: what its operators show in the UI."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from frazil_airflow.links import TableLink


class FrazilPlugin(AirflowPlugin):
    """Shown under Admin, Plugins."""

    name = "frazil"
    operator_extra_links = [TableLink()]  # noqa: RUF012, the loader reads a plain list of the class
