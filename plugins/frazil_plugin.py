"""Registers Frazil in an Airflow whose plugins folder is this checkout. An installed Frazil registers itself by its entry
point, and Airflow refuses a second registration.
"""

from __future__ import annotations

from importlib.metadata import entry_points

if not entry_points(group="airflow.plugins", name="frazil"):
    from frazil_airflow.plugin import FrazilPlugin  # noqa: F401, the loader looks for the class
