"""What a compaction takes: closed partitions first, and no more bytes than one run may."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from frazil.iceberg.ledger.inspection import Inspection
from frazil.maintain.need import period, period_start
from frazil.maintain.procedures import Before, ZOrder
from frazil.maintain.steps import compaction_arguments
from frazil.pipeline.models.maintenance import Compaction
from tests.unit.maintain.tables import DAY, NOW, TODAY, small, table


def calls(inspection: Inspection, branch: str | None = None, **rules: Any) -> list[dict[str, Any]]:
    return compaction_arguments(inspection, Compaction.model_validate(rules), NOW, branch=branch)


def test_closed_partitions_are_compacted_first() -> None:
    """Closed partitions have a call of their own before all others."""
    first, second = calls(table(small(6, TODAY), small(7, TODAY - 1), time_field=DAY))
    assert first["where"] == Before(("at",), "timestamptz", datetime(2026, 5, 15, tzinfo=UTC))
    assert "where" not in second


def test_run_rewrites_no_more_bytes_than_its_limit() -> None:
    """The first portion takes its share, the second what is left, in files; a third has to wait for the next run."""
    inspection = table(small(10, TODAY - 1), small(10, TODAY), time_field=DAY)
    first, second = calls(inspection, max_bytes=16_000)
    assert "max-files-to-rewrite" not in first["options"]
    assert second["options"]["max-files-to-rewrite"] == "6"
    (only,) = calls(inspection, max_bytes=7_000)
    assert only["options"]["max-files-to-rewrite"] == "7"


def test_delete_files_make_large_files_due() -> None:
    """With delete files due, every data file that rows were deleted from is taken, in all partitions."""
    (call,) = calls(table(small(1, TODAY), time_field=DAY, position_deletes=10), partitions="closed")
    assert call["options"]["delete-file-threshold"] == "1"
    assert "where" not in call


def test_sort_order_is_kept() -> None:
    """A sorted table stays sorted, unless the file says otherwise."""
    assert calls(table(small(9), is_sorted=True))[0]["strategy"] == "sort"
    assert calls(table(small(9), is_sorted=True), strategy="bin-pack")[0]["strategy"] == "binpack"
    assert calls(table(small(9)), strategy="z-order", columns=["a", "b"])[0]["sort_order"] == ZOrder(("a", "b"))


def test_branch_of_the_pipeline_is_rewritten() -> None:
    """Where the pipeline lands on a branch, its files are meant."""
    assert calls(table(small(9)), branch="audit")[0]["branch"] == "audit"


@pytest.mark.parametrize(
    ("unit", "periods", "start"),
    [
        ("year", 56, datetime(2026, 1, 1, tzinfo=UTC)),
        ("month", 56 * 12 + 4, datetime(2026, 5, 1, tzinfo=UTC)),
        ("day", TODAY, datetime(2026, 5, 15, tzinfo=UTC)),
        ("hour", TODAY * 24 + 10, datetime(2026, 5, 15, 10, tzinfo=UTC)),
    ],
)
def test_present_partition_is_not_closed(unit: str, periods: int, start: datetime) -> None:
    """Periods count as Iceberg's transforms do, and begin where the present one does."""
    assert (period(unit, NOW), period_start(unit, NOW)) == (periods, start)


def test_small_files_share_one_commit() -> None:
    """Kilobytes are one commit; of many gigabytes each part has its own, so that a kill does not cost all."""
    (few,) = calls(table(small(100)))
    (many,) = calls(table(small(100, size=2**28)), max_bytes=8 * 2**30)
    assert not [option for option in few["options"] if option.startswith("partial-progress")]
    assert (many["options"]["partial-progress.enabled"], many["options"]["partial-progress.max-commits"]) == (
        "true",
        "4",
    )
