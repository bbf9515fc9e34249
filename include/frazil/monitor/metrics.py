"""The catalogue of Frazil's metrics, from which docs, dashboard and the rules of statsd_exporter are generated; and the
samples of a run, of maintenance, and of a condition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Literal

from frazil.monitor.condition import STATES, state_of

if TYPE_CHECKING:
    from frazil.capture.run import CaptureResult
    from frazil.maintain.run import MaintenanceResult
    from frazil.monitor.condition import Condition, Retention
    from frazil.pipeline.settings.capture import Capture
    from frazil.run.batches.plan import RunResult


Kind = Literal["counter", "gauge", "timing"]
Source = Literal["run", "maintenance", "condition"]
"""When a metric is sent: by the last task of an ingest run, by maintenance, or each time a condition is read."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Attributes:
        name: Name, in lower case, parts separated by dots. Airflow puts its own prefix before it (`airflow.`).
        kind: `counter`: an amount to add; `gauge`: a present value; `timing`: a duration.
        unit: Unit of the value. StatsD and OpenTelemetry carry timings in milliseconds.
        tags: Names of the tags. For a receiver without tags, their values are appended to the name, in this order.
        source: When the metric is sent.
        description: What it measures, in one sentence.
    """

    name: str
    kind: Kind
    unit: str
    tags: tuple[str, ...]
    source: Source
    description: str

    @property
    def prometheus(self) -> str:
        """Name in Prometheus: with the unit at its end, or `_total` for counters."""
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
"""All metrics, in the order of their definitions, which is that of the documentation."""


def _metric(kind: Kind, source: Source, name: str, unit: str, description: str, *tags: str) -> Metric:
    """Define a metric of a pipeline or capture (tag `pipeline`), with further tags."""
    metric = Metric(name, kind, unit, ("pipeline", *tags), source, description)
    CATALOGUE.append(metric)
    return metric


_counter = partial(_metric, "counter", "run")
_timing = partial(_metric, "timing", "run")
_table_gauge = partial(_metric, "gauge", "maintenance")
_gauge = partial(_metric, "gauge", "condition")

RUN_BATCHES = _counter("frazil.run.batches", "batches", "Batches that landed.")
RUN_RECORDS = _counter(
    "frazil.run.records",
    "records",
    "Records that were read, by outcome: `written`, `dead`, `filtered`.",
    "outcome",
)
RUN_DEAD_LETTERS = _counter("frazil.run.dead_letters", "records", "Dead letters by reason code.", "code")
RUN_UNKNOWN = _counter("frazil.run.unknown_fields", "records", "Written records with fields that no column takes.")
RUN_ROWS = _counter("frazil.run.rows", "rows", "Rows that a destination got, replays included.", "table")
RUN_FILES = _counter("frazil.run.files", "files", "Data files that a destination got.", "table")
RUN_BYTES = _counter("frazil.run.bytes", "bytes", "Bytes of data files that a destination got.", "table")
RUN_CAPTURED = _counter("frazil.run.captured", "records", "Records that a capture sent.")
RUN_SECONDS = _timing(
    "frazil.run.duration", "seconds", "Duration of a run, from the plan to the ledger's last row, with all tries."
)
BATCH_PHASE = _timing(
    "frazil.batch.phase",
    "seconds",
    "One phase of a batch: `stage`, `audit`, `decide`, `forward`; `redo`: tries before it that were refused, because"
    " another run or a change of the table came in between.",
    "phase",
)
BATCH_COMMIT = _timing(
    "frazil.batch.commit",
    "seconds",
    "Commit latency of a batch: from its audit to its last table, `decide` and `forward` together.",
)

TABLE_HEALTH = _table_gauge("frazil.table.health", "score", "Health of a table, 0 to 100.", "table")
TABLE_FIGURES = {
    name: _table_gauge(f"frazil.table.{name}", unit, description, "table")
    for name, unit, description in (
        ("files", "files", "Data files of a table."),
        ("bytes", "bytes", "Bytes of a table's data files."),
        ("small_files", "files", "Data files of a table that are too small."),
        ("delete_files", "files", "Delete files of a table."),
        ("manifests", "manifests", "Manifests of a table's current snapshot."),
        ("snapshots", "snapshots", "Snapshots of a table."),
    )
}
"""Attribute of `frazil.maintain.run.Figures` -> metric."""

_STEP = ("table", "step")
STEPS = _metric(
    "counter",
    "maintenance",
    "frazil.maintenance.steps",
    "steps",
    "Due steps of maintenance, by outcome: `done`, `gave_way` (another process changed the same files), `failed`.",
    *_STEP,
    "status",
)
STEP_SECONDS = _metric(
    "timing", "maintenance", "frazil.maintenance.step", "seconds", "Duration of a step of maintenance that ran.", *_STEP
)

STATE = _gauge("frazil.state", "0 or 1", "1 for the state that `frazil status` shows, 0 for all others.", "state")
LAG_RECORDS = _gauge("frazil.lag.records", "records", "Unread records.")
LAG_SECONDS = _gauge(
    "frazil.lag.seconds",
    "seconds",
    "Age of the oldest unread record, or of a capture's oldest waiting line; 0 without any.",
)
LAG_FILES = _gauge("frazil.lag.files", "files", "Files with lines that a capture did not send yet.")
LAG_BYTES = _gauge("frazil.lag.bytes", "bytes", "Bytes in these files that the capture did not send yet.")
HELD_BACK = _gauge("frazil.lag.held_back", "records", "Records behind open transactions.")
TOPIC_RECORDS = _gauge("frazil.topic.lag_records", "records", "Unread records of a topic.", "topic")
TOPIC_SECONDS = _gauge(
    "frazil.topic.lag_seconds", "seconds", "Age of the oldest unread record of a topic; 0 without any.", "topic"
)
FRESHNESS = _gauge(
    "frazil.freshness",
    "seconds",
    "Commit time less record time over the last day: `p50`, `p95`, `p99`.",
    "percentile",
)
COMMIT_AGE = _gauge("frazil.commit.age", "seconds", "Time since a batch last moved the position.")
COMPLETE_AGE = _gauge(
    "frazil.complete_through.age", "seconds", "Time since the instant through which the tables are complete."
)
RETENTION_LEFT = _gauge(
    "frazil.retention.left",
    "seconds",
    "Time until Kafka's retention may delete unread records of the most urgent partition, at least; 0 if it may have deleted some.",
    "topic",
)
RETENTION_HEADROOM = _gauge(
    "frazil.retention.headroom",
    "offsets",
    "Offsets from the log start to the position, in the most urgent partition; negative if so many were deleted unread.",
    "topic",
)
RETENTION_CUT = _gauge(
    "frazil.retention.cut_to", "seconds", "The shortest retention that still keeps all unread records.", "topic"
)
OPEN_LETTERS = _gauge("frazil.dead_letters.open", "records", "Dead letters that no batch landed.")
REFUSED = _gauge("frazil.refused", "0 or 1", "Whether a plan would refuse.")
UNREADABLE = _gauge("frazil.unreadable", "0 or 1", "Whether Kafka or the catalog can't be read now.")
UNFINISHED = _gauge("frazil.unfinished", "0 or 1", "Whether a decided batch is not finished.")
FAILURES = _gauge("frazil.failures", "runs", "Runs that failed since the last success.")
PAUSED = _gauge("frazil.paused", "0 or 1", "Whether the schedule is paused.")


AIRFLOW_PREFIX = "airflow"
"""Prefix that Airflow puts before each name, unless `[metrics] statsd_prefix` is set."""

CONDITION_TTL = "10m"
"""How long statsd_exporter shows a gauge of a condition after it was sent: five times the monitor's interval. An older value would
mislead."""

BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900, 3600)
"""Upper bounds of the buckets of histograms of timings, in seconds: from a commit to a run over a backlog."""


def statsd_mapping() -> dict[str, Any]:
    """The configuration of statsd_exporter, which turns StatsD's names into those of the dashboard, and timings into histograms."""
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


