"""From a connector's configuration, put over HTTP by a client of Kafka Connect, to verified rows in the table."""

from __future__ import annotations

import pytest
from kafka_connect import KafkaConnect

from frazil.generators import GENERATORS
from frazil.kafka.admin.topics import create_topic
from frazil.project import Project
from frazil.report.history import history
from frazil.runtime import airflow_login
from frazil.runtime.process import until
from frazil.verify.check import verify
from tests.connector_configs import PIZZAS
from tests.e2e.embedded import UNPAUSED_SECONDS, Embedded
from tests.produce import produce

pytestmark = [pytest.mark.e2e, pytest.mark.full, pytest.mark.timeout(900)]

TOPIC, DAG = "pizzas-of-connect", "ingest__pizzas_on_ice"
CONFIG = {**PIZZAS, "topics": TOPIC, "iceberg.tables": "ice.pizzas", "frazil.engine": "inline"}
"""Its own topic and table: other tests have those of the demo."""


def test_connector_put_over_http_lands_verified_rows(embedded: Embedded):
    """The pizzas of the demo; then its offsets are reset on record, and all of them land again, in place of their rows."""
    login = airflow_login.credentials(embedded.project.home)
    client = KafkaConnect(f"{embedded.project.home.airflow_url}/frazil/connect", auth=f"{login.user}:{login.password}")
    create_topic(embedded.cluster, TOPIC, 6)
    assert produce(embedded.cluster, TOPIC, GENERATORS["pizzas"](300, seed=11)).count == 300

    client.update_connector("pizzas-on-ice", CONFIG)
    assert until(lambda: DAG in embedded.api.dag_ids(), UNPAUSED_SECONDS, 0.5), embedded.api.import_errors()
    client.resume_connector("pizzas-on-ice")
    assert until(lambda: bool(embedded.api.runs(DAG)), UNPAUSED_SECONDS, 0.5)
    embedded.finished(DAG, embedded.api.runs(DAG)[0].run_id)

    assert len(embedded.rows("ice.pizzas")) == 300
    project = Project.load(embedded.env)
    pipeline = project.pipeline("pizzas_on_ice")
    assert [str(difference) for difference in verify(project, pipeline).differences] == []
    assert client.get_connector_status("pizzas-on-ice")["tasks"][0]["state"] == "RUNNING"
    assert client.list_connector_topics("pizzas-on-ice") == {"pizzas-on-ice": {"topics": [TOPIC]}}
    assert _offsets(embedded) == 300

    client.pause_connector("pizzas-on-ice")
    assert until(lambda: not embedded.api.runs(DAG, ["running", "queued"]), UNPAUSED_SECONDS, 0.5)
    assert "reset successfully" in _requests(embedded, "DELETE")["message"]
    assert _offsets(embedded) == 0
    last = history(project, pipeline)[-1]
    assert (last.kind, last.started_by, last.reason) == (
        "reset",
        f"rest:{login.user}",
        "DELETE /connectors/pizzas-on-ice/offsets",
    )
    client.delete_connector("pizzas-on-ice")
    assert embedded.project.lake("lake").find_table("ice.pizzas") is not None


def _offsets(embedded: Embedded) -> int:
    return sum(entry["offset"]["kafka_offset"] for entry in _requests(embedded, "GET")["offsets"])


def _requests(embedded: Embedded, method: str) -> dict[str, list[dict[str, dict[str, int]]]]:
    """What the client has no method for."""
    import requests

    home = embedded.project.home
    login = airflow_login.credentials(home)
    answer = requests.request(
        method,
        f"{home.airflow_url}/frazil/connect/connectors/pizzas-on-ice/offsets",
        auth=(login.user, login.password),
        timeout=120,
    )
    assert answer.status_code == 200, answer.text
    return answer.json()
