"""What tables tell of the batches that landed in them."""

from __future__ import annotations

import pytest
from pyiceberg.table import DataScan

from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.commit.commit import commit
from frazil.iceberg.commit.removal import rows_of_batches
from tests.unit.iceberg.coordinates import COLUMNS, Row, change
from tests.unit.iceberg.orders import TABLE, mark


def test_landed_batches_are_found_in_one_scan(lines: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of many batches are found in one look at the manifests, with the batch that landed each."""
    for n in range(1, 5):
        rows = [Row(10 * n + number, offset=10 * n + number, batch=n) for number in range(2)]
        commit(lines, change(lines, mark(n), mark(n - 1) if n > 1 else None, rows))
    looks: list[object] = []
    plan = DataScan.plan_files
    monkeypatch.setattr(DataScan, "plan_files", lambda scan: looks.append(scan) or plan(scan))

    landed_rows = sorted(rows_of_batches(lines.load_table(TABLE), TABLE, COLUMNS, (2, 4)))

    assert landed_rows == [("orders", 0, 20, 2), ("orders", 0, 21, 2), ("orders", 0, 40, 4), ("orders", 0, 41, 4)]
    assert len(looks) == 1
    assert list(rows_of_batches(lines.load_table(TABLE), TABLE, COLUMNS, ())) == []
