"""What is read of a pipeline that works, waits, refuses, or can't be reached."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from frazil.kafka.admin.topics import create_topic
from frazil.kafka.client.cluster import Cluster, OutgoingRecord
from frazil.monitor.condition import Condition
from frazil.monitor.reading import read
from frazil.project import SETTINGS_VARIABLE, Project
from tests.integration.conftest import Shop, environment
from tests.operations import LETTERS, Killed, drop
from tests.produce import produce
from tests.servers import delete_topic

AtFailpoint = Callable[..., Any]
MakeShop = Callable[..., Shop]


def inspect(shop: Shop, **options: Any) -> Condition:
    return read(shop.project, shop.pipeline, **options)


def send(shop: Shop, value: bytes, instant: datetime) -> None:
    produce(
        shop.cluster, shop.topic, [OutgoingRecord(key=None, value=value, timestamp_ms=int(instant.timestamp() * 1000))]
    )


def heads(shop: Shop) -> dict[str, str]:
    lake = shop.project.lake_of(shop.pipeline)
    return {name: lake.load_table(name).metadata_location for name in lake.tables()}


def test_pipeline_that_never_ran_is_not_started_by_status(shop: MakeShop) -> None:
    """A look makes no table, and says that there is nothing yet."""
    orders = shop()
    orders.produce_orders(range(3))

    condition = inspect(orders)

    assert (condition.n, condition.last_commit, condition.refusal, condition.unreadable) == (None, None, None, None)
    assert heads(orders) == {}


def test_idle_pipeline_is_not_stale(shop: MakeShop) -> None:
    """With everything in, the table is complete through the look itself, whenever the last commit was."""
    orders = shop()
    orders.produce_orders(range(3))
    orders.produce([b"no json"])
    orders.run()
    before = heads(orders)

    later = datetime.now(UTC) + timedelta(hours=5)
    condition = inspect(orders, clock=lambda: later)

    assert (condition.n, condition.lag, condition.lag_seconds, condition.held_back) == (1, 0, 0.0, 0)
    assert condition.complete_through is not None
    assert later - condition.complete_through < timedelta(milliseconds=1)
    assert condition.last_commit is not None
    assert condition.last_commit < later
    assert (condition.rows, condition.dead, condition.filtered, condition.dead_codes) == (3, 1, 0, {"INVALID_JSON": 1})
    assert heads(orders) == before


def test_first_record_after_quiet_hour_is_not_late(shop: MakeShop) -> None:
    """Its own timestamp says since when it waits, and everything before it is in."""
    orders = shop(partitions=1)
    orders.produce_orders(range(3))
    orders.run()
    later = datetime.now(UTC) + timedelta(minutes=50)
    send(orders, b'{"id": 4}', later - timedelta(seconds=40))

    condition = inspect(orders, clock=lambda: later)

    assert condition.lag == 1
    assert condition.lag_seconds == pytest.approx(40, abs=0.01)
    assert condition.complete_through == pytest.approx(later - timedelta(seconds=40), abs=timedelta(milliseconds=10))


def test_freshness_is_measured_from_record_timestamps(shop: MakeShop) -> None:
    """The ledger says how old records were at their commit: an hour and more, to 5 %; a ledger of old says nothing."""
    orders = shop(partitions=1)
    now = datetime.now(UTC)
    for _ in range(9):
        send(orders, b'{"id": 4}', now - timedelta(hours=1))
    send(orders, b'{"id": 4}', now - timedelta(hours=50))
    orders.run()

    freshness = inspect(orders).freshness

    assert freshness.p50 == pytest.approx(3600, rel=0.06)
    assert freshness.p99 == pytest.approx(50 * 3600, rel=0.06)


def test_replayed_history_is_not_years_late(shop: MakeShop) -> None:
    """Records of last year that were sent just now wait since the last complete batch at most."""
    orders = shop(partitions=1)
    orders.produce_orders(range(3))
    orders.run()
    run_at = datetime.now(UTC)
    send(orders, b'{"id": 4}', run_at - timedelta(days=400))

    condition = inspect(orders, clock=lambda: run_at + timedelta(seconds=30))

    assert condition.lag == 1
    assert condition.lag_seconds is not None
    assert 30 <= condition.lag_seconds < 60


def test_near_retention_is_reported(shop: MakeShop, cluster: Cluster) -> None:
    """The oldest unread record of each partition says how long retention spares it, and how far it may be cut."""
    orders = shop(partitions=1)
    topic = f"{orders.topic}-kept"
    create_topic(cluster, topic, 2, {"retention.ms": "3600000", "retention.bytes": "1000000"})
    orders = replace(orders, topic=topic).with_pipeline(_file(topic))
    orders.run()
    now = datetime.now(UTC)
    send(orders, b'{"id": 1}', now - timedelta(minutes=50))
    send(orders, b'{"id": 2}', now - timedelta(minutes=10))

    (retention,) = inspect(orders, clock=lambda: now).retention[:1]

    assert (retention.topic, retention.headroom, retention.by_size) == (topic, 0, True)
    assert retention.seconds_left is not None
    assert retention.cut_to_seconds is not None
    assert retention.seconds_left + retention.cut_to_seconds == pytest.approx(3600)


def _file(topic: str) -> str:
    return f"""
        name: orders
        source: {{topics: [{topic}]}}
        engine: inline
        destinations: [{{table: shop.orders, columns: {{id: long}}}}]
    """


def test_recreated_topic_is_reported_before_next_run(shop: MakeShop) -> None:
    """What a plan refuses is told beforehand, in its words, with the command that mends it."""
    orders = shop(partitions=1)
    orders.produce_orders(range(3))
    orders.run()
    delete_topic(orders.cluster, orders.topic)
    missing = inspect(orders)
    create_topic(orders.cluster, orders.topic, 1)

    condition = inspect(orders)

    assert missing.refusal is not None
    assert "has no topic" in missing.refusal
    assert condition.refusal is not None
    assert "was recreated" in condition.refusal
    assert "frazil reset orders" in condition.refusal
    assert condition.rows == 3


def test_lost_dead_letters_are_reported_before_next_run(shop: MakeShop) -> None:
    """A table that was dropped and recreated is reported with the commands that repair it."""
    orders = shop(partitions=1)
    orders.produce([b"no json"])
    orders.run()
    drop(orders, LETTERS)

    condition = inspect(orders)

    assert condition.refusal is not None
    assert "shop.orders__dead_letters is gone" in condition.refusal


@pytest.mark.embedded
def test_unreachable_broker_does_not_hide_table_status(shop: MakeShop, tmp_path: Path) -> None:
    """Kafka is away: that is said, and the ledger is read all the same."""
    orders = shop(partitions=1)
    orders.produce_orders(range(3))
    orders.run()
    settings = tmp_path / "settings.yaml"
    lake = {"uri": f"sqlite:///{orders.project.home.catalog}", "warehouse": f"file://{orders.project.home.warehouse}"}
    nobody = {"bootstrap_servers": "127.0.0.1:9"}
    settings.write_text(json.dumps({"clusters": {"local": nobody}, "catalogs": {"lake": lake}}))
    project = Project.load(environment(orders.project) | {SETTINGS_VARIABLE: str(settings)})

    condition = read(project, project.pipeline("orders"))

    assert condition.unreadable is not None
    assert "127.0.0.1:9" in condition.unreadable
    assert (condition.refusal, condition.n, condition.rows, condition.lag) == (None, 1, 3, None)


def test_decided_batch_is_reported_and_left_by_status(shop: MakeShop, at_failpoint: AtFailpoint) -> None:
    """A batch that a crash left is told with its number and since when; the look leaves it to the next run."""
    orders = shop(partitions=1)
    orders.produce_orders(range(3))
    orders.run()
    orders.produce_orders(range(3, 5))
    at_failpoint("decide.committed")
    with pytest.raises(Killed):
        orders.run()
    before = heads(orders)

    condition = inspect(orders)

    assert (condition.n, condition.unfinished, condition.refusal, condition.lag) == (2, 2, None, 0)
    assert condition.unfinished_since is not None
    assert heads(orders) == before
    orders.run()
    assert inspect(orders).unfinished is None
