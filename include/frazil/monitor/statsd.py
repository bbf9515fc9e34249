"""The rules of statsd_exporter, made of the catalogue: from StatsD's names to those that Prometheus and the dashboard have."""

from __future__ import annotations

from typing import Any

from frazil.monitor.metrics import CATALOGUE, Metric

AIRFLOW_PREFIX = "airflow"
"""What Airflow puts before each name, unless `[metrics] statsd_prefix` says otherwise."""

CONDITION_TTL = "10m"
"""How long the level of a condition is shown after it was sent last, five times as often as it is read: an old level is
worse than none."""

BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900, 3600)
"""Upper bounds of the histograms of timings, in seconds: from a commit to a run over a backlog."""


def statsd_mapping() -> dict[str, Any]:
    """The configuration of statsd_exporter: StatsD's names become those of the dashboard, timings become histograms."""
    return {"mappings": [_rule(metric) for metric in CATALOGUE]}


def _rule(metric: Metric) -> dict[str, Any]:
    rule: dict[str, Any] = {
        "match": f"{AIRFLOW_PREFIX}.{metric.name}",
        "match_metric_type": "observer" if metric.kind == "timing" else metric.kind,
        "name": metric.prometheus,
        "help": metric.description,
    }
    if metric.kind == "timing":
        rule |= {"observer_type": "histogram", "histogram_options": {"buckets": list(BUCKETS)}}
    return rule | ({"ttl": CONDITION_TTL} if metric.source == "condition" else {})
