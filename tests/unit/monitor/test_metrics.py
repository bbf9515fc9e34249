"""The catalogue of metrics, and the values that a run, maintenance and a condition give them."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from frazil.monitor import metrics
from frazil.monitor.condition import STATES, Condition, Freshness, state_of
from frazil.monitor.metrics import (
    CATALOGUE,
    Metric,
    Sample,
    capture_samples,
    condition_samples,
    maintenance_samples,
    run_samples,
)
from tests.unit.monitor.measured import CAPTURE, CAPTURED, CONDITION, MAINTENANCE, NOW, PROMISE, RUN, WAITING_FILES

each_metric = pytest.mark.parametrize("metric", CATALOGUE, ids=lambda metric: metric.name)

SAMPLES = {
    "run": [*run_samples(RUN), *capture_samples(CAPTURE, CAPTURED)],
    "maintenance": maintenance_samples(MAINTENANCE),
    "condition": [*condition_samples(CONDITION, PROMISE), *condition_samples(WAITING_FILES, PROMISE)],
}
ALL_SAMPLES = [(source, sample) for source, samples in SAMPLES.items() for sample in samples]


def values(samples: list[Sample], metric: Metric) -> dict[tuple[str, ...], float]:
    """Values of a metric by those of its tags, the pipeline left out."""
    return {tuple(sample.tags.values())[1:]: sample.value for sample in samples if sample.metric is metric}


@each_metric
def test_every_metric_of_the_catalogue_is_sent(metric: Metric):
    """A documented name that nothing sends is a panel without data, and is sent when the catalogue says."""
    assert metric.source in {source for source, sample in ALL_SAMPLES if sample.metric is metric}


def test_every_value_sent_is_in_the_catalogue():
    """It would be in no documentation and on no dashboard."""
    assert {sample.metric.name for _, sample in ALL_SAMPLES} <= {metric.name for metric in CATALOGUE}


def test_tags_are_those_of_the_catalogue():
    """Where tags can't be carried their values end the name: in another order it would be another metric."""
    assert [sample for _, sample in ALL_SAMPLES if tuple(sample.tags) != sample.metric.tags] == []


def test_metric_names_are_unique():
    """Neither as they are sent, nor as Prometheus knows them; and every name is one that StatsD and OpenTelemetry take."""
    assert len({metric.name for metric in CATALOGUE}) == len(CATALOGUE)
    assert len({metric.prometheus for metric in CATALOGUE}) == len(CATALOGUE)
    assert [metric.name for metric in CATALOGUE if not re.fullmatch(r"frazil(\.[a-z][a-z_]*)+", metric.name)] == []
    assert [metric for metric in CATALOGUE if metric.tags[0] != "pipeline"] == []


def test_unit_is_named_once_in_prometheus():
    """Its names end with the unit, once; counters with `_total`."""
    names = (metrics.RUN_BYTES, metrics.BATCH_COMMIT, metrics.LAG_SECONDS, metrics.LAG_RECORDS, metrics.RETENTION_LEFT)

    assert [metric.prometheus for metric in names] == [
        "frazil_run_bytes_total",
        "frazil_batch_commit_seconds",
        "frazil_lag_seconds",
        "frazil_lag_records",
        "frazil_retention_left_seconds",
    ]


def test_records_are_counted_once():
    """Outcomes add up to what was read; dead letters are told by code, rows by table."""
    samples = list(run_samples(RUN))

    assert values(samples, metrics.RUN_RECORDS) == {("written",): 9, ("dead",): 2, ("filtered",): 1}
    assert sum(values(samples, metrics.RUN_RECORDS).values()) == RUN.read
    assert values(samples, metrics.RUN_DEAD_LETTERS) == {("INVALID_JSON",): 2}
    assert values(samples, metrics.RUN_ROWS) == {("shop.orders",): 9}


