"""Airflow's parser on the project's own dags/, in a home of its own. No Airflow process runs."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.airflow_home import DAGS  # first: Airflow reads its home when it is imported
from tests.dags.desk import VariableStore
from tests.receivers import Posts, posts

if TYPE_CHECKING:
    from airflow.dag_processing.dagbag import DagBag

    from frazil.project import Project

Parse = Callable[[], "DagBag"]
WritePipeline = Callable[..., Path]

ROOT = Path(__file__).resolve().parents[2]

PIPELINE = """
name: {name}
owner: testers
interval: {interval}
engine: {engine}
source: {{topics: [{name}-topic]}}
destinations: [{{table: shop.{name}, columns: {{id: long}}}}]
"""

PROBE = """
import json, sys
import airflow.sdk
from airflow.dag_processing.dagbag import DagBag
bag = DagBag(sys.argv[1])
print("PROBE " + json.dumps({"dags": sorted(bag.dags), "errors": bag.import_errors, "modules": sorted(sys.modules)}))
"""


@pytest.fixture
def pipelines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty pipelines folder, in force for the test."""
    folder = tmp_path / "pipelines"
    folder.mkdir()
    monkeypatch.setenv("FRAZIL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("FRAZIL_PIPELINES", str(folder))
    return folder


@pytest.fixture
def write_pipeline(pipelines: Path) -> Callable[..., Path]:
    """Write a pipeline file: `write_pipeline("orders", interval="5m", engine="spark")`."""

    def write(name: str, interval: str = "5m", engine: str = "spark", more: str = "") -> Path:
        path = pipelines / f"{name}.yaml"
        path.write_text(PIPELINE.format(name=name, interval=f'"{interval}"', engine=engine) + more)
        return path

    return write


@pytest.fixture
def parse() -> Callable[[], DagBag]:
    """Parse dags/ as the DAG processor does."""

    def parsed() -> DagBag:
        from airflow.dag_processing.dagbag import DagBag

        return DagBag(DAGS)

    return parsed


@pytest.fixture
def probe() -> Callable[[Mapping[str, str]], dict[str, Any]]:
    """Parse dags/ in a fresh interpreter; tells its DAGs, import errors and imported modules."""

    def probed(env: Mapping[str, str]) -> dict[str, Any]:
        paths = {"PYTHONPATH": os.pathsep.join([str(ROOT / "include"), str(ROOT / "plugins")])}
        command = [sys.executable, "-c", PROBE, str(DAGS)]
        done = subprocess.run(command, env=os.environ | paths | env, capture_output=True, text=True, check=True)
        line = next(line for line in done.stdout.splitlines() if line.startswith("PROBE "))
        probe: dict[str, Any] = json.loads(line.removeprefix("PROBE "))
        return probe

    return probed


@pytest.fixture(autouse=True)
def enabled_loggers() -> None:
    """Airflow's own set-up of logging, which some of its parts run when they are imported, disables the loggers before it."""
    for name, logger in logging.root.manager.loggerDict.items():
        if name.startswith("frazil") and isinstance(logger, logging.Logger):
            logger.disabled = False


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The notes that are written to runs."""
    notes: list[str] = []
    monkeypatch.setattr("frazil_airflow.outputs.run_summary.write_note", lambda *arguments: notes.append(arguments[-1]))
    return notes


@pytest.fixture
def hook() -> Iterator[Posts]:
    with posts() as alert_posts:
        yield alert_posts


@pytest.fixture
def project(
    write_pipeline: Callable[..., Path], tmp_path: Path, hook: Posts, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Project]:
    """A project with the pipeline `orders` and a webhook as its one channel."""

    def made(of_pipeline: str = "") -> Project:
        from frazil.project import Project

        path = write_pipeline("orders")
        path.write_text(path.read_text() + of_pipeline)
        settings = {
            "clusters": {"local": {"bootstrap_servers": "127.0.0.1:1"}},
            "catalogs": {"lake": {"uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/w"}},
            "alerts": {"channels": {"web": {"type": "webhook", "connection": "web"}}},
        }
        (tmp_path / "settings.yaml").write_text(json.dumps(settings))
        monkeypatch.setenv("FRAZIL_SETTINGS", str(tmp_path / "settings.yaml"))
        connection = {"conn_type": "http", "host": f"http://127.0.0.1:{hook.port}"}
        monkeypatch.setenv("AIRFLOW_CONN_WEB", json.dumps(connection))
        return Project.load()

    return made


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch) -> VariableStore:
    """Airflow's Variables, in memory: there is no Airflow to keep them."""
    variable_store = VariableStore()
    monkeypatch.setattr("frazil_airflow.alerts.callbacks.Variables", lambda: variable_store)
    monkeypatch.setattr("frazil_airflow.dags.monitor.Variables", lambda: variable_store)
    monkeypatch.setattr("frazil_airflow.outputs.run_summary.Variables", lambda: variable_store)
    return variable_store
