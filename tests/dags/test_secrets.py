"""Secrets in Airflow connections: tasks and pages find them, parsing asks for none, jobs inherit them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from frazil.doctor import examine as doctor
from frazil.error_codes import INTERNAL
from frazil.errors import Terminal
from frazil.pipeline.files.load import ConfigError
from frazil.project import Project
from frazil_airflow.dags.captures import CaptureFilesOperator, CaptureRowsOperator
from frazil_airflow.project.secrets import load_project, load_project_for_job

if TYPE_CHECKING:
    from airflow.dag_processing.dagbag import DagBag

SETTINGS = """
clusters:
  guarded:
    bootstrap_servers: ${airflow:kafka_prod:host}:9094
    properties: {sasl.password: "${airflow:kafka_prod:password}", sasl.username: "${airflow:kafka_prod:user-name}"}
catalogs: {lake: {uri: "sqlite:///c.db", warehouse: "file:///w"}}
"""
VARIABLE = "FRAZIL_CONNECTION__KAFKA_PROD__PASSWORD"

ENGINE = """
clusters: {local: {bootstrap_servers: "127.0.0.1:1", properties: {sasl.password: "${airflow:shop:password}"}}}
catalogs: {lake: {uri: "sqlite:///c.db", warehouse: "file:///w"}}
engines: {spark: {conf: {spark.hadoop.fs.s3a.secret.key: "${airflow:shop:password}"}}}
databases: {shop: {url: "jdbc:sqlite:/tmp/none.db", driver: org.sqlite.JDBC, password: "${airflow:shop:password}"}}
captures: {folders: [/var/log]}
"""
CAPTURES = {
    "logs": {"capture": "file", "paths": ["/var/log/app.log*"]},
    "rows": {"capture": "jdbc", "database": "shop", "table": "orders", "mode": "bulk"},
}
SHOP = "FRAZIL_CONNECTION__SHOP__PASSWORD"


@pytest.fixture
def connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings that refer to a connection, and the connection."""
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "settings.yaml").write_text(SETTINGS)
    monkeypatch.setenv("FRAZIL_SETTINGS", str(tmp_path / "settings.yaml"))
    monkeypatch.setenv("FRAZIL_PIPELINES", str(tmp_path / "pipelines"))
    connection_fields = {"conn_type": "generic", "host": "kafka", "password": "hunter2", "extra": {"user-name": "me"}}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_PROD", json.dumps(connection_fields))
    monkeypatch.setattr(os, "environ", dict(os.environ))  # what a task puts there ends with the test


@pytest.mark.usefixtures("connection")
def test_connection_is_where_settings_find_it() -> None:
    """Fields and keys of the extra stand where the settings refer to them; a job inherits them, never as arguments."""
    expected = {"bootstrap.servers": "kafka:9094", "sasl.password": "hunter2", "sasl.username": "me"}

    assert load_project().cluster("guarded").properties == expected
    assert VARIABLE not in os.environ
    assert load_project_for_job().cluster("guarded").properties == expected
    assert os.environ[VARIABLE] == "hunter2"
    assert Project.load().cluster("guarded").properties == expected


@pytest.mark.usefixtures("connection")
def test_parsing_dag_needs_no_secret() -> None:
    """Without the task's variables the project loads all the same; who needs the entry is told what it refers to."""
    project = Project.load()

    assert project.lake("lake").name == "lake"
    with pytest.raises(
        Terminal, match=r"clusters\.guarded refers to field 'host' of the Airflow connection 'kafka_prod'"
    ) as caught:
        project.cluster("guarded")
    assert "FRAZIL_CONNECTION__KAFKA_PROD__HOST" in (caught.value.next_step or "")


