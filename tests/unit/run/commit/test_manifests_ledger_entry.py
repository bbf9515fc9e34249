"""What the ledger says of a batch."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from frazil.batch.changes import OP, ChangeCounts, Coordinates, Merge
from frazil.batch.facts import Counts, Range, Staged, StagedFile, TableCounts
from frazil.batch.manifest import Fit, Kind, Manifest, Operation, TablePart
from frazil.batch.position import Position, TopicPosition
from frazil.batch.schema_change import SchemaChange
from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.catalog.table import staging_table
from frazil.iceberg.files.data_files import RowFileWriter
from frazil.iceberg.ledger.ledger import ledger_rows
from frazil.run.commit.manifests import entry_rows
from frazil.verify.facts.coverage import coverage
from frazil.verify.facts.ledger import destination_view, read_batches
from tests.layouts import LAYOUT, created
from tests.unit.verify.facts.test_coverage import batch

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
STAMP = NOW.isoformat()


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """An empty catalog."""
    return Lake("lake", f"sqlite:///{tmp_path}/catalog.db", f"file://{tmp_path}/warehouse", {})


def test_table_without_rows_so_far_is_a_destination() -> None:
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
    batches = read_batches(
        destination_view([batch(0, "start", 5, 5, table="a.l", role="ledger"), *rows], "a.docs"), "a.l"
    )
    assert [(s.start, s.end) for s in coverage(batches, batches[-1].position)["t", 0]] == [(5, 9)]
    assert Manifest.from_json(decided.to_json()) == decided


@pytest.mark.parametrize("kind", ["ingest", "replay", "reset", "repair", "settle", "dead_letters"])
@pytest.mark.parametrize("table", ["a.first", "a.second"])
def test_column_of_a_table_without_rows_is_recorded(kind: Kind, table: str) -> None:
    """The ledger tells it of the table, and whoever sees the batch from there sees what he saw without."""
    position = Position(1, 0, "c", {"t": TopicPosition("i", (5,), (9,))})
    first = TablePart("a.first", "destination", Fit("u", 0, {}), None, (StagedFile("f", 4, 9, "{}"),))
    table_counts = {"a.first": TableCounts(3, 3, 0, 4)} if kind in {"ingest", "replay"} else {}
    other_manifest = Manifest(
        *("p", kind, "b", "r", position, first, (), "a.l", None, Counts(4, 3, 0, 1), {}),
        *(STAMP, STAMP, STAMP, {}, "1", "f", None, (Range("t", 0, 5, 9),)),
        tables=table_counts,
        table_ranges={"a.first": (Range("t", 0, 5, 9),), "a.second": ()} if kind == "dead_letters" else {},
        repairs="a.first" if kind in {"repair", "settle"} else None,
    )
    changes = (SchemaChange(("price",), "add", "long"),)

    rows = entry_rows(replace(other_manifest, schema_changes={"a.second": changes}), {"a.first": 7}, NOW, NOW)

    facts = [(row["table"], row["rows"], row["schema_changes"]) for row in rows]
    assert facts == [
        ("a.first", 4, None),
        ("a.second", 0, '[{"path": ["price"], "kind": "add", "type": "long"}]'),
    ]
    start = [batch(0, "start", 5, 5, table=of) for of in ("a.first", "a.second")]
    before = entry_rows(other_manifest, {"a.first": 7}, NOW, NOW)
    assert read_batches(destination_view([*start, *rows], table), "a.l") == read_batches(
        destination_view([*start, *before], table), "a.l"
    )


def test_inserts_and_deletes_are_counted_separately() -> None:
    """The ledger counts what was staged for a merged table by what it does there; of rows that are added it says nothing."""
    ledger = TablePart("a.l", "ledger", Fit("u", 0, {}), None, ())
    coordinates = Coordinates("t", "p", "o", "b")
    files = (
        StagedFile("f", 5, 9, "", {"upsert": 3, "delete": 2}),
        StagedFile("g", 2, 9, "", {"upsert": 1, "truncate": 1}),
    )
    merged = TablePart(
        "a.now",
        "destination",
        Fit("n", 0, {}),
        None,
        files,
        None,
        Operation("merge", (), Merge(("id",), coordinates, "at")),
    )
    added = TablePart("a.log", "destination", Fit("l", 0, {}), None, (StagedFile("h", 5, 9, "{}"),))
    older = replace(merged, table="a.old", files=(replace(files[0], ops={}),))
    position = Position(1, 0, "c", {"t": TopicPosition("i", (5,), (9,))})
    decided = Manifest(
        *("p", "ingest", "b", "r", position, ledger, (merged, added, older), "a.l", None, Counts(4, 4, 0, 0), {}),
        *(STAMP, STAMP, STAMP, {}, "1", "f", None, (Range("t", 0, 5, 9),)),
    )
    rows = entry_rows(
        Manifest.from_json(decided.to_json()), dict.fromkeys(("a.l", "a.now", "a.log", "a.old"), 7), NOW, NOW
    )
    counted = {row["table"]: (row["rows"], row["table_upserts"], row["table_deletes"]) for row in rows}
    assert counted == {"a.l": (0, None, None), "a.now": (7, 4, 2), "a.log": (5, None, None), "a.old": (5, None, None)}
    assert ledger_rows(rows).num_rows == len(rows)


def test_staged_changes_are_counted(lake: Lake) -> None:
    """Who writes them counts them, and the counts come back from executors."""
    table = created(lake, LAYOUT)
    writer = RowFileWriter(staging_table(LAYOUT.table, table))
    writer.write(pa.RecordBatch.from_pydict({OP: ["upsert", "delete", "upsert"]}))
    writer.write(pa.RecordBatch.from_pydict({OP: ["truncate"]}))
    whole = Staged.from_json(Staged(files={"t": writer.close()}).to_json())
    assert sum((ChangeCounts.from_ops(file.ops) for file in whole.files["t"]), ChangeCounts()) == ChangeCounts(2, 1, 1)
