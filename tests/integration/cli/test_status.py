"""`frazil status` as a user sees it: on a real broker, in a project of its own."""

from __future__ import annotations

from typing import Any

from frazil.generators import payments
from frazil.kafka.admin.topics import create_topic
from frazil.kafka.client.cluster import Cluster
from tests.produce import produce
from tests.servers import delete_topic

Place = Any
"""A project of its own: `place.frazil(...)` runs the command in it. See conftest."""


def test_status_shows_what_next_run_would_refuse(place: Place, cluster: Cluster) -> None:
    """The word, the figures and the health of tables are there; a recreated topic is told before a run fails."""
    create_topic(cluster, place.topic, 2)
    produce(cluster, place.topic, payments(50, seed=1))
    place.json("run", "orders")
    produce(cluster, place.topic, payments(7, seed=2))
    status_report = place.json("status")["pipelines"]["orders"]
    delete_topic(cluster, place.topic)
    create_topic(cluster, place.topic, 2)
    shown = place.succeed("status", "orders").stdout

    assert (status_report["state"], status_report["lag"], status_report["n"], status_report["unreadable"]) == (
        "Idle",
        7,
        1,
        None,
    )
    assert status_report["rows"] + status_report["dead"] == 50
    assert status_report["freshness"]["p95"] > 0
    assert min(status_report["health"].values()) > 90
    assert "Refused" in shown
    assert "was recreated" in shown
    assert "component" not in shown


def test_unknown_pipeline_is_refused(place: Place) -> None:
    """A misspelt name is refused, with the near one."""
    failed = place.frazil("status", "order")

    assert failed.returncode == 78
    assert "orders" in failed.stderr


def test_status_tells_of_refused_run_until_another_one_lands(place: Place, cluster: Cluster) -> None:
    """Without Airflow nobody else keeps what a run in a terminal, or of a cron job, was refused for."""
    create_topic(cluster, place.topic, 1)
    produce(cluster, place.topic, payments(20, seed=1, broken_per_thousand=500))
    file = place.root / "pipelines" / "orders.yaml"
    text = file.read_text()
    file.write_text(text.replace("{max_rate: 1}", "{max_count: 0}"))
    refused = place.frazil("run", "orders")
    status_report = place.json("status")["pipelines"]["orders"]
    file.write_text(text)
    place.succeed("run", "orders")

    assert refused.returncode == 78
    assert status_report["state"] == "Refused"
    assert "manual run of" in status_report["why"]
    assert "dead letters" in status_report["why"]
    assert place.json("status")["pipelines"]["orders"]["state"] == "Idle"


def test_status_says_that_the_airflow_of_the_environment_gives_no_runs(landed: Place) -> None:
    """Without a word, a pipeline whose runs all fail would look idle."""
    ended = landed.succeed(
        "status", "--json", FRAZIL_AIRFLOW_URL="http://127.0.0.1:1", FRAZIL_AIRFLOW_PASSWORD="unused"
    )

    assert '"state":"Idle"' in ended.stdout
    assert ended.stderr.startswith("runs unknown: Airflow at http://127.0.0.1:1 does not answer")
