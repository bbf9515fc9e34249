"""How far behind a partition is, when position and log fit and when they don't."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from frazil.batch.facts import ClusterFacts, PartitionFacts, TopicFacts
from frazil.batch.position import Position, TopicPosition
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.report.lag import Lag, PartitionLag, partition_lags

PIPELINE = Pipeline.model_validate(
    {
        "name": "orders",
        "source": {"topics": ["orders"]},
        "destinations": [{"table": "shop.orders", "columns": {"id": "long"}}],
    }
)


def position(next_offsets: tuple[int, ...], topic_id: str | None = "a", topic: str = "orders") -> Position:
    return Position(3, 0, "cluster", {topic: TopicPosition(topic_id, next_offsets, next_offsets)})


def facts(*partitions: PartitionFacts, topic_id: str | None = "a", cluster: str = "cluster") -> ClusterFacts:
    return ClusterFacts(cluster, {"orders": TopicFacts(topic_id, partitions)} if partitions else {})


def rows(
    position_now: Position | None, facts_now: ClusterFacts, mirrored: Mapping[tuple[str, int], int] | None = None
) -> list[PartitionLag]:
    return list(partition_lags(position_now, facts_now, PIPELINE, mirrored or {}))


def numbers(row: PartitionLag) -> tuple[int | None, ...]:
    return row.lag, row.held_back, row.headroom


def test_open_transactions_do_not_count_as_lag() -> None:
    """What nobody can read yet is told apart from what the pipeline did not read."""
    (row,) = rows(position((7,)), facts(PartitionFacts(5, 10, 14)), {("orders", 0): 6})

    assert row == PartitionLag("orders", 0, 7, PartitionFacts(5, 10, 14), 6)
    assert numbers(row) == (3, 4, 2)
    assert not row.is_caught_up


def test_position_beyond_the_stable_end_is_no_lag() -> None:
    """No lag is zero; and only without held-back records is everything landed."""
    (reached,) = rows(position((10,)), facts(PartitionFacts(0, 10, 10)))
    (row,) = rows(position((10,)), facts(PartitionFacts(0, 9, 12)))

    assert numbers(reached) == (0, 0, 10)
    assert reached.is_caught_up
    assert numbers(row) == (0, 3, 10)
    assert not row.is_caught_up


def test_records_deleted_before_they_were_read_have_negative_headroom() -> None:
    """Headroom below zero says how many are lost."""
    (row,) = rows(position((7,)), facts(PartitionFacts(9, 12, 12)))

    assert row.headroom == -2


def test_lag_before_the_first_run_is_unknown() -> None:
    """The pipeline may begin at the end: without a position nothing is said but where the log is."""
    (row,) = rows(None, facts(PartitionFacts(2, 10, 11)))

    assert numbers(row) == (None, 1, None)
    assert row.position is None
    assert row.state == ""


def test_new_partition_counts_from_its_beginning() -> None:
    """A partition that the position doesn't know will be read from its beginning."""
    first, new = rows(position((7,)), facts(PartitionFacts(0, 7, 7), PartitionFacts(3, 10, 10)))

    assert first.state == ""
    assert new.state == "new"
    assert numbers(new) == (7, 0, 0)


@pytest.mark.parametrize(
    ("facts_now", "state"),
    [
        (facts(PartitionFacts(0, 99, 99), topic_id="b"), "recreated"),
        (facts(PartitionFacts(0, 99, 99), cluster="other"), "other cluster"),
        (facts(), "vanished"),
    ],
)
def test_offsets_of_another_topic_have_no_lag(facts_now: ClusterFacts, state: str) -> None:
    """Offsets that don't belong together give no lag, and the reason is there."""
    (row,) = rows(position((7,)), facts_now)

    assert row.state == state
    assert (row.lag, row.headroom) == (None, None)
    assert not row.is_caught_up


def test_brokers_without_topic_ids_do_not_look_recreated() -> None:
    """An id that one side doesn't have is no other id."""
    for topic_id, new_topic_id in ((None, "a"), ("a", None), (None, None)):
        (row,) = rows(position((7,), topic_id), facts(PartitionFacts(0, 9, 9), topic_id=new_topic_id))
        assert (row.state, row.lag) == ("", 2)


def test_topics_that_the_pipeline_dropped_are_left_out() -> None:
    """A topic that the file doesn't name any more is nobody's lag."""
    assert rows(position((7,), topic="left"), facts()) == []


def test_totals_are_of_known_figures() -> None:
    """Totals are of what is known; headroom is the least where there is something to lose."""
    partitions = (
        PartitionLag("t", 0, 5, PartitionFacts(0, 9, 10), None),
        PartitionLag("t", 1, 0, PartitionFacts(0, 0, 0), None),
        PartitionLag("t", 2, 8, PartitionFacts(7, 9, 9), None),
        PartitionLag("gone", 0, 8, None, None, "vanished"),
    )
    whole = Lag(3, 1, None, None, None, partitions, ())
    nothing = Lag(None, None, None, None, None, partitions[3:], ())

    assert (whole.total, whole.held_back, whole.headroom) == (5, 1, 1)
    assert (nothing.total, nothing.held_back, nothing.headroom) == (None, None, None)
