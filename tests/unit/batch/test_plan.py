"""A run and its batches: every offset once, whatever the ranges and the limits."""

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
    split,
    start_position,
)
from frazil.batch.position import Position, TopicPosition
from frazil.errors import Terminal
from tests.unit.batch.kafka_facts import (
    CLUSTER,
    disjoint_ranges,
    facts_of,
    plan_of,
    planned,
    position_at,
)

limits = st.one_of(st.integers(1, 20), st.integers(1, 2_000_000))


def follow(pieces: tuple[Range, ...]) -> dict[tuple[str, int], list[tuple[int, int]]]:
    """Start and end of every piece, by partition, in order."""
    found: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for piece in pieces:
        found.setdefault((piece.topic, piece.partition), []).append((piece.start, piece.end))
    return found


def assert_tiles(pieces: tuple[Range, ...], ranges: tuple[Range, ...]) -> None:
    """The pieces of each range follow each other without gap or overlap, and none is empty."""
    found = follow(pieces)
    assert found.keys() == {(r.topic, r.partition) for r in ranges if r.span}
    for r in ranges:
        if r.span:
            bounds = found[r.topic, r.partition]
            assert [r.start, *(end for _, end in bounds)] == [*(start for start, _ in bounds), r.end]
            assert all(start < end for start, end in bounds)


