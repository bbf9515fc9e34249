"""A home for Airflow where none runs. Airflow reads these when it is first imported: import this before it."""

from __future__ import annotations

import atexit
import os
import tempfile

from frazil.runtime.home import project_root

DAGS = project_root() / "dags"

_HOME = tempfile.TemporaryDirectory(prefix="frazil-airflow-")
atexit.register(_HOME.cleanup)

os.environ |= {
    "AIRFLOW_HOME": _HOME.name,
    "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS),
    "AIRFLOW__CORE__PLUGINS_FOLDER": str(project_root() / "plugins"),
    "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{_HOME.name}/airflow.db",
    "AIRFLOW__LOGGING__COLORED_CONSOLE_LOG": "False",
}
