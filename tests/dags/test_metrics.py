"""Metrics leave through Airflow's Stats and reach real receivers: StatsD over UDP, OpenTelemetry over HTTP."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from frazil.monitor.condition import Condition
from frazil.monitor.metrics import CATALOGUE
from frazil.project import Project
from frazil_airflow.dags import monitor
from tests.dags.desk import VariableStore
from tests.receivers import Posts
from tests.statsd import statsd_receiver

pytestmark = pytest.mark.dags

ROOT = Path(__file__).resolve().parents[2]

SEND = """
from airflow.sdk.observability.metrics.stats_utils import get_stats_factory
from airflow.sdk.observability.stats import Stats
from frazil.monitor.metrics import capture_samples, condition_samples, maintenance_samples, run_samples
from frazil_airflow.outputs.run_summary import emit
from tests.unit.monitor.measured import CAPTURE, CAPTURED, CONDITION, MAINTENANCE, PROMISE, RUN, WAITING_FILES

Stats.initialize(factory=get_stats_factory(), export_legacy_names=True)  # as Airflow's task runner does
emit(run_samples(RUN))
emit(capture_samples(CAPTURE, CAPTURED))
emit(maintenance_samples(MAINTENANCE))
emit(condition_samples(CONDITION, PROMISE))
emit(condition_samples(WAITING_FILES, PROMISE))
"""


def send(options: Mapping[str, str]) -> None:
    """Send all metrics from a process of its own, which ends at once, like that of a task."""
    paths = {"PYTHONPATH": os.pathsep.join([str(ROOT / "include"), str(ROOT / "plugins"), str(ROOT)])}
    subprocess.run([sys.executable, "-c", SEND], env=os.environ | paths | options, check=True, capture_output=True)


def sent_to_statsd(*, is_tagged: bool) -> list[str]:
    """Lines that a receiver got. They were sent from here, so they are there once the sender has ended and it was asked."""
    with statsd_receiver() as (port, lines):
        options = {"STATSD_ON": "True", "STATSD_HOST": "127.0.0.1", "STATSD_PORT": str(port)}
        options |= {"STATSD_INFLUXDB_ENABLED": str(is_tagged)}
        send({f"AIRFLOW__METRICS__{name}": value for name, value in options.items()})
    return lines


def test_pipelines_have_their_own_gauges_in_plain_statsd():
    """It drops tags: the values of the tags end the name, with dots written `__`, so that a level stays a level."""
    lines = sent_to_statsd(is_tagged=False)

    assert "airflow.frazil.lag.records.orders:700|g" in lines
    assert "airflow.frazil.topic.lag_records.orders.orders__eu:600|g" in lines
    assert "airflow.frazil.run.records.orders.dead:2|c" in lines
    assert "airflow.frazil.batch.phase.orders.redo:2000.000000|ms" in lines
    # A value below zero would be taken from the last one: it comes after a zero.
    below = [line for line in lines if line.startswith("airflow.frazil.retention.left.orders.orders__eu:")]
    assert below == ["airflow.frazil.retention.left.orders.orders__eu:0|g", below[1]]
    assert below[1].endswith(":-20.0|g")


def test_tags_stand_behind_metric_names_where_server_takes_them():
    """Names stay those of the catalogue, every one arrives, and tags stand behind them as InfluxDB writes them."""
    lines = [line for line in sent_to_statsd(is_tagged=True) if line.startswith("airflow.frazil.")]

    assert "airflow.frazil.topic.lag_records,pipeline=orders,topic=orders.eu:600|g" in lines
    names = {line.partition(",")[0] for line in lines}
    assert names == {f"airflow.{metric.name}" for metric in CATALOGUE}


@pytest.fixture
def collector() -> Iterator[tuple[str, list[Any]]]:
    """Address of an OTLP receiver, and the requests that it got."""
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

    requests: list[Any] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            is_packed = self.headers.get("Content-Encoding") == "gzip"
            requests.append(ExportMetricsServiceRequest.FromString(gzip.decompress(body) if is_packed else body))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing: it would be in the tests' output."""

    with HTTPServer(("127.0.0.1", 0), Receiver) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", requests
        server.shutdown()


def test_opentelemetry_sends_metrics_of_short_task(collector: tuple[str, list[Any]]):
    """It sends once a minute: what a short task measured goes out when it ends, with tags, and as deltas if asked to."""
    address, requests = collector

    send(
        {
            "AIRFLOW__METRICS__OTEL_ON": "True",
            "OTEL_EXPORTER_OTLP_ENDPOINT": address,
            "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE": "delta",
        }
    )

    requests_sent = [
        metric
        for request in requests
        for resource in request.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name.startswith("airflow.frazil.")
    ]
    assert {metric.name for metric in requests_sent} == {f"airflow.{metric.name}" for metric in CATALOGUE}
    points = {
        (metric.name, *(attribute.value.string_value for attribute in point.attributes)): point.as_int
        for metric in requests_sent
        for point in metric.sum.data_points
    }
    assert points["airflow.frazil.run.records", "orders", "dead"] == 2
    assert {metric.sum.aggregation_temporality for metric in requests_sent if metric.HasField("sum")} == {1}  # delta
    (commits,) = (metric for metric in requests_sent if metric.name == "airflow.frazil.batch.commit")
    (commit,) = commits.exponential_histogram.data_points
    assert (commit.count, commit.sum, commits.unit) == (2, 270.0, "ms")


@pytest.mark.parametrize("has_sent", [False, True])
def test_dead_letters_are_counted_only_where_metrics_are_sent(
    project: Callable[..., Project],
    variables: VariableStore,
    hook: Posts,
    monkeypatch: pytest.MonkeyPatch,
    has_sent: bool,
):
    """Only metrics tell how many are open, so where Airflow sends none their table is not looked at."""
    project()
    open_letters: list[int | None] = []
    well = Condition("orders", "testers", datetime.now(UTC), n=3, lag=0)
    monkeypatch.setenv("AIRFLOW__METRICS__STATSD_ON", str(has_sent))
    monkeypatch.setattr("frazil.monitor.reading.read", lambda *_, **__: well)
    monkeypatch.setattr(
        "frazil.monitor.reading.with_open_letters", lambda condition, *_: replace(condition, open_letters=7)
    )
    monkeypatch.setattr(
        "frazil.monitor.metrics.condition_samples",
        lambda condition, _: open_letters.append(condition.open_letters) or (),
    )

    monitor.look()

    assert open_letters == [7 if has_sent else None]
