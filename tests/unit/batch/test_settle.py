"""What a dead-letter table owes, from what every batch did to it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.batch.facts import ClusterFacts, PartitionFacts, Range, TopicFacts
from frazil.batch.position import Position, TopicPosition
from frazil.batch.removal import RemovedRange
from frazil.batch.settle import Landing, Owed, Verdict, owed, part_gone, verdict


def read(start: int, end: int, partition: int = 0) -> Range:
    return Range("orders", partition, start, end)


def removed(start: int, end: int | None, since: int = 0, partition: int | None = 0) -> RemovedRange:
    return RemovedRange("orders", partition, start, end, since)


def places(found: tuple[Owed, ...]) -> list[tuple[int, int, int]]:
    return [(of.n, r.start, r.end) for of in found for r in of.ranges]


def test_what_the_table_still_holds_comes_again() -> None:
    """Only batches after the one that the table holds are owed, and only those that left letters."""
    landings = [Landing(n, (read(10 * n, 10 * n + 10),), dead=n % 2) for n in range(5)]

    assert places(owed(landings, after=1)) == [(3, 30, 40)]
    assert places(owed(reversed(landings), after=-1)) == [(1, 10, 20), (3, 30, 40)]


def test_letters_that_a_later_batch_took_out_come_back() -> None:
    """A replay takes its range over, a backward reset all beyond it, a rewind whole batches; each only from `since` on."""
    first = Landing(1, (read(0, 10), read(0, 10, partition=1)), dead=5)
    replayed = Landing(2, (read(4, 6),), dead=1, removed=(removed(4, 6),))

    whole, part = owed([first], -1), owed([first, replayed], -1)

    assert [of.whole for of in whole] == [True]
    assert [of.whole for of in part] == [False, True]
    assert places(part) == [(1, 0, 4), (1, 6, 10), (1, 0, 10), (2, 4, 6)]
    assert places(owed([first, replayed, Landing(3, removed=(removed(5, None),))], -1)) == [
        (1, 0, 4), (1, 0, 10), (2, 4, 5),
    ]  # fmt: skip
    rewound = Landing(3, removed=(removed(0, None, since=2, partition=None),))
    assert places(owed([first, replayed, rewound], -1)) == [(1, 0, 4), (1, 6, 10), (1, 0, 10)]


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 10), st.booleans()), max_size=12))
def test_an_offset_is_owed_twice_or_by_the_wrong_batch(batches: list[tuple[int, int, bool]]) -> None:
    """However ranges overlap: with removals the last reader of an offset owes it, without them every reader does."""
    landings, readers = [], {at: list[int]() for at in range(50)}
    for n, (start, length, replaces) in enumerate(batches):
        gone = (removed(start, start + length),) if replaces else ()
        landings.append(Landing(n, (read(start, start + length),), dead=1, removed=gone))
        for at in range(start, start + length):
            readers[at] = [n] if replaces else [*readers[at], n]

    found = owed(landings, after=-1)

    owing = {at: [of.n for of in found for r in of.ranges if r.start <= at < r.end] for at in readers}
    assert owing == readers


def facts(log_start: int = 4, topic_id: str = "id", cluster: str = "c") -> ClusterFacts:
    return ClusterFacts(cluster, {"orders": TopicFacts(topic_id, (PartitionFacts(log_start, 20, 20),))})


@pytest.mark.parametrize(
    ("found", "kept", "gone"),
    [
        (facts(0), [(3, 0, 10)], []),
        (facts(4), [(3, 4, 10)], [(0, 4)]),
        (facts(15), [], [(0, 10)]),
        (facts(0, topic_id="other"), [], [(0, 10)]),
        (facts(0, cluster="other"), [], [(0, 10)]),
        (ClusterFacts("c", {}), [], [(0, 10)]),
    ],
)
def test_records_that_are_gone_are_promised(
    found: ClusterFacts, kept: list[tuple[int, int, int]], gone: list[tuple[int, int]]
) -> None:
    """Below the log start, of another topic or cluster, or of no topic at all: gone, by name."""
    position = Position(3, 0, "c", {"orders": TopicPosition("id", (10,), (10,), since=3)})

    held, lost = part_gone(Owed(3, (read(0, 10),), 2, 0, is_current=True), position, found)

    assert places((held,)) == kept
    assert [(r.start, r.end) for r in lost] == gone
    assert held.whole == (not gone)


def test_records_of_the_topic_before_are_read_from_the_new_one() -> None:
    """Batches before the present incarnation of a topic read another log."""
    position = Position(3, 0, "c", {"orders": TopicPosition("id", (10,), (10,), since=3)})

    held, lost = part_gone(Owed(2, (read(0, 10),), 2, 0, is_current=True), position, facts(0))

    assert (held.ranges, lost) == ((), (read(0, 10),))


@pytest.mark.parametrize(
    ("batch", "found", "expected"),
    [
        ("current whole", (5, 0), Verdict(with_good=False)),
        ("current whole", (5, 9), Verdict(with_good=False)),  # rows were deleted: not letters
        ("edited whole", (3, 2), Verdict(with_good=True)),  # good now, letters then
        ("edited whole", (3, 0), Verdict(with_good=True, missing=2, problem="gone from Kafka")),
        ("current whole", (3, 1), Verdict(with_good=False, missing=2, problem="gone from Kafka")),
        ("edited whole", (3, 9), Verdict(with_good=False, missing=2, problem="nobody can tell")),
        ("current part", (3, 9), Verdict(with_good=False)),
        ("edited part", (3, 1), Verdict(with_good=True)),
        ("edited part", (3, 9), Verdict(with_good=False, missing=2, problem="nobody can tell")),
        ("edited part", (0, 9), Verdict(with_good=False, missing=5, problem="nobody can tell")),
    ],
)
def test_a_deleted_row_becomes_a_letter_or_a_letter_a_hole(
    batch: str, found: tuple[int, int], expected: Verdict
) -> None:
    """The ledger's count, 5, decides what records without a row were; where it can't, that is said."""
    of = Owed(1, (read(0, 50),), 5, 0, is_current="current" in batch, whole="whole" in batch)

    decided = verdict(of, *found)

    assert (decided.with_good, decided.missing) == (expected.with_good, expected.missing)
    assert (expected.problem or "") in (decided.problem or "")
    assert (expected.problem is None) == (decided.problem is None)
