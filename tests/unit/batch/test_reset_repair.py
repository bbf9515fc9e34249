"""What a table lost, by the ledger's rows, and what of it can be read again."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from frazil.batch.changes import RemovedRange
from frazil.batch.facts import ClusterFacts, PartitionFacts, Range, TopicFacts
from frazil.batch.position import Position, TopicPosition
from frazil.batch.reset import lost_ranges, lost_removals, split_readable, subtract, unfilled_ranges, union

POSITION = Position(9, 0, "c", {"t": TopicPosition("i", (20,), (20,))})


def row(n: int, kind: str = "ingest", table: str = "a.t", **columns: Any) -> dict[str, Any]:
    """A row of the ledger; `ranges` and `skipped` are of topic t, partition 0."""
    listed = {
        name: json.dumps([["t", 0, *bounds] for bounds in columns.pop(name, ())]) for name in ("ranges", "skipped")
    }
    return {"n": n, "kind": kind, "table": table, "position": POSITION.to_json(), **listed, **columns}


def spans(ranges: tuple[Range, ...]) -> list[tuple[int, int]]:
    return [(r.start, r.end) for r in ranges]


def test_lost_ranges_are_those_of_batches_after_the_held_one() -> None:
    """Those that brought the table something; up to the position, for what lies beyond comes by itself."""
    rows = [
        row(1, ranges=[(0, 5)]),
        row(2, ranges=[(5, 9)]),
        row(3, table="a.other", ranges=[(9, 12)]),
        row(4, ranges=[(12, 14)]),
        row(5, ranges=[(14, 30)]),
        row(6, "reset"),
    ]

    assert spans(lost_ranges(rows, "a.t", 1, POSITION)) == [(5, 9), (12, 20)]
    assert spans(lost_ranges(rows, "a.t", -1, POSITION)) == [(0, 9), (12, 20)]
    assert lost_ranges(rows, "a.t", 6, POSITION) == ()


def test_lost_ranges_of_replayed_dead_letters_are_those_of_the_table() -> None:
    """Of several tables each row says which."""
    rows = [row(2, "dead_letters", ranges=[(0, 9)], table_ranges='[["t",0,3,4]]')]

    assert spans(lost_ranges(rows, "a.t", 1, POSITION)) == [(3, 4)]


def test_lost_removals_are_those_after_the_held_batch() -> None:
    """A rollback brought it back."""
    rows = [row(n, "replay", removed=f'[["t",0,{n},9,0]]') for n in (1, 2)]

    assert lost_removals(rows, "a.t", 1) == (RemovedRange("t", 0, 2, 9, 0),)


def test_unfilled_ranges_are_those_that_no_later_batch_read() -> None:
    """A replay of a part leaves the rest; repairs of other tables are theirs."""
    rows = [
        row(3, "repair", skipped=[(0, 10)]),
        row(3, "repair", "a.closing", skipped=[(0, 10)]),
        row(4, "replay", "a.closing", ranges=[(2, 5)]),
        row(5, "repair", "a.other", skipped=[(15, 16)]),
    ]

    assert spans(unfilled_ranges(rows, "a.t")) == [(0, 2), (5, 10)]
    assert unfilled_ranges([*rows, row(6, "ingest", ranges=[(0, 20)])], "a.t") == ()
    assert unfilled_ranges(rows, "a.new") == ()


def test_ranges_that_kafka_no_longer_has_are_lost() -> None:
    """Before the log start, of a topic that vanished or is another one by now."""
    facts = ClusterFacts("c", {"t": TopicFacts("i", (PartitionFacts(4, 30, 30),))})
    lost = (Range("t", 0, 2, 8), Range("t", 1, 0, 3), Range("u", 0, 0, 1))

    readable_ranges, unreadable = split_readable(lost, POSITION, facts)

    assert readable_ranges == (Range("t", 0, 4, 8),)
    assert unreadable == (Range("t", 0, 2, 4), Range("t", 1, 0, 3), Range("u", 0, 0, 1))
    second_cluster = ClusterFacts("c", {"t": TopicFacts("j", (PartitionFacts(4, 30, 30),))})
    assert split_readable(lost[:1], POSITION, second_cluster) == ((), lost[:1])


RANGES = st.lists(
    st.builds(lambda start, n: Range("t", 0, start, start + n), st.integers(0, 30), st.integers(0, 9)), max_size=6
)


@given(RANGES, RANGES)
def test_ranges_add_and_subtract_as_sets_do(some: list[Range], second_ranges: list[Range]) -> None:
    """Offset by offset."""

    def offsets(ranges: Any) -> list[int]:
        return [offset for r in ranges for offset in range(r.start, r.end)]

    assert offsets(union(some)) == sorted(set(offsets(some)))
    assert offsets(subtract(union(some), second_ranges)) == sorted(set(offsets(some)) - set(offsets(second_ranges)))
