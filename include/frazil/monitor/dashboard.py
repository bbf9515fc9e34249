"""The Grafana dashboard, generated from the catalogue of metrics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from frazil.monitor import metrics
from frazil.monitor.metrics import Metric

SCHEMA_VERSION = 39
"""Version of Grafana's dashboard JSON. Grafana loads it from 10.1 on; newer versions migrate it when they load it."""

_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH, _HEIGHT = 24, 8
_BATCHED = "5m"
"""Least interval of panels with metrics of runs. These come when a run ends, so shorter intervals would show spikes and gaps."""

_PIPELINES = 'pipeline=~"$pipeline"'


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel.

    Attributes:
        unit: Unit in Grafana's words.
        queries: Legend and query of each line.
        metrics: Metrics that it shows, whose descriptions become its own.
        thresholds: Of a number: from which value on it is orange, and red.
        is_rising_worse: Whether higher numbers are worse.
    """

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    metrics: tuple[Metric, ...]
    kind: Literal["timeseries", "stat"] = "timeseries"
    thresholds: tuple[float, float] | None = None
    is_rising_worse: bool = True


def _current(metric: Metric) -> str:
    return f"{metric.prometheus}{{{_PIPELINES}}}"


def _rate_by(metric: Metric, *tags: str, more: str = "") -> str:
    """The query for a counter's growth per second."""
    return f"sum by ({', '.join(tags)}) (rate({metric.prometheus}{{{_PIPELINES}{more}}}[$__rate_interval]))"


def _quantile(metric: Metric, quantile: float, *tags: str) -> str:
    buckets = f"rate({metric.prometheus}_bucket{{{_PIPELINES}}}[$__rate_interval])"
    return f"histogram_quantile({quantile}, sum by ({', '.join(('le', *tags))}) ({buckets}))"


def _gauge(title: str, metric: Metric, unit: str = "short") -> Panel:
    """A gauge over time, a line per combination of its tags."""
    legend = " ".join(f"{{{{{tag}}}}}" for tag in metric.tags)
    return Panel(title, unit, ((legend, _current(metric)),), (metric,))


def _count(title: str, metric: Metric, *tags: str, unit: str = "cps") -> Panel:
    legend = " ".join(f"{{{{{tag}}}}}" for tag in tags)
    return Panel(title, unit, ((legend, _rate_by(metric, *tags)),), (metric,))


def _stat_panel(  # noqa: PLR0913 - a panel has so many parts
    title: str, metric: Metric, how: str, unit: str, warn: float, bad: float, *, is_rising_worse: bool = True
) -> Panel:
    """One number, aggregated by `how` over the chosen pipelines."""
    query = (("", f"{how}({_current(metric)})"),)
    return Panel(title, unit, query, (metric,), "stat", (warn, bad), is_rising_worse)


_FILE_SIZE = f"{_rate_by(metrics.RUN_BYTES, 'table')} / {_rate_by(metrics.RUN_FILES, 'table')}"
_REDO = (
    f'sum by (pipeline) (rate({metrics.BATCH_PHASE.prometheus}_sum{{{_PIPELINES}, phase="redo"}}[$__rate_interval]))'
)
_FIGURES = metrics.TABLE_FIGURES

