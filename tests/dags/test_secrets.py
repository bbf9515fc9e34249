"""Secrets in Airflow connections: tasks and pages find them, parsing asks for none, jobs inherit them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from frazil.errors import Terminal
from frazil.project import Project
from frazil_airflow.secrets import load_project, load_project_for_job

SETTINGS = """
clusters:
  guarded:
    bootstrap_servers: ${airflow:kafka_prod:host}:9094
    properties: {sasl.password: "${airflow:kafka_prod:password}", sasl.username: "${airflow:kafka_prod:user-name}"}
catalogs: {lake: {uri: "sqlite:///c.db", warehouse: "file:///w"}}
"""
VARIABLE = "FRAZIL_CONNECTION__KAFKA_PROD__PASSWORD"


@pytest.fixture
def connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings that refer to a connection, and the connection."""
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "settings.yaml").write_text(SETTINGS)
    monkeypatch.setenv("FRAZIL_SETTINGS", str(tmp_path / "settings.yaml"))
    monkeypatch.setenv("FRAZIL_PIPELINES", str(tmp_path / "pipelines"))
    kept = {"conn_type": "generic", "host": "kafka", "password": "hunter2", "extra": {"user-name": "me"}}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_PROD", json.dumps(kept))
    monkeypatch.setattr(os, "environ", dict(os.environ))  # what a task puts there ends with the test


@pytest.mark.usefixtures("connection")
def test_connection_is_not_where_the_settings_find_it() -> None:
    """Fields and keys of the extra stand where the settings refer to them; a job inherits them, never as arguments."""
    expected = {"bootstrap.servers": "kafka:9094", "sasl.password": "hunter2", "sasl.username": "me"}

    assert load_project().cluster("guarded").properties == expected
    assert VARIABLE not in os.environ
    assert load_project_for_job().cluster("guarded").properties == expected
    assert os.environ[VARIABLE] == "hunter2"
    assert Project.load().cluster("guarded").properties == expected


@pytest.mark.usefixtures("connection")
def test_parsing_a_dag_asks_for_a_secret() -> None:
    """Without the task's variables the project loads all the same; who needs the entry is told what it refers to."""
    project = Project.load()

    assert project.lake("lake").name == "lake"
    with pytest.raises(
        Terminal, match=r"clusters\.guarded refers to field 'host' of the Airflow connection 'kafka_prod'"
    ) as caught:
        project.cluster("guarded")
    assert "FRAZIL_CONNECTION__KAFKA_PROD__HOST" in (caught.value.next_step or "")


@pytest.mark.usefixtures("connection")
def test_missing_connection_becomes_an_empty_password(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection or a field that isn't there needs a person; the other fields are not shown."""
    os.environ["AIRFLOW_CONN_KAFKA_PROD"] = json.dumps({"conn_type": "generic", "host": "kafka", "password": "hunter2"})
    with pytest.raises(
        Terminal, match="field 'user-name' of the Airflow connection 'kafka_prod', which has none"
    ) as caught:
        load_project()
    assert "hunter2" not in str(caught.value)

    del os.environ["AIRFLOW_CONN_KAFKA_PROD"]
    with pytest.raises(Terminal, match="which is not there"):
        load_project()
