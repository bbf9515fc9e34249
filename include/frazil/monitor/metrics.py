"""The catalogue of Frazil's metrics: what is measured, in which unit, with which tags. Docs, dashboard and the rules of statsd_exporter are made of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

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


_PIPELINE = ("pipeline",)
_TABLE = ("pipeline", "table")
_TOPIC = ("pipeline", "topic")

RUN_BATCHES = Metric("frazil.run.batches", "counter", "batches", _PIPELINE, "run", "Batches that were landed.")
RUN_RECORDS = Metric(
    "frazil.run.records",
    "counter",
    "records",
    ("pipeline", "outcome"),
    "run",
    "Records that were read, by what became of them: `written`, `dead`, `filtered`.",
)
RUN_DEAD_LETTERS = Metric(
    "frazil.run.dead_letters", "counter", "records", ("pipeline", "code"), "run", "Dead letters by reason code."
)
RUN_UNKNOWN = Metric(
    "frazil.run.unknown_fields",
    "counter",
    "records",
    _PIPELINE,
    "run",
    "Records that were written, with fields that no column takes.",
)
RUN_ROWS = Metric("frazil.run.rows", "counter", "rows", _TABLE, "run", "Rows that a destination got, replays included.")
RUN_FILES = Metric("frazil.run.files", "counter", "files", _TABLE, "run", "Data files that a destination got.")
RUN_BYTES = Metric("frazil.run.bytes", "counter", "bytes", _TABLE, "run", "Size of these files.")
RUN_SECONDS = Metric(
    "frazil.run.duration", "timing", "seconds", _PIPELINE, "run", "From the plan to the ledger's last row, all tries."
)
BATCH_PHASE = Metric(
    "frazil.batch.phase",
    "timing",
    "seconds",
    ("pipeline", "phase"),
    "run",
    "One phase of a batch: `stage`, `audit`, `decide`, `forward`; `redo`: tries before it that were refused, because"
    " another run or a change of the table came in between.",
)
BATCH_COMMIT = Metric(
    "frazil.batch.commit",
    "timing",
    "seconds",
    _PIPELINE,
    "run",
    "Commit latency of a batch: from its audit to its last table, `decide` and `forward` together.",
)

TABLE_HEALTH = Metric("frazil.table.health", "gauge", "score", _TABLE, "maintenance", "Health of a table, 0 to 100.")
TABLE_FIGURES = {
    metric.name.rpartition(".")[2]: metric
    for metric in (
        Metric("frazil.table.files", "gauge", "files", _TABLE, "maintenance", "Data files of a table."),
        Metric("frazil.table.bytes", "gauge", "bytes", _TABLE, "maintenance", "Size of its data files."),
        Metric("frazil.table.small_files", "gauge", "files", _TABLE, "maintenance", "Data files that are too small."),
        Metric("frazil.table.delete_files", "gauge", "files", _TABLE, "maintenance", "Delete files of a table."),
        Metric("frazil.table.manifests", "gauge", "manifests", _TABLE, "maintenance", "Manifests of its snapshot."),
        Metric("frazil.table.snapshots", "gauge", "snapshots", _TABLE, "maintenance", "Snapshots of a table."),
    )
}
"""By the names that `frazil.maintain.result.Figures` has for them."""

STEP_SECONDS = Metric(
    "frazil.maintenance.step",
    "timing",
    "seconds",
    ("pipeline", "table", "step"),
    "maintenance",
    "A step of maintenance that was tried.",
)
STEPS = Metric(
    "frazil.maintenance.steps",
    "counter",
    "steps",
    ("pipeline", "table", "step", "status"),
    "maintenance",
    "Steps that were due, by their end: `done`, `gave_way` (others changed the same files), `failed`.",
)

STATE = Metric(
    "frazil.state",
    "gauge",
    "0 or 1",
    ("pipeline", "state"),
    "condition",
    "1 for the word that `frazil status` has for the pipeline, 0 for all others.",
)
LAG_RECORDS = Metric("frazil.lag.records", "gauge", "records", _PIPELINE, "condition", "Records not read yet.")
LAG_SECONDS = Metric(
    "frazil.lag.seconds", "gauge", "seconds", _PIPELINE, "condition", "Age of the oldest of them; 0 without any."
)
HELD_BACK = Metric(
    "frazil.lag.held_back", "gauge", "records", _PIPELINE, "condition", "Records behind open transactions."
)
TOPIC_RECORDS = Metric(
    "frazil.topic.lag_records", "gauge", "records", _TOPIC, "condition", "Records of a topic not read yet."
)
TOPIC_SECONDS = Metric(
    "frazil.topic.lag_seconds", "gauge", "seconds", _TOPIC, "condition", "Age of the oldest of them; 0 without any."
)
FRESHNESS = Metric(
    "frazil.freshness",
    "gauge",
    "seconds",
    ("pipeline", "percentile"),
    "condition",
    "Commit time less record time over the last day: `p50`, `p95`, `p99`.",
)
COMMIT_AGE = Metric(
    "frazil.commit.age", "gauge", "seconds", _PIPELINE, "condition", "Since the position moved last, by a batch."
)
COMPLETE_AGE = Metric(
    "frazil.complete_through.age",
    "gauge",
    "seconds",
    _PIPELINE,
    "condition",
    "Since the instant through which the tables are complete.",
)
RETENTION_LEFT = Metric(
    "frazil.retention.left",
    "gauge",
    "seconds",
    _TOPIC,
    "condition",
    "Until Kafka's retention may delete records that were not read, at least, in the most urgent partition; 0: it may have.",
)
RETENTION_HEADROOM = Metric(
    "frazil.retention.headroom",
    "gauge",
    "offsets",
    _TOPIC,
    "condition",
    "Offsets between the log start and the position, in that partition; below zero, so many are lost.",
)
RETENTION_CUT = Metric(
    "frazil.retention.cut_to",
    "gauge",
    "seconds",
    _TOPIC,
    "condition",
    "The shortest retention that still keeps what was not read yet.",
)
OPEN_LETTERS = Metric(
    "frazil.dead_letters.open",
    "gauge",
    "records",
    _PIPELINE,
    "condition",
    "Dead letters that no batch landed.",
)
REFUSED = Metric("frazil.refused", "gauge", "0 or 1", _PIPELINE, "condition", "Whether a plan would refuse.")
UNREADABLE = Metric(
    "frazil.unreadable", "gauge", "0 or 1", _PIPELINE, "condition", "Whether Kafka or the catalog can't be read now."
)
UNFINISHED = Metric(
    "frazil.unfinished", "gauge", "0 or 1", _PIPELINE, "condition", "Whether a decided batch is not finished."
)
FAILURES = Metric(
    "frazil.failures", "gauge", "runs", _PIPELINE, "condition", "Runs that failed one after the other, up to now."
)
PAUSED = Metric("frazil.paused", "gauge", "0 or 1", _PIPELINE, "condition", "Whether the schedule is paused.")

CATALOGUE: tuple[Metric, ...] = (
    RUN_BATCHES,
    RUN_RECORDS,
    RUN_DEAD_LETTERS,
    RUN_UNKNOWN,
    RUN_ROWS,
    RUN_FILES,
    RUN_BYTES,
    RUN_SECONDS,
    BATCH_PHASE,
    BATCH_COMMIT,
    TABLE_HEALTH,
    *TABLE_FIGURES.values(),
    STEPS,
    STEP_SECONDS,
    STATE,
    LAG_RECORDS,
    LAG_SECONDS,
    HELD_BACK,
    TOPIC_RECORDS,
    TOPIC_SECONDS,
    FRESHNESS,
    COMMIT_AGE,
    COMPLETE_AGE,
    RETENTION_LEFT,
    RETENTION_HEADROOM,
    RETENTION_CUT,
    OPEN_LETTERS,
    REFUSED,
    UNREADABLE,
    UNFINISHED,
    FAILURES,
    PAUSED,
)
"""All of them, in the order in which they are documented."""


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
