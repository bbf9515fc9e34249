"""After a rollback of the closing table the position goes back as far as rows or letters are missing, no less."""

from __future__ import annotations

from dataclasses import replace

from frazil.batch.audit import check_position
from frazil.batch.changes import RemovedRange, moved_back_ranges
from frazil.batch.facts import ClusterFacts, Range
from frazil.batch.position import LostTail, Position, TopicPosition
from frazil.batch.reset import Abandoned, limit_to_log, rewound_position
from tests.unit.batch.kafka_facts import CLUSTER, facts_of, position_at

HOLDS = Position(2, 0, CLUSTER, {"orders": TopicPosition("id-1", (5, 3), (10, 9))})
"""What the table says after it was rolled back to batch 2."""


def at(n: int, begin: tuple[int, ...], following: tuple[int, ...], since: int = 0) -> Position:
    return Position(n, 0, CLUSTER, {"orders": TopicPosition("id-1", begin, following, since)})


def rewind(*abandoned: Abandoned, holds: Position = HOLDS) -> TopicPosition:
    position = rewound_position(holds, abandoned, n=9, epoch=4)
    assert (position.n, position.epoch, position.cluster) == (9, 4, CLUSTER)
    return position.topics["orders"]


def test_rows_kept_by_a_rollback_are_not_read_again() -> None:
    """Batches that only added leave the position where the table says, with what they had read known as unread."""
    rewound = rewind(Abandoned(at(3, (10, 9), (12, 9)), ()), Abandoned(at(4, (12, 9), (15, 9)), ()))

    assert rewound == TopicPosition("id-1", (10, 9), (10, 9), end=(15, 9))


def test_dead_letters_of_an_abandoned_replay_are_read_again() -> None:
    """The rows it replaced are back, the letters are not: all from its start on goes and comes again."""
    ranges = (Range("orders", 0, 4, 6), Range("orders", 1, 20, 30))

    rewound = rewind(Abandoned(at(3, (10, 9), (10, 9)), ranges))

    assert rewound.next == (4, 9)
    after = Position(9, 4, CLUSTER, {"orders": rewound})
    assert moved_back_ranges(HOLDS, after) == (RemovedRange("orders", 0, 4, None, 0),)


def test_dead_letters_of_an_abandoned_reset_are_read_again() -> None:
    """A move back took the letters beyond it, also if a later batch had read past it again."""
    back = Abandoned(at(3, (2, 9), (2, 9)), ())
    forward = Abandoned(at(4, (2, 9), (12, 9)), ())

    assert rewind(back, forward).next == (2, 9)
    assert rewind(Abandoned(at(3, (50, 9), (50, 9)), ())).next == (10, 9)
    assert rewind(Abandoned(at(3, (10, 9), (50, 9)), ()), back) == TopicPosition("id-1", (2, 9), (2, 9), end=(50, 9))


def test_other_incarnation_of_a_topic_leaves_this_one() -> None:
    """Offsets of a topic that was recreated after the rollback's target mean other records."""
    recreated = Abandoned(at(3, (0, 0), (0, 0), since=3), ())
    replayed = Abandoned(at(4, (0, 0), (7, 7), since=3), (Range("orders", 0, 1, 2),))

    assert rewind(recreated, replayed) == TopicPosition("id-1", (10, 9), (10, 9))


def test_move_to_another_cluster_is_undone_whole() -> None:
    """A move to another cluster that was rolled back is undone as a whole."""
    elsewhere = replace(at(3, (0, 0), (0, 0)), cluster="other")
    new = replace(elsewhere, topics={**elsewhere.topics, "pizzas": TopicPosition("id-9", (1,), (2,))})

    assert rewound_position(HOLDS, [Abandoned(new, ())], 9, 4).topics == {
        "orders": TopicPosition("id-1", (10, 9), (10, 9))
    }