_COMMIT = ("decide", "forward")
"""Phases of a batch in which it commits."""


def run_samples(result: RunResult) -> Iterator[Sample]:
    """Samples of a run; none if it landed nothing."""
    if result.batches == 0:
        return
    sample = _Sampler({"pipeline": result.pipeline})
    yield sample(RUN_BATCHES, result.batches)
    for outcome in ("written", "dead", "filtered"):
        yield sample(RUN_RECORDS, getattr(result, outcome), outcome=outcome)
    for code, count in result.dead_codes.items():
        yield sample(RUN_DEAD_LETTERS, count, code=code)
    yield sample(RUN_UNKNOWN, result.unknown_fields.records)
    tables = {RUN_ROWS: result.rows, RUN_FILES: result.files, RUN_BYTES: result.bytes}
    for metric, counts in tables.items():
        for table, count in counts.items():
            yield sample(metric, count, table=table)
    yield sample(RUN_SECONDS, result.seconds)
    for phases in result.phases:
        for phase, seconds in phases.items():
            yield sample(BATCH_PHASE, seconds, phase=phase)
        yield sample(BATCH_COMMIT, sum(phases.get(phase, 0.0) for phase in _COMMIT))


def capture_samples(capture: Capture, result: CaptureResult) -> Iterator[Sample]:
    """Samples of a run of a capture; none if it sent nothing."""
    if result.records:
        yield _Sampler({"pipeline": capture.unique_name})(RUN_CAPTURED, result.records)


