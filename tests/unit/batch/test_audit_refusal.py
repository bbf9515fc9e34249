"""Positions that don't belong to what the broker shows: each is refused, with its coordinates and the way out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from frazil.batch.audit import changed_leaders, check_position, check_truncations, check_vanished
from frazil.batch.facts import UNKNOWN_EPOCH, ClusterFacts, Range
from frazil.batch.plan import RunPlan, advance, plan_topics
from frazil.batch.position import EARLIEST, LATEST, Position, Target, TopicPosition, parse_offsets, resolve
from frazil.batch.reset import reset_position
from frazil.errors import Terminal
from tests.unit.batch.commands import ResetCommand, reset_command
from tests.unit.batch.kafka_facts import cluster_facts, facts_of, plan_of, position_at, positions_in

RETENTION = position_at(5, 5), facts_of((0, 9, 9), (7, 9, 9))
"""Partition 1 lost its records 5 and 6."""

CASES = {
    "another cluster": (
        position_at(5, cluster="other"),
        facts_of((0, 9, 9)),
        r"cluster other, .* cluster cluster-a",
        ResetCommand("pizzas", "FILE.json"),
    ),
    "recreated topic": (
        position_at(5, topic_id="old"),
        facts_of((0, 9, 9)),
        r"topic orders was recreated.* topic id old, the broker shows id-1",
        ResetCommand("pizzas", "earliest", "orders"),
    ),
    "fewer partitions": (
        position_at(5, 5),
        facts_of((0, 9, 9)),
        r"topic orders has 1 partitions, the position has 2: it was recreated",
        ResetCommand("pizzas", "earliest", "orders"),
    ),
    "retention passed": (
        *RETENTION,
        r"topic orders, partition 1: records 5 to 6 .*position 5, log start 7",
        ResetCommand("pizzas", "FILE.json", None, {"orders": {"1": 7}}),
    ),
    "beyond the end": (
        position_at(5, 10),
        facts_of((0, 9, 9), (0, 8, 9)),
        r"topic orders, partition 1: the position is 10, the log ends at 9",
        ResetCommand("pizzas", "FILE.json", None, {"orders": {"1": 8}}),
    ),
    "beyond the end, ids unknown": (
        position_at(5, 10, topic_id=None),
        facts_of((0, 9, 9), (0, 8, 9), topic_id=None),
        r"topic orders, partition 1: the position is 10, the log ends at 9",
        ResetCommand("pizzas", "earliest", "orders"),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_position_that_does_not_fit_is_refused_with_its_command(case: str) -> None:
    """Lost or foreign offsets stop the pipeline with their coordinates and the whole command; there is no fallback."""
    position, facts, message, command = CASES[case]

    with pytest.raises(Terminal, match=message) as error:
        check_position(position, facts, "pizzas", "fail")

    assert reset_command(error.value) == command


@pytest.mark.parametrize("case", [case for case in CASES if case != "retention passed"])
def test_permission_to_skip_lost_records_covers_no_other_fault(case: str) -> None:
    """`skip_recorded` is about retention: another cluster or topic is refused all the same."""
    position, facts, message, _ = CASES[case]

    with pytest.raises(Terminal, match=message):
        check_position(position, facts, "pizzas", "skip_recorded")


@pytest.mark.parametrize("case", [case for case in CASES if case != "another cluster"])
def test_command_in_a_refusal_resolves_it(case: str) -> None:
    """After exactly the reset that the refusal names, the position is accepted, and no other partition was moved."""
    position, facts, _, _ = CASES[case]
    with pytest.raises(Terminal) as error:
        check_position(position, facts, "pizzas", "fail")
    command = reset_command(error.value)
    targets = {"earliest": EARLIEST, "latest": LATEST}
    target = targets[command.to] if command.offsets is None else Target("offsets", offsets=file_of(command.offsets))
    offsets = {key: offset for key, offset in resolve(target, facts, {}).items() if command.topic in (None, key[0])}

    after = reset_position(position, facts, offsets, 5, 1)

    check_position(after, facts, "pizzas", "fail")
    if command.offsets is not None:
        assert after.next_offset("orders", 0) == 5
        assert after.topics["orders"].since == 0


LEADERS = {
    "same leader": (5, 2, (0, 9, 9, 2), False),
    "another leader": (5, 2, (0, 9, 9, 3), True),
    "another leader, shorter log": (12, 2, (0, 9, 9, 3), True),
    "an older leader, as of a restored cluster": (5, 2, (0, 9, 9, 1), True),
    "nothing unread": (9, 2, (0, 9, 9, 3), False),
    "nothing kept of what was read": (4, 2, (4, 9, 9, 3), False),
    "position of an older Frazil": (5, UNKNOWN_EPOCH, (0, 9, 9, 3), False),
    "broker without epochs": (5, 2, (0, 9, 9, UNKNOWN_EPOCH), False),
}
"""Next offset and leader epoch of a position, what the broker says, and whether the log must be asked."""


@pytest.mark.parametrize("case", LEADERS)
def test_log_is_checked_only_under_another_leader(case: str) -> None:
    """A log loses what was read of it only as another leader's; a log without news of it is not asked."""
    offset, epoch, log, is_asked = LEADERS[case]
    position, facts = position_with(offset, epochs=(epoch,)), facts_of(log)

    assert changed_leaders(position, facts) == ({("orders", 0): (offset, epoch)} if is_asked else {})
    assert changed_leaders(replace(position, cluster="other"), facts) == {}
    assert changed_leaders(position, facts_of(log, topic_id="another")) == {}


