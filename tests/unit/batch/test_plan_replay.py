"""The plan of a replay: only what was landed and still is in Kafka is read again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.batch.changes import RemovedRange, replayed_ranges
from frazil.batch.facts import ClusterFacts, Range
from frazil.batch.plan import PlannedTopic, RunPlan, replay_topics
from frazil.batch.position import Position, TopicPosition
from frazil.errors import Terminal
from tests.unit.batch.kafka_facts import CLUSTER, cluster_facts, facts_of, position_at, positions_in

TWO = facts_of((0, 20, 20), (0, 20, 20))


def ranges(topics: dict[str, PlannedTopic]) -> tuple[Range, ...]:
    return RunPlan("p", "r", "t", CLUSTER, topics, complete=False, mode="replay").ranges


@given(cluster_facts(), st.data())
def test_replay_reads_only_landed_offsets(facts: ClusterFacts, data: st.DataObject) -> None:
    """What is read lies between both bounds, below the position and inside the log, to the last such offset."""
    position = data.draw(positions_in(facts))
    keys = [(name, n) for name, topic in facts.topics.items() for n in range(len(topic.partitions))]
    starts = {key: data.draw(st.integers(0, 80)) for key in keys if data.draw(st.booleans())}
    ends = {key: data.draw(st.integers(0, 80)) for key in keys if data.draw(st.booleans())}
    targets = {
        (name, n): range(starts[name, n], min(ends[name, n], position.next_offset(name, n) or 0))
        for name, n in keys
        if (name, n) in starts and (name, n) in ends
    }
    below_start = {
        key
        for key, bounds in targets.items()
        if bounds and bounds[0] < facts.topics[key[0]].partitions[key[1]].log_start
    }

    if below_start:
        with pytest.raises(Terminal) as error:
            replay_topics(position, facts, starts, ends, "p")
        assert error.value.message.count("\n") == len(below_start)
        assert all(
            f"topic {name}, partition {n}: {targets[name, n][0]} to" in error.value.message for name, n in below_start
        )
    else:
        ranges_read = ranges(replay_topics(position, facts, starts, ends, "p"))
        assert {(r.topic, r.partition): range(r.start, r.end) for r in ranges_read} == {
            k: bounds for k, bounds in targets.items() if bounds
        }


def test_replay_names_the_offsets_that_the_log_lost() -> None:
    """Rows that can't be landed again must stay: what is gone is told to its last offset, with a way to go on."""
    facts = facts_of((7, 20, 20), (0, 20, 20))

    with pytest.raises(
        Terminal, match=r"these offsets are gone \[FRZ-405\]\n  topic orders, partition 0: 3 to 6\n"
    ) as error:
        replay_topics(position_at(10, 10), facts, {("orders", 0): 3}, {("orders", 0): 10}, "p")
    assert str(error.value.next_step).endswith("frazil replay p --from earliest …")

    with pytest.raises(Terminal, match=r"partition 0: 3 to 4\n"):
        replay_topics(position_at(10, 10), facts, {("orders", 0): 3}, {("orders", 0): 5}, "p")


def test_replay_reads_only_named_partitions() -> None:
    """A partition without a start, without an end, or without either rests; so does one that was never read."""
    facts = facts_of((0, 20, 20), (0, 20, 20), (0, 20, 20), (0, 20, 20))
    starts, ends = {("orders", 0): 2, ("orders", 1): 2, ("orders", 3): 2}, {("orders", 0): 4, ("orders", 2): 4}
    ends |= {("orders", 3): 4}

    assert ranges(replay_topics(position_at(9, 9, 9), facts, starts, ends, "p")) == (Range("orders", 0, 2, 4),)


def test_replay_leaves_out_topics_that_were_never_read() -> None:
    """A topic that the position does not know, and one that the broker does not have any more, rest."""
    position = Position(4, 0, CLUSTER, {"gone": TopicPosition("g", (0,), (9,))})
    starts, ends = {("orders", 0): 0, ("gone", 0): 0}, {("orders", 0): 9, ("gone", 0): 9}

    assert replay_topics(position, TWO, starts, ends, "p") == {}


def test_replay_with_start_beyond_its_end_reads_nothing() -> None:
    """A replay from beyond its end has nothing to do."""
    assert (
        ranges(replay_topics(position_at(9), facts_of((0, 20, 20)), {("orders", 0): 6}, {("orders", 0): 3}, "p")) == ()
    )


def test_replay_keeps_rows_of_an_older_incarnation() -> None:
    """Only rows that batches of the present incarnation landed are replaced, in exactly the ranges that are read."""
    position = Position(9, 1, CLUSTER, {"orders": TopicPosition("id-2", (0, 0), (9, 9), since=6)})

    assert replayed_ranges((Range("orders", 1, 3, 5),), position) == (RemovedRange("orders", 1, 3, 5, 6),)
