"""Offsets before the position that no batch read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from frazil.verify.facts.coverage import coverage, unread_spans
from tests.unit.verify.facts.test_coverage import FIRST, SECOND, START, batch, read

UNDONE = '[["t",null,0,null,2]]'


def unread_ranges_of(*rows: dict[str, Any]) -> dict[int, list[tuple[int, int]]]:
    """Partition -> what is left over."""
    batches = read(*rows)
    position = batches[-1].position
    return {
        key[1]: spans for key, spans in unread_spans(batches, coverage(batches, position), position).items() if spans
    }


def grown(n: int, begin: int, kind: str = "ingest") -> dict[str, Any]:
    """Batch `n`, the first that knows partition 1, which it takes from `begin`."""
    body = {"id": "i", "from": [10, begin], "next": [10, begin + 5 if kind == "ingest" else begin]}
    position = {"v": 1, "n": n, "epoch": 0, "cluster": "c", "topics": {"t": body}}
    ranges = json.dumps([["t", 1, begin, begin + 5]] if kind == "ingest" else [])
    return batch(n, kind, 10, 10, ranges=ranges) | {"position": json.dumps(position)}


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ((START, FIRST, batch(2, "replay", 10, 10, ranges='[["t",0,5,8]]', removed='[["t",0,5,10,0]]')), [(8, 10)]),
        ((START, FIRST, batch(2, "reset", 6, 6, removed='[["t",0,6,null,0]]'), batch(3, "ingest", 8, 12)), [(6, 8)]),
        ((START, FIRST, SECOND, batch(3, "rewind", 10, 10, removed=UNDONE), batch(4, "ingest", 15, 20)), [(10, 15)]),
        ((START, FIRST, SECOND, batch(3, "rewind", 15, 15, removed=UNDONE), batch(4, "ingest", 15, 20)), [(10, 15)]),
        ((START, batch(1, "ingest", 7, 10)), [(5, 7)]),
        ((START, FIRST, batch(2, "ingest", 13, 20, ranges='[["t",0,13,20]]', skipped='[["t",0,11,13]]')), [(10, 11)]),
        ((START, FIRST, batch(2, "reset", 3, 3), batch(3, "ingest", 4, 9)), [(3, 4)]),
    ],
)
def test_offsets_that_nobody_read_are_reported(rows: tuple[dict[str, Any], ...], expected: list[Any]) -> None:
    """After a removal of rows or a move of the position, the next batch must continue at that offset."""
    assert unread_ranges_of(*rows) == {0: expected}


@pytest.mark.parametrize(
    "rows",
    [
        (START, FIRST, SECOND),
        (START, FIRST, batch(2, "reset", 15, 15), batch(3, "ingest", 15, 20)),
        (START, FIRST, batch(2, "ingest", 14, 20, ranges='[["t",0,14,20]]', skipped='[["t",0,10,14]]')),
        (START, FIRST, SECOND, batch(3, "replay", 20, 20, ranges='[["t",0,8,12]]', removed='[["t",0,8,12,0]]')),
        (START, FIRST, SECOND, batch(3, "reset", 8, 8, removed='[["t",0,8,null,0]]'), batch(4, "ingest", 8, 20)),
        (START, FIRST, SECOND, batch(3, "rewind", 10, 10, removed=UNDONE), batch(4, "ingest", 10, 20)),
        (START, FIRST, batch(3, "reset", 0, 0, since=3), batch(4, "ingest", 0, 7, since=3)),
        (FIRST, batch(4, "settle", 14, 14, abandoned=3), batch(5, "ingest", 14, 16)),
    ],
)
def test_recorded_skips_are_not_reported(rows: tuple[dict[str, Any], ...]) -> None:
    """The ledger records offsets that retention, a forward reset or lost ledger rows made unread."""
    assert unread_ranges_of(*rows) == {}


def test_skip_that_was_rolled_back_excuses_nothing() -> None:
    """The reset that jumped over 10 to 14 is undone, so these offsets must be read."""
    jump, rewind = batch(2, "reset", 15, 15), batch(3, "rewind", 10, 10, removed=UNDONE)

    assert unread_ranges_of(START, FIRST, jump, rewind, batch(4, "ingest", 15, 20)) == {0: [(10, 15)]}


@pytest.mark.parametrize(("kind", "expected"), [("ingest", {1: [(0, 50)]}), ("reset", {})])
def test_new_partition_must_be_read_from_its_beginning(kind: str, expected: dict[int, Any]) -> None:
    """A new partition is read from its beginning, unless a reset moved it: earlier records in the log were never read."""
    assert unread_ranges_of(START, FIRST, grown(2, 50, kind)) == expected


def test_vanished_topic_that_came_back_is_not_reported() -> None:
    """The position of a topic that vanished unread stays, its offsets are recorded as skipped, and read if it comes back."""
    vanished = batch(2, "ingest", 10, 10, ranges="[]", skipped='[["t",0,10,20]]')

    assert unread_ranges_of(START, FIRST, vanished) == {}
    assert unread_ranges_of(START, FIRST, vanished, batch(3, "ingest", 10, 20)) == {}
    assert unread_ranges_of(START, FIRST, vanished, batch(3, "ingest", 15, 20)) == {0: [(10, 15)]}
