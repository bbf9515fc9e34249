"""A reset moves what it names, to where it says, and takes out exactly what comes again."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.batch.audit import check_position, check_vanished, partitions_beyond_log
from frazil.batch.changes import RemovedRange, moved_back_ranges, ranges_landed_after
from frazil.batch.facts import ClusterFacts, TopicFacts, TopicPartition
from frazil.batch.plan import plan_topics
from frazil.batch.position import EARLIEST, LATEST, LostTail, Position, TopicPosition, resolve
from frazil.batch.reset import Move, is_recreated, moves, reset_position
from frazil.errors import Terminal
from tests.unit.batch.kafka_facts import CLUSTER, cluster_facts, facts_of, position_at, positions_in

TWO = facts_of((2, 20, 20), (0, 20, 20))


def reset(before: Position, facts: ClusterFacts, **orders: int) -> Position:
    """Partitions of `orders`, named p0, p1, …, to these offsets, by batch 5 in epoch 1."""
    return reset_position(
        before, facts, {("orders", int(key[1:])): offset for key, offset in orders.items()}, n=5, epoch=1
    )


def test_reset_moves_number_and_epoch() -> None:
    """A run that was planned before the reset sees by the epoch that its plan is void."""
    after = reset(position_at(9, 9), TWO, p0=2)

    assert (after.n, after.epoch, after.cluster) == (5, 1, CLUSTER)


def test_position_notes_where_logs_were_cut() -> None:
    """A deeper cut has the rows of those before it; a recreated topic has none of them."""
    cut = reset(position_at(9, 9), TWO, p0=4).with_lost_tails({("orders", 0): 4, ("orders", 1): None})
    assert cut.topics["orders"].lost_tails == (LostTail(0, 4, 5), LostTail(1, 9, 5))

    again = reset_position(cut, TWO, {("orders", 0): 8}, 6, 2)
    assert again.topics["orders"].lost_tails == cut.topics["orders"].lost_tails
    assert again.with_lost_tails({("orders", 0): 8}).topics["orders"].lost_tails[:2] == (
        LostTail(0, 4, 5),
        LostTail(0, 8, 6),
    )
    assert again.with_lost_tails({("orders", 0): 3}).topics["orders"].lost_tails[0] == LostTail(0, 3, 6)
    recreated = replace(cut, topics={"orders": replace(cut.topics["orders"], id="old")})
    assert reset(recreated, TWO, p0=0, p1=0).topics["orders"].lost_tails == ()


def test_cut_at_an_unknown_offset_spares_rows_before_the_new_position() -> None:
    """Their records may still be in the log: a replay of older ones must not overwrite them. From there on records come again."""
    for offset in (21, 15):
        cut = reset(position_at(9, 100), TWO, p1=offset).with_lost_tails({("orders", 1): None})
        assert cut.topics["orders"].lost_tails == (LostTail(1, offset, 5),)


def test_log_ends_before_the_position_only_for_the_same_topic() -> None:
    """Another cluster, or a topic without an id: then it is another topic."""
    before, facts = position_at(9, 21), TWO
    assert partitions_beyond_log(before, facts) == [("orders", 1)]
    assert partitions_beyond_log(replace(before, cluster="other"), facts) == []
    assert partitions_beyond_log(position_at(9, 21, topic_id="old"), facts) == []
    assert partitions_beyond_log(position_at(9, 21, topic_id=None), facts) == []


def test_partial_reset_moves_named_partitions_only() -> None:
    """A partial file moves its partitions only; forward nothing goes, backward exactly what comes again."""
    before = position_at(9, 9)

    after = reset(before, TWO, p0=4)
    assert after.topics["orders"] == TopicPosition("id-1", (4, 9), (4, 9))
    assert moves(before, after) == (Move("orders", 0, 9, 4, recreated=False),)
    assert moved_back_ranges(before, after) == (RemovedRange("orders", 0, 4, None, 0),)
    assert moves(before, after)[0].distance == -5

    after = reset(before, TWO, p1=15)
    assert moves(before, after) == (Move("orders", 1, 9, 15, recreated=False),)
    assert moved_back_ranges(before, after) == ()
    assert moves(before, after)[0].distance == 6

    assert moves(before, reset(before, TWO, p0=9)) == ()


def test_recreated_topic_keeps_rows_of_the_old_one() -> None:
    """Its offsets mean other records: it begins a new incarnation, and no older row is in the removal."""
    before = position_at(9, 9, topic_id="old")

    after = reset(before, TWO, p0=2, p1=0)

    assert after.topics["orders"] == TopicPosition("id-1", (2, 0), (2, 0), since=5)
    assert [m.recreated for m in moves(before, after)] == [True, True]
    assert [m.distance for m in moves(before, after)] == [0, 0]
    assert moved_back_ranges(before, after) == ()
    assert moved_back_ranges(after, reset_position(after, TWO, {("orders", 1): 0}, 6, 2)) == ()


def test_next_reset_of_a_recreated_topic_keeps_rows_of_the_old_one() -> None:
    """A later move back removes what batches of the present incarnation landed, and leaves the older rows."""
    before = Position(8, 1, CLUSTER, {"orders": TopicPosition("id-1", (2, 0), (9, 9), since=5)})

    after = reset_position(before, TWO, {("orders", 1): 3}, 9, 2)

    assert after.topics["orders"].since == 5
    assert moved_back_ranges(before, after) == (RemovedRange("orders", 1, 3, None, 5),)


def test_recreated_topic_needs_an_offset_for_every_partition() -> None:
    """Old offsets mean nothing in a recreated topic, so each partition must be named."""
    with pytest.raises(Terminal, match=r"topic orders was recreated, and no offset is given for partition 1"):
        reset(position_at(9, 9, topic_id="old"), TWO, p0=2)


def test_reset_of_others_leaves_unread_partition_at_zero() -> None:
    """One that nobody has read yet begins at 0: what is gone of it is lost, and the next plan says so."""
    facts = facts_of((0, 20, 20), (7, 20, 20))

    after = reset(position_at(9), facts, p0=4)

    assert after.topics["orders"].next == (4, 0)
    with pytest.raises(Terminal, match=r"partition 1: records 0 to 6 were deleted"):
        check_position(after, facts, "p", "fail")


def test_partitions_that_vanished_are_dropped() -> None:
    """A topic with fewer partitions is another one, also where nobody tells ids."""
    before = position_at(9, 9, 9, topic_id=None)
    facts = facts_of((2, 20, 20), (0, 20, 20), topic_id=None)

    after = reset(before, facts, p0=2, p1=0)

    assert after.topics["orders"] == TopicPosition(None, (2, 0), (2, 0), since=5)
    check_position(after, facts, "p", "fail")


@pytest.mark.parametrize(
    ("position", "facts", "recreated"),
    [
        (None, facts_of((0, 5, 5)), False),
        (position_at(9), facts_of((0, 20, 20)), False),
        (position_at(9), facts_of((0, 5, 5)), False),
        (position_at(9, topic_id="old"), facts_of((0, 20, 20)), True),
        (position_at(9, topic_id=None), facts_of((0, 9, 9)), False),
        (position_at(9, topic_id=None), facts_of((0, 7, 9)), False),
        (position_at(9, topic_id=None), facts_of((0, 8, 8)), True),
        (position_at(9), facts_of((0, 8, 8), topic_id=None), True),
        (position_at(9), facts_of((0, 9, 9), (0, 0, 0), topic_id=None), False),
        (position_at(9, 9), facts_of((0, 9, 9), topic_id=None), True),
    ],
    ids=["unknown", "same", "lost records", "other id", "no id", "open", "short", "id lost", "grown", "shrunk"],
)
def test_recreation_is_noticed_by_id_or_by_short_log(
    position: Position | None, facts: ClusterFacts, recreated: bool
) -> None:
    """Ids decide where both sides have one; otherwise a log that is too short does."""
    assert is_recreated(position.topics["orders"] if position else None, facts.topics["orders"]) is recreated


BOTH_TOPICS = replace(
    TWO, topics={**TWO.topics, "pizzas": TopicFacts("id-3", facts_of((0, 6, 6)).topics["orders"].partitions)}
)


def test_new_topic_keeps_its_incarnation() -> None:
    """A topic that a reset names first has no older rows, so nothing sets it apart."""
    before = position_at(9, 9)

    after = reset_position(before, BOTH_TOPICS, {("pizzas", 0): 4}, 5, 1)

    assert after.topics["pizzas"] == TopicPosition("id-3", (4,), (4,))
    assert after.topics["orders"] == before.topics["orders"]
    assert moves(before, after) == (Move("pizzas", 0, None, 4, recreated=False),)
    assert moves(before, after)[0].distance == 0
    assert moved_back_ranges(before, after) == ()


ELSEWHERE = Position(
    4,
    0,
    "other",
    {
        "orders": TopicPosition("id-1", (9, 9), (9, 9)),
        "pizzas": TopicPosition(None, (3,), (3,)),
        "gone": TopicPosition(None, (7,), (7,), end=(9,)),
    },
)


def test_move_to_another_cluster_needs_offsets_for_every_topic() -> None:
    """Every topic of another cluster is another one: all are given offsets, or the move is refused."""
    orders = {("orders", 0): 2, ("orders", 1): 0}
    with pytest.raises(
        Terminal, match=r"belongs to Kafka cluster other, .* cluster cluster-a, and no offset is given for pizzas"
    ):
        reset_position(ELSEWHERE, BOTH_TOPICS, orders, 5, 1)
    with pytest.raises(Terminal, match=r"orders was recreated, and no offset is given for partition 1"):
        reset_position(ELSEWHERE, BOTH_TOPICS, {("orders", 0): 2, ("pizzas", 0): 6}, 5, 1)

    after = reset_position(ELSEWHERE, BOTH_TOPICS, orders | {("pizzas", 0): 6}, 5, 1)

    assert after.cluster == CLUSTER
    assert after.topics["orders"] == TopicPosition("id-1", (2, 0), (2, 0), since=5)
    assert after.topics["pizzas"] == TopicPosition("id-3", (6,), (6,), since=5)
    assert moved_back_ranges(ELSEWHERE, after) == ()
    check_position(after, BOTH_TOPICS, "p", "fail")


def test_topic_that_appears_in_another_cluster_is_read_whole() -> None:
    """What the old cluster had and the new one has not yet is unknown there: when it appears, all of it is read."""
    offsets = resolve(EARLIEST, BOTH_TOPICS, {})

    after = reset_position(ELSEWHERE, BOTH_TOPICS, offsets, 5, 1)
    later = replace(
        BOTH_TOPICS, topics={**BOTH_TOPICS.topics, "gone": TopicFacts(None, BOTH_TOPICS.topics["pizzas"].partitions)}
    )

    check_vanished(after, ["gone"], "fail")
    check_position(after, later, "p", "fail")
    assert plan_topics(after, later)["gone"].begin == (0,)
    assert after.topics["gone"].since == 5
    assert Position.from_json(after.to_json()) == after


@given(cluster_facts(), st.data(), st.sampled_from([EARLIEST, LATEST]))
def test_position_after_any_reset_fits_the_broker(facts: ClusterFacts, data: st.DataObject, target: object) -> None:
    """Whatever a healthy position is reset to, it fits the broker; the removal is what comes again, and no more."""
    before = data.draw(positions_in(facts))
    offsets: dict[TopicPartition, int] = {
        key: offset
        for key, offset in resolve(target, facts, {}).items()  # type: ignore[arg-type]
        if data.draw(st.booleans()) or key[0] not in before.topics
    }

    after = reset_position(before, facts, offsets, before.n + 1, before.epoch + 1)

    heads = [(name, n) for name, of in facts.topics.items() for n, p in enumerate(of.partitions) if p.log_start]
    is_lost = any(before.next_offset(*key) is None and key not in offsets for key in heads)
    check_position(after, facts, "p", "skip_recorded" if is_lost else "fail")
    back = {(r.topic, r.partition): r.start for r in moved_back_ranges(before, after)}
    for name, topic in after.topics.items():
        for number, offset in enumerate(topic.next):
            was = before.next_offset(name, number)
            assert offset == offsets.get((name, number), offset if was is None else was)
            assert back.get((name, number)) == (offset if was is not None and offset < was else None)
    assert {(m.topic, m.partition) for m in moves(before, after)} >= back.keys()


def test_removal_after_a_rollback_covers_all_partitions_of_its_topics() -> None:
    """Letters of abandoned batches go from all partitions of their topics, those of the last kept one stay."""
    assert ranges_landed_after({"b": 1, "a": 2}, 7) == (
        RemovedRange("a", None, 0, None, 8),
        RemovedRange("b", None, 0, None, 8),
    )
