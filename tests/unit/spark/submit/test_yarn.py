"""What a driver on YARN is sent."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from frazil.project import Project
from frazil.spark.submit.yarn import driver_configuration, place_of_log, sent_to_yarn

SETTINGS = """
clusters: {local: {bootstrap_servers: "${env:BROKERS}", properties: {sasl.password: "${env:PASSWORD:-none}", x: "$${env:OTHER}"}}}
catalogs: {lake: {uri: "sqlite:///${local:home}/c.db", warehouse: "file:///w"}}
references: {allow: ["env:REGION"]}
"""
PIPELINE = """
name: orders  # not ${env:OTHER}
description: of ${env:REGION}
source: {topics: [orders]}
destinations: [{table: shop.orders, columns: {id: long}}]
"""
VALUES = {"BROKERS": "kafka:9092", "PASSWORD": "hunter2", "REGION": "eu", "OTHER": "a stranger's secret"}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "orders.yaml").write_text(PIPELINE)
    (tmp_path / "settings.yaml").write_text(SETTINGS)
    own = {"FRAZIL_HOME": "home", "FRAZIL_SETTINGS": "settings.yaml", "FRAZIL_PIPELINES": "pipelines"}
    for key, value in (VALUES | {key: str(tmp_path / name) for key, name in own.items()}).items():
        monkeypatch.setenv(key, value)
    return Project.load()


def test_driver_sees_the_project_of_who_submits(project: Project, tmp_path: Path) -> None:
    """Elsewhere and without any variable it is the same project; values that no file may refer to stay here."""
    with sent_to_yarn(project, {"spark.archives": "env.tar.gz#environment"}, "1") as conf:
        environment, archive = conf["spark.archives"].split(",")
        packed = Path(archive.partition("#")[0])
        assert packed.stat().st_mode & 0o777 == 0o600
        with zipfile.ZipFile(packed) as content:
            content.extractall(tmp_path / "there")
    container = {"FRAZIL_PROJECT": str(tmp_path / "there"), "FRAZIL_HOME": str(tmp_path / "container")}
    set_by_us = {
        key.removeprefix("spark.yarn.appMasterEnv."): value
        for key, value in driver_configuration("python", None).items()
    }
    project_there = Project.load(set_by_us | container)

    assert (environment, archive.partition("#")[2]) == ("env.tar.gz#environment", "frazil-project")
    assert not packed.exists()
    assert project_there.settings == project.settings
    assert project_there.pipeline("orders") == project.pipeline("orders")
    shipped = (tmp_path / "there" / "include" / "frazil-references.json").read_text()
    assert "hunter2" in shipped
    assert VALUES["OTHER"] not in shipped


def test_file_of_that_name_in_a_project_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who brings one by a pull request would send the settings' passwords to brokers of his own."""
    include = tmp_path / "include"
    (include / "pipelines").mkdir(parents=True)
    (include / "settings.yaml").write_text(SETTINGS)
    (include / "frazil-references.json").write_text('{"${env:BROKERS}": "evil:9092"}')
    for key, value in VALUES.items():
        monkeypatch.setenv(key, value)
    monkeypatch.setenv("FRAZIL_PROJECT", str(tmp_path))
    monkeypatch.setenv("FRAZIL_HOME", str(tmp_path / "home"))
    for key in ("FRAZIL_SETTINGS", "FRAZIL_PIPELINES"):
        monkeypatch.delenv(key, raising=False)

    assert "kafka:9092" in str(Project.load().cluster("local"))


def test_linked_file_stays_here(project: Project, tmp_path: Path) -> None:
    """A pipeline may not read outside of its folder, and so can't have it sent."""
    (tmp_path / "outside").write_text("hunter2")
    (project.pipelines_folder / "inside.avsc").write_text("{}")
    (project.pipelines_folder / "link.avsc").symlink_to(tmp_path / "outside")

    with sent_to_yarn(project, {}, "1") as conf:
        names = set(zipfile.ZipFile(conf["spark.archives"].partition("#")[0]).namelist())

    assert "include/pipelines/inside.avsc" in names
    assert "include/pipelines/link.avsc" not in names


def test_application_is_found_by_its_tag(project: Project) -> None:
    """Tags of the engine stay beside it."""
    with sent_to_yarn(project, {"spark.yarn.tags": "nightly"}, "1") as conf:
        assert conf["spark.yarn.tags"] == "nightly,frazil-1"


def test_log_of_the_driver_is_named(tmp_path: Path) -> None:
    """By the application's id, if it came so far; the log here is spark-submit's."""
    log = tmp_path / "spark.log"
    log.write_text("INFO Client: Submitted application application_17_0001\nINFO Client: for application_17_0001")
    assert place_of_log(log) == f"yarn logs -applicationId application_17_0001, of spark-submit {log}"

    log.write_text("no such queue")
    assert place_of_log(log) == str(log)
