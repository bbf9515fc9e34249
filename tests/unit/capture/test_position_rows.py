"""Which rows come next, where transactions end between them, and which positions are refused."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.capture.position import (
    CapturePosition,
    Reset,
    Row,
    TopicState,
    Transactions,
    end_by_time,
    require_order,
    require_position,
    row_condition,
    row_state,
)
from frazil.errors import Terminal
from frazil.pipeline.settings.capture import JdbcCapture

NOW = datetime(2026, 5, 1, 12, 0, 30, tzinfo=UTC)
UNTIL = "`at` <= TIMESTAMP '2026-05-01T12:00:00+00:00'"
NUMBERED = "`id` IS NOT NULL"
T = "2026-04-30T00:00:00.000001Z"
MOMENT = "TIMESTAMP '2026-04-30T00:00:00.000001+00:00'"


def capture_of(mode: Any) -> JdbcCapture:
    columns = {"timestamp": {"timestamp_column": "at"}, "incrementing": {"incrementing_column": "id"}}
    of_mode = {key: option for name, options in columns.items() if name in mode for key, option in options.items()}
    return JdbcCapture(capture="jdbc", name="rows", topic="rows", database="shop", table="orders", mode=mode, **of_mode)


@pytest.mark.parametrize(
    ("mode", "last", "expected"),
    [
        ("bulk", None, None),
        ("incrementing", None, "`id` IS NOT NULL"),
        ("incrementing", [17], "`id` > 17"),
        ("timestamp", None, UNTIL),
        ("timestamp", [T], f"`at` > {MOMENT} AND {UNTIL}"),
        ("timestamp+incrementing", None, f"{UNTIL} AND {NUMBERED}"),
        (
            "timestamp+incrementing",
            [T, 3],
            f"(`at` > {MOMENT} OR (`at` = {MOMENT} AND `id` > 3)) AND {UNTIL} AND {NUMBERED}",
        ),
        ("timestamp+incrementing", [T, None], f"`at` > {MOMENT} AND {UNTIL} AND {NUMBERED}"),
    ],
)
def test_rows_between_two_runs_are_all_read(mode: str, last: list[Any] | None, expected: str | None) -> None:
    """A run asks for what is behind its position, less what is younger than the delay of 30 s."""
    capture = capture_of(mode)
    assert row_condition(capture, row_state(capture, None if last is None else tuple(last)), NOW) == expected


def test_position_carries_no_sql_into_the_statement() -> None:
    """Places become numbers and times before they are asked for; nothing else gets through."""
    for mode, last in (("incrementing", ("1 OR 1=1",)), ("timestamp", ("x' OR '1'='1",))):
        with pytest.raises(ValueError, match=r"invalid literal|Invalid isoformat"):
            row_condition(capture_of(mode), row_state(capture_of(mode), last), NOW)


def test_end_by_time_leaves_out_the_delay() -> None:
    """Rows within the delay come in the first run after it."""
    assert end_by_time(capture_of("timestamp"), NOW) == ("2026-05-01T12:00:00+00:00",)
    assert end_by_time(capture_of("timestamp+incrementing"), NOW) == ("2026-05-01T12:00:00+00:00", None)


def test_changed_columns_do_not_take_the_position_over() -> None:
    """A position by id says nothing of times."""
    with pytest.raises(Terminal, match=r"has the columns \['id'\], its file says \['at'\]"):
        require_order(capture_of("timestamp"), row_state(capture_of("incrementing"), (1,)))


@given(st.lists(st.integers(0, 5)).map(sorted), st.integers(1, 4))
def test_transactions_never_split_rows_of_equal_position(places: list[int], most: int) -> None:
    """All rows are taken once, in order; no place is in two transactions; each but the last one is full."""
    cuts = Transactions((Row(None, b"", (place,)) for place in places), most)
    transactions = []
    while cuts.has_more:
        transactions.append([row.order_values[0] for row in cuts.take()])
        assert cuts.last == (transactions[-1][-1],)

    assert [place for transaction in transactions for place in transaction] == places
    assert cuts.taken == len(places)
    assert all(len(transaction) >= most for transaction in transactions[:-1])
    assert all(not {*transaction} & {*following} for transaction, following in pairwise(transactions))


POSITION = CapturePosition(
    "file", "logs", "id", 3, 1, "run", {"files": []}, Reset("end", "a test", "ann", "2026-05-01T00:00:00", 2)
)
TOPIC = TopicState("logs", "id", 7)


def test_position_survives_json() -> None:
    """What is kept is what is read; a later version, or anything else, is refused."""
    assert CapturePosition.from_json(POSITION.to_json()) == POSITION
    for text, message in (
        (POSITION.to_json().replace('"v":1', '"v":2'), "of version 2"),
        ("[]", "can't be read"),
        ("{", "can.t be read"),
        ("[" * 100_000, "can't be read"),
    ):
        with pytest.raises(Terminal, match=message):
            CapturePosition.from_json(text)


@pytest.mark.parametrize(
    ("position", "topic", "message"),
    [
        (None, TOPIC, "topic 'logs' is not new"),
        (replace(POSITION, kind="jdbc"), TOPIC, "of kind jdbc, its file says file"),
        (POSITION, replace(TOPIC, id="other"), r"of topic 'logs' \(id\), and the topic is 'logs' \(other\)"),
        (POSITION, replace(TOPIC, name="other"), "--from position"),
    ],
)
def test_lost_position_is_refused_with_a_command(
    position: CapturePosition | None, topic: TopicState, message: str
) -> None:
    """What can't be told is refused, with the command that ends it."""
    with pytest.raises(Terminal) as caught:
        require_position("logs", "file", position, topic)
    assert caught.match(message)
    assert "frazil capture logs --from" in str(caught.value)
    require_position("logs", "file", POSITION, TOPIC)
    require_position("logs", "file", None, replace(TOPIC, used=0))
