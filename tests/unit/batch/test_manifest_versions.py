"""What one Frazil writes and another one reads: texts of every version are kept in tests/fixtures/formats, for ever."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from frazil.batch.changes import Coordinates, Merge, Removal, RemovedRange
from frazil.batch.facts import Counts, Range, StagedFile, TableCounts, UnknownFields
from frazil.batch.manifest import Fit, Manifest, Operation, TablePart
from frazil.batch.plan import PlannedTopic, RunPlan, SessionEnd
from frazil.batch.position import BatchMark, Position, TopicPosition
from frazil.batch.schema_change import SchemaChange
from frazil.errors import Terminal
from frazil.iceberg.ledger.ledger import DEAD_LETTER_SCHEMA, LEDGER_SCHEMA

FIXTURES = Path(__file__).parents[2] / "fixtures" / "formats"

POSITION = Position(
    7,
    1,
    "kafka-cluster",
    {
        "orders": TopicPosition("IoM3zTbYRZq4Wd1hDqVjrA", (0, 5), (10, 9), since=4, end=(12, 9)),
        "plain": TopicPosition(None, (3,), (3,)),
    },
)
MARK = BatchMark(6, "2f1c7f0e-6f2a-4b39-b6ac-0e7cb5b8b7a1", 1)
ROWS = Coordinates("_kafka_topic", "_kafka_partition", "_kafka_offset", "_frazil_batch")
FACTS = '{"path":"s3://lake/orders/data/a.parquet","format":"PARQUET","spec":0,"partition":[],"records":2,"bytes":900}'
FILE = StagedFile("s3://lake/orders/data/a.parquet", 2, 900, FACTS, {"u": 1, "d": 1})
FIT = Fit("9c1ab3cc-4d3e-4f1a-9f93-2bb0a7b7b6de", 0, {1: "long", 2: "string"})
REMOVAL = Removal(ROWS, (RemovedRange("orders", None, 0, None, 4), RemovedRange("orders", 1, 5, 9, 0)))
MERGE = Merge(("id",), ROWS, "_kafka_timestamp", "updated_at", "deleted", {"orders": 4})
PARTS = (
    TablePart("shop.orders", "destination", FIT, MARK, (FILE,), REMOVAL),
    TablePart(
        "shop.latest", "destination", FIT, None, (FILE,), None, Operation("merge", ("doc",), MERGE), "lake", "night"
    ),
    TablePart("shop.orders__dead_letters", "dead_letters", FIT, MARK, ()),
)
MANIFEST = Manifest(
    pipeline="orders",
    kind="replay",
    batch="4b9a5d0a-6a1c-4c53-8c2c-1f6f2d6c5f10",
    run="manual__2026-01-01T00:00:00+00:00",
    position=POSITION,
    closing=PARTS[0],
    followers=PARTS[1:],
    ledger="shop.orders__ledger",
    ledger_after=MARK,
    counts=Counts(9, 6, 2, 1),
    dead_codes={"invalid_json": 2},
    planned_at="2026-01-01T00:00:00.000+00:00",
    started_at="2026-01-01T00:00:01.000+00:00",
    written_at="2026-01-01T00:00:02.000+00:00",
    phases={"stage": 0.5},
    version="0.1.0",
    config="c0ffee",
    complete_through="2026-01-01T00:00:00.000+00:00",
    ranges=(Range("orders", 1, 5, 9),),
    skipped=(Range("orders", 0, 0, 3),),
    bytes_read=1700,
    started_by="cli:ann@host",
    reason="wrong prices",
    repairs="shop.latest",
    recovers=("s3://lake/orders/metadata/frazil-orders-6-x.json",),
    abandoned=3,
    letter_topic="orders-dead",
    tables={"shop.orders": TableCounts(9, 6, 2, 6, UnknownFields(1, {"colour": 1}))},
    table_ranges={"shop.latest": (Range("orders", 1, 5, 7),)},
    dropped=("shop.former",),
    unmarked=("shop.latest",),
    unknown_fields=UnknownFields(1, {"colour": 1}),
    schema_changes={"shop.orders": (SchemaChange(("at", "zip"), "add", "string"),)},
    created=("shop.made",),
    record_ages={0: 4, 12: 5},
)
PLAN = RunPlan(
    pipeline="orders",
    run="manual__2026-01-01T00:00:00+00:00",
    planned_at="2026-01-01T00:00:00.000+00:00",
    cluster="kafka-cluster",
    topics={
        "orders": PlannedTopic("IoM3zTbYRZq4Wd1hDqVjrA", (10, 9), (12, 9)),
        "plain": PlannedTopic(None, (3,), (8,)),
    },
    complete=True,
    epoch=1,
    mode="replay",
    started_by="airflow:manual",
    reason="wrong prices",
    waits=True,
    until="2026-01-01T01:00:00.000+00:00",
)

WRITTEN: dict[str, Any] = {
    "position-1": POSITION,
    "mark-1": MARK,
    "manifest-1": MANIFEST,
    "manifest-2": MANIFEST,
    "plan-2": PLAN,
    "session-end-1": SessionEnd("2026-01-01T01:00:00.000+00:00"),
}
"""Kept text -> what it says. A form that changes gets a further entry with the next version; none is ever taken out."""

NEWEST = ("position-1", "mark-1", "manifest-2", "plan-2", "session-end-1")
"""Those that this Frazil writes."""

SCHEMAS = {"ledger-1": LEDGER_SCHEMA, "dead-letters-1": DEAD_LETTER_SCHEMA}


def stored_text(name: str) -> str:
    """The text of a form, as some Frazil wrote it."""
    return (FIXTURES / f"{name}.json").read_text(encoding="utf-8").rstrip("\n")


@pytest.mark.parametrize("name", WRITTEN)
def test_texts_of_older_frazil_are_readable(name: str) -> None:
    """What any released version wrote, this one reads, and it says the same."""
    assert type(WRITTEN[name]).from_json(stored_text(name)) == WRITTEN[name]


@pytest.mark.parametrize("name", NEWEST)
def test_written_form_changes_only_with_a_new_version(name: str) -> None:
    """An older Frazil could not read it and would not know why: raise the version, keep its reader and this text, add a new one."""
    assert WRITTEN[name].to_json() == stored_text(name)


@pytest.mark.parametrize("name", NEWEST)
def test_text_of_newer_frazil_is_refused_with_an_upgrade_hint(name: str) -> None:
    """It is left alone, and the error says who must be upgraded."""
    body = json.loads(stored_text(name))

    with pytest.raises(Terminal, match=r"of version \d+ was found, written by a newer Frazil") as refused:
        type(WRITTEN[name]).from_json(json.dumps(body | {"v": body.get("v", 1) + 1}))

    assert "docs/upgrading.md" in (refused.value.next_step or "")


@pytest.mark.parametrize("version", [None, "1", 0, -1, True, 1.5])
@pytest.mark.parametrize("name", NEWEST)
def test_invalid_version_is_refused(name: str, version: object) -> None:
    """Neither a newer nor an older one: the text is damaged."""
    text = json.dumps(json.loads(stored_text(name)) | {"v": version})

    with pytest.raises(Terminal, match="is not"):
        type(WRITTEN[name]).from_json(text)


@pytest.mark.parametrize("name", SCHEMAS)
def test_tables_of_older_frazil_can_be_upgraded(name: str) -> None:
    """Columns keep names, types and whether they are required; new ones are optional. Each change is kept here."""
    columns = [[field.name, str(field.field_type), field.required] for field in SCHEMAS[name].fields]
    document = json.loads(stored_text(name))

    assert columns[: len(document)] == document
    assert not any(required for _, _, required in columns[len(document) :])
    assert columns == document, "add the new columns to the kept list"


def test_every_kept_text_is_read() -> None:
    """None lies there unread."""
    assert {path.stem for path in FIXTURES.glob("*.json")} == {*WRITTEN, *SCHEMAS}
