"""The plan of a run, and the position after each of its batches."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.batch.facts import ClusterFacts, Range, TopicFacts
from frazil.batch.plan import (
    PlannedTopic,
    RunPlan,
    advance,
    cut,
    plan_topics,
    reaches_high_watermarks,
    remaining,
    skip_vanished,
    skipped,
    start_position,
)
from frazil.batch.position import EARLIEST, LATEST, Position, TopicPosition, resolve
from frazil.errors import Terminal
from tests.unit.batch.kafka_facts import CLUSTER, assert_tiles, facts_of, plan_of, planned, position_at

limits = st.one_of(st.integers(1, 20), st.integers(1, 2_000_000))


@given(planned(), limits)
def test_batches_end_exactly_at_the_ends_of_the_plan(
    case: tuple[ClusterFacts, Position, RunPlan], max_records: int
) -> None:
    """All batches in order end exactly at the plan's ends, and the run then has nothing left."""
    facts, position, plan = case
    read: Counter[tuple[str, int, int]] = Counter()
    now = position
    for batch in cut(plan.ranges, max_records):
        read.update((r.topic, r.partition, offset) for r in batch for offset in range(r.start, r.end))
        now = advance(now, batch, plan)

    assert remaining(plan, now) == ()
    assert now.n == position.n + len(tuple(cut(plan.ranges, max_records)))
    for name, topic in facts.topics.items():
        for number, partition in enumerate(topic.partitions):
            next_offset = position.next_offset(name, number)
            begin = partition.log_start if next_offset is None else next_offset
            end = max(begin, partition.stable_end)
            assert sorted(o for t, p, o in read if (t, p) == (name, number)) == list(range(begin, end))
            if plan.ranges:
                assert now.next_offset(name, number) == end
    assert set(read.values()) <= {1}


@given(planned(), st.integers(1, 40), st.integers(1, 40))
def test_interrupted_run_reads_what_an_uninterrupted_one_reads(
    case: tuple[ClusterFacts, Position, RunPlan], first: int, second: int
) -> None:
    """A run that is taken up in the middle, with another limit, reads the rest and nothing twice."""
    _, position, plan = case
    done = tuple(cut(plan.ranges, first))[:2]
    for batch in done:
        position = advance(position, batch, plan)

    pieces = (
        *(r for batch in done for r in batch),
        *(r for batch in cut(remaining(plan, position), second) for r in batch),
    )

    assert_tiles(tuple(sorted(pieces, key=lambda r: (r.topic, r.partition, r.start))), plan.ranges)


@given(planned())
def test_plan_json_survives_the_way_to_the_ingest_task(case: tuple[ClusterFacts, Position, RunPlan]) -> None:
    """The plan arrives as it was sent, so its ends stay fixed."""
    plan = case[2]

    assert RunPlan.from_json(plan.to_json()) == plan


PLAN = RunPlan("p", "r", "t", CLUSTER, {"orders": PlannedTopic("id-1", (0,), (5,))}, complete=True)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        '"v"',
        "{",
        '{"v":1}',
        PLAN.to_json().replace('"v":2', '"v":1'),
        PLAN.to_json().replace("[5]", "[5,6]"),
        PLAN.to_json().replace("[5]", '["5"]'),
        PLAN.to_json().replace("[5]", "[-5]"),
        PLAN.to_json().replace("[5]", "[null]"),
        PLAN.to_json().replace('"complete"', '"incomplete"'),
    ],
)
def test_invalid_plan_is_refused(text: str) -> None:
    """Anything else than a whole plan of this version is refused before a table is touched."""
    with pytest.raises(Terminal, match="plan"):
        RunPlan.from_json(text)


def test_lost_head_of_new_partitions_is_recorded_once() -> None:
    """Partition 4 has records while 2 and 3 are empty: all three get an entry; what is gone of them is told once."""
    position = position_at(10, 20)
    facts = facts_of((0, 10, 10), (0, 20, 20), (0, 0, 0), (5, 5, 5), (7, 9, 9))
    plan = plan_of(position, facts)

    (batch,) = cut(plan.ranges, 100)
    after = advance(position, batch, plan)

    assert batch == (Range("orders", 4, 7, 9),)
    assert after.topics["orders"].start == (10, 20, 0, 5, 7)
    assert after.topics["orders"].next == (10, 20, 0, 5, 9)
    assert skipped(plan, position) == (Range("orders", 3, 0, 5), Range("orders", 4, 0, 7))
    assert skipped(plan, after) == ()