@pytest.mark.parametrize(
    ("end", "target_offset"), [(3, 3), (1, 2), (None, 2)], ids=["known", "below the log", "unknown epoch"]
)
def test_truncated_log_is_read_from_its_end_after_reset(end: int | None, target_offset: int) -> None:
    """The refusal names partition, offset and both epochs; after its reset nothing is asked, and the log is read from there."""
    position, facts = position_with(5, 6, epochs=(2, 2)), facts_of((0, 9, 9, 2), (2, 9, 9, 4))
    leaders = changed_leaders(position, facts)

    with pytest.raises(
        Terminal, match=r"topic orders, partition 1: .*position is 6 in leader epoch 2, .*leader epoch 4"
    ) as error:
        check_truncations(position, facts, dict.fromkeys(leaders, end), "pizzas")

    assert reset_command(error.value) == ResetCommand("pizzas", "FILE.json", None, {"orders": {"1": target_offset}})
    after = reset_position(position, facts, {("orders", 1): target_offset}, 5, 1)
    assert after.topics["orders"].leader_epochs == (2, 4)
    assert changed_leaders(after, facts) == {}
    assert plan_topics(after, facts)["orders"].begin == (5, target_offset)


def test_position_takes_the_epoch_of_read_partitions_only() -> None:
    """A partition that was not read keeps its own: nobody asked its log whether it still holds what is before it."""
    position = position_with(5, 6, epochs=(2, 2))
    plan = plan_of(position, facts_of((0, 9, 9, 3), (0, 9, 9, 3), (0, 0, 0, 3)))

    after = advance(position, (Range("orders", 0, 5, 7),), RunPlan.from_json(plan.to_json()))

    assert [after.topics["orders"].leader_epoch(number) for number in range(4)] == [3, 2, 3, UNKNOWN_EPOCH]


def test_position_keeps_a_later_epoch_than_the_plan_has() -> None:
    """A run that slept while a rival read on under the next leader; a broker that tells no epoch says nothing of the log."""
    position, read = position_with(5, 5, epochs=(4, 4)), (Range("orders", 0, 5, 9), Range("orders", 1, 5, 9))

    after = advance(position, read, plan_of(position, facts_of((0, 9, 9, 3), (0, 9, 9, UNKNOWN_EPOCH))))

    assert after.topics["orders"].leader_epochs == (4, UNKNOWN_EPOCH)


def position_with(*following: int, epochs: tuple[int, ...]) -> Position:
    position = position_at(*following)
    topics = {name: replace(topic, leader_epochs=epochs) for name, topic in position.topics.items()}
    return replace(position, topics=topics)


def file_of(offsets: dict[str, dict[str, int]]) -> dict[str, dict[int, int]]:
    return {topic: {int(number): offset for number, offset in of.items()} for topic, of in offsets.items()}


def test_refusal_for_retention_names_the_lasting_setting() -> None:
    """The lasting way out is a key of the pipeline file."""
    with pytest.raises(Terminal) as error:
        check_position(*RETENTION, "pizzas", "fail")

    assert "source.on_data_loss: skip_recorded" in str(error.value.next_step)
    check_position(*RETENTION, "pizzas", "skip_recorded")


@pytest.mark.parametrize("policy", ["fail", "skip_recorded"])
def test_exact_bounds_of_the_log_are_accepted(policy: str) -> None:
    """A position at the log start, or between stable end and high watermark, has lost nothing."""
    for number in (7, 8, 9):
        check_position(position_at(number), facts_of((7, 8, 9)), "pizzas", policy)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("topic_id", "shown"), [(None, "id-1"), ("id-1", None), (None, None)], ids=["then", "now", "never"]
)
def test_broker_without_topic_ids_is_checked_by_everything_else(topic_id: str | None, shown: str | None) -> None:
    """Without an id on either side a recreation can't be seen, but cluster, log start, log end and partitions are."""
    check_position(position_at(5, topic_id=topic_id), facts_of((0, 9, 9), topic_id=shown), "p", "fail")
    for position, facts, message, _ in CASES.values():
        if "topic id" in message:
            continue
        blind = replace(position, topics={n: replace(t, id=topic_id) for n, t in position.topics.items()})
        dumb = replace(facts, topics={n: replace(t, id=shown) for n, t in facts.topics.items()})
        with pytest.raises(Terminal, match=message):
            check_position(blind, dumb, "p", "fail")


