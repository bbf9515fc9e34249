"""The line a demo ends with."""

from __future__ import annotations

from typing import Any

import pytest

from frazil.report.reconcile import Reconciliation, left_out


def test_line_of_reconciliation_names_every_outcome() -> None:
    """Rows and dead letters add up to what was produced; filtered records show only if there are any."""
    assert str(Reconciliation(100, 97, 3, 0)) == "produced 100 = rows 97 + dead letters 3"
    assert str(Reconciliation(100, 96, 3, 1)) == "produced 100 = rows 96 + dead letters 3 + filtered 1"


def test_every_destination_is_counted() -> None:
    """Of several, each has its line, and what was meant for others is no loss."""
    found = Reconciliation(100, 60, 3, 0, 37, "shop.orders")

    assert str(found) == "shop.orders: produced 100 = rows 60 + dead letters 3 + elsewhere 37"
    assert found.difference == 0


def row(kind: str, table: str, role: str = "destination", **counts: Any) -> dict[str, Any]:
    batch = {"kind": kind, "records_read": 10, "records_filtered": 1, "ranges": '[["t",0,0,10]]', "rows": 0}
    return {**batch, "table": table, "role": role, **counts}


INGEST = [
    row("ingest", "a.one", table_written=4, table_dead=1),
    row("ingest", "a.two", table_written=5, table_dead=0),
    row("ingest", "a.d", "dead_letters", rows=3),
]


@pytest.mark.parametrize(
    ("batch", "table", "count"),
    [
        (INGEST, "a.one", 3),
        (INGEST, "a.two", 3),
        (INGEST, "a.new", 8),
        ([row("ingest", "a.one", table_written=None)], "a.one", 1),
        ([row("ingest", "a.one", table_written=None)], "a.two", 10),
        ([row("dead_letters", "a.one", rows=2, table_ranges='[["t",0,3,6]]')], "a.one", 1),
        ([row("start", "a.one", "ledger", records_read=0)], "a.one", 0),
    ],
    ids=["one", "another", "not there yet", "alone", "the other was alone", "letters that came home", "start"],
)
def test_records_for_other_tables_are_not_missing(batch: list[dict[str, Any]], table: str, count: int) -> None:
    """Records of a batch without a row or a letter of a table: left out on purpose, or of another one."""
    assert left_out(batch, table) == count


@pytest.mark.parametrize(("rows", "difference"), [(96, 1), (98, -1)])
def test_lost_or_doubled_record_never_reads_as_even(rows: int, difference: int) -> None:
    """One record in a hundred is enough."""
    found = Reconciliation(100, rows, 3, 0)

    assert found.difference == difference
    assert "!=" in str(found)
    assert " = " not in str(found)
