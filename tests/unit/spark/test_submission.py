"""How jobs are started, without starting them."""

from __future__ import annotations

from pathlib import Path

import pytest

from frazil.project import Project
from frazil.spark.job_environment import ENGINE_VARIABLE
from frazil.spark.server import TOKEN_VARIABLE
from frazil.spark.submit import maintenance_submission

SETTINGS = """
clusters: {local: {bootstrap_servers: "127.0.0.1:1"}}
catalogs: {lake: {uri: "sqlite:///c.db", warehouse: "file:///w"}}
engines: {warm: {type: connect, url: "sc://localhost:1", token: hunter2}}
"""
PIPELINE = """
name: orders
engine: warm
source: {topics: [orders]}
destinations: [{table: shop.orders, columns: {id: long}}]
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "orders.yaml").write_text(PIPELINE)
    (tmp_path / "settings.yaml").write_text(SETTINGS)
    own = {"FRAZIL_HOME": "home", "FRAZIL_SETTINGS": "settings.yaml", "FRAZIL_PIPELINES": "pipelines"}
    return Project.load({key: str(tmp_path / name) for key, name in own.items()})


def test_token_is_an_argument_of_the_job(project: Project) -> None:
    """Everybody on a machine reads arguments; the job gets the token in its environment, and needs neither Java nor jars."""
    job = maintenance_submission(project, project.pipeline("orders"), "a run")

    command = job.command(["--pipeline", "orders"])

    assert command[1:] == [str(project.root / "spark_jobs" / "maintain.py"), "--pipeline", "orders"]
    assert job.env[TOKEN_VARIABLE] == "hunter2"
    assert job.env[ENGINE_VARIABLE] == "warm"
    assert "hunter2" not in " ".join(command)
