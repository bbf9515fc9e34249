"""Dead letters that become rows: which are chosen, what is taken back, and how offsets are told."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.batch.changes import LetterChoice, Place, RemovedRange, letter_ranges, letter_spans, undone_batches

PLACES = st.sets(st.builds(Place, st.sampled_from("ab"), st.integers(0, 2), st.integers(0, 40)))
NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
PLACE = Place("orders", 0, 7)


@given(PLACES)
def test_ranges_hold_exactly_the_offsets_of_dead_letters(places: set[Place]) -> None:
    """They hold exactly the places, neighbours as one, in order."""
    ranges = letter_ranges(places)

    assert [Place(r.topic, r.partition, o) for r in ranges for o in range(r.start, r.end)] == sorted(places)
    neighbours = pairwise(ranges)
    assert all((a.topic, a.partition, a.end) != (b.topic, b.partition, b.start) for a, b in neighbours)


@given(PLACES)
def test_spans_cover_every_dead_letter_of_a_partition(places: set[Place]) -> None:
    """One per partition, from its first to its last, whatever batch kept the letters."""
    ranges_by_partition = {(r.topic, r.partition): (r.start, r.end, r.since) for r in letter_spans(places)}

    offsets: dict[tuple[str, int], list[int]] = {}
    for place in places:
        offsets.setdefault(place[:2], []).append(place.offset)
    assert ranges_by_partition == {
        key: (min(offsets_of_key), max(offsets_of_key) + 1, 0) for key, offsets_of_key in offsets.items()
    }


@pytest.mark.parametrize(
    ("rewinds", "numbers"),
    [
        ([], set()),
        ([(5, [RemovedRange("t", None, 0, None, 3)])], {3, 4}),
        ([(5, [RemovedRange("t", 0, 9, None, 0)])], set()),
        ([(5, [RemovedRange("t", None, 0, None, 3)]), (8, [RemovedRange("t", None, 0, None, 5)])], {5, 6, 7}),
    ],
    ids=["none", "one", "only a range", "a rewind that was taken back itself"],
)
def test_dead_letters_of_rolled_back_replays_are_open_again(
    rewinds: list[tuple[int, list[RemovedRange]]], numbers: set[int]
) -> None:
    """What they landed is open again; a rewind that was rolled back itself undoes nothing."""
    assert undone_batches(rewinds) == numbers


@pytest.mark.parametrize(
    ("choice", "fits"),
    [
        (LetterChoice(), True),
        (LetterChoice(codes=frozenset(["WRONG_TYPE"])), True),
        (LetterChoice(codes=frozenset(["INVALID_JSON"])), False),
        (LetterChoice(topics=frozenset(["other"])), False),
        (LetterChoice(places=frozenset([PLACE])), True),
        (LetterChoice(places=frozenset([Place("orders", 0, 8)])), False),
        (LetterChoice(tables=frozenset(["shop.orders"])), True),
        (LetterChoice(tables=frozenset(["shop.refunds"])), False),
        (LetterChoice(of_tables=frozenset([(PLACE, "shop.orders")])), True),
        (LetterChoice(of_tables=frozenset([(PLACE, "shop.refunds")])), False),
        (LetterChoice(of_tables=frozenset([(PLACE, "shop.refunds")]), places=frozenset([PLACE])), True),
        (LetterChoice(since=NOON), True),
        (LetterChoice(since=NOON.replace(hour=13)), False),
        (LetterChoice(until=NOON.replace(hour=13)), True),
        (LetterChoice(until=NOON), False),
    ],
)
def test_filter_selects_only_dead_letters_that_match_every_option(choice: LetterChoice, *, fits: bool) -> None:
    """Everything that is named must fit."""
    assert choice.fits(PLACE, "WRONG_TYPE", NOON, "shop.orders") is fits


def test_dead_letter_without_destination_matches_no_table() -> None:
    """A letter without a destination is of none, whatever table is named."""
    assert not LetterChoice(tables=frozenset(["shop.orders"])).fits(PLACE, "WRONG_TYPE", NOON, None)


def test_dead_letter_without_timestamp_is_left_out_by_time_filter() -> None:
    """Nobody knows when it was, so a choice by time leaves it out."""
    assert not LetterChoice(since=NOON).fits(PLACE, "WRONG_TYPE", None)
    assert not LetterChoice(until=NOON).fits(PLACE, "WRONG_TYPE", None)
