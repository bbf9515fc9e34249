"""What maintenance did last survives in a property, as small as it can be."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from frazil.maintain.need import shown_age
from frazil.maintain.run import Figures, Maintained, StepOutcome, TableOutcome

WHEN = datetime(2026, 5, 15, 10, 30, 7, tzinfo=UTC)


def maintained(reason: str, status: str = "done") -> Maintained:
    """A table that went from 62 to 98."""
    before, after = Figures(62, 500, 9_000, 500, 0, 100, 501), Figures(98, 100, 3_000, 100, 0, 1, 20)
    steps = (
        StepOutcome("compaction", status, reason, 3.5, {"rewritten_data_files_count": 500}),  # type: ignore[arg-type]
        StepOutcome("expiry", "skipped", "0 snapshots older than 5d could go, due from 20"),
    )
    return Maintained(WHEN, "orders", TableOutcome("shop.orders", "62", before, after, steps))


def test_note_of_maintenance_is_read_back_as_written() -> None:
    """What is read back is what was noted: time, scores, steps with their reasons and counts."""
    noted = maintained("500 small files")
    assert Maintained.from_json(noted.to_json()) == noted
    assert (noted.outcome.before.score, noted.outcome.after.score, noted.outcome.steps[0].counts) == (
        62,
        98,
        {"rewritten_data_files_count": 500},
    )


def test_failure_note_is_cut() -> None:
    """An error of many pages is cut: each metadata file of the table holds the note."""
    noted = maintained("Spark failed: " + 100_000 * "x", "failed")
    assert len(noted.to_json()) < 1_500
    assert Maintained.from_json(noted.to_json()).outcome.steps[0].status == "failed"


@pytest.mark.parametrize(
    ("status", "acted"), [("done", True), ("failed", True), ("gave_way", True), ("skipped", False), ("due", False)]
)
def test_idle_table_gets_no_commit(status: str, acted: bool) -> None:
    """Only what was carried out or tried is worth a note: a look commits nothing, every six hours or every minute."""
    assert maintained("why", status).outcome.did_something is acted


def test_age_is_shown_as_in_pipeline_files() -> None:
    """An age is said as pipeline files have it."""
    ages = (timedelta(days=5), timedelta(hours=36), timedelta(minutes=1), timedelta(seconds=90))
    assert [shown_age(age) for age in ages] == ["5d", "36h", "1m", "90s"]
