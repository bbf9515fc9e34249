"""The health of a table is one number, and says what takes from it."""

from __future__ import annotations

from frazil.iceberg.ledger.inspection import PartitionFiles
from frazil.maintain.need import health
from tests.unit.maintain.tables import small, table


def test_new_table_is_healthy() -> None:
    """A few files, a snapshot each: nothing to complain about, though one of them would do."""
    assert health(table(small(3), manifests=3, manifests_needed=1), 0).score >= 90
    assert health(table(), 0).score == 100


def test_every_problem_lowers_the_score() -> None:
    """Each takes its points at most; a table with all of them has none left."""
    inspection = table(small(1_000_000, size=1), position_deletes=1_000_000, manifests=1_000_000, manifests_needed=1)
    assert health(inspection, 0).lost == {"small files": 40, "delete files": 20, "manifests": 20}
    assert str(health(inspection, 0)) == "20 (small files -40, delete files -20, manifests -20)"


def test_full_files_are_not_small() -> None:
    """A hundred files of the target size are fine, and so are small ones that no rewrite could make fewer."""
    full = PartitionFiles(files=100, bytes=100 << 29)
    assert health(table(full, *(small(1) for _ in range(100))), 0).score == 100
