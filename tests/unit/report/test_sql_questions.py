"""What a question to the tables makes Frazil read, and what it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from frazil.errors import Terminal
from frazil.report.sql import parse

if TYPE_CHECKING:
    import duckdb


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    import duckdb

    with duckdb.connect(":memory:") as opened:
        yield opened


def test_only_named_tables_are_read_and_only_once(connection: duckdb.DuckDBPyConnection) -> None:
    """A table is loaded because the question names it, however often."""
    question = parse(
        connection, "SELECT a.id FROM shop.orders a JOIN shop.orders b USING (id) JOIN shop.orders.files f ON true"
    )

    assert question.tables == (("shop", "orders"), ("shop", "orders", "files"))


def test_a_name_given_in_the_question_is_no_table(connection: duckdb.DuckDBPyConnection) -> None:
    """`WITH recent AS (…) SELECT … FROM recent` reads what is inside."""
    question = parse(connection, "WITH recent AS (SELECT id FROM shop.orders) SELECT id FROM Recent")

    assert question.tables == (("shop", "orders"),)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM shop.orders",
        "FROM shop.orders",
        "SELECT o FROM shop.orders o",
        "SELECT orders FROM shop.orders",
        "SELECT count(*) FROM shop.orders NATURAL JOIN shop.lines",
        "SELECT COLUMNS('i.*') FROM shop.orders",
        "SUMMARIZE shop.orders",
        "DESCRIBE shop.orders",
    ],
)
def test_a_question_that_may_mean_every_column_reads_every_column(
    connection: duckdb.DuckDBPyConnection, sql: str
) -> None:
    """One column too few would change the answer, not only the cost."""
    assert parse(connection, sql).words is None


def test_question_about_some_columns_reads_no_others(connection: duckdb.DuckDBPyConnection) -> None:
    """Counting by store must not read the wide columns; upper case and quotes don't hide a column."""
    words = parse(connection, "SELECT \"Store_ID\", count(*) FROM shop.orders WHERE SAUCE = 'bbq' GROUP BY ALL").words

    assert words is not None
    assert {"store_id", "sauce"} <= words
    assert "veggies" not in words


@pytest.mark.parametrize(
    ("sql", "limit"),
    [
        ("SELECT id, name FROM shop.orders LIMIT 5", 5),
        ("FROM shop.orders LIMIT 5", 5),
        ("SELECT id FROM shop.orders", None),
        ("SELECT count(*) FROM shop.orders LIMIT 5", None),
        ("SELECT DISTINCT id FROM shop.orders LIMIT 5", None),
        ("SELECT id FROM shop.orders WHERE id > 3 LIMIT 5", None),
        ("SELECT id FROM shop.orders ORDER BY id LIMIT 5", None),
        ("SELECT id FROM shop.orders LIMIT 5 OFFSET 2", None),
        ("SELECT id FROM shop.orders GROUP BY id LIMIT 5", None),
        ("SELECT id FROM shop.orders QUALIFY row_number() OVER () > 3 LIMIT 5", None),
        ("SELECT id FROM shop.orders USING SAMPLE 10 LIMIT 5", None),
        ("SELECT o.id FROM shop.orders o, shop.lines l LIMIT 5", None),
        ("SELECT id FROM (SELECT id FROM shop.orders WHERE id > 3) LIMIT 5", None),
        ("SELECT id FROM shop.orders LIMIT 50%", None),
    ],
)
def test_rows_are_left_unread_only_where_any_rows_will_do(
    connection: duckdb.DuckDBPyConnection, sql: str, limit: int | None
) -> None:
    """A limit handed to the reader of a filtered, sorted or grouped table would give a wrong answer."""
    assert parse(connection, sql).limit == limit


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM shop.orders",
        "INSERT INTO shop.orders VALUES (1)",
        "DROP TABLE shop.orders",
        "COPY shop.orders TO 'orders.csv'",
        "ATTACH 'other.db'",
        "SET enable_external_access = true",
        "SELECT 1; SELECT 2",
        "SELEC 1",
        "",
    ],
)
def test_anything_but_one_query_is_refused(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    """Tables are written by batches, with their position; never by a question."""
    with pytest.raises(Terminal, match=r"query|statement"):
        parse(connection, sql)
