"""The Grafana dashboard and the rules of statsd_exporter, made of the catalogue."""

from __future__ import annotations

import re
from itertools import combinations
from typing import Any

import pytest

from frazil.monitor.dashboard import dashboard
from frazil.monitor.metrics import BUCKETS, CATALOGUE, Metric, statsd_mapping

PANELS: list[dict[str, Any]] = dashboard()["panels"]
QUERIES = [target["expr"] for panel in PANELS for target in panel.get("targets", [])]
SERIES = {
    f"{metric.prometheus}{part}"
    for metric in CATALOGUE
    for part in (("_bucket", "_sum", "_count") if metric.kind == "timing" else ("",))
}


@pytest.mark.parametrize("metric", CATALOGUE, ids=lambda metric: metric.name)
def test_every_metric_is_on_a_panel(metric: Metric):
    """What is measured and shown nowhere is found by nobody."""
    assert [query for query in QUERIES if re.search(rf"\b{metric.prometheus}(_bucket|_sum)?\b", query)]


@pytest.mark.parametrize("query", QUERIES)
def test_queries_name_existing_series_and_labels(query: str):
    """Grafana shows `No data` then, which looks like a quiet day."""
    labels_named = [label for labels in re.findall(r"by \(([^)]*)\)", query) for label in labels.split(", ")]
    series = re.findall(r"frazil_\w+", query)
    labels_of_metrics = {
        label
        for metric in CATALOGUE
        for label in metric.tags
        if any(one.startswith(metric.prometheus) for one in series)
    }

    assert series
    assert set(series) <= SERIES
    assert set(labels_named) - {"le"} <= labels_of_metrics


@pytest.mark.parametrize("query", QUERIES)
def test_every_panel_filters_by_pipeline(query: str):
    """All lines of all pipelines in each panel: with 200 of them nothing can be seen."""
    assert query.count('pipeline=~"$pipeline"') == len(re.findall(r"frazil_\w+", query))


def test_panels_do_not_overlap():
    """Grafana would push them about, and each import would look another way."""
    positions = [panel["gridPos"] for panel in PANELS]

    for a, b in combinations(positions, 2):
        apart = (
            a["x"] + a["w"] <= b["x"],
            b["x"] + b["w"] <= a["x"],
            a["y"] + a["h"] <= b["y"],
            b["y"] + b["h"] <= a["y"],
        )
        assert any(apart), (a, b)
    assert all(position["x"] + position["w"] <= 24 for position in positions)
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)


def test_old_gauge_expires():
    """StatsD keeps a gauge that nobody sends any more: levels of conditions end, those of tables stay for days."""
    rules = {rule["match"].removeprefix("airflow."): rule for rule in statsd_mapping()["mappings"]}

    assert rules.keys() == {metric.name for metric in CATALOGUE}
    assert {name for name, rule in rules.items() if "ttl" in rule} == {
        metric.name for metric in CATALOGUE if metric.source == "condition"
    }


def test_timings_are_histograms():
    """Only histograms give percentiles over all of them; a commit of 10 ms and a run of an hour are both within."""
    timings = [rule for rule in statsd_mapping()["mappings"] if rule["match_metric_type"] == "observer"]

    assert len(timings) == len([metric for metric in CATALOGUE if metric.kind == "timing"])
    assert all(rule["observer_type"] == "histogram" for rule in timings)
    assert (BUCKETS[0], BUCKETS[-1]) == (0.01, 3_600)
    assert list(BUCKETS) == sorted(BUCKETS)
