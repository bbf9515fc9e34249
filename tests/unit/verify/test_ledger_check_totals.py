"""Counts per batch, and the batches whose counts can still be compared with the ledger."""

from __future__ import annotations

from typing import Any

import pytest

from frazil.verify.ledger_check import total_differences
from tests.unit.verify.facts.test_coverage import FIRST, SECOND, START, batch, read

ALL = {("t", 0): (0, None)}


def batches_with_differences(*rows: dict[str, Any], rows_of: dict[int, int], **options: Any) -> list[int | None]:
    """Numbers of the reported batches, if the table has so many rows of each batch."""
    counted = {("a.b", n): count for n, count in rows_of.items()}
    terms = {"live": {"t": 0}, "requested": ALL, "differing": frozenset()} | options
    return [difference.batch for difference in total_differences(read(*rows), ("a.b", "a.d"), counted, **terms)]


def test_batch_with_fewer_or_more_rows_is_reported() -> None:
    """Rows and dead letters of each batch are compared with its counts."""
    assert batches_with_differences(START, FIRST, SECOND, rows_of={1: 5, 2: 10}) == []
    assert batches_with_differences(START, FIRST, SECOND, rows_of={1: 4, 2: 11}) == [2, 1]


def test_lost_row_of_an_exploded_list_is_reported() -> None:
    """The ledger's count of rows may exceed its count of records."""
    assert batches_with_differences(START, FIRST | {"rows": 9}, SECOND, rows_of={1: 9, 2: 10}) == []
    assert batches_with_differences(START, FIRST | {"rows": 9}, SECOND, rows_of={1: 8, 2: 10}) == [1]


@pytest.mark.parametrize(
    "last",
    [
        batch(3, "replay", 20, 20, ranges='[["t",0,9,12]]', removed='[["t",0,9,12,0]]', records_written=1, rows=1),
        batch(3, "reset", 9, 9, removed='[["t",0,9,null,0]]'),
        batch(3, "settle", 20, 20, removed='[["t",null,0,null,1]]'),
        batch(3, "settle", 20, 20, skipped='[["t",0,5,7]]'),
        batch(3, "repair", 20, 20, skipped='[["t",0,5,7]]'),
        batch(3, "rewind", 5, 5, removed='[["t",null,0,null,1]]'),
    ],
)
def test_batch_with_removed_rows_is_accepted(last: dict[str, Any]) -> None:
    """A batch whose rows a later one removed is not compared."""
    assert batches_with_differences(START, FIRST, SECOND, last, rows_of={3: 1}) == []


def test_batch_outside_of_the_check_is_accepted() -> None:
    """Batches outside of the bounds, of an older incarnation, or with other differences are not compared."""
    assert batches_with_differences(START, FIRST, SECOND, rows_of={1: 5}, requested={("t", 0): (0, 19)}) == []
    assert batches_with_differences(START, FIRST, SECOND, rows_of={1: 5}, live={"t": 3}) == []
    assert batches_with_differences(START, FIRST, SECOND, rows_of={1: 5}, live={}) == []
    assert batches_with_differences(START, FIRST, SECOND, rows_of={1: 5}, differing={2}) == []
    assert batches_with_differences(START, FIRST, SECOND, rows_of={1: 5}) == [2]