def maintenance_samples(result: MaintenanceResult) -> Iterator[Sample]:
    """Samples of maintenance: figures of the tables after it, and the steps that ran."""
    sample = _Sampler({"pipeline": result.pipeline})
    for table in result.tables:
        yield sample(TABLE_HEALTH, table.after.score, table=table.table)
        for name, metric in TABLE_FIGURES.items():
            yield sample(metric, getattr(table.after, name), table=table.table)
        for step in table.steps:
            if step.status in ("done", "gave_way", "failed"):
                yield sample(STEPS, 1, table=table.table, step=step.step, status=step.status)
                yield sample(STEP_SECONDS, step.seconds, table=table.table, step=step.step)


def condition_samples(condition: Condition, objective: float | None) -> Iterator[Sample]:
    """Samples of a condition, without unknown figures."""
    sample = _Sampler({"pipeline": condition.pipeline})
    present_state, _ = state_of(condition, objective)
    for state in STATES:
        yield sample(STATE, int(state == present_state), state=state)
    gauges = {
        LAG_RECORDS: None if condition.is_capture else condition.lag,
        LAG_FILES: condition.lag if condition.unit == "files" else None,
        LAG_BYTES: condition.lag_bytes,
        LAG_SECONDS: condition.lag_seconds,
        HELD_BACK: condition.held_back,
        COMMIT_AGE: _age(condition.read_at, condition.last_commit),
        COMPLETE_AGE: _age(condition.read_at, condition.complete_through),
        OPEN_LETTERS: condition.open_letters,
        REFUSED: int(condition.refusal is not None),
        UNREADABLE: int(condition.unreadable is not None),
        UNFINISHED: None if condition.is_capture else int(condition.unfinished is not None),
        FAILURES: condition.runs.failures,
        PAUSED: None if condition.runs.is_paused is None else int(condition.runs.is_paused),
    }
    yield from (sample(metric, value) for metric, value in gauges.items() if value is not None)
    for topic in condition.topics:
        yield from sample.if_known(TOPIC_RECORDS, topic.lag, topic=topic.topic)
        yield from sample.if_known(TOPIC_SECONDS, topic.lag_seconds, topic=topic.topic)
    for percentile in ("p50", "p95", "p99"):
        yield from sample.if_known(FRESHNESS, getattr(condition.freshness, percentile), percentile=percentile)
    yield from _retention(sample, condition.retention)
    for table, score in condition.health.items():
        yield sample(TABLE_HEALTH, score, table=table)


def _retention(sample: _Sampler, partitions: Iterable[Retention]) -> Iterator[Sample]:
    """Retention by topic: the figures of its most urgent partition, since a topic's setting holds for all partitions."""
    by_topic = attrgetter("topic")
    for topic, group in groupby(sorted(partitions, key=by_topic), by_topic):
        urgent = list(group)
        seconds_left = [partition.seconds_left for partition in urgent if partition.seconds_left is not None]
        cut = [partition.cut_to_seconds for partition in urgent if partition.cut_to_seconds is not None]
        yield from sample.if_known(RETENTION_LEFT, min(seconds_left, default=None), topic=topic)
        yield sample(RETENTION_HEADROOM, min(partition.headroom for partition in urgent), topic=topic)
        yield from sample.if_known(RETENTION_CUT, max(cut, default=None), topic=topic)


def _age(instant: datetime, earlier: datetime | None) -> float | None:
    return None if earlier is None else (instant - earlier).total_seconds()


class _Sampler:
    """Makes samples that share tags."""

    def __init__(self, shared: Mapping[str, str]) -> None:
        self._shared = shared

    def __call__(self, metric: Metric, value: float, **tags: str) -> Sample:
        """A sample with the tags in the metric's order."""
        tag_values = {**self._shared, **tags}
        return Sample(
            metric, value if isinstance(value, int) else round(value, 3), {tag: tag_values[tag] for tag in metric.tags}
        )

    def if_known(self, metric: Metric, value: float | None, **tags: str) -> Iterator[Sample]:
        """A sample, if the value is known."""
        if value is not None:
            yield self(metric, value, **tags)
