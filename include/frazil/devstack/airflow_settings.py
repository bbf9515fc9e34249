"""Configuration of the embedded Airflow: its environment, and secrets that are generated once per home."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from frazil.devstack.airflow_database import AirflowDatabase
from frazil.runtime.airflow_login import Secrets
from frazil.runtime.home import LOOPBACK, Home, inherited_environment, interpreter_bin
from frazil.runtime.java import Java

SPARK_CONNECTION = {
    "conn_type": "spark",
    "host": "local[2]",
    "extra": {"deploy-mode": "client", "spark-binary": "spark-submit"},
}
"""Airflow connection `frazil_spark`: jobs run in one local JVM with two task threads. The production profile has a cluster."""

REFRESH_SECONDS = 5
"""How often the DAG files are looked at. Airflow's defaults (300 and 30) suit a cluster, not a
person who waits."""

HEARTBEAT_TIMEOUT_SECONDS = 60
"""When a task without heartbeat counts as lost. Airflow's default of 300 is several commit
intervals."""


def environment(
    home: Home, java: Java, secrets_of_home: Secrets, database: AirflowDatabase, *, dags_paused: bool
) -> dict[str, str]:
    """Return the whole environment of every Airflow process. Its Java is for Spark jobs."""
    inherited = inherited_environment()
    variables = {
        **home.environment,
        "AIRFLOW_HOME": str(home.airflow),
        "AIRFLOW_CONN_FRAZIL_SPARK": json.dumps(_spark_connection(home)),
        "AIRFLOW_CONN_FRAZIL_API": json.dumps(_api_connection(home, secrets_of_home)),
        "JAVA_HOME": str(java.home),
        "PATH": _joined(interpreter_bin(), inherited.get("PATH", os.defpath)),
        "PYTHONPATH": _joined(home.project / "include", home.project / "plugins", inherited.get("PYTHONPATH", "")),
        # A proxy set for the outside must not be asked for the loopback interface.
        "NO_PROXY": ",".join(filter(None, [LOOPBACK, "localhost", inherited.get("NO_PROXY", "")])),
    }
    return {
        **inherited,
        **variables,
        **_configuration(home, dags_paused=dags_paused),
        **_secret_configuration(secrets_of_home),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": database.url,
    }


def _spark_connection(home: Home) -> Mapping[str, Any]:
    if home.profile == "embedded":
        return SPARK_CONNECTION
    return {**SPARK_CONNECTION, "host": f"spark://{LOOPBACK}", "port": home.ports.spark_master}


def _api_connection(home: Home, secrets_of_home: Secrets) -> Mapping[str, str]:
    """The Airflow connection with which tasks write the notes of their runs: only the REST API can."""
    return {
        "conn_type": "http",
        "host": home.airflow_url,
        "login": home.airflow_user,
        "password": secrets_of_home.password,
    }


def _configuration(home: Home, *, dags_paused: bool) -> Mapping[str, str]:
    return {
        "AIRFLOW__CORE__DAGS_FOLDER": str(home.project / "dags"),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(home.project / "plugins"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
        "AIRFLOW__CORE__PARALLELISM": "4",
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": str(dags_paused),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{home.airflow_user}:admin",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(home.airflow_passwords),
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{home.airflow_url}/execution/",
        "AIRFLOW__API__HOST": LOOPBACK,
        "AIRFLOW__API__PORT": str(home.ports.airflow),
        "AIRFLOW__API__BASE_URL": home.airflow_url,
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": str(REFRESH_SECONDS),
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": str(REFRESH_SECONDS),
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": str(HEARTBEAT_TIMEOUT_SECONDS),
        "AIRFLOW__LOGGING__COLORED_CONSOLE_LOG": "False",
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
    }


def _secret_configuration(secrets_of_home: Secrets) -> Mapping[str, str]:
    return {
        "AIRFLOW__API_AUTH__JWT_SECRET": secrets_of_home.jwt,
        "AIRFLOW__CORE__FERNET_KEY": secrets_of_home.fernet,
        "AIRFLOW__API__SECRET_KEY": secrets_of_home.api,
    }


def _joined(*parts: Path | str) -> str:
    return os.pathsep.join(str(part) for part in parts if str(part))
