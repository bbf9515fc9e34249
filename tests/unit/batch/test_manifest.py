"""Manifests as text: whoever rolls a batch forward does exactly what was decided, or nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings

from frazil.batch.changes import Coordinates, Removal, RemovedRange
from frazil.batch.facts import Counts, Range, StagedFile
from frazil.batch.manifest import MANIFEST_VERSION, Fit, Manifest, TablePart
from frazil.batch.position import BatchMark, Position, TopicPosition
from frazil.errors import Terminal
from tests.unit.batch.written_forms import manifests


@given(manifests)
@settings(max_examples=40)
def test_manifest_survives_a_file(manifest: Manifest) -> None:
    """Whoever rolls a batch forward gets exactly the files and marks that were decided."""
    read = Manifest.from_json(manifest.to_json())

    assert read == manifest
    assert read.mark == BatchMark(manifest.position.n, manifest.batch, manifest.position.epoch)


@given(manifests)
@settings(max_examples=40)
def test_newer_or_truncated_manifest_is_refused(manifest: Manifest) -> None:
    """A manifest of another version, or half of one, is refused."""
    text = manifest.to_json()

    newer = MANIFEST_VERSION + 1
    with pytest.raises(Terminal, match=f"version {newer}"):
        Manifest.from_json(json.dumps({**json.loads(text), "v": newer}))
    with pytest.raises(Terminal, match="not a manifest"):
        Manifest.from_json(text[: len(text) // 2])


def test_operation_of_newer_frazil_is_refused() -> None:
    """What an engine must do with a part and this Frazil does not know is refused, not left out."""
    body = json.loads(manifest())
    body["followers"][0]["operation"] = {"kind": "split", "variants": []}
    with pytest.raises(Terminal, match="operation 'split'"):
        Manifest.from_json(json.dumps(body))


COLUMNS = Coordinates("_kafka_topic", "_kafka_partition", "_kafka_offset", "_frazil_batch")
REMOVAL = Removal(COLUMNS, (RemovedRange("orders", None, 0, None, 4), RemovedRange("orders", 1, 5, 9, 0)))


def manifest(**changes: Any) -> str:
    part = TablePart("rows", "destination", Fit("u", 0, {1: "long"}), None, (StagedFile("f", 1, 2, "{}"),), REMOVAL)
    position = Position(7, 1, "c", {"orders": TopicPosition("t", (0, 5), (10, 9), 4, (12, 9))})
    whole = Manifest(
        "p", "replay", "b", "r", position, part, (part,), "ledger", BatchMark(6, "a", 0), Counts(1, 1), {},
        "t0", "t1", "t2", {"stage": 0.5}, "1", "hash", None, (Range("orders", 1, 5, 9),), (Range("orders", 0, 0, 3),),
        17, "cli:ann@host", "wrong prices",
    )  # fmt: skip
    assert Manifest.from_json(whole.to_json()) == whole
    return json.dumps(json.loads(whole.to_json()) | changes)


def test_bounds_of_a_removal_survive_the_manifest() -> None:
    """No partition means all of them and no end means no bound: neither may turn into 0 on the way."""
    read = Manifest.from_json(manifest())

    assert read.closing.removal == REMOVAL


@pytest.mark.parametrize(
    "changes",
    [
        {"ranges": [{"topic": "orders"}]},
        {"ranges": 5},
        {"skipped": [7]},
        {"closing": {}},
        {"closing": None},
        {"followers": [None]},
        {"counts": {"read": 1, "lost": 2}},
        {"ledger_after": {"n": 6}},
        {"letter_topic": {"id": "letters"}},
        {"unheard": "of"},
    ],
    ids=str,
)
def test_damaged_manifest_is_refused(changes: dict[str, Any]) -> None:
    """A part that can't be read is no part that may be left out."""
    with pytest.raises(Terminal, match="not a manifest"):
        Manifest.from_json(manifest(**changes))
