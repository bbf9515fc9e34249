"""A client that was written for Kafka Connect runs all that it can do, unchanged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import requests
from kafka_connect import KafkaConnect

from frazil.connect.findings import APACHE
from tests.connector_configs import OWN, PIZZAS
from tests.dags.rest.conftest import Login, token


@pytest.fixture
def client(served: str) -> KafkaConnect:
    """Logged in as by user and password: a token of Airflow's stands in place of the password."""
    return KafkaConnect(served, auth=f"ana:{token('admin')}")


def test_client_of_kafka_connect_looks_validates_creates_and_changes(client: KafkaConnect, pipelines: Path):
    """The first half of what it can do, before Airflow has read the DAG."""
    named = {**PIZZAS, "name": "pizzas-unread"}
    apache = {**named, "connector.class": APACHE}

    assert client.get_cluster_info()["version"]
    assert {APACHE, PIZZAS["connector.class"]} < {plugin["class"] for plugin in client.list_connector_plugins()}
    assert client.list_connectors() == []
    assert client.validate_connector_config("IcebergSinkConnector", apache)["error_count"] == 0
    created = client.create_connector({"name": "pizzas-unread", "config": PIZZAS})
    assert (created["type"], created["config"]) == ("sink", named)
    assert client.get_connector_status("pizzas-unread")["connector"]["state"] == "UNASSIGNED"
    changed = client.update_connector("pizzas-unread", {**named, "iceberg.control.commit.interval-ms": "60000"})
    assert changed["config"]["iceberg.control.commit.interval-ms"] == "60000"
    assert "interval: 1m" in (pipelines / "pizzas_unread.yaml").read_text()
    assert client.get_connector("pizzas-unread")["tasks"] == [{"connector": "pizzas-unread", "task": 0}]
    assert client.get_connector_config("pizzas-unread") == changed["config"]
    expanded = client.list_connectors(expand="info", pattern="pizzas")
    assert expanded["pizzas-unread"]["info"]["config"] == changed["config"]


def test_client_of_kafka_connect_steers_and_deletes(
    client: KafkaConnect, airflow_reads: Callable[[], None], pipelines: Path
):
    """The other half, on a DAG."""
    client.create_connector({"name": "pizzas-on-ice", "config": PIZZAS})
    airflow_reads()

    client.resume_connector("pizzas-on-ice")
    assert client.get_connector_status("pizzas-on-ice")["tasks"][0]["state"] == "RUNNING"
    assert client.list_connector_tasks("pizzas-on-ice")[0]["id"]["task"] == 0
    assert client.get_connector_task_status("pizzas-on-ice", 0)["id"] == 0
    assert client.list_connector_topics("pizzas-on-ice") == {"pizzas-on-ice": {"topics": []}}
    with pytest.raises(requests.HTTPError, match="403"):  # as of a Kafka Connect that tracks no topics
        client.reset_connector_topics("pizzas-on-ice")
    client.pause_connector("pizzas-on-ice")
    assert list(client.list_connectors(expand="status", state="PAUSED")) == ["pizzas-on-ice"]
    assert client.restart_connector("pizzas-on-ice", include_tasks=True)["name"] == "pizzas-on-ice"
    client.restart_connector_task("pizzas-on-ice", 0)
    client.restart_all_connectors(pattern="pizzas")
    client.resume_all_connectors()
    client.pause_all_connectors()
    client.delete_connector("pizzas-on-ice")
    client.create_connector({"name": "orders", "config": OWN})
    client.delete_all_connectors()
    assert client.list_connectors() == []
    assert list(pipelines.iterdir()) == []


def test_user_and_password_are_those_of_airflow(
    served: str, login: Login, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """As Kafka Connect's clients send them; a wrong password opens nothing."""
    passwords = tmp_path / "passwords.json"
    passwords.write_text('{"rob": "open sesame"}')
    monkeypatch.setenv("AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS", "rob:viewer")
    monkeypatch.setenv("AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE", str(passwords))

    assert requests.get(f"{served}/connectors", auth=("rob", "open sesame"), timeout=30).json() == []
    wrong = requests.get(f"{served}/connectors", auth=("rob", "wrong"), timeout=30)
    assert wrong.status_code in (401, 403)
    assert wrong.json()["error_code"] == wrong.status_code