def test_phases_of_several_batches_are_separate_measurements():
    """Each batch is a measurement of its own: an average over a run hides the slow one."""
    samples = list(run_samples(RUN))

    assert [(sample.tags["phase"], sample.value) for sample in samples if sample.metric is metrics.BATCH_PHASE] == [
        *(("stage", 1.5), ("audit", 0.01), ("decide", 0.05), ("forward", 0.1)),
        *(("stage", 1.0), ("audit", 0.01), ("redo", 2.0), ("decide", 0.04), ("forward", 0.08)),
    ]
    assert [sample.value for sample in samples if sample.metric is metrics.BATCH_COMMIT] == [0.15, 0.12]


def test_run_that_landed_nothing_has_no_figures():
    """Rivals may land what it planned: its zeros say nothing, and its duration is none."""
    assert list(run_samples(replace(RUN, batches=0))) == []


def test_tables_are_measured_after_maintenance():
    """Figures are those after it; a step that was not due was not tried."""
    samples = list(maintenance_samples(MAINTENANCE))

    assert values(samples, metrics.TABLE_HEALTH) == {("shop.orders",): 98}
    assert values(samples, metrics.TABLE_FIGURES["files"]) == {("shop.orders",): 2}
    assert values(samples, metrics.STEPS) == {
        ("shop.orders", "compaction", "done"): 1,
        ("shop.orders", "expiry", "gave_way"): 1,
    }


def test_unknown_figures_are_not_sent():
    """A lag of 0 because Kafka could not be asked would end an alert."""
    samples = list(condition_samples(Condition("orders", "ana", NOW, unreadable="no broker answers"), PROMISE))

    assert [sample.tags["state"] for sample in samples if sample.metric is metrics.STATE and sample.value] == [
        "Degraded"
    ]
    assert {sample.metric.name: sample.value for sample in samples if sample.metric is not metrics.STATE} == {
        "frazil.refused": 0,
        "frazil.unreadable": 1,
        "frazil.unfinished": 0,
    }


def test_most_urgent_partition_speaks_for_its_topic():
    """The least time left and the least headroom count, and retention must suit the partition that needs most."""
    samples = list(condition_samples(CONDITION, PROMISE))

    assert values(samples, metrics.RETENTION_LEFT) == {("orders.eu",): -20.0}
    assert values(samples, metrics.RETENTION_HEADROOM) == {("orders.eu",): -4, ("orders.us",): 900}
    assert values(samples, metrics.RETENTION_CUT) == {("orders.eu",): 70.5, ("orders.us",): 15.0}
    assert values(samples, metrics.TOPIC_RECORDS) == {("orders.eu",): 600, ("orders.us",): 100}


def test_pipeline_has_exactly_one_state():
    """The one that page and terminal show is 1, all others are 0: an old word does not stay."""
    word, _ = state_of(CONDITION, PROMISE)

    assert values(list(condition_samples(CONDITION, PROMISE)), metrics.STATE) == {
        (state,): int(state == word) for state in STATES
    }


def test_capture_has_its_state_and_the_lag_of_its_files():
    """Under the names of a pipeline's figures, as far as a capture has any."""
    samples = list(condition_samples(WAITING_FILES, PROMISE))

    assert {sample.tags["pipeline"] for sample in samples} == {"capture.logs"}
    assert {sample.metric.name: sample.value for sample in samples if sample.metric is not metrics.STATE} == {
        "frazil.lag.files": 2,
        "frazil.lag.bytes": 40,
        "frazil.lag.seconds": 5.0,
        "frazil.refused": 0,
        "frazil.unreadable": 0,
    }
    assert list(capture_samples(CAPTURE, replace(CAPTURED, records=0))) == []


def test_ages_are_sent_as_durations():
    """A gauge of an instant is of no use without the clock of whoever reads it."""
    samples = list(condition_samples(replace(CONDITION, freshness=Freshness(p95=5.0)), PROMISE))

    assert values(samples, metrics.COMMIT_AGE) == {(): 90.0}
    assert values(samples, metrics.COMPLETE_AGE) == {(): 30.0}
    assert values(samples, metrics.FRESHNESS) == {("p95",): 5.0}
