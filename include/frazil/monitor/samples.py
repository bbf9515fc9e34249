"""Values of metrics: from a run that ended, from maintenance, and from a pipeline's condition. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from frazil.monitor import metrics
from frazil.monitor.metrics import Metric, Sample
from frazil.monitor.state import STATES, state_of

if TYPE_CHECKING:
    from frazil.capture.run import CaptureResult
    from frazil.maintain.result import Figures, MaintenanceResult
    from frazil.monitor.condition import Condition, Retention
    from frazil.pipeline.settings.capture import Capture
    from frazil.run.batches.result import RunResult

_COMMIT = ("decide", "forward")
"""Phases of a batch that its commits are in."""


def run_samples(result: RunResult) -> Iterator[Sample]:
    """What a run did. Nothing if it landed nothing."""
    if result.batches == 0:
        return
    sample = _Sampler({"pipeline": result.pipeline})
    yield sample(metrics.RUN_BATCHES, result.batches)
    for outcome in ("written", "dead", "filtered"):
        yield sample(metrics.RUN_RECORDS, getattr(result, outcome), outcome=outcome)
    for code, count in result.dead_codes.items():
        yield sample(metrics.RUN_DEAD_LETTERS, count, code=code)
    yield sample(metrics.RUN_UNKNOWN, result.unknown_fields.records)
    tables = {metrics.RUN_ROWS: result.rows, metrics.RUN_FILES: result.files, metrics.RUN_BYTES: result.bytes}
    for metric, counts in tables.items():
        for table, count in counts.items():
            yield sample(metric, count, table=table)
    yield sample(metrics.RUN_SECONDS, result.seconds)
    for phases in result.phases:
        for phase, seconds in phases.items():
            yield sample(metrics.BATCH_PHASE, seconds, phase=phase)
        yield sample(metrics.BATCH_COMMIT, sum(phases.get(phase, 0.0) for phase in _COMMIT))


def capture_samples(capture: Capture, result: CaptureResult) -> Iterator[Sample]:
    """What a run of a capture did. Nothing if it sent nothing."""
    if result.records:
        yield _Sampler({"pipeline": capture.unique_name})(metrics.RUN_CAPTURED, result.records)


def maintenance_samples(result: MaintenanceResult) -> Iterator[Sample]:
    """Metrics of a pipeline's tables after maintenance: their health, and the steps that ran."""
    sample = _Sampler({"pipeline": result.pipeline})
    for table in result.tables:
        yield from _figures(sample, table.table, table.after)
        for step in table.steps:
            if step.status in ("done", "gave_way", "failed"):
                yield sample(metrics.STEPS, 1, table=table.table, step=step.step, status=step.status)
                yield sample(metrics.STEP_SECONDS, step.seconds, table=table.table, step=step.step)


def _figures(sample: _Sampler, table: str, figures: Figures) -> Iterator[Sample]:
    yield sample(metrics.TABLE_HEALTH, figures.score, table=table)
    for name, metric in metrics.TABLE_FIGURES.items():
        yield sample(metric, getattr(figures, name), table=table)


def condition_samples(condition: Condition, promise: float | None) -> Iterator[Sample]:
    """Metrics of a condition. Unknown figures are omitted: an old value would look current."""
    sample = _Sampler({"pipeline": condition.pipeline})
    word, _ = state_of(condition, promise)
    for state in STATES:
        yield sample(metrics.STATE, int(state == word), state=state)
    gauges = {
        metrics.LAG_RECORDS: None if condition.is_capture else condition.lag,
        metrics.LAG_FILES: condition.lag if condition.unit == "files" else None,
        metrics.LAG_BYTES: condition.lag_bytes,
        metrics.LAG_SECONDS: condition.lag_seconds,
        metrics.HELD_BACK: condition.held_back,
        metrics.COMMIT_AGE: _age(condition.read_at, condition.last_commit),
        metrics.COMPLETE_AGE: _age(condition.read_at, condition.complete_through),
        metrics.OPEN_LETTERS: condition.open_letters,
        metrics.REFUSED: int(condition.refusal is not None),
        metrics.UNREADABLE: int(condition.unreadable is not None),
        metrics.UNFINISHED: None if condition.is_capture else int(condition.unfinished is not None),
        metrics.FAILURES: condition.runs.failures,
        metrics.PAUSED: None if condition.runs.is_paused is None else int(condition.runs.is_paused),
    }
    yield from (sample(metric, value) for metric, value in gauges.items() if value is not None)
    for topic in condition.topics:
        yield from sample.if_known(metrics.TOPIC_RECORDS, topic.lag, topic=topic.topic)
        yield from sample.if_known(metrics.TOPIC_SECONDS, topic.lag_seconds, topic=topic.topic)
    for percentile in ("p50", "p95", "p99"):
        yield from sample.if_known(metrics.FRESHNESS, getattr(condition.freshness, percentile), percentile=percentile)
    yield from _retention(sample, condition.retention)
    for table, score in condition.health.items():
        yield sample(metrics.TABLE_HEALTH, score, table=table)


def _retention(sample: _Sampler, partitions: Iterable[Retention]) -> Iterator[Sample]:
    """Per topic what holds of its most urgent partition; a retention must suit all of them."""
    by_topic = attrgetter("topic")
    for topic, group in groupby(sorted(partitions, key=by_topic), by_topic):
        urgent = list(group)
        seconds_left = [partition.seconds_left for partition in urgent if partition.seconds_left is not None]
        cut = [partition.cut_to_seconds for partition in urgent if partition.cut_to_seconds is not None]
        yield from sample.if_known(metrics.RETENTION_LEFT, min(seconds_left, default=None), topic=topic)
        yield sample(metrics.RETENTION_HEADROOM, min(partition.headroom for partition in urgent), topic=topic)
        yield from sample.if_known(metrics.RETENTION_CUT, max(cut, default=None), topic=topic)


def _age(instant: datetime, earlier: datetime | None) -> float | None:
    return None if earlier is None else (instant - earlier).total_seconds()


class _Sampler:
    """Makes samples that share tags."""

    def __init__(self, shared: Mapping[str, str]) -> None:
        self._shared = shared

    def __call__(self, metric: Metric, value: float, **tags: str) -> Sample:
        """A value; the tags in the metric's order."""
        tag_values = {**self._shared, **tags}
        return Sample(
            metric, value if isinstance(value, int) else round(value, 3), {tag: tag_values[tag] for tag in metric.tags}
        )

    def if_known(self, metric: Metric, value: float | None, **tags: str) -> Iterator[Sample]:
        """A value, if it is known."""
        if value is not None:
            yield self(metric, value, **tags)
