"""What the ledger says of a batch."""

from __future__ import annotations

from datetime import UTC, datetime

from frazil.batch.facts import Counts, Range
from frazil.batch.fit import Fit
from frazil.batch.manifest import Manifest, TablePart
from frazil.batch.position import Position, TopicPosition
from frazil.run.ledger_entry import entry_rows
from frazil.verify.coverage import coverage
from frazil.verify.ledger import batches_of
from frazil.verify.views import view
from tests.unit.verify.test_coverage import batch

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
STAMP = NOW.isoformat()


def test_a_table_without_rows_so_far_is_no_destination() -> None:
    """An engine gives it its mark with its first rows; until then the ledger names it, so that verify counts it in."""
    ledger = TablePart("a.l", "ledger", Fit("u", 0, {}), None, ())
    position = Position(1, 0, "c", {"t": TopicPosition("i", (5,), (9,))})
    decided = Manifest(
        *("p", "ingest", "b", "r", position, ledger, (), "a.l", None, Counts(4, 0, 0, 4), {}),
        *(STAMP, STAMP, STAMP, {}, "1", "f", None, (Range("t", 0, 5, 9),)),
        unmarked=("a.docs",),
    )

    rows = entry_rows(decided, {"a.l": 7}, NOW, NOW)

    assert [(row["table"], row["role"], row["rows"]) for row in rows] == [
        ("a.l", "ledger", 0),
        ("a.docs", "destination", 0),
    ]
    seen = batches_of(view([batch(0, "start", 5, 5, table="a.l", role="ledger"), *rows], "a.docs"), "a.l")
    assert [(s.start, s.end) for s in coverage(seen, seen[-1].position)["t", 0]] == [(5, 9)]
    assert Manifest.from_json(decided.to_json()) == decided