def test_new_partition_outside_the_first_batch_stands_at_log_start() -> None:
    """It stands at its log start: the batch told what is gone of it."""
    position = position_at(0)
    plan = plan_of(position, facts_of((0, 1000, 1000), (7, 8, 8)))
    first, *_ = cut(plan.ranges, 10)

    after = advance(position, first, plan)

    assert after.next_offset("orders", 1) == 7
    assert Range("orders", 1, 7, 8) in remaining(plan, after)


def test_run_overtaken_by_another_reads_only_what_is_left() -> None:
    """A run whose ends a rival has passed has nothing left; one that is half done reads the other half."""
    plan = plan_of(position_at(0, 0), facts_of((0, 10, 10), (0, 10, 10)))

    assert remaining(plan, position_at(10, 12)) == ()
    assert remaining(plan, position_at(4, 10)) == (Range("orders", 0, 4, 10),)


def test_range_that_does_not_begin_at_the_position_is_refused() -> None:
    """A batch cut for another position would leave a gap or repeat records."""
    plan = plan_of(position_at(0), facts_of((0, 10, 10)))

    with pytest.raises(Terminal, match=r"orders, partition 0: the position is 3, the range begins at 0"):
        advance(position_at(3), (Range("orders", 0, 0, 10),), plan)


def test_missing_topic_or_partition_keeps_its_entry() -> None:
    """A topic that the plan does not name, and partitions beyond the plan's, keep their entries."""
    position = Position(
        1, 0, CLUSTER, {"orders": TopicPosition("id-1", (0, 0), (5, 6)), "gone": TopicPosition("g", (1,), (2,))}
    )
    plan = replace(PLAN, topics={"orders": PlannedTopic("id-1", (5,), (9,))})

    after = advance(position, (Range("orders", 0, 5, 9),), plan)

    assert after.topics["orders"] == TopicPosition("id-1", (5, 6), (9, 6))
    assert after.topics["gone"] == TopicPosition("g", (2,), (2,))


def test_topic_id_that_appears_later_is_kept() -> None:
    """A broker that begins to tell topic ids is believed from then on, so that a recreated topic is noticed."""
    position = position_at(0, topic_id=None)
    plan = plan_of(position, facts_of((0, 5, 5)))

    after = advance(position, plan.ranges, plan)

    assert after.topics["orders"].id == "id-1"


def test_start_is_resolved_once_at_the_right_end() -> None:
    """`earliest` is the log start, `latest` the stable end: records of an open transaction still come."""
    facts = facts_of((3, 8, 9), (0, 0, 0))
    earliest = start_position(facts, resolve(EARLIEST, facts, {}))
    latest = start_position(facts, resolve(LATEST, facts, {}))

    assert earliest == Position(0, 0, CLUSTER, {"orders": TopicPosition("id-1", (3, 0), (3, 0))})
    assert latest == Position(0, 0, CLUSTER, {"orders": TopicPosition("id-1", (8, 0), (8, 0))})


def test_start_offsets_must_name_every_partition() -> None:
    """Offsets in the pipeline file name every partition, or the first run is refused with what they lack."""
    facts = facts_of((3, 8, 9), (0, 0, 0), (0, 4, 4))

    with pytest.raises(
        Terminal, match=r"no offset for topic orders, partition 0, topic orders, partition 2 \[FRZ-106\]\n"
    ) as error:
        start_position(facts, {("orders", 1): 0})

    assert "start.offsets" in str(error.value.next_step)


def test_open_transaction_is_not_complete() -> None:
    """Below the high watermark the table can't hold everything that Kafka accepted."""

    def complete(facts: ClusterFacts, ends: dict[tuple[str, int], int] | None = None) -> bool:
        position = position_at(*[0] * len(facts.topics["orders"].partitions))
        return reaches_high_watermarks(plan_topics(position, facts, ends), facts)

    whole = facts_of((0, 9, 9), (0, 7, 7))
    assert complete(whole)
    assert not complete(facts_of((0, 9, 9), (0, 8, 9)))
    assert not complete(whole, {("orders", 0): 9, ("orders", 1): 6})
    assert complete(whole, {("orders", 0): 9, ("orders", 1): 7})


def test_position_between_stable_end_and_high_watermark_is_accepted() -> None:
    """The stable end may lie behind the position for a while: nothing new, and no error."""
    position = position_at(9)

    assert plan_topics(position, facts_of((0, 7, 12)))["orders"] == PlannedTopic("id-1", (9,), (9,))


