"""Spark's own pages and event log of a job: its batches by pipeline and number."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from frazil.batch.position import RunRequest
from frazil.kafka.client.cluster import Cluster, OutgoingRecord
from frazil.project import Project
from frazil.run.batches.plan import plan_run
from frazil.runtime.home import interpreter_bin
from frazil.runtime.java import ensure_java
from frazil.spark.submit.submission import run_spark
from tests.e2e.browser import opened_browser, picture
from tests.produce import produce

RECORDS = 300
SECRET = "marked-store"
FILE = """
name: orders
engine: spark
limits: {{max_records: 100}}
source: {{topics: [{topic}]}}
destinations: [{{table: shop.orders, columns: {{id: long}}}}]
"""


@pytest.fixture
def project(tmp_path: Path, cluster: Cluster, topic: Callable[..., str]) -> Project:
    """A pipeline with records to land, and an engine whose pages and event log are on."""
    name = topic(partitions=2)
    produce(cluster, name, [OutgoingRecord(None, b'{"id": %d}' % n) for n in range(RECORDS)])
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "orders.yaml").write_text(FILE.format(topic=name))
    lake = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}
    settings = {
        "clusters": {"local": {"bootstrap_servers": cluster.bootstrap_servers}},
        "catalogs": {"lake": lake},
        "engines": {
            "spark": {
                "ui": True,
                "event_log": f"{tmp_path}/events",
                # Python 3.11 reads no zstd.
                "conf": {"spark.eventLog.compress": "false", "spark.hadoop.fs.s3a.secret.key": SECRET},
            }
        },
    }
    (tmp_path / "settings.yaml").write_text(json.dumps(settings))
    return Project.load(
        {
            "FRAZIL_HOME": str(tmp_path / "home"),
            "FRAZIL_PIPELINES": str(tmp_path / "pipelines"),
            "FRAZIL_SETTINGS": str(tmp_path / "settings.yaml"),
            "FRAZIL_JARS": os.environ.get("FRAZIL_JARS", ""),
        }
    )


def land(project: Project) -> list[str]:
    """Land the records in a job of its own, and return what it reports."""
    pipeline, lines = project.pipeline("orders"), list[str]()
    plan = plan_run(project, pipeline, RunRequest("a run")).plan
    assert plan is not None
    run_spark(project, pipeline, plan, lines.append)
    return lines


@contextmanager
def history_server(events: Path, port: int) -> Iterator[str]:
    """Spark's history server over a folder, as docs/engines.md starts it; the address of its list of jobs."""
    options = f"-Dspark.history.fs.logDirectory=file://{events} -Dspark.history.ui.port={port}"
    env = os.environ | {
        "JAVA_HOME": str(ensure_java().home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_HISTORY_OPTS": options,
        "SPARK_DAEMON_MEMORY": "512m",
        "PYSPARK_DRIVER_PYTHON": str(interpreter_bin() / "python"),
    }
    command = [str(interpreter_bin() / "spark-class"), "org.apache.spark.deploy.history.HistoryServer"]
    with subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert any("started" in line and str(port) in line for line in server.stderr or ())
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()


def logged(events: Path) -> list[dict[str, Any]]:
    """Events of the one log in a folder."""
    (log,) = events.rglob("events_*")
    return [json.loads(line) for line in log.read_text().splitlines()]


def test_job_leaves_an_event_log_that_names_the_batch(project: Project, tmp_path: Path) -> None:
    """Whoever waits is told where the pages are; the log is complete when the job has ended, without secrets."""
    lines = land(project)

    assert any(line.startswith("Spark's pages: http://127.0.0.1:") for line in lines), lines
    events = logged(tmp_path / "events")
    starts = [event for event in events if event["Event"] == "SparkListenerJobStart"]
    assert "pipeline orders batch 1: 100 offsets" in {
        event["Properties"].get("spark.job.description") for event in starts
    }
    assert events[-1]["Event"] == "SparkListenerApplicationEnd"
    (environment,) = [event for event in events if event["Event"] == "SparkListenerEnvironmentUpdate"]
    assert environment["Spark Properties"]["spark.hadoop.fs.s3a.secret.key"] == "*********(redacted)"
    assert SECRET not in json.dumps(events)


@pytest.mark.full
def test_history_server_shows_the_batch(
    project: Project, tmp_path: Path, free_ports: Callable[[int], list[int]]
) -> None:
    """The picture of docs/engines.md: the batches of a run, each by pipeline and number."""
    land(project)

    with history_server(tmp_path / "events", *free_ports(1)) as address, opened_browser() as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 480})
        (application,) = page.request.get(f"{address}/api/v1/applications").json()
        page.goto(f"{address}/history/{application['id']}/SQL/")
        page.locator("td", has_text="pipeline orders batch 3: 100 offsets").wait_for()
        picture(page, "spark-batches")
