"""What the ledger says that matters to dead letters, read without the rest of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from frazil.batch.position import Position, TopicPosition
from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.catalog.table import TABLE_PROPERTIES
from frazil.iceberg.ledger.ledger import LEDGER_SCHEMA, UNPARTITIONED, in_order, read_ledger, read_letter_rows
from frazil.run.repair.dead_letter_decode import letter_history
from tests.unit.iceberg.ledger.test_ledger import LEDGER, ledger_row, write_ledger

REMOVED = json.dumps([["orders", 0, 5, None, 3]])


def batch(n: int, kind: str = "ingest", offset: int = 0, **changes: Any) -> list[dict[str, Any]]:
    """The rows of a batch whose position is at an offset."""
    position = Position(n, 0, "c", {"orders": TopicPosition("id", (0,), (offset,))}).to_json()
    facts = {"kind": kind, "position": position, "removed": None} | changes
    return [
        ledger_row(n, table="shop.orders", **facts, records_written=1),
        ledger_row(n, table="a", role="dead_letters", **facts),
    ]


LEDGERS = {
    "plain": [batch(n, offset=n) for n in range(1, 9)],
    "reset": [
        batch(1, offset=10),
        batch(2, offset=20),
        batch(4, offset=30),
        batch(5, "reset", offset=5),
        batch(6, offset=9),
    ],
    "resets": [
        batch(1, offset=10),
        batch(2, "reset", offset=5),
        batch(3, "reset", offset=2),
        batch(4, "reset", offset=1),
    ],
    "first": [batch(3, "reset", offset=5), batch(4, offset=9)],
    "removing": [batch(1, offset=10), batch(2, "reset", offset=5, removed=REMOVED), batch(3, offset=9)],
    "rewind": [batch(3, offset=10), batch(4, "dead_letters", offset=10), batch(5, "rewind", offset=5, removed=REMOVED)],
    "landed": [
        batch(1, offset=9),
        batch(2, "dead_letters", offset=9),
        batch(3, "repair", offset=9),
        batch(4, "replay", offset=9),
    ],
}


@pytest.fixture
def ledger(tmp_path: Path) -> Lake:
    """A lake with an empty ledger."""
    lake = Lake("lake", f"sqlite:///{tmp_path}/catalog.db", f"file://{tmp_path}/warehouse", {})
    lake.create_table(LEDGER, LEDGER_SCHEMA, UNPARTITIONED, TABLE_PROPERTIES)
    return lake


@pytest.mark.parametrize("name", LEDGERS)
def test_dead_letter_history_agrees_with_the_ledger(ledger: Lake, name: str) -> None:
    """What is left out changes nothing: not what was taken back, came twice or was landed, and not the last position."""
    for rows in reversed(LEDGERS[name]):
        write_ledger(ledger, *reversed(rows), *(row | {"pipeline": "other", "n": 99} for row in rows))

    rows, whole = read_letter_rows(ledger, LEDGER, "orders"), read_ledger(ledger, LEDGER, "orders")

    assert letter_history(rows) == letter_history(whole)
    assert rows[-1]["position"] == whole[-1]["position"]
    assert rows == in_order(list(reversed(rows)))


def test_dead_letter_history_reads_only_batches_with_dead_letters(ledger: Lake) -> None:
    """Batches that only ingested stay in the table, but for the last."""
    write_ledger(ledger, *(row for n in range(1, 50) for row in batch(n, offset=n)))

    assert {row["n"] for row in read_letter_rows(ledger, LEDGER, "orders")} == {49}


def test_missing_ledger_has_no_dead_letter_history(ledger: Lake) -> None:
    """An empty ledger, or none, says nothing of letters."""
    assert read_letter_rows(ledger, LEDGER, "orders") == []
    assert read_letter_rows(ledger, "shop.none__ledger", "orders") == []
