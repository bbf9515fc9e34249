"""The ledger as one of several destinations sees it, without the effects on others."""

from __future__ import annotations

from typing import Any

import pytest

from frazil.errors import Terminal
from frazil.verify.facts.coverage import coverage, given_up_offsets
from frazil.verify.facts.ledger import Batch, destination_view, read_batches, unrecorded_batches
from tests.unit.verify.facts.test_coverage import batch

TABLES = ("a.one", "a.two")
START = [batch(0, "start", 5, 5, table=table) for table in TABLES]


def views_of(table: str, *rows: dict[str, Any]) -> list[Batch]:
    return read_batches(destination_view([*START, *rows], table), "the ledger")


def settled(**columns: Any) -> dict[str, Any]:
    """A settle of the second table that gave up its rows."""
    given = {"table": "a.two", "skipped": '[["t",0,5,9]]', "ranges": "[]", "abandoned": 4}
    return batch(2, "settle", 9, 9, **(given | columns))


@pytest.mark.parametrize("closing", ["a.one", "ledger"])
def test_rows_given_up_by_one_table_excuse_no_other(closing: str) -> None:
    """A settle gives up rows of its own table only, whether or not the other one is the closing table."""
    second_batch = (
        settled(table="a.one", table_ranges="[]") if closing == "a.one" else settled(table="a.l", role="ledger")
    )

    assert given_up_offsets(views_of("a.one", second_batch, settled())) == {}
    assert given_up_offsets(views_of("a.two", second_batch, settled())) == {("t", 0): [(5, 9, 2)]}


def test_lost_dead_letters_or_ledger_count_for_every_table() -> None:
    """Dead letters and ledger belong to all tables, so each of them sees what was given up there."""
    letters = settled(table="a.d", role="dead_letters", removed='[["t",null,0,null,1]]')
    ledger = [settled(table="a.one", skipped="[]"), settled(table="a.l", role="ledger", skipped="[]")]

    for table in TABLES:
        assert given_up_offsets(views_of(table, settled(table="a.one"), letters)) == {("t", 0): [(5, 9, 2)]}
        assert unrecorded_batches(views_of(table, *ledger)) == {1}


@pytest.mark.parametrize(
    ("kind", "removed"), [("reset", '[["t",0,5,null,0]]'), ("rewind", '[["t",null,0,null,1]]')], ids=["reset", "rewind"]
)
def test_rows_that_a_reset_left_are_expected(kind: str, removed: str) -> None:
    """A reset removes only the dead letters of a table that the file does not name: its rows stay, missing letters are no loss."""
    left_out = [batch(2, "ingest", 9, 12, table="a.one"), batch(2, "ingest", 9, 12, table="a.two", role="left", rows=0)]
    removal_batch = batch(3, kind, 5, 5, table="a.one", removed=removed)
    letters = batch(3, kind, 5, 5, table="a.d", role="dead_letters", removed=removed)
    first = [batch(1, "ingest", 5, 9, table=table, table_written=4, table_dead=0) for table in TABLES]

    views = views_of("a.two", *first, *left_out, removal_batch, letters)

    assert [(s.start, s.end, s.passes) for s in coverage(views, views[-1].position)["t", 0]] == [(5, 9, (1,))]
    ((start, end, n),) = given_up_offsets(views)["t", 0]
    assert (start <= 5, end > 9, n) == (True, True, 3)
    second_views = views_of("a.one", *first, *left_out, removal_batch, letters)
    assert coverage(second_views, second_views[-1].position)["t", 0] == []


def test_batch_without_rows_for_a_table_is_accepted() -> None:
    """For a table without rows, all records of the batch count as filtered."""
    row = batch(1, "ingest", 5, 9, table="a.one", table_written=3, table_dead=1, records_written=3, records_dead=1)
    letters = row | {"table": "a.d", "role": "dead_letters", "rows": 1, "table_written": None, "table_dead": None}

    view = views_of("a.two", row, letters)[-1]

    assert (view.read, view.written, view.dead, view.filtered) == (4, 0, 0, 4)


def test_table_alone_beside_its_ledger_is_accepted() -> None:
    """A batch of one destination has no counts per table: all written records are its rows."""
    left_batch = batch(1, "ingest", 5, 5, table="a.two", role="left")
    rows = [batch(2, "ingest", 5, 9, table="a.one"), batch(2, "ingest", 5, 9, table="a.l", role="ledger", rows=0)]

    view = views_of("a.one", left_batch, *rows)[-1]

    assert (view.read, view.written, view.dead, view.filtered) == (4, 4, 0, 0)


@pytest.mark.parametrize("column", ["ranges", "skipped"])
def test_damaged_ranges_of_a_shared_batch_are_named(column: str) -> None:
    """The view of a destination parses the ranges of an edited row; the error names the ledger."""
    row = batch(1, "ingest", 5, 9, table="a.one", table_written=4, table_dead=0, **{column: "[[5"})

    with pytest.raises(Terminal, match="the ledger can't be read"):
        views_of("a.three", row)


@pytest.mark.parametrize("column", ["ranges", "skipped"])
@pytest.mark.parametrize("text", ['[["t", 0, "a", "b"]]', '[["t", 0, null, 3]]', '[[["t"], 0, 1, 2]]', "[" * 100_000])
def test_ranges_of_no_numbers_are_named(column: str, text: str) -> None:
    """They are JSON of the right length, and would end the check later, with a stack trace."""
    row = batch(1, "ingest", 5, 9, table="a.one", table_written=4, table_dead=0, **{column: text})

    with pytest.raises(Terminal, match="can't be read"):
        views_of("a.one", row)
