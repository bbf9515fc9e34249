"""Ledgers of many batches, written by what writes the product's."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from frazil.iceberg.catalog.table import LEDGER_PROPERTIES, TABLE_PROPERTIES, Table, staging_table
from frazil.iceberg.commit.commit import Change, commit, fit_of
from frazil.iceberg.files.data_files import write_rows
from frazil.iceberg.ledger.ledger import LEDGER_SCHEMA, UNPARTITIONED, ledger_rows
from frazil.project import PIPELINES_VARIABLE, Project
from tests.unit.iceberg.ledger.test_ledger import ledger_row

LEDGER = "shop.orders__ledger"
BEGIN = datetime(2026, 5, 1, tzinfo=UTC)
Rows = list[dict[str, Any]]

FILE = """
name: {name}
source: {{topics: [orders]}}
destinations: [{{table: shop.{name}, columns: {{id: long}}}}]
"""


def batch(n: int, **changes: Any) -> Rows:
    """The two rows of a batch of a minute: 100 records, two of them dead, each written 30 s before the ends were fixed."""
    fixed = BEGIN + timedelta(minutes=n)
    facts = {
        "batch": f"id-{n}",
        "kind": "ingest",
        "planned_at": fixed,
        "started_at": fixed,
        "decided_at": fixed + timedelta(seconds=6),
        "recorded_at": fixed + timedelta(seconds=7),
        "records_read": 100,
        "records_written": 98,
        "records_dead": 2,
        "dead_codes": '{"WRONG_TYPE": 2}',
        "record_ages": "[[60,100]]",  # 30 s
        "position": json.dumps({"topics": {"orders": {"from": [100 * n] * 6, "next": [100 * n + 100] * 6}}}),
        "phases": "{}",
        **dict.fromkeys(("unknown_fields", "table_unknown_fields", "table_ranges", "schema_changes", "removed")),
        "ranges": "[]",
        "skipped": None,
    }
    rows = [ledger_row(n, table="shop.orders", snapshot_id=n, **facts)]
    rows.append(ledger_row(n, table="shop.orders__dead_letters", **facts, role="dead_letters"))
    return [row | changes for row in rows]


Write = Callable[[Iterable[Rows]], Table]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project of one pipeline, `orders`."""
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "orders.yaml").write_text(FILE.format(name="orders"))
    env = {"FRAZIL_HOME": str(tmp_path / "home"), PIPELINES_VARIABLE: str(tmp_path / "pipelines")}
    return Project.load(env)


@pytest.fixture
def write(project: Project) -> Write:
    """Append batches to the ledger of `orders` in one commit, and so in one file; make it if it is not there."""
    lake = project.lake("lake")

    def append(batches: Iterable[Rows]) -> Table:
        lake.create_table(LEDGER, LEDGER_SCHEMA, UNPARTITIONED, TABLE_PROPERTIES | LEDGER_PROPERTIES)
        table = lake.load_table(LEDGER)
        files = write_rows(staging_table(LEDGER, table), ledger_rows([row for rows in batches for row in rows]))
        commit(lake, Change(LEDGER, files, {}, (), fit_of(table.metadata), lambda _: None, lambda _: None, "follow"))
        return lake.load_table(LEDGER)

    return append