def test_topic_known_to_abandoned_batches_only_is_read_again() -> None:
    """Its rows are rolled back, so all that they knew of it comes again."""
    grown = at(3, (10, 9, 2), (10, 9, 6))
    recreated = replace(grown, topics={**grown.topics, "pizzas": TopicPosition("id-2", (3,), (8,))})
    later = replace(recreated, n=4, topics={**grown.topics, "pizzas": TopicPosition("id-2", (8,), (9,))})

    after = rewound_position(HOLDS, [Abandoned(recreated, ()), Abandoned(later, ())], 9, 4)

    assert after.topics["orders"] == TopicPosition("id-1", (10, 9, 2), (10, 9, 2), end=(10, 9, 6))
    assert after.topics["pizzas"] == TopicPosition("id-2", (3,), (3,), end=(9,))
    assert moved_back_ranges(HOLDS, after) == ()
    check_position(after, facts_of((0, 12, 12), (0, 12, 12), (0, 12, 12)), "p", "fail")


def test_topic_that_vanishes_after_a_rollback_keeps_its_planned_end() -> None:
    """Where the run in the middle of which the table was rolled back wanted to get is still known."""
    holds = replace(HOLDS, topics={"orders": TopicPosition("id-1", (5, 3), (10, 9), end=(99, 9))})

    assert rewind(holds=holds) == TopicPosition("id-1", (10, 9), (10, 9), end=(99, 9))


def test_rewind_keeps_rows_that_kafka_no_longer_has() -> None:
    """A rewind behind an abandoned replay goes back to the log start at most: rows before it can't come again."""
    holds = position_at(50, 50, 50, 50)
    rewound_to = replace(holds, topics={"orders": TopicPosition("id-1", (10, 10, 60, 10), (10, 10, 60, 10))})
    facts = facts_of((30, 90, 90), (0, 90, 90), (70, 90, 90), (80, 90, 90))

    reachable = limit_to_log(rewound_to, [holds], facts)

    assert reachable.topics["orders"].next == (30, 10, 60, 50)
    assert limit_to_log(rewound_to, [holds], facts_of((0, 9, 9), topic_id="id-2")).topics["orders"].next == (
        50,
        50,
        60,
        50,
    )
    assert limit_to_log(rewound_to, [holds], replace(facts, topics={})).topics["orders"].next == (50, 50, 60, 50)


def test_followers_drop_only_offsets_that_kafka_still_has() -> None:
    """A plain rollback to 10: Kafka begins at 15, so offsets from 10 on stay. Beyond 20 nothing was landed to stay."""
    landed = Abandoned(at(3, (10, 9), (20, 20)), ())
    rewound_to = rewound_position(HOLDS, [landed], 9, 4)

    reachable = limit_to_log(rewound_to, [HOLDS, landed.position], facts_of((15, 90, 90), (30, 90, 90)))

    assert reachable.topics["orders"].next == (15, 20)


def test_rewind_over_a_compacted_topic_keeps_the_epoch_of_the_agreed_batch() -> None:
    """The epoch of the agreed batch may have ended before there, by clean elections: a log that lost nothing."""
    holds, landed = with_epochs(at(2, (0, 0), (500, 500)), 3, 3), with_epochs(at(3, (500, 500), (1000, 500)), 5, 5)
    rewound_to = rewound_position(holds, [Abandoned(landed, ())], 9, 4)

    reachable = limit_to_log(rewound_to, [holds, landed], ClusterFacts(CLUSTER, {}))

    positions = reachable.topics["orders"]
    assert (positions.next, positions.leader_epochs) == ((1000, 500), (5, 3))


def test_rewind_keeps_truncations_noted_after_the_agreed_batch() -> None:
    """The reset that noted it is abandoned; rows of a merged table that the lost records left are not."""
    before, after = LostTail(0, 40, 2), LostTail(0, 50, 4)
    agreed = with_lost_tails(at(3, (10, 9), (60, 9)), before)
    cut = Abandoned(with_lost_tails(at(4, (50, 9), (50, 9)), before, after), ())
    recreated = Abandoned(with_lost_tails(at(5, (0, 0), (0, 0), since=5), LostTail(1, 0, 6)), ())

    assert rewind(cut, recreated, holds=agreed).lost_tails == (before, after)


def with_lost_tails(position: Position, *lost: LostTail) -> Position:
    return replace(position, topics={"orders": replace(position.topics["orders"], lost_tails=lost)})


def with_epochs(position: Position, *epochs: int) -> Position:
    return replace(position, topics={"orders": replace(position.topics["orders"], leader_epochs=epochs)})
