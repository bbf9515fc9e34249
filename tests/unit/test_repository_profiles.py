"""What the profiles of docker-compose.yml add fits together: metrics and dashboard, source and pipeline, notebook."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from frazil.pipeline.files.files import References
from frazil.pipeline.files.folder import load_pipelines

ROOT = Path(__file__).resolve().parents[2]
DOCKER = ROOT / "docker"
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
GENERATORS = [service for name, service in SERVICES.items() if name.startswith("generate-")]


def test_dashboard_queries_existing_metrics() -> None:
    """Prometheus asks the exporter, the exporter reads the mapping, Grafana finds Prometheus and the dashboard."""
    prometheus = yaml.safe_load((DOCKER / "prometheus" / "prometheus.yml").read_text(encoding="utf-8"))
    provisioning = DOCKER / "grafana" / "provisioning"
    source = yaml.safe_load((provisioning / "datasources" / "prometheus.yaml").read_text(encoding="utf-8"))
    boards = yaml.safe_load((provisioning / "dashboards" / "frazil.yaml").read_text(encoding="utf-8"))
    airflow = COMPOSE["x-airflow-environment"]

    (target,) = prometheus["scrape_configs"][0]["static_configs"][0]["targets"]
    assert f"--web.listen-address=:{target.split(':')[1]}" in SERVICES["statsd-exporter"]["command"]
    assert f"--statsd.listen-udp=:{airflow['AIRFLOW__METRICS__STATSD_PORT']}" in SERVICES["statsd-exporter"]["command"]
    assert {target.split(":")[0], airflow["AIRFLOW__METRICS__STATSD_HOST"]} == {"statsd-exporter"}
    assert source["datasources"][0]["url"] == "http://prometheus:9090"
    shown = f"{boards['providers'][0]['options']['path']}/frazil.json"
    assert f"./docker/grafana/frazil.json:{shown}:ro" in SERVICES["grafana"]["volumes"]
    assert SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"] == shown


def test_connector_feeds_the_pipeline_that_waits_for_it() -> None:
    """The connector's file holds no password, and its topic is the one that customers_cdc reads."""
    connector = json.loads((DOCKER / "cdc" / "customers.json").read_text(encoding="utf-8"))
    pipeline = load_pipelines(ROOT / "include" / "pipelines", References({}, {})).usable["customers_cdc"]
    database = SERVICES["cdc-database"]["environment"]

    assert [f"{connector['topic.prefix']}.{connector['table.include.list']}"] == list(pipeline.source.topics)
    assert connector["database.password"] == "${env:CDC_PASSWORD}"
    assert "CDC_PASSWORD" in SERVICES["kafka-connect"]["environment"]
    assert (connector["database.user"], connector["database.dbname"]) == (
        database["POSTGRES_USER"],
        database["POSTGRES_DB"],
    )
    assert "wal_level=logical" in SERVICES["cdc-database"]["command"]


def test_generators_feed_pipelines() -> None:
    """A topic that no pipeline reads fills up for nothing."""
    pipelines = load_pipelines(ROOT / "include" / "pipelines", References({}, {})).usable.values()
    read = {topic for pipeline in pipelines for topic in pipeline.source.topics}

    assert {service["command"][2] for service in GENERATORS} <= read


def test_notebooks_hold_no_results() -> None:
    """What a notebook showed last is somebody's data; and a file that is none can't be opened."""
    notebooks = sorted((DOCKER / "notebooks").glob("*.ipynb"))

    assert notebooks
    for file in notebooks:
        notebook = json.loads(file.read_text(encoding="utf-8"))
        assert (notebook["nbformat"], notebook["metadata"]["kernelspec"]["language"]) == (4, "python")
        for cell in notebook["cells"]:
            assert cell["cell_type"] in {"code", "markdown"}
            assert cell.get("outputs", []) == []
            assert cell.get("execution_count") is None