ROWS: dict[str, tuple[Panel, ...]] = {
    "Now": (
        _stat_panel("Oldest unread record", metrics.LAG_SECONDS, "max", "s", 900, 3600),
        _stat_panel("Pipelines that refuse", metrics.REFUSED, "sum", "short", 1, 1),
        _stat_panel("Failed runs in a row", metrics.FAILURES, "max", "short", 1, 3),
        _stat_panel("Retention left", metrics.RETENTION_LEFT, "min", "s", 86_400, 21_600, is_rising_worse=False),
        _stat_panel("Open dead letters", metrics.OPEN_LETTERS, "sum", "short", 1, 1_000),
        _stat_panel("Lowest table health", metrics.TABLE_HEALTH, "min", "short", 80, 50, is_rising_worse=False),
    ),
    "Lag and freshness": (
        _gauge("Lag, records", metrics.LAG_RECORDS),
        _gauge("Lag, age of the oldest record", metrics.LAG_SECONDS, "s"),
        _gauge("Lag per topic, records", metrics.TOPIC_RECORDS),
        _gauge("Lag per topic, age of the oldest record", metrics.TOPIC_SECONDS, "s"),
        _gauge("Freshness: commit time less record time", metrics.FRESHNESS, "s"),
        _gauge("Since the tables were complete", metrics.COMPLETE_AGE, "s"),
        _gauge("Since the last commit", metrics.COMMIT_AGE, "s"),
        _gauge("Held back by open transactions, records", metrics.HELD_BACK),
    ),
    "Captures": (
        _gauge("Files with lines that are not captured yet", metrics.LAG_FILES),
        _gauge("Bytes of them that are not captured yet", metrics.LAG_BYTES, "bytes"),
        _count("Captured records, per second", metrics.RUN_CAPTURED, "pipeline"),
    ),
    "Records": (
        _count("Records by outcome, per second", metrics.RUN_RECORDS, "pipeline", "outcome"),
        _count("Rows by table, per second", metrics.RUN_ROWS, "table"),
        _count("Dead letters by code, per second", metrics.RUN_DEAD_LETTERS, "pipeline", "code"),
        _count("Records with fields that no column takes, per second", metrics.RUN_UNKNOWN, "pipeline"),
        _gauge("Open dead letters", metrics.OPEN_LETTERS),
    ),
    "Batches": (
        Panel(
            "Phases, 95th percentile",
            "s",
            (("{{pipeline}} {{phase}}", _quantile(metrics.BATCH_PHASE, 0.95, "pipeline", "phase")),),
            (metrics.BATCH_PHASE,),
        ),
        Panel(
            "Commit latency",
            "s",
            tuple(
                (f"{{{{pipeline}}}} p{percentile}", _quantile(metrics.BATCH_COMMIT, percentile / 100, "pipeline"))
                for percentile in (50, 95, 99)
            ),
            (metrics.BATCH_COMMIT,),
        ),
        Panel(
            "Duration of runs, 95th percentile",
            "s",
            (("{{pipeline}}", _quantile(metrics.RUN_SECONDS, 0.95, "pipeline")),),
            (metrics.RUN_SECONDS,),
        ),
        Panel(
            "Seconds of work done again, per second",
            "short",
            (("{{pipeline}}", _REDO),),
            (metrics.BATCH_PHASE,),
        ),
        _count("Batches, per second", metrics.RUN_BATCHES, "pipeline"),
        Panel(
            "Size of new data files, on average",
            "bytes",
            (("{{table}}", _FILE_SIZE),),
            (metrics.RUN_BYTES, metrics.RUN_FILES),
        ),
    ),
    "Tables": (
        _gauge("Health, 0 to 100", metrics.TABLE_HEALTH),
        _gauge("Data files", _FIGURES["files"]),
        _gauge("Data files that are too small", _FIGURES["small_files"]),
        _gauge("Delete files", _FIGURES["delete_files"]),
        _gauge("Bytes", _FIGURES["bytes"], "bytes"),
        _gauge("Snapshots", _FIGURES["snapshots"]),
        _gauge("Manifests", _FIGURES["manifests"]),
        _count("Maintenance steps, per second", metrics.STEPS, "table", "step", "status"),
        Panel(
            "Duration of maintenance steps, 95th percentile",
            "s",
            (("{{table}} {{step}}", _quantile(metrics.STEP_SECONDS, 0.95, "table", "step")),),
            (metrics.STEP_SECONDS,),
        ),
    ),
    "Kafka's retention": (
        _gauge("Time until unread records are deleted", metrics.RETENTION_LEFT, "s"),
        _gauge("Offsets between log start and position", metrics.RETENTION_HEADROOM),
        _gauge("Shortest retention that keeps what was not read", metrics.RETENTION_CUT, "s"),
    ),
    "State": (
        Panel(
            "State",
            "short",
            (("{{pipeline}} {{state}}", f"{metrics.STATE.prometheus}{{{_PIPELINES}}} == 1"),),
            (metrics.STATE,),
        ),
        _gauge("Refused", metrics.REFUSED),
        _gauge("Unreadable: Kafka or the catalog does not answer", metrics.UNREADABLE),
        _gauge("Unfinished batch", metrics.UNFINISHED),
        _gauge("Failed runs in a row", metrics.FAILURES),
        _gauge("Paused", metrics.PAUSED),
    ),
}
"""Title of a row -> its panels."""


