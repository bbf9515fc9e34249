"""Rows of the ledger are read as they were written."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.catalog.table import TABLE_PROPERTIES, staging_table
from frazil.iceberg.commit.commit import Change, commit, fit_of
from frazil.iceberg.files.data_files import write_rows
from frazil.iceberg.ledger.ledger import LEDGER_SCHEMA, UNPARTITIONED, ledger_rows, read_ledger

LEDGER = "shop.orders__ledger"


def ledger_row(n: int, pipeline: str = "orders", run: str = "run-1", **changes: Any) -> dict[str, Any]:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    values: dict[str, Any] = {"string": "x", "long": 0, "int": 0, "timestamptz": now}
    row = {field.name: values[str(field.field_type)] for field in LEDGER_SCHEMA.fields}
    return row | {"n": n, "pipeline": pipeline, "run": run, "role": "destination", "snapshot_id": None} | changes


def write_ledger(lake: Lake, *rows: dict[str, Any]) -> None:
    table = lake.load_table(LEDGER)
    files = write_rows(staging_table(LEDGER, table), ledger_rows(list(rows)))
    commit(lake, Change(LEDGER, files, {}, (), fit_of(table.metadata), lambda _: None, lambda _: None, "follow"))


def test_ledger_reads_back_as_written(lake: Lake) -> None:
    """Rows come back whole, by batch and with the destination first; other pipelines and runs stay out."""
    assert read_ledger(lake, LEDGER, "orders") == []
    lake.create_table(LEDGER, LEDGER_SCHEMA, UNPARTITIONED, TABLE_PROPERTIES)
    assert read_ledger(lake, LEDGER, "orders") == []

    letters = ledger_row(2, role="dead_letters", table="a")
    write_ledger(lake, letters, ledger_row(2, snapshot_id=2**62), ledger_row(1, run="run-0"))
    write_ledger(lake, ledger_row(1, pipeline="it's another", run="run-1"))

    assert read_ledger(lake, LEDGER, "orders") == [
        ledger_row(1, run="run-0"),
        ledger_row(2, snapshot_id=2**62),
        letters,
    ]
    assert read_ledger(lake, LEDGER, "orders", "run-1") == [ledger_row(2, snapshot_id=2**62), letters]
    assert read_ledger(lake, LEDGER, "orders", "run-9") == []
    assert [row["n"] for row in read_ledger(lake, LEDGER, "it's another")] == [1]
