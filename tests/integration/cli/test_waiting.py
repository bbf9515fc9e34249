"""What waits for a pipeline, on a real broker: seen early enough, and at which cost."""

from __future__ import annotations

from typing import Any

import pytest

from frazil.batch.plan import Threshold
from frazil.generators import payments
from frazil.kafka.admin.topics import create_topic
from frazil.kafka.client.cluster import Cluster
from frazil.project import Project
from frazil.report import lag
from frazil.report.lag import POSITION_SECONDS, LagWatch
from tests.produce import produce

Place = Any
"""A project of its own: `place.frazil(...)` runs the command in it. See conftest."""


def test_lag_checks_do_not_read_tables_each_time(
    place: Place, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The position is read at first, when enough seems to wait, and when it is old; what a run landed waits no more."""
    reads: list[str] = []
    read_position = lag.held_position
    monkeypatch.setattr(
        lag, "held_position", lambda *arguments: (reads.append(arguments[1].name), read_position(*arguments))[1]
    )
    project, seconds, enough = Project.load(place.environment), [0.0], Threshold(records=10)
    watch = LagWatch(project, project.pipeline("orders"), clock=lambda: seconds[0])
    create_topic(cluster, place.topic, 2)
    produce(cluster, place.topic, payments(50, seed=1))
    never = watch.measure(enough)
    place.json("run", "orders")
    seconds[0] += POSITION_SECONDS
    landed = watch.measure(enough)
    produce(cluster, place.topic, payments(7, seed=2))
    few = watch.measure(enough)
    few_reads = len(reads)
    produce(cluster, place.topic, payments(7, seed=3))
    more = watch.measure(enough)
    more_reads = len(reads)
    place.json("run", "orders")
    after = watch.measure(enough)

    assert (never.records, never.epoch, never.reaches(enough)) == (0, None, False)
    assert (landed.records, landed.epoch) == (0, 0)
    assert (few.records, few.reaches(enough), few_reads) == (7, False, 2)
    assert more.reaches(enough)
    assert more.bytes is not None
    assert 50 < more.bytes / more.records < 1_000
    assert more_reads == 3
    assert (after.records, len(reads)) == (0, 4)
