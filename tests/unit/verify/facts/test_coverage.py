"""Which batches read which offsets."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from frazil.verify.facts.coverage import (
    Segment,
    add_pass,
    clip,
    coverage,
    gaps,
    given_up_offsets,
    length,
    remove_passes,
    windows,
)
from frazil.verify.facts.ledger import Batch, read_batches, unrecorded_batches

OFFSETS = st.integers(0, 30)
STEPS = st.lists(st.tuples(st.booleans(), OFFSETS, OFFSETS, st.integers(0, 12)), max_size=12)


@given(STEPS, st.integers(1, 9))
def test_arithmetic_keeps_each_offset_once(steps: list[tuple[bool, int, int, int]], size: int) -> None:
    """Segments have the same batches per offset as a plain dictionary, in windows of any size, too."""
    segments: list[Segment] = []
    plain: dict[int, list[int]] = {offset: [] for offset in range(31)}
    for n, (is_read, start, end, since) in enumerate(steps):
        if is_read:
            segments = add_pass(segments, start, end, n)
        elif start < end:
            segments = remove_passes(segments, start, end, lambda number, since=since: number >= since)
        for offset in range(start, end):
            plain[offset] = [*plain[offset], n] if is_read else [one for one in plain[offset] if one < since]

    passes_by_offset = {offset: s.passes for s in segments for offset in range(s.start, s.end)}
    cut = {offset: s.passes for w in windows(segments, size) for s in w.segments for offset in range(s.start, s.end)}
    assert passes_by_offset == cut == {offset: tuple(passes) for offset, passes in plain.items() if passes}
    assert length(segments) == len(passes_by_offset)
    assert all(before.end <= after.start for before, after in pairwise(segments))
    assert all(w.end - w.start <= size for w in windows(segments, size))


def test_uncovered_offsets_are_checked_too() -> None:
    """Gaps between spans, before and after them, with and without an upper bound."""
    assert gaps([(2, 4), (4, 6), (9, 10)], 0, None) == [(0, 2), (6, 9), (10, None)]
    assert gaps([(0, 5)], 0, 5) == []
    assert gaps([], 3, 5) == [(3, 5)]
    assert clip([Segment(0, 5, (1,)), Segment(7, 9, (2,))], 3, 8) == [Segment(3, 5, (1,)), Segment(7, 8, (2,))]


def batch(n: int, kind: str, start: int, end: int, *, since: int = 0, **columns: Any) -> dict[str, Any]:
    """A row of a ledger: batch `n` moved partition 0 of `t` from `start` to `end`."""
    topic = {"id": "i", "from": [start], "next": [end]} | ({"since": since} if since else {})
    position = {"v": 1, "n": n, "epoch": 0, "cluster": "c", "topics": {"t": topic}}
    counts = dict.fromkeys(("records_read", "records_written", "rows"), end - start if kind == "ingest" else 0)
    row = {"n": n, "batch": f"b{n}", "kind": kind, "role": "destination", "table": "a.b", "config": "f"}
    return row | counts | {"records_dead": 0, "records_filtered": 0, "position": json.dumps(position)} | columns


def read(*rows: dict[str, Any]) -> list[Batch]:
    return read_batches(rows, "a.l")


def covered(*rows: dict[str, Any]) -> list[tuple[int, int, tuple[int, ...]]]:
    batches = read(*rows)
    return [(s.start, s.end, s.passes) for s in coverage(batches, batches[-1].position)["t", 0]]


START, FIRST, SECOND = batch(0, "start", 5, 5), batch(1, "ingest", 5, 10), batch(2, "ingest", 10, 20)


def test_old_ledgers_without_ranges_cover_nothing() -> None:
    """In older rows only the position shows which offsets were read."""
    assert covered(START, FIRST, SECOND) == [(5, 10, (1,)), (10, 20, (2,))]


def test_ranges_count_more_than_the_position() -> None:
    """Skipped offsets were not read, although the position moved over them."""
    row = batch(2, "ingest", 14, 20, ranges='[["t",0,14,20]]', skipped='[["t",0,10,14]]')

    assert covered(START, FIRST, row) == [(5, 10, (1,)), (14, 20, (2,))]


def test_replay_leaves_one_outcome() -> None:
    """A replay removes the outcomes that it reads again; the other outcomes keep their batch."""
    row = batch(3, "replay", 20, 20, ranges='[["t",0,8,12]]', removed='[["t",0,8,12,0]]')

    assert covered(START, FIRST, SECOND, row) == [(5, 8, (1,)), (8, 12, (3,)), (12, 20, (2,))]


def test_backward_reset_removes_what_lies_beyond() -> None:
    """Outcomes from the offset on are removed and read again; with duplicates allowed, offsets have two outcomes."""
    again = batch(4, "ingest", 8, 20)
    removing = batch(3, "reset", 8, 8, removed='[["t",0,8,null,0]]')

    assert covered(START, FIRST, SECOND, removing) == [(5, 8, (1,))]
    assert covered(START, FIRST, SECOND, removing, again) == [(5, 8, (1,)), (8, 20, (4,))]
    assert covered(START, FIRST, SECOND, batch(3, "reset", 8, 8), again) == [
        (5, 8, (1,)),
        (8, 10, (1, 4)),
        (10, 20, (2, 4)),
    ]


def test_rewind_undoes_what_was_rolled_back() -> None:
    """Reads and removals of batches after the one that main was rolled back to are undone."""
    replay = batch(3, "replay", 20, 20, ranges='[["t",0,6,12]]', removed='[["t",0,6,12,0]]')
    rewind = batch(5, "rewind", 10, 10, removed='[["t",null,0,null,2]]')
    rolled_back = batch(5, "rewind", 10, 10)

    assert covered(START, FIRST, SECOND, replay, rewind) == [(5, 10, (1,))]
    assert covered(START, FIRST, SECOND, rolled_back) == [(5, 10, (1,))]


def test_rewind_over_a_replay_drops_its_dead_letters() -> None:
    """No rollback restores dead letters that a replay removed, so the rewind goes back to where the replay began, in both tables."""
    replay = batch(3, "replay", 20, 20, ranges='[["t",0,6,12]]', removed='[["t",0,6,12,0]]')
    rewind = batch(4, "rewind", 6, 6, removed='[["t",null,0,null,3],["t",0,6,null,0]]')

    assert covered(START, FIRST, SECOND, replay, rewind) == [(5, 6, (1,))]


def test_rewind_keeps_what_kafka_no_longer_has() -> None:
    """Outcomes whose records Kafka no longer has stay in the table, with the number of the undone batch."""
    removed = '[["t",null,0,10,2],["t",0,14,null,2]]'
    rewind = batch(3, "rewind", 14, 14, removed=removed, skipped='[["t",0,10,14]]')

    assert covered(START, FIRST, SECOND, rewind) == [(5, 10, (1,)), (10, 14, (2,))]


def test_rewind_that_was_rolled_back_undoes_nothing() -> None:
    """The last rollback decides which batches the closing table has."""
    first = batch(3, "rewind", 10, 10, removed='[["t",null,0,null,2]]')
    second = batch(4, "rewind", 20, 20, removed='[["t",null,0,null,3]]')

    assert covered(START, FIRST, SECOND, first, second) == [(5, 10, (1,)), (10, 20, (2,))]


def test_repair_restores_without_removing() -> None:
    """Dead letters are staged again with their former batch numbers, rows stay, and the ledger records what is given up."""
    settled = batch(3, "settle", 20, 20, removed='[["t",null,0,null,1]]', skipped='[["t",0,8,12]]')

    assert covered(START, FIRST, SECOND, settled) == [(5, 10, (1,)), (10, 20, (2,))]
    assert given_up_offsets(read(START, settled)) == {("t", 0): [(8, 12, 3)]}
    assert given_up_offsets(read(START, settled | {"kind": "repair"})) == {("t", 0): [(8, 12, 3)]}
    assert unrecorded_batches(read(START, FIRST, batch(5, "settle", 10, 10))) == frozenset()
    assert unrecorded_batches(read(START, FIRST, batch(5, "settle", 10, 10, abandoned=3))) == {2, 3, 4}


def test_older_incarnation_is_left_out() -> None:
    """Batches before the first one of the recreated topic read other records."""
    adopted = batch(3, "reset", 0, 0, since=3)

    assert covered(START, FIRST, SECOND, adopted, batch(4, "ingest", 0, 7, since=3)) == [(0, 7, (4,))]
