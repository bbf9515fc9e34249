"""The catalogue of Frazil's metrics: what is measured, in which unit, with which tags. Docs, dashboard and the rules of statsd_exporter are made of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal

Kind = Literal["counter", "gauge", "timing"]
Source = Literal["run", "maintenance", "condition"]
"""When it is sent: by the last task of an ingest run, by maintenance, or each time a condition was read."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Attributes:
        name: Name, in lower case, parts separated by dots. Airflow puts its own prefix before it (`airflow.`).
        kind: `counter`: what was added since the last one; `gauge`: how it stands now; `timing`: how long something took.
        unit: Unit of the value. Timings are durations, which StatsD and OpenTelemetry carry in milliseconds.
        tags: Names of the tags, in the order in which their values end a name that can't carry tags.
        source: When it is sent.
        description: What it says, as one sentence.
    """

    name: str
    kind: Kind
    unit: str
    tags: tuple[str, ...]
    source: Source
    description: str

    @property
    def prometheus(self) -> str:
        """The name under which Prometheus knows it: with the unit at the end, `_total` behind counters."""
        name = self.name.replace(".", "_")
        if self.kind == "counter":
            return f"{name}_total"
        unit = self.unit if self.unit in ("seconds", "bytes") else ""
        return name if not unit or name.endswith(f"_{unit}") else f"{name}_{unit}"


@dataclass(frozen=True, slots=True)
class Sample:
    """A value of a metric; `tags` has a value for each of the metric's."""

    metric: Metric
    value: float
    tags: Mapping[str, str]


CATALOGUE: Final[list[Metric]] = []
"""All of them, in the order in which they are documented: that of their definitions."""


def _metric(kind: Kind, source: Source, name: str, unit: str, description: str, *tags: str) -> Metric:
    """Define a metric of a pipeline, or a capture (`capture.NAME`), told apart by further tags."""
    metric = Metric(name, kind, unit, ("pipeline", *tags), source, description)
    CATALOGUE.append(metric)
    return metric


_landed = partial(_metric, "counter", "run")
_took = partial(_metric, "timing", "run")
_figure = partial(_metric, "gauge", "maintenance")
_level = partial(_metric, "gauge", "condition")

RUN_BATCHES = _landed("frazil.run.batches", "batches", "Batches that were landed.")
RUN_RECORDS = _landed(
    "frazil.run.records",
    "records",
    "Records that were read, by what became of them: `written`, `dead`, `filtered`.",
    "outcome",
)
RUN_DEAD_LETTERS = _landed("frazil.run.dead_letters", "records", "Dead letters by reason code.", "code")
RUN_UNKNOWN = _landed(
    "frazil.run.unknown_fields", "records", "Records that were written, with fields that no column takes."
)
RUN_ROWS = _landed("frazil.run.rows", "rows", "Rows that a destination got, replays included.", "table")
RUN_FILES = _landed("frazil.run.files", "files", "Data files that a destination got.", "table")
RUN_BYTES = _landed("frazil.run.bytes", "bytes", "Size of these files.", "table")
RUN_CAPTURED = _landed("frazil.run.captured", "records", "Records that a capture sent.")
RUN_SECONDS = _took("frazil.run.duration", "seconds", "From the plan to the ledger's last row, all tries.")
BATCH_PHASE = _took(
    "frazil.batch.phase",
    "seconds",
    "One phase of a batch: `stage`, `audit`, `decide`, `forward`; `redo`: tries before it that were refused, because"
    " another run or a change of the table came in between.",
    "phase",
)
BATCH_COMMIT = _took(
    "frazil.batch.commit",
    "seconds",
    "Commit latency of a batch: from its audit to its last table, `decide` and `forward` together.",
)

TABLE_HEALTH = _figure("frazil.table.health", "score", "Health of a table, 0 to 100.", "table")
TABLE_FIGURES = {
    name: _figure(f"frazil.table.{name}", unit, description, "table")
    for name, unit, description in (
        ("files", "files", "Data files of a table."),
        ("bytes", "bytes", "Size of its data files."),
        ("small_files", "files", "Data files that are too small."),
        ("delete_files", "files", "Delete files of a table."),
        ("manifests", "manifests", "Manifests of its snapshot."),
        ("snapshots", "snapshots", "Snapshots of a table."),
    )
}
"""By the names that `frazil.maintain.result.Figures` has for them."""

_STEP = ("table", "step")
STEPS = _metric(
    "counter",
    "maintenance",
    "frazil.maintenance.steps",
    "steps",
    "Steps that were due, by their end: `done`, `gave_way` (others changed the same files), `failed`.",
    *_STEP,
    "status",
)
STEP_SECONDS = _metric(
    "timing", "maintenance", "frazil.maintenance.step", "seconds", "A step of maintenance that was tried.", *_STEP
)

STATE = _level("frazil.state", "0 or 1", "1 for the word that `frazil status` has for it, 0 for all others.", "state")
LAG_RECORDS = _level("frazil.lag.records", "records", "Records not read yet.")
LAG_SECONDS = _level(
    "frazil.lag.seconds", "seconds", "Age of the oldest of them, or of a capture's lines; 0 without any."
)
LAG_FILES = _level("frazil.lag.files", "files", "Files with lines that a capture did not send yet.")
LAG_BYTES = _level("frazil.lag.bytes", "bytes", "Bytes of these files that it did not send yet.")
HELD_BACK = _level("frazil.lag.held_back", "records", "Records behind open transactions.")
TOPIC_RECORDS = _level("frazil.topic.lag_records", "records", "Records of a topic not read yet.", "topic")
TOPIC_SECONDS = _level("frazil.topic.lag_seconds", "seconds", "Age of the oldest of them; 0 without any.", "topic")
FRESHNESS = _level(
    "frazil.freshness",
    "seconds",
    "Commit time less record time over the last day: `p50`, `p95`, `p99`.",
    "percentile",
)
COMMIT_AGE = _level("frazil.commit.age", "seconds", "Since the position moved last, by a batch.")
COMPLETE_AGE = _level(
    "frazil.complete_through.age", "seconds", "Since the instant through which the tables are complete."
)
RETENTION_LEFT = _level(
    "frazil.retention.left",
    "seconds",
    "Until Kafka's retention may delete records that were not read, at least, in the most urgent partition; 0: it may have.",
    "topic",
)
RETENTION_HEADROOM = _level(
    "frazil.retention.headroom",
    "offsets",
    "Offsets between the log start and the position, in that partition; below zero, so many are lost.",
    "topic",
)
RETENTION_CUT = _level(
    "frazil.retention.cut_to", "seconds", "The shortest retention that still keeps what was not read yet.", "topic"
)
OPEN_LETTERS = _level("frazil.dead_letters.open", "records", "Dead letters that no batch landed.")
REFUSED = _level("frazil.refused", "0 or 1", "Whether a plan would refuse.")
UNREADABLE = _level("frazil.unreadable", "0 or 1", "Whether Kafka or the catalog can't be read now.")
UNFINISHED = _level("frazil.unfinished", "0 or 1", "Whether a decided batch is not finished.")
FAILURES = _level("frazil.failures", "runs", "Runs that failed one after the other, up to now.")
PAUSED = _level("frazil.paused", "0 or 1", "Whether the schedule is paused.")


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
