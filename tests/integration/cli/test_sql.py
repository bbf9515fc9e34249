"""Questions to real tables: the answers of the whole table, from as little of it as will do."""

from __future__ import annotations

from typing import Any

import pytest

from frazil.errors import Terminal

Place = Any
"""A project whose table holds 990 rows: `landed.frazil(...)` runs the command in it. See conftest."""


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("SELECT count(*) AS n FROM shop.orders", 990),
        ("SELECT count(*) AS n FROM (SELECT id FROM shop.orders LIMIT 7)", 7),
        ("SELECT count(DISTINCT ID) AS n FROM Shop.Orders", 990),
        ("SELECT count(*) AS n FROM shop.orders a JOIN shop.orders b USING (id)", 990),
        ("SELECT count(o) AS n FROM lake.shop.orders o", 990),
        ("WITH o AS (FROM shop.orders) SELECT count(*) AS n FROM o WHERE amount IS NOT NULL", 990),
        ('SELECT max(l.n) AS n FROM shop.orders.snapshots s JOIN "shop.orders__ledger" l USING (snapshot_id)', 1),
    ],
)
def test_pushing_down_never_changes_an_answer(landed: Place, question: str, answer: int) -> None:
    """Columns and rows that a question does not need stay unread, those it needs never."""
    assert landed.json("sql", question) == [{"n": answer}]


def test_a_sample_has_whole_rows(landed: Place) -> None:
    """As many as asked for, with every column."""
    rows = landed.json("sql", "FROM shop.orders LIMIT 3")

    assert len(rows) == 3
    assert {"id", "amount", "created_at", "_kafka_offset"} <= rows[0].keys()


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ("SELECT * FROM shop.order", "did you mean shop.orders?"),
        ("SELECT nope FROM shop.orders", "nope"),
        ("SELECT * FROM read_csv('/etc/passwd')", "file system operations are disabled"),
        ("DELETE FROM shop.orders", "it would change something"),
    ],
)
def test_a_question_that_can_not_be_answered_says_why(landed: Place, question: str, message: str) -> None:
    """A slip in a name gets the nearest table; files and changes are out of reach."""
    ended = landed.frazil("sql", question)

    assert ended.returncode == Terminal.exit_code
    assert message in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ""


def test_the_tables_can_be_listed(landed: Place) -> None:
    """Whoever does not know the names can ask for them."""
    shown = landed.json("sql", "SHOW TABLES")

    assert shown == [{"name": "shop.orders"}, {"name": "shop.orders__dead_letters"}, {"name": "shop.orders__ledger"}]