def test_new_topic_is_read_from_its_log_start() -> None:
    """What is gone of it is skipped on record, or refused before; see `check_position`."""
    facts = facts_of((0, 9, 9))
    with_both = replace(
        facts, topics={**facts.topics, "new": TopicFacts("id-2", facts_of((4, 6, 6)).topics["orders"].partitions)}
    )

    assert plan_topics(position_at(9), with_both)["new"] == PlannedTopic("id-2", (4,), (6,))


def test_skipped_records_are_recorded_once() -> None:
    """Where retention passed the position the plan begins behind the hole, and the first batch tells all of it once."""
    position = position_at(3, 5)
    plan = plan_of(position, facts_of((7, 9, 9), (5, 6, 6)))

    assert plan.ranges == (Range("orders", 0, 7, 9), Range("orders", 1, 5, 6))
    assert skipped(plan, position) == (Range("orders", 0, 3, 7),)
    after = advance(position, (Range("orders", 1, 5, 6),), plan)
    assert after.topics["orders"] == TopicPosition("id-1", (7, 5), (7, 6), end=(9, 6))
    assert skipped(plan, after) == ()
    assert remaining(plan, after) == (Range("orders", 0, 7, 9),)


def test_lost_records_without_new_ones_are_skipped_once() -> None:
    """Nothing to read, something to give up: a batch without ranges moves the position behind it, and is the last."""
    position = position_at(3)
    plan = plan_of(position, facts_of((7, 7, 7)))
    assert plan.ranges == ()
    assert skipped(plan, position) == (Range("orders", 0, 3, 7),)
    assert skipped(plan, position_at(6)) == (Range("orders", 0, 6, 7),)

    after = advance(position, (), plan)

    assert (after.n, after.next_offset("orders", 0)) == (5, 7)
    assert skipped(plan, after) == ()


def test_records_of_a_vanished_topic_are_given_up_once() -> None:
    """What is known to be lost with a topic is given up to its known end; a topic that was read is left alone."""
    unread = TopicPosition("g", (0, 0, 0), (5, 9, 2), end=(8, 9, 4))
    position = Position(4, 0, CLUSTER, {"gone": unread, "read": TopicPosition("r", (0,), (7,))})
    plan = replace(PLAN, topics=skip_vanished(position, ["gone", "read"]))
    assert plan.topics == {"gone": PlannedTopic("g", (8, 9, 4), (8, 9, 4))}
    assert skipped(plan, position) == (Range("gone", 0, 5, 8), Range("gone", 2, 2, 4))

    after = advance(position, (), plan)

    assert after.topics["gone"] == TopicPosition("g", (8, 9, 4), (8, 9, 4))
    assert skip_vanished(after, ["gone", "read"]) == {}


def test_older_plan_leaves_the_end_of_a_newer_one() -> None:
    """A run with nearer ends that lands a batch in between must not hide that more was there: the topic may vanish."""
    facts = facts_of((0, 30, 30), (0, 4, 4))
    newer, older = plan_of(position_at(0, 0), facts), plan_of(position_at(0, 0), facts_of((0, 12, 12)))

    middle = advance(position_at(0, 0), (Range("orders", 0, 0, 5), Range("orders", 1, 0, 4)), newer)
    after = advance(middle, (Range("orders", 0, 5, 12),), older)

    assert after.topics["orders"] == TopicPosition("id-1", (5, 4), (12, 4), end=(30, 4))
    assert advance(after, (Range("orders", 0, 12, 30),), newer).topics["orders"].end == ()


@given(planned(), st.integers(0, 80))
def test_interval_begins_at_the_position(case: tuple[ClusterFacts, Position, RunPlan], until: int) -> None:
    """A run of an interval begins at the position whatever its end is, and reads up to that end, or nothing."""
    facts, position, whole = case
    keys = [(name, n) for name, topic in facts.topics.items() for n in range(len(topic.partitions))]

    part = replace(whole, topics=plan_topics(position, facts, dict.fromkeys(keys[1:], until)))

    read = {(r.topic, r.partition): r for r in part.ranges}
    for r in whole.ranges:
        expected = min(r.end, until if (r.topic, r.partition) in keys[1:] else 0)
        assert read.get((r.topic, r.partition)) == (replace(r, end=expected) if expected > r.start else None)
    assert read.keys() <= {(r.topic, r.partition) for r in whole.ranges}
