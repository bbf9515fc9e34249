"""Metrics leave through Airflow's own Stats, to wherever Airflow sends its own: StatsD, Datadog or OpenTelemetry.

Where none is switched on this costs nothing. Plain StatsD drops tags, so there their values end the name, as in Airflow's
own names: `airflow.frazil.lag.records.orders`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import timedelta

from frazil.monitor.metrics import Sample
from frazil_airflow.compat import Stats, conf

_UNFIT = re.compile(r"[^a-zA-Z0-9_.-]")
"""What Airflow lets no name of a metric hold."""


def emit(samples: Iterable[Sample]) -> None:
    """Send values. Counters add up: those of a run are sent once per run."""
    tagged = carries_tags()
    for sample in samples:
        tags = {name: _UNFIT.sub("_", value) for name, value in sample.tags.items()}
        name = sample.metric.name if tagged else full_name(sample.metric.name, tags.values())
        match sample.metric.kind:
            case "counter":
                Stats.incr(name, int(sample.value), tags=tags)
            case "gauge":
                Stats.gauge(name, sample.value, tags=tags)
            case "timing":
                Stats.timing(name, timedelta(seconds=sample.value), tags=tags)


def are_sent() -> bool:
    """Return whether Airflow sends metrics anywhere: without, figures used only by metrics need not be read."""
    switches = ("statsd_on", "statsd_datadog_enabled", "otel_on")
    return any(conf.getboolean("metrics", switch, fallback=False) for switch in switches)


def carries_tags() -> bool:
    """Return whether tags reach the receiver: anywhere but in plain StatsD.

    In the order in which Airflow chooses where to send to (`get_stats_factory`): Datadog, StatsD, OpenTelemetry.
    """
    if conf.getboolean("metrics", "statsd_datadog_enabled", fallback=False):
        return bool(conf.getboolean("metrics", "statsd_datadog_metrics_tags", fallback=True))
    if conf.getboolean("metrics", "statsd_on", fallback=False):
        return bool(conf.getboolean("metrics", "statsd_influxdb_enabled", fallback=False))
    return True


def full_name(name: str, values: Iterable[str]) -> str:
    """Return a name that ends with the values of its tags. A dot parts names, so it is written `__` inside a value."""
    return ".".join([name, *(value.replace(".", "__") for value in values)])