@given(st.data(), cluster_facts())
def test_position_within_logs_is_refused_only_for_lost_heads_of_new_partitions(
    data: st.DataObject, facts: ClusterFacts
) -> None:
    """Whichever topics and partitions are new or gone: of a new one, records from 0 on are owed."""
    position = data.draw(positions_in(facts))

    if lost_heads(position, facts):
        with pytest.raises(Terminal, match=r"records 0 to .* were deleted by retention"):
            check_position(position, facts, "p", "fail")
        check_position(position, facts, "p", "skip_recorded")
    else:
        check_position(position, facts, "p", "fail")
    assert plan_topics(position, facts).keys() == facts.topics.keys()


def lost_heads(position: Position, facts: ClusterFacts) -> bool:
    """Whether a partition that the position does not know has lost records."""
    logs = ((name, n, p) for name, topic in facts.topics.items() for n, p in enumerate(topic.partitions))
    return any(p.log_start > 0 and position.next_offset(name, n) is None for name, n, p in logs)


def test_topic_added_to_the_file_begins_at_its_log_start() -> None:
    """It begins at its log start; one that a pattern finds is new, and owes all."""
    facts = facts_of((7, 9, 9))
    none = Position(1, 0, facts.cluster_id, {})

    check_position(none, facts, "p", "fail", listed=("orders",))
    with pytest.raises(Terminal, match=r"topic orders, partition 0: records 0 to 6 were deleted"):
        check_position(none, facts, "p", "fail")


@given(st.data(), cluster_facts(), st.sampled_from(["fail", "skip_recorded"]))
def test_exactly_partitions_outside_of_their_log_are_refused(
    data: st.DataObject, facts: ClusterFacts, policy: str
) -> None:
    """Exactly the positions outside of a log are refused; below its start only where nothing may be skipped."""
    position = data.draw(positions_in(facts))
    if lost_heads(position, facts):  # those are refused by another rule
        policy = "skip_recorded"
    partitions = [(n, p) for n, t in position.topics.items() if n in facts.topics for p in range(len(t.next))]
    assume(partitions)
    name, number = data.draw(st.sampled_from(partitions))
    offset = data.draw(st.integers(0, 80))
    following = [*position.topics[name].next]
    following[number] = offset
    topic = replace(position.topics[name], next=tuple(following))
    moved = replace(position, topics={**position.topics, name: topic})
    log = facts.topics[name].partitions[number]

    if offset > log.high_watermark or (offset < log.log_start and policy == "fail"):
        with pytest.raises(Terminal, match=f"topic {name}, partition {number}: .*{offset}"):
            check_position(moved, facts, "p", policy)  # type: ignore[arg-type]
    else:
        check_position(moved, facts, "p", policy)  # type: ignore[arg-type]


UNREAD = Position(3, 0, "c", {"day-1": TopicPosition("i", (0, 0, 0), (5, 9, 2), end=(8, 9, 4))})


def test_topic_that_vanished_unread_is_named_per_partition() -> None:
    """What is known to be lost is told per partition, and goes only where the pipeline says it may."""
    with pytest.raises(Terminal, match=r"topic day-1 was deleted .*: 0: 5 to 7, 2: 2 to 3") as error:
        check_vanished(UNREAD, ["day-1"], "fail")

    assert "source.on_data_loss: skip_recorded" in str(error.value.next_step)
    check_vanished(UNREAD, ["day-1"], "skip_recorded")


def test_rotating_topic_that_was_read_to_its_end_may_vanish() -> None:
    """Yesterday's topic may go once it is read."""
    read = replace(UNREAD, topics={"day-1": TopicPosition("i", (0,), (8,))})

    check_vanished(read, ["day-1"], "fail")
    check_vanished(UNREAD, [], "fail")


def test_offsets_in_a_refusal_are_a_valid_file_of_offsets() -> None:
    """What the refusal puts into FILE.json is what `--to FILE.json` reads."""
    with pytest.raises(Terminal) as error:
        check_position(*RETENTION, "pizzas", "fail")
    _, _, body = str(error.value.next_step).partition(" with ")

    assert parse_offsets(body.removesuffix(" in FILE.json"), "FILE.json").offsets == {"orders": {1: 7}}
