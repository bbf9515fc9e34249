"""How long records wait, and when retention takes them, from timestamps, offsets and the topic's configuration."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from frazil.batch.facts import PartitionFacts
from frazil.kafka.admin.topics import TopicRetention
from frazil.monitor.condition import Condition, Retention, TopicLag
from frazil.monitor.reading import with_ages
from frazil.report.lag import Lag, PartitionLag

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
HOUR = TopicRetention(3_600_000, by_size=False)


def ms(seconds_ago: float) -> int:
    return int((NOW.timestamp() - seconds_ago) * 1000)


def partition(number: int, position: int | None, log: tuple[int, int, int], topic: str = "orders") -> PartitionLag:
    return PartitionLag(topic, number, position, PartitionFacts(*log), None)


def lag(*partitions: PartitionLag) -> Lag:
    return Lag(7, 1, None, None, None, partitions, ())


def condition(through: float | None = None, n: int | None = 7) -> Condition:
    instant = None if through is None else NOW - timedelta(seconds=through)
    return Condition("orders", "shop", NOW, n=n, complete_through=instant)


def test_producer_clock_does_not_make_a_pipeline_late() -> None:
    """Records wait no longer than since the last instant through which all was in, and none waits since the future."""
    behind = lag(partition(0, 5, (0, 9, 9)))

    assert with_ages(condition(60), behind, {("orders", 0): ms(1e8)}, {}).lag_seconds == 60
    assert with_ages(condition(60), behind, {("orders", 0): ms(20)}, {}).lag_seconds == 20
    assert with_ages(condition(60), behind, {("orders", 0): ms(-20)}, {}).lag_seconds == 0
    assert with_ages(condition(60), behind, {("orders", 0): None}, {}).lag_seconds == 60
    assert with_ages(condition(None), behind, {("orders", 0): None}, {}).lag_seconds is None


def test_each_topic_has_its_own_lag() -> None:
    """Each topic has its own lag; the pipeline's is that of the oldest record."""
    behind = lag(partition(0, 5, (0, 9, 9)), partition(0, 1, (0, 3, 3), "b"), partition(0, 4, (0, 4, 4), "c"))
    condition_read = with_ages(condition(), behind, {("orders", 0): ms(20), ("b", 0): ms(50)}, {})

    assert condition_read.topics == (TopicLag("orders", 4, 20), TopicLag("b", 2, 50), TopicLag("c", 0, 0))
    assert (condition_read.lag_seconds, condition_read.complete_through) == (50, NOW - timedelta(seconds=50))


def test_open_transaction_is_not_complete() -> None:
    """Nobody knows since when records are held back: the instant is not moved beyond what a batch said."""
    open_lag = lag(partition(0, 5, (0, 9, 12)))

    assert with_ages(condition(600), open_lag, {("orders", 0): ms(20)}, {}).complete_through == NOW - timedelta(
        seconds=600
    )


def test_transaction_markers_do_not_count_as_waiting_records() -> None:
    """Offsets without a record, as those of transaction markers, wait for nobody."""
    assert with_ages(condition(600), lag(partition(0, 5, (0, 9, 9))), {}, {}).lag_seconds == 0


def test_most_urgent_partition_comes_first() -> None:
    """Lost records come first, then the least time; topics that keep all, or whose configuration is hidden, come last."""
    behind = lag(
        partition(0, 5, (0, 9, 9)),
        partition(1, 5, (4, 9, 9)),
        partition(2, 5, (8, 9, 9)),
        partition(0, 5, (0, 9, 9), "kept"),
        partition(0, 5, (0, 9, 9), "hidden"),
    )
    times = {
        ("orders", 0): ms(600),
        ("orders", 1): ms(3000),
        ("orders", 2): ms(10),
        ("kept", 0): ms(9),
        ("hidden", 0): ms(8),
    }
    retentions = {"orders": HOUR, "kept": TopicRetention(None, by_size=True)}

    assert with_ages(condition(), behind, times, retentions).retention == (
        Retention("orders", 2, -3, 0.0, 10.0),
        Retention("orders", 1, 1, 600.0, 3000.0),
        Retention("orders", 0, 5, 3000.0, 600.0),
        Retention("hidden", 0, 5, None, 8.0),
        Retention("kept", 0, 5, None, 9.0, by_size=True),
    )


def test_pipeline_that_never_ran_is_not_complete() -> None:
    """Before the first run nothing is in, however young what waits is."""
    condition_read = with_ages(
        condition(n=None), lag(PartitionLag("orders", 0, None, PartitionFacts(0, 9, 9), None, "new")), {}, {}
    )

    assert condition_read.complete_through is None
