"""Positions and marks as text: what is read is what was written, or an error."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.batch.facts import Range
from frazil.batch.manifest import Manifest
from frazil.batch.plan import RunPlan, SessionEnd, advance
from frazil.batch.position import BatchMark, Position, TopicPosition, is_whole_position
from frazil.errors import Terminal
from tests.unit.batch.kafka_facts import facts_of, plan_of, position_at
from tests.unit.batch.written_forms import marks, positions

texts = st.text(max_size=12)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=8,
)


GOOD = {"v": 1, "n": 7, "epoch": 0, "cluster": "c", "topics": {"orders": {"id": "u", "from": [0, 5], "next": [10, 9]}}}


def test_written_form_of_position_is_stable() -> None:
    """Summaries of older snapshots, and other engines' jobs, read this form."""
    position = Position(7, 0, "c", {"orders": TopicPosition("u", (0, 5), (10, 9))})

    assert position.to_json() == json.dumps(GOOD, separators=(",", ":"))
    assert BatchMark(7, "b", 0).to_json() == '{"n":7,"batch":"b","epoch":0}'


@given(positions)
def test_position_survives_a_snapshot(position: Position) -> None:
    """What was written is what is read, for any topic name and any offset."""
    assert Position.from_json(position.to_json()) == position


@given(marks)
def test_mark_survives_a_snapshot(mark: BatchMark) -> None:
    """What was written is what is read."""
    assert BatchMark.from_json(mark.to_json()) == mark


@pytest.mark.parametrize("parse", [Position.from_json, BatchMark.from_json, Manifest.from_json, RunPlan.from_json])
@given(value=json_values)
def test_invalid_text_is_a_terminal_error(parse: Any, value: object) -> None:
    """Text that is JSON and nothing of ours is a Terminal error, never a KeyError somewhere."""
    with pytest.raises(Terminal, match=r"not a|of version"):
        parse(json.dumps(value))


def broken(**changes: object) -> str:
    return json.dumps({**GOOD, **changes})


def with_topic(**changes: object) -> str:
    return broken(topics={"orders": {**GOOD["topics"]["orders"], **changes}})  # type: ignore[index]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        broken(n=-1),
        broken(n=1.5),
        broken(n="7"),
        broken(n=True),
        broken(n=float("inf")),
        broken(epoch=None),
        broken(topics=[]),
        broken(topics=None),
        with_topic(next=[10]),
        with_topic(next=[10, -9]),
        with_topic(next=[10, 9.0]),
        with_topic(next=[10, "9"]),
        with_topic(next=[10, True]),
        with_topic(next=None),
        with_topic(**{"from": "", "next": ""}),
        with_topic(**{"from": {}, "next": {}}),
        with_topic(since=-1),
        with_topic(since="1"),
        with_topic(since=None),
        with_topic(end=[10, -9]),
        with_topic(end=[10, True]),
        with_topic(end=12),
        broken(topics={"orders": {"id": "u", "from": [0]}}),
    ],
)
def test_damaged_position_is_refused(text: str) -> None:
    """A position with a hole or a wrong type in it is refused: reading on would lose or repeat records."""
    with pytest.raises(Terminal, match="not a position"):
        Position.from_json(text)


@pytest.mark.parametrize(
    "text", ["", "{}", '{"n":1,"batch":"b"}', '{"n":-1,"batch":"b","epoch":0}', '{"n":1.5,"batch":"b","epoch":0}']
)
def test_damaged_mark_is_refused(text: str) -> None:
    """A mark decides whether a batch landed, so it is whole or refused."""
    with pytest.raises(Terminal, match="batch mark"):
        BatchMark.from_json(text)


@pytest.mark.parametrize("kind", [Position, BatchMark, Manifest, RunPlan, SessionEnd])
def test_endlessly_nested_text_is_refused(kind: Any) -> None:
    """Whoever may edit a table may put any text there: it ends in an error with a next step, not in a stack trace."""
    with pytest.raises(Terminal, match="this is not"):
        kind.from_json("[" * 100_000)
    assert not is_whole_position("[" * 100_000)


def test_position_of_newer_frazil_is_refused() -> None:
    """A position that a newer Frazil wrote is left alone."""
    with pytest.raises(Terminal, match=r"version 2 .* version 1"):
        Position.from_json(broken(v=2))


def test_unknown_partition_has_no_next_offset() -> None:
    """An unknown partition or topic has no next offset, so that its log start is asked for."""
    position = Position.from_json(json.dumps(GOOD))

    assert position.next_offset("orders", 1) == 9
    assert position.next_offset("orders", 2) is None
    assert position.next_offset("pizzas", 0) is None


def test_position_of_older_frazil_is_accepted() -> None:
    """Without `since` and `end` it is the first incarnation, read to its end."""
    assert Position.from_json(json.dumps(GOOD)).topics["orders"] == TopicPosition("u", (0, 5), (10, 9), since=0, end=())


def test_position_in_the_middle_of_a_run_equals_itself_after_reading() -> None:
    """The deciding commit compares positions: one that was written and read must equal the one that was decided."""
    position = replace(position_at(0, 0), topics={"orders": TopicPosition("id-1", (0, 0), (0, 0), since=3)})
    plan = plan_of(position, facts_of((0, 10, 10), (0, 4, 4)))

    middle = advance(position, (Range("orders", 0, 0, 5), Range("orders", 1, 0, 4)), plan)
    end = advance(middle, (Range("orders", 0, 5, 10),), plan)

    assert middle.topics["orders"] == TopicPosition("id-1", (0, 0), (5, 4), since=3, end=(10, 4))
    assert end.topics["orders"] == TopicPosition("id-1", (5, 4), (10, 4), since=3, end=())
    assert [Position.from_json(at.to_json()) for at in (middle, end)] == [middle, end]
    assert '"since":3,"end":[10,4]' in middle.to_json()
    assert "end" not in end.to_json()
