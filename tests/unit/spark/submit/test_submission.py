"""How jobs are started, without starting them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from frazil.batch.plan import RunPlan
from frazil.errors import Terminal
from frazil.pipeline.files import files
from frazil.project import Project
from frazil.runtime.home import Home
from frazil.spark.submit import submission as submissions
from frazil.spark.submit.configuration import ENGINE_VARIABLE, properties_text
from frazil.spark.submit.job_process import private_properties
from frazil.spark.submit.server import TOKEN_VARIABLE
from frazil.spark.submit.submission import Submission, maintenance_submission, run_spark

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


def test_token_is_in_the_environment_of_the_job(project: Project) -> None:
    """Everybody on a machine reads arguments; the job gets the token in its environment, and needs neither Java nor jars."""
    job = maintenance_submission(project, project.pipeline("orders"), "a run", on_server=True)

    command = job.command(["--pipeline", "orders"])

    assert command[1:] == [str(project.root / "spark_jobs" / "maintain.py"), "--pipeline", "orders"]
    assert job.env[TOKEN_VARIABLE] == "hunter2"
    assert job.env[ENGINE_VARIABLE] == "warm"
    assert "hunter2" not in " ".join(command)


def test_engine_of_an_operator_is_not_started_by_a_command(project: Project, tmp_path: Path) -> None:
    """It has no master: the DAG has the operator, and the message says so."""
    (tmp_path / "settings.yaml").write_text(
        SETTINGS.replace('type: connect, url: "sc://localhost:1", token: hunter2', "type: operator")
    )
    own = {"FRAZIL_HOME": "home", "FRAZIL_SETTINGS": "settings.yaml", "FRAZIL_PIPELINES": "pipelines"}
    by_operator = Project.load({key: str(tmp_path / name) for key, name in own.items()})

    with pytest.raises(Terminal, match="engine warm: its jobs are started by an operator in Airflow"):
        maintenance_submission(by_operator, project.pipeline("orders"), "a run")


def test_conf_of_the_engine_is_in_a_private_file(tmp_path: Path) -> None:
    """It may hold secrets, under any name: it comes to Spark by a file of its owner's, behind Spark's own defaults, and is gone."""
    secret = "a=b: #\\ ü\nhunter2"
    job = Submission(
        tmp_path / "ingest.py",
        "orders",
        {},
        "local[1]",
        conf={"spark.ui.enabled": "false"},
        private={"spark.x y": secret},
    )
    home = replace(Home.resolve({}), root=tmp_path)

    with private_properties(home, "orders", "a run", job.private) as file:
        assert file is not None
        command = job.command([], file)
        assert "hunter2" not in " ".join(command)
        assert command[command.index("--properties-file") + 1] == str(file)
        assert files.read(file.read_text()) == job.private
        assert file.stat().st_mode & 0o777 == 0o600
    assert not file.exists()


def test_conf_of_the_engine_comes_after_spark_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a file, spark-submit doesn't read its defaults; they are in it, and the engine's own words win."""
    (tmp_path / "spark-defaults.conf").write_text("spark.a   1\nspark.b   2")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))

    assert files.read(properties_text({"spark.b": "3"})) == {"spark.a": "1", "spark.b": "3"}


def test_order_of_a_dry_run_stays_on_this_machine(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """It lands nothing: no samples of records beside the tables, and no right to write there is needed."""
    commands: list[str] = []
    monkeypatch.setattr(submissions, "storage_of", lambda *_: "s3://lake/metadata")
    monkeypatch.setattr(submissions, "_run", lambda *arguments: commands.append(arguments[3][0]))
    plan = RunPlan("orders", "r", "2026-05-01T10:00:00.000+00:00", "c", {}, complete=False)

    run_spark(project, project.pipeline("orders"), replace(plan, mode="dry_run"), print)
    run_spark(project, project.pipeline("orders"), plan, print)

    assert commands == [str(project.home.root / "plans"), "s3://lake/metadata"]
