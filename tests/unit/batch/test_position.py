"""Positions, marks and manifests as text: what is read is what was written, or an error."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.batch.facts import Counts, Fit, StagedFile
from frazil.batch.manifest import Manifest, TablePart
from frazil.batch.position import BatchMark, Position, TopicPosition
from frazil.errors import Terminal

numbers = st.integers(0, 2**63 - 1)
texts = st.text(max_size=12)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=8,
)


@st.composite
def topic_positions(draw: st.DrawFn) -> TopicPosition:
    pairs = draw(st.lists(st.tuples(numbers, numbers), max_size=5))
    return TopicPosition(draw(st.none() | texts), tuple(a for a, _ in pairs), tuple(b for _, b in pairs))


positions = st.builds(Position, numbers, numbers, texts, st.dictionaries(texts, topic_positions(), max_size=3))
marks = st.builds(BatchMark, numbers, texts, numbers)
files = st.builds(StagedFile, texts, numbers, numbers, texts)
fits = st.builds(Fit, texts, numbers, st.dictionaries(numbers, texts, max_size=3))
parts = st.builds(
    TablePart,
    texts,
    st.sampled_from(["destination", "dead_letters"]),
    fits,
    st.none() | marks,
    st.lists(files, max_size=3).map(tuple),
)
manifests = st.builds(
    Manifest,
    pipeline=texts,
    kind=st.sampled_from(["start", "ingest"]),
    batch=texts,
    run=texts,
    position=positions,
    closing=parts,
    followers=st.lists(parts, max_size=2).map(tuple),
    ledger=texts,
    ledger_after=st.none() | marks,
    counts=st.builds(Counts, numbers, numbers, numbers, numbers),
    dead_codes=st.dictionaries(texts, numbers, max_size=2),
    planned_at=texts,
    started_at=texts,
    written_at=texts,
    phases=st.dictionaries(texts, st.floats(allow_nan=False), max_size=2),
    version=texts,
    config=texts,
    complete_through=st.none() | texts,
)

GOOD = {"v": 1, "n": 7, "epoch": 0, "cluster": "c", "topics": {"orders": {"id": "u", "from": [0, 5], "next": [10, 9]}}}


def test_written_form_changes() -> None:
    """Summaries of older snapshots, and other engines' jobs, read this form."""
    position = Position(7, 0, "c", {"orders": TopicPosition("u", (0, 5), (10, 9))})

    assert position.to_json() == json.dumps(GOOD, separators=(",", ":"))
    assert BatchMark(7, "b", 0).to_json() == '{"n":7,"batch":"b","epoch":0}'


@given(positions)
def test_position_changes_on_its_way_through_a_snapshot(position: Position) -> None:
    """What was written is what is read, for any topic name and any offset."""
    assert Position.from_json(position.to_json()) == position


@given(marks)
def test_mark_changes_on_its_way_through_a_snapshot(mark: BatchMark) -> None:
    """What was written is what is read."""
    assert BatchMark.from_json(mark.to_json()) == mark


@given(manifests)
def test_manifest_changes_on_its_way_through_a_file(manifest: Manifest) -> None:
    """Whoever rolls a batch forward gets exactly the files and marks that were decided."""
    read = Manifest.from_json(manifest.to_json())

    assert read == manifest
    assert read.mark == BatchMark(manifest.position.n, manifest.batch, manifest.position.epoch)


@pytest.mark.parametrize("parse", [Position.from_json, BatchMark.from_json, Manifest.from_json])
@given(value=json_values)
def test_garbage_ends_in_a_foreign_exception(parse: Any, value: object) -> None:
    """Text that is JSON and nothing of ours is a Terminal error, never a KeyError somewhere."""
    with pytest.raises(Terminal, match="not a"):
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
        broken(topics={"orders": {"id": "u", "from": [0]}}),
    ],
)
def test_damaged_position_is_believed(text: str) -> None:
    """A position with a hole or a wrong type in it is refused: reading on would lose or repeat records."""
    with pytest.raises(Terminal, match="not a position"):
        Position.from_json(text)


@pytest.mark.parametrize(
    "text", ["", "{}", '{"n":1,"batch":"b"}', '{"n":-1,"batch":"b","epoch":0}', '{"n":1.5,"batch":"b","epoch":0}']
)
def test_damaged_mark_is_believed(text: str) -> None:
    """A mark decides whether a batch landed, so it is whole or refused."""
    with pytest.raises(Terminal, match="batch mark"):
        BatchMark.from_json(text)


def test_newer_position_is_read_as_an_old_one() -> None:
    """A position that a newer Frazil wrote is left alone."""
    with pytest.raises(Terminal, match=r"version 2 .* version 1"):
        Position.from_json(broken(v=2))


@given(manifests)
def test_newer_or_truncated_manifest_is_rolled_forward(manifest: Manifest) -> None:
    """A manifest of another version, or half of one, is refused."""
    text = manifest.to_json()

    with pytest.raises(Terminal, match="version 2"):
        Manifest.from_json(json.dumps({**json.loads(text), "v": 2}))
    with pytest.raises(Terminal, match="not a manifest"):
        Manifest.from_json(text[: len(text) // 2])


def test_partition_that_is_not_known_reads_as_zero() -> None:
    """An unknown partition or topic has no next offset, so that its log start is asked for."""
    position = Position.from_json(json.dumps(GOOD))

    assert position.next_offset("orders", 1) == 9
    assert position.next_offset("orders", 2) is None
    assert position.next_offset("pizzas", 0) is None
