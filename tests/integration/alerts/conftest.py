"""A watched pipeline of its own for every drill, on a real broker and a real catalog."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

import tests.airflow_home  # noqa: F401 - first: Airflow reads its home when it is imported
from frazil.cli.app import invoke
from frazil.kafka.admin.topics import create_topic
from frazil.kafka.client.cluster import Cluster
from frazil.runtime.home import PORT_VARIABLES, Home
from frazil_airflow.alerts.callbacks import Variables
from tests.conftest import FreePorts
from tests.dags.desk import VariableStore
from tests.integration.alerts.desk import Desk
from tests.receivers import posts


@pytest.fixture
def desk(
    tmp_path: Path, broker: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Desk]:
    """A pipeline whose topic has one partition and no records yet; it never ran."""
    variable_store, topic, cluster = (
        VariableStore(),
        f"orders-{uuid4().hex[:8]}",
        Cluster("local", {"bootstrap.servers": broker}),
    )
    monkeypatch.setattr(Variables, "get", lambda _, name: variable_store.get(name))
    monkeypatch.setattr(Variables, "names", lambda _, prefix: variable_store.names(prefix))
    monkeypatch.setattr(Variables, "set", lambda _, *arguments: variable_store.set(*arguments))
    monkeypatch.setattr(Variables, "delete", lambda _, name: variable_store.delete(name))
    monkeypatch.setattr(
        "frazil_airflow.outputs.run_summary.write_note", lambda *_: None
    )  # there is no Airflow to keep it
    monkeypatch.setenv("FRAZIL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("FRAZIL_JARS", str(Home.resolve().jars))
    monkeypatch.setenv("FRAZIL_SETTINGS", str(tmp_path / "settings.yaml"))
    monkeypatch.setenv("FRAZIL_PIPELINES", str(tmp_path / "pipelines"))
    monkeypatch.setenv(PORT_VARIABLES["kafka"], broker.rpartition(":")[2])
    settings = {
        "clusters": {"local": {"bootstrap_servers": "${local:kafka}"}},
        "catalogs": {"lake": {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}},
        "alerts": {"channels": {"web": {"type": "webhook", "connection": "web"}}},
    }
    (tmp_path / "settings.yaml").write_text(json.dumps(settings))
    (tmp_path / "pipelines").mkdir()
    create_topic(cluster, topic, 1)
    with posts() as hook:
        monkeypatch.setenv(
            "AIRFLOW_CONN_WEB", json.dumps({"conn_type": "http", "host": f"http://127.0.0.1:{hook.port}"})
        )
        desk = Desk(tmp_path, cluster, topic, hook, variable_store, capsys)
        desk.configure()
        monkeypatch.setattr(
            "frazil_airflow.outputs.run_summary.runs_of", lambda _: {} if desk.runs is None else {"orders": desk.runs}
        )
        yield desk


@pytest.fixture
def own_broker(desk: Desk, free_ports: FreePorts, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The embedded broker of the drill's own project in place of the one that all share: it can be stopped.

    That nobody answers is known after half of the time; a broker that was just started may need some of it.
    """
    kafka, controller = free_ports(2)
    monkeypatch.setenv(PORT_VARIABLES["kafka"], str(kafka))
    monkeypatch.setenv(PORT_VARIABLES["controller"], str(controller))
    monkeypatch.setattr("frazil.kafka.admin.observe.REQUEST_SECONDS", 4.0)
    try:
        assert invoke(["up", "--only", "kafka"]) == 0
        desk.cluster = Cluster("local", {"bootstrap.servers": f"127.0.0.1:{kafka}"})
        create_topic(desk.cluster, desk.topic, 1)
        yield
    finally:
        assert invoke(["down"]) == 0