@given(disjoint_ranges(), st.integers(1, 2_000_000), st.integers(1, 64))
def test_split_loses_or_repeats_an_offset(ranges: tuple[Range, ...], records_per_task: int, tasks: int) -> None:
    """The pieces of a batch tile its ranges, and none is longer than a task may read."""
    longest = max(records_per_task, -(-sum(r.span for r in ranges) // 2000))  # keeps the examples small

    pieces = split(ranges, longest, tasks)

    assert_tiles(pieces, ranges)
    assert all(piece.span <= longest for piece in pieces)


@given(disjoint_ranges(), st.integers(1, 50))
def test_cut_loses_repeats_or_overfills(ranges: tuple[Range, ...], batches: int) -> None:
    """Batches tile the run; none is empty, none holds more than asked, and there are no more than needed."""
    total = sum(r.span for r in ranges)
    max_records = max(1, total // batches)

    found = tuple(cut(ranges, max_records))

    assert_tiles(tuple(piece for batch in found for piece in batch), ranges)
    assert all(0 < sum(r.span for r in batch) <= max_records for batch in found)
    assert len(found) == -(-total // max_records)
    assert all(Counter((r.topic, r.partition) for r in batch).most_common(1)[0][1] == 1 for batch in found)


def test_more_partitions_than_records_make_an_empty_batch() -> None:
    """Many short ranges under a small limit: an empty first batch would be committed again and again, forever."""
    ranges = tuple(Range("orders", partition, 7, 8) for partition in range(3))

    assert [len(batch) for batch in cut(ranges, 2)] == [2, 1]
    assert tuple(cut((), 5)) == ()


def test_one_partition_runs_ahead_of_the_others() -> None:
    """Partitions of a backlog advance in proportion, so that rows of one moment land in one batch."""
    batches = tuple(cut((Range("orders", 0, 0, 900), Range("orders", 1, 0, 90)), 99))

    assert [[r.span for r in batch] for batch in batches] == [[90, 9]] * 10


@given(planned(), limits)
def test_batches_end_before_or_beyond_the_plan(case: tuple[ClusterFacts, Position, RunPlan], max_records: int) -> None:
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
            known = position.next_offset(name, number)
            begin = partition.log_start if known is None else known
            end = max(begin, partition.stable_end)
            assert sorted(o for t, p, o in read if (t, p) == (name, number)) == list(range(begin, end))
            if plan.ranges:
                assert now.next_offset(name, number) == end
    assert set(read.values()) <= {1}


@given(planned(), st.integers(1, 40), st.integers(1, 40))
def test_interrupted_run_reads_differently_than_an_uninterrupted_one(
    case: tuple[ClusterFacts, Position, RunPlan], first: int, then: int
) -> None:
    """A run that is taken up in the middle, with another limit, reads the rest and nothing twice."""
    _, position, plan = case
    done = tuple(cut(plan.ranges, first))[:2]
    for batch in done:
        position = advance(position, batch, plan)

    pieces = (
        *(r for batch in done for r in batch),
        *(r for batch in cut(remaining(plan, position), then) for r in batch),
    )

    assert_tiles(tuple(sorted(pieces, key=lambda r: (r.topic, r.partition, r.start))), plan.ranges)


@given(planned())
def test_plan_json_changes_on_its_way_to_the_ingest_task(case: tuple[ClusterFacts, Position, RunPlan]) -> None:
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
        PLAN.to_json().replace('"v":1', '"v":2'),
        PLAN.to_json().replace("[5]", "[5,6]"),
        PLAN.to_json().replace("[5]", '["5"]'),
        PLAN.to_json().replace("[5]", "[-5]"),
        PLAN.to_json().replace("[5]", "[null]"),
        PLAN.to_json().replace('"complete"', '"incomplete"'),
    ],
)
def test_garbage_is_taken_for_a_plan(text: str) -> None:
    """Anything else than a whole plan of this version is refused before a table is touched."""
    with pytest.raises(Terminal, match="plan"):
        RunPlan.from_json(text)


def test_partitions_that_appeared_behind_a_hole_are_skipped() -> None:
    """Partition 4 has records while 2 and 3 are empty: all three begin at their log start and get an entry."""
    position = position_at(10, 20)
    facts = facts_of((0, 10, 10), (0, 20, 20), (0, 0, 0), (5, 5, 5), (7, 9, 9))
    plan = plan_of(position, facts)

    (batch,) = cut(plan.ranges, 100)
    after = advance(position, batch, plan)

    assert batch == (Range("orders", 4, 7, 9),)
    assert after.topics["orders"].start == (10, 20, 0, 5, 7)
    assert after.topics["orders"].next == (10, 20, 0, 5, 9)


def test_batch_that_skips_a_new_partition_loses_its_start() -> None:
    """A new partition that gets nothing of the first batch still stands at its log start, not at zero."""
    position = position_at(0)
    plan = plan_of(position, facts_of((0, 1000, 1000), (7, 8, 8)))
    first, *_ = cut(plan.ranges, 10)

    after = advance(position, first, plan)

    assert after.next_offset("orders", 1) == 7
    assert Range("orders", 1, 7, 8) in remaining(plan, after)


def test_rival_was_faster() -> None:
    """A run whose ends a rival has passed has nothing left; one that is half done reads the other half."""
    plan = plan_of(position_at(0, 0), facts_of((0, 10, 10), (0, 10, 10)))

    assert remaining(plan, position_at(10, 12)) == ()
    assert remaining(plan, position_at(4, 10)) == (Range("orders", 0, 4, 10),)


def test_range_that_does_not_begin_at_the_position_is_committed() -> None:
    """A batch cut for another position would leave a gap or repeat records."""
    plan = plan_of(position_at(0), facts_of((0, 10, 10)))

    with pytest.raises(Terminal, match=r"orders, partition 0: the position is 3, the range begins at 0"):
        advance(position_at(3), (Range("orders", 0, 0, 10),), plan)


def test_topic_or_partition_that_vanished_is_forgotten() -> None:
    """A topic that the plan does not name, and partitions beyond the plan's, keep their entries."""
    position = Position(
        1, 0, CLUSTER, {"orders": TopicPosition("id-1", (0, 0), (5, 6)), "gone": TopicPosition("g", (1,), (2,))}
    )
    plan = replace(PLAN, topics={"orders": PlannedTopic("id-1", (5,), (9,))})

    after = advance(position, (Range("orders", 0, 5, 9),), plan)

    assert after.topics["orders"] == TopicPosition("id-1", (5, 6), (9, 6))
    assert after.topics["gone"] == TopicPosition("g", (2,), (2,))


def test_topic_id_learnt_late_is_not_kept() -> None:
    """A broker that begins to tell topic ids is believed from then on, so that a recreated topic is noticed."""
    position = position_at(0, topic_id=None)
    plan = plan_of(position, facts_of((0, 5, 5)))

    after = advance(position, plan.ranges, plan)

    assert after.topics["orders"].id == "id-1"


def test_start_is_resolved_again_or_at_the_wrong_end() -> None:
    """`earliest` is the log start, `latest` the stable end: records of an open transaction still come."""
    facts = facts_of((3, 8, 9), (0, 0, 0))

    assert start_position(facts, "earliest").topics["orders"] == TopicPosition("id-1", (3, 0), (3, 0))
    assert start_position(facts, "latest").topics["orders"] == TopicPosition("id-1", (8, 0), (8, 0))
    assert start_position(facts, "latest").n == 0


def test_open_transaction_is_called_complete() -> None:
    """Below the high watermark the table can't hold everything that Kafka accepted."""
    assert reaches_high_watermarks(facts_of((0, 9, 9)))
    assert not reaches_high_watermarks(facts_of((0, 9, 9), (0, 8, 9)))


def test_position_between_stable_end_and_high_watermark_is_refused() -> None:
    """The stable end may lie behind the position for a while: nothing new, and no error."""
    position = position_at(9)

    assert plan_topics(position, facts_of((0, 7, 12)))["orders"] == PlannedTopic("id-1", (9,), (9,))


@pytest.mark.parametrize(
    ("position", "facts", "message"),
    [
        (position_at(5, cluster="other"), facts_of((0, 9, 9)), r"cluster other.*cluster cluster-a"),
        (position_at(5, topic_id="old"), facts_of((0, 9, 9)), r"orders was recreated.*old.*id-1"),
        (position_at(5, 5), facts_of((0, 9, 9), (7, 9, 9)), r"orders, partition 1: records 5 to 6 .*log start 7"),
        (
            position_at(5, 10),
            facts_of((0, 9, 9), (0, 9, 9)),
            r"orders, partition 1: the position is 10, the log ends at 9",
        ),
        (position_at(5, 5), facts_of((0, 9, 9)), r"orders has 1 partitions, the position knows 2"),
    ],
    ids=["another cluster", "recreated topic", "retention passed", "beyond the end", "fewer partitions"],
)
def test_position_that_does_not_fit_is_planned_from(position: Position, facts: ClusterFacts, message: str) -> None:
    """Lost or foreign offsets stop the pipeline, with their coordinates; there is no fallback."""
    with pytest.raises(Terminal, match=message):
        plan_topics(position, facts)


def test_exact_bounds_of_the_log_are_refused() -> None:
    """A position at the log start, or at the high watermark, has lost nothing."""
    assert plan_topics(position_at(7), facts_of((7, 9, 9)))["orders"] == PlannedTopic("id-1", (7,), (9,))
    assert plan_topics(position_at(9), facts_of((7, 9, 9)))["orders"] == PlannedTopic("id-1", (9,), (9,))


def test_topic_without_an_id_is_called_recreated() -> None:
    """Brokers without topic ids can't tell, so the other checks decide."""
    assert plan_topics(position_at(5, topic_id=None), facts_of((0, 9, 9)))
    assert plan_topics(position_at(5), facts_of((0, 9, 9), topic_id=None))


def test_topic_added_to_the_pipeline_begins_at_its_end() -> None:
    """A topic that the position does not know begins at its log start."""
    facts = facts_of((0, 9, 9))
    both = replace(
        facts, topics={**facts.topics, "new": TopicFacts("id-2", facts_of((4, 6, 6)).topics["orders"].partitions)}
    )

    assert plan_topics(position_at(9), both)["new"] == PlannedTopic("id-2", (4,), (6,))