@pytest.mark.usefixtures("connection")
def test_missing_connection_is_error_for_person() -> None:
    """A connection or a field that isn't there needs a person, once somebody needs the entry; the other fields are not shown."""
    os.environ["AIRFLOW_CONN_KAFKA_PROD"] = json.dumps({"conn_type": "generic", "host": "kafka", "password": "hunter2"})
    with pytest.raises(
        Terminal, match="refers to field 'user-name' of the Airflow connection 'kafka_prod', which is not known"
    ) as caught:
        load_project().cluster("guarded")
    assert "hunter2" not in str(caught.value)

    del os.environ["AIRFLOW_CONN_KAFKA_PROD"]
    assert load_project().lake("lake").name == "lake"  # of no concern to who does not need it
    with pytest.raises(Terminal, match="field 'host' of the Airflow connection 'kafka_prod'"):
        load_project().cluster("guarded")


@pytest.mark.usefixtures("connection")
def test_connection_that_nobody_needs_may_be_missing(tmp_path: Path) -> None:
    """A default stands for a field that is not there, a comment is none of the settings; a malformed reference names its key."""
    text = SETTINGS.replace(":user-name}", ":realm:-main}") + "\n# ${airflow:old_kafka:password}\n"
    (tmp_path / "settings.yaml").write_text(text)
    assert load_project().cluster("guarded").properties["sasl.username"] == "main"

    (tmp_path / "settings.yaml").write_text(SETTINGS.replace(":user-name}", ":}"))
    with pytest.raises(ConfigError, match=r"clusters\.guarded\.properties\.sasl\.username: .*expected \$\{airflow:"):
        load_project()


@pytest.fixture
def guarded_engine(write_pipeline: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipeline and captures whose cluster, database and engine refer to a connection, which is there."""
    (tmp_path / "settings.yaml").write_text(ENGINE)
    monkeypatch.setenv("FRAZIL_SETTINGS", str(tmp_path / "settings.yaml"))
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", json.dumps({"conn_type": "generic", "password": "hunter2"}))
    monkeypatch.setattr(os, "environ", dict(os.environ))
    write_pipeline("orders")
    (tmp_path / "captures").mkdir()
    for name, more in CAPTURES.items():
        (tmp_path / "captures" / f"{name}.yaml").write_text(json.dumps({"name": name, "topic": name, **more}))


@pytest.mark.dags
@pytest.mark.usefixtures("guarded_engine")
def test_missing_engine_secret_leaves_every_dag(parse: Callable[[], DagBag], monkeypatch: pytest.MonkeyPatch) -> None:
    """DAGs and checks need pool, connection and kind of an engine: they are there without its secret, which a job asks for."""
    bag = parse()
    assert bag.import_errors == {}
    assert {"ingest__orders", "maintain__orders", "capture__logs", "capture__rows"} <= set(bag.dags)

    project = Project.load()
    for checks in ("machine_checks", "service_checks", "pipeline_checks"):
        monkeypatch.setattr(doctor, checks, lambda *_, **__: [])
    assert doctor.examine(project, [project.pipeline("orders")], is_all=True, with_spark=False) == []
    with pytest.raises(Terminal, match=r"engines\.spark refers to field 'password' of the Airflow connection 'shop'"):
        project.engine("spark")
    assert load_project_for_job().engine("spark").conf["spark.hadoop.fs.s3a.secret.key"] == "hunter2"


@pytest.mark.dags
@pytest.mark.usefixtures("guarded_engine")
def test_captures_find_secrets_of_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are captured with them; of rows the job inherits them, by its environment."""
    connections: list[Any] = []

    def taken(project: Project, *_: object) -> Any:
        connections.append(project.cluster("local").properties["sasl.password"])
        raise INTERNAL.terminal("enough", next_step="")

    monkeypatch.setattr("frazil.shutdown.end_with_parent", lambda: None)
    monkeypatch.setattr("frazil.capture.run.capture_files", taken)
    monkeypatch.setattr("frazil.spark.submit.submission.capture_submission", taken)

    with pytest.raises(AirflowFailException, match="enough"):
        CaptureFilesOperator(task_id="capture", capture="logs").execute({"run_id": "manual__1"})
    assert SHOP not in os.environ
    with pytest.raises(Terminal, match="enough"):
        CaptureRowsOperator(task_id="capture", capture="rows", conn_id="frazil_spark").submission()

    assert connections == ["hunter2", "hunter2"]
    assert os.environ[SHOP] == "hunter2"