def dashboard() -> dict[str, Any]:
    """The dashboard as JSON for Grafana's import."""
    return {
        "uid": "frazil",
        "title": "Frazil",
        "description": "Kafka topics as Iceberg tables: lag, freshness, records, batches, tables, retention.",
        "tags": ["frazil"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "timezone": "browser",
        "time": {"from": "now-24h", "to": "now"},
        "refresh": "1m",
        "annotations": {"list": []},
        "links": [],
        "templating": {"list": [_source_choice(), _pipeline_choice()]},
        "panels": list(_panels()),
    }


def _source_choice() -> dict[str, Any]:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "hide": 0}


def _pipeline_choice() -> dict[str, Any]:
    query = 'label_values({__name__=~"frazil_.+"}, pipeline)'
    return {
        "name": "pipeline",
        "label": "Pipeline",
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": query, "refId": "pipelines"},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "hide": 0,
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
    }


def _panels() -> Iterator[dict[str, Any]]:
    y = number = 0
    for title, row in ROWS.items():
        number += 1
        yield {
            "id": number,
            "type": "row",
            "title": title,
            "collapsed": False,
            "gridPos": {"x": 0, "y": y, "w": _WIDTH, "h": 1},
            "panels": [],
        }
        per_line, height = (6, 4) if row[0].kind == "stat" else (3 if len(row) % 3 == 0 else 2, _HEIGHT)
        width = _WIDTH // per_line
        for place, panel in enumerate(row):
            number += 1
            position = {"x": place % per_line * width, "y": y + 1 + place // per_line * height, "w": width, "h": height}
            yield _panel(panel, number, position)
        y += 1 + -(-len(row) // per_line) * height


def _panel(panel: Panel, number: int, position: dict[str, int]) -> dict[str, Any]:
    targets = [
        {"refId": chr(ord("A") + place), "datasource": _SOURCE, "expr": query, "legendFormat": legend or "__auto"}
        for place, (legend, query) in enumerate(panel.queries)
    ]
    if panel.kind == "stat":
        options: dict[str, Any] = {
            "colorMode": "background",
            "graphMode": "none",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        }
    else:
        options = {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": " ".join(dict.fromkeys(metric.description for metric in panel.metrics)),
        "datasource": _SOURCE,
        "interval": _BATCHED if any(metric.source != "condition" for metric in panel.metrics) else "1m",
        "gridPos": position,
        "targets": targets,
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        "options": options,
    }


def _defaults(panel: Panel) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit}
    if panel.kind == "timeseries":
        return defaults | {"custom": {"drawStyle": "line", "lineInterpolation": "stepAfter", "spanNulls": False}}
    warn, bad = panel.thresholds or (0, 0)
    colors = ("green", "orange", "red") if panel.is_rising_worse else ("red", "orange", "green")
    bounds: Sequence[float | None] = (None, warn, bad) if panel.is_rising_worse else (None, bad, warn)
    steps = [{"color": color, "value": bound} for color, bound in zip(colors, bounds, strict=True)]
    return defaults | {"color": {"mode": "thresholds"}, "thresholds": {"mode": "absolute", "steps": steps}}
