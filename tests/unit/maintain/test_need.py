"""Steps are due by numbers, and only where they can be done."""

from __future__ import annotations

import pytest

from frazil.maintain.need import ORPHANS_KEY, STEPS, Order, Step
from tests.unit.maintain.tables import DAY, TODAY, judged, line, small, table, with_snapshots


@pytest.mark.parametrize(("files", "due"), [(4, False), (5, True)])
def test_table_is_rewritten_only_for_fewer_files(files: int, due: bool) -> None:
    """Five small files in one partition make compaction due; five in as many partitions can't become fewer."""
    assert judged(table(small(files)), "compaction").due is due
    assert not judged(table(*(small(1) for _ in range(files))), "compaction").due


def test_reason_has_its_numbers() -> None:
    """Whoever asks why nothing happens reads how far it is from being due."""
    assert judged(table(small(3)), "compaction").reason == (
        "3 small files in the partition that has most, due from 5; 0 delete files, due from 10"
    )


def test_delete_files_alone_make_compaction_due() -> None:
    """Delete files count by themselves, without a single small data file; compaction then takes those of positions too."""
    inspection = table(position_deletes=25)
    assert judged(inspection, "compaction").due
    assert not judged(inspection, "position_deletes").due
    assert judged(inspection, "position_deletes", compaction=False).due


def test_open_partition_is_left_alone_under_closed() -> None:
    """Today's small files make nothing due under `closed`; yesterday's do."""
    rules = {"compaction": {"partitions": "closed"}}
    assert not judged(table(small(9, TODAY), time_field=DAY), "compaction", **rules).due
    assert judged(table(small(9, TODAY - 1), time_field=DAY), "compaction", **rules).due


@pytest.mark.parametrize("step", STEPS)
def test_step_left_out_of_the_file_is_never_forced(step: Step) -> None:
    """`--force` does what is not due, not what the file leaves out."""
    inspection = table(small(1))
    order = Order(steps=(step,), force=True)
    assert judged(inspection, step, order=order, stats={}).due
    assert not judged(inspection, step, order=order, **{"stats": {}, step: False}).due


def test_steps_that_spark_cannot_do_on_a_time_column_say_why() -> None:
    """What PyIceberg does is due as elsewhere; in version 3, which it does not write, orphans alone."""
    inspection = table(small(9), unreadable="opens", position_deletes=99, manifests=99)
    needs = {step: judged(inspection, step, stats={}, order=Order(force=True)) for step in STEPS}
    assert {step for step, need in needs.items() if need.due} == {"expiry", "orphans"}
    assert needs["compaction"].reason == "column opens is of type time: Spark can't load the table"
    third = table(small(9), unreadable="opens", format_version=3)
    assert {step for step in STEPS if judged(third, step, order=Order(force=True)).due} == {"orphans"}


def test_steps_for_main_leave_a_branch_alone() -> None:
    """Where the pipeline lands on a branch, steps that Spark does on main only rest."""
    inspection = table(position_deletes=99, manifests=99, rows=10)
    for step in ("position_deletes", "manifests", "stats"):
        assert judged(inspection, step, compaction=False, stats={}).due
        assert not judged(inspection, step, compaction=False, stats={}, on_branch=True).due


@pytest.mark.parametrize(
    ("searched_at", "due"), [(None, True), ("2026-05-08T10:29:00+00:00", True), ("2026-05-09T11:00:00+00:00", False)]
)
def test_orphans_are_searched_once_a_week(searched_at: str | None, due: bool) -> None:
    """Orphans are looked for once a week, as the table remembers."""
    inspection = with_snapshots(24 * 8, properties={} if searched_at is None else {ORPHANS_KEY: searched_at})
    assert judged(inspection, "orphans").due is due


def test_new_table_is_not_searched_for_orphans() -> None:
    """A table younger than the files that may go has none of them; one whose first snapshot went may be of any age."""
    young, expired = with_snapshots(24 * 6, 1), table(snapshots=line(24 * 6, 1, first=7)[1:])
    assert not judged(table(), "orphans").due
    assert judged(young, "orphans").reason == "the table is younger than 7d, due every 7d"
    assert judged(expired, "orphans").due


def test_expiry_is_due_only_for_snapshots_that_may_go() -> None:
    """Old snapshots count, unless they are among those to keep."""
    inspection = with_snapshots(*range(300, 0, -10))
    assert judged(inspection, "expiry").reason == "17 snapshots older than 5d could go, due from 20"
    assert judged(inspection, "expiry", expiry={"min_snapshots": 17}).due
    assert not judged(inspection, "expiry", expiry={"min_snapshots": 17, "keep": 14}).due


@pytest.mark.parametrize(
    ("rows", "counted", "due"),
    [(0, None, False), (10, None, True), (109, 100, False), (110, 100, True), (90, 100, True)],
)
def test_columns_are_counted_again_only_after_a_tenth_changed(rows: int, counted: int | None, due: bool) -> None:
    """Values are counted again when a tenth of the rows came or went; where nobody asks for it, never."""
    inspection = table(rows=rows, rows_counted=counted)
    assert judged(inspection, "stats", stats={}).due is due
    assert not judged(inspection, "stats").due


def test_reason_of_a_count_has_its_numbers() -> None:
    """Whoever asks why reads both numbers, and from which change on."""
    assert judged(table(rows=109, rows_counted=100), "stats", stats={"min_change": 0.5}).reason == (
        "109 rows, 100 when their values were counted, due from a change of 50%"
    )
