"""SQL text for Spark: names and values in it mean themselves."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from frazil.maintain.procedures import Argument, Before, ZOrder
from frazil.spark.writes.rows import literal, quote_name


def test_each_part_of_a_name_is_quoted() -> None:
    """Dots part names only where the caller has several; a backtick is written twice."""
    assert quote_name("lake", "a.b", "c`d", "e f") == "`lake`.`a.b`.`c``d`.`e f`"


@pytest.mark.parametrize(
    ("kind", "bound"),
    [
        ("date", "DATE \\'2026-05-15\\'"),
        ("timestamp", "TIMESTAMP_NTZ \\'2026-05-15 00:00:00\\'"),
        ("timestamptz", "TIMESTAMP \\'2026-05-15 00:00:00 UTC\\'"),
    ],
)
def test_partitions_are_bounded_in_the_type_of_their_column(kind: str, bound: str) -> None:
    """The condition is a text within a text: both are quoted."""
    before = Before(("of`f", "at"), kind, datetime(2026, 5, 15, tzinfo=UTC))
    assert literal(before) == f"'`of``f`.`at` < {bound}'"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("it's \\ ${env:X}", "'it\\'s \\\\ ${env:X}'"),
        (True, "true"),
        (7, "7"),
        (("a", "b'"), "array('a', 'b\\'')"),
        ({"k": "v"}, "map('k', 'v')"),
        (ZOrder(("user-id", "a`b")), "'zorder(`user-id`, `a``b`)'"),
        (datetime(2026, 5, 15, 1, tzinfo=UTC), "TIMESTAMP '2026-05-15 01:00:00 UTC'"),
    ],
)
def test_arguments_of_procedures_are_literals(value: Argument, expected: str) -> None:
    """Whatever they hold, they end where they end."""
    assert literal(value) == expected
