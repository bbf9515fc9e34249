"""`frazil lag` as a user sees it: on a real broker, in a project of its own."""

from __future__ import annotations

from typing import Any

import pytest

from frazil.errors import Retryable
from frazil.generators import payments
from frazil.kafka.admin.consumer_group import mirror_offsets
from frazil.kafka.admin.topics import create_topic
from frazil.kafka.client.cluster import Cluster
from frazil.project import Project
from frazil.report import lag as report
from frazil.report.lag import Lag
from tests.produce import produce
from tests.servers import delete_topic
from tests.transactions import transaction

Place = Any
"""A project of its own: `place.frazil(...)` runs the command in it. See conftest."""


def lag(place: Place) -> Lag:
    """What the command shows, without a process of its own."""
    project = Project.load(place.environment)
    return report.lag(project, project.pipeline("orders"))


def rows(backlog: Lag) -> list[tuple[int, int | None, int | None, str]]:
    return [(p.partition, p.position, p.lag, p.state) for p in backlog.partitions]


def test_lag_command_does_not_start_pipeline(place: Place, cluster: Cluster) -> None:
    """Before the first run there is no position, and looking makes no table."""
    missing = lag(place)
    create_topic(cluster, place.topic, 2)
    before = lag(place)
    shown = place.succeed("lag", "orders").stdout

    assert (missing.partitions, missing.absent) == ((), (place.topic,))
    assert rows(before) == [(0, None, None, ""), (1, None, None, "")]
    assert (before.n, before.total, before.complete_through) == (None, None, None)
    assert "none yet" in shown
    assert "never ran" in shown
    assert Project.load(place.environment).lake("lake").tables() == []


def test_lag_follows_table_position(place: Place, cluster: Cluster) -> None:
    """The position is the table's, whatever the consumer group says; what nobody can read yet is told apart."""
    create_topic(cluster, place.topic, 1)
    produce(cluster, place.topic, payments(50, seed=1))
    result = place.json("run", "orders")
    done = lag(place)
    mirror_offsets(cluster, "frazil-orders", {(place.topic, 0): 12})
    produce(cluster, place.topic, payments(7, seed=2))
    with transaction(cluster, place.topic, [b"{}"] * 3, commit=False):
        behind = place.json("lag", "orders")
        shown = place.succeed("lag", "orders").stdout

    assert (done.n, done.total, done.held_back) == (1, 0, 0)
    assert done.snapshot_id in result["snapshots"]
    (partition,) = behind["partitions"]
    assert partition == {
        "topic": place.topic,
        "partition": 0,
        "position": 50,
        "log_start": 0,
        "stable_end": 57,
        "high_watermark": 60,
        "lag": 7,
        "held_back": 3,
        "headroom": 50,
        "mirrored": 12,
        "state": "",
    }
    # Now it is only known through the plan of the last batch, before through the moment of the question.
    assert done.complete_through is not None
    assert done.complete_through > behind["complete_through"]
    assert f"complete through {behind['complete_through']}" in shown


def test_recreated_and_vanished_topics_are_reported(place: Place, cluster: Cluster) -> None:
    """Offsets of another topic of that name say nothing, and the reason is on the page."""
    create_topic(cluster, place.topic, 1)
    produce(cluster, place.topic, payments(50, seed=1))
    place.succeed("run", "orders")
    delete_topic(cluster, place.topic)
    vanished = lag(place)
    output = place.succeed("lag", "orders").stdout
    create_topic(cluster, place.topic, 1)
    recreated = lag(place)

    assert rows(vanished) == [(0, 50, None, "vanished")]
    assert f"not in Kafka any more: {place.topic}" in output
    assert rows(recreated) == [(0, 50, None, "recreated")]
    assert (vanished.total, recreated.total) == (None, None)


@pytest.mark.parametrize("width", [80, 120])
def test_lag_keeps_each_partition_on_one_line(landed: Place, width: int) -> None:
    """Every partition is one line that fits the page; no number is cut."""
    backlog = lag(landed)
    shown = landed.succeed("lag", "orders", COLUMNS=str(width)).stdout.splitlines()

    lines = [line.split() for line in shown if line.strip()[:1].isdigit()]
    numbers = [[int(word.replace(",", "")) for word in line[:2]] for line in lines]
    assert [(number, position) for number, position in numbers] == [
        (p.partition, p.position) for p in backlog.partitions
    ]
    assert max(len(line.rstrip()) for line in shown if not line.startswith("orders")) <= width


def test_lag_without_broker_is_retryable_error(lonely_place: Place) -> None:
    """Nobody there is an error that may be tried again, not an empty report."""
    ended = lonely_place.frazil("lag", "orders")

    assert ended.returncode == Retryable.exit_code
    assert "frazil up --only kafka" in ended.stderr
