"""Kept reports: how long they stay, where they lie, whom they are told to, and what they show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.errors import Terminal
from frazil.project import Project
from frazil.report.dead_letters_summary import Bar
from frazil.report.letter_reports import letters_notice, list_reports, note_told, open_report, reports_folder
from tests.unit.report.letters import (
    MIDNIGHT,
    NOW,
    ORDERS,
    batch,
    kept_reports,
    letter,
    make_report,
    with_file,
    with_settings,
)

Append = Callable[..., None]
Finish = Callable[..., None]
DAY = timedelta(days=1)


def test_old_reports_are_deleted_but_never_the_last(project: Project, append: Append, finish: Finish) -> None:
    """Those beyond the number and the age go, with all their files; the newest stays, whatever its age."""
    project = with_settings(project, "reports: {keep: 1, older_than: 7d}\n")
    finish(batch(1))
    append(letter(0))
    first = make_report(project, NOW)
    for n, instant in ((2, NOW + DAY), (3, NOW + 30 * DAY)):
        finish(batch(n))
        append(letter(n, _frazil_batch=n))
        make_report(project, instant)

    assert first is not None
    names = reports_folder(project, project.pipeline("orders")).names()
    assert [report.through for report in kept_reports(project)] == [3]
    assert len(names) == 3
    assert make_report(project, NOW + 31 * DAY) is None
    with pytest.raises(Terminal, match=r"has no report.*(?s:.*)reports\.keep"):
        open_report(project, project.pipeline("orders"), first.name)


@pytest.mark.parametrize("name", ["../../settings", "20261121T120000000Z/../x", "", "20261121T120000000Z"])
def test_names_stay_within_the_folder(project: Project, name: str) -> None:
    """Names come from addresses that anybody can write."""
    with pytest.raises(Terminal, match="has no report"):
        open_report(project, project.pipeline("orders"), name)


def test_reports_are_stored_in_the_configured_folder(
    project: Project, append: Append, finish: Finish, tmp_path: Path
) -> None:
    """In the state folder, or where the settings say, as a path or a URI; never with what opens the catalog."""
    finish(batch(1))
    append(letter(0))
    assert make_report(project)
    assert (project.home.root / "reports" / "orders").is_dir()

    moved = with_settings(project, f"reports: {{folder: 'file://{tmp_path}/elsewhere/'}}\n")
    assert kept_reports(moved) == []
    assert make_report(moved)
    assert len(list((tmp_path / "elsewhere" / "orders").iterdir())) == 3


@pytest.mark.parametrize("text", ["{", "[]", '{"pipeline": "orders"}'])
def test_damaged_report_is_an_error(project: Project, append: Append, finish: Finish, text: str) -> None:
    """It can't be told where the next begins: a person looks, and the message says at what."""
    finish(batch(1))
    append(letter(0))
    report = make_report(project)
    assert report is not None
    reports_folder(project, project.pipeline("orders")).write(f"{report.name}.json", text)

    with pytest.raises(Terminal, match=rf"{report.name}\.json holds no report"):
        make_report(project, NOW + DAY)


def test_each_channel_is_notified_once_of_a_report(project: Project, append: Append, finish: Finish) -> None:
    """A report is owed until all channels were told; which were is on record. Below the threshold nobody is."""
    finish(batch(1))
    append(letter(0), letter(1))
    project = with_file(project, f"{ORDERS}dead_letters: {{report: {{threshold: 2}}}}\n")
    pipeline = project.pipeline("orders")
    due = make_report(project)
    assert due is not None
    assert due.is_unsent

    half = note_told(project, pipeline, due, ["chat"], None)
    assert (list_reports(project, pipeline, 1)[0], half.is_unsent) == (half, True)
    whole = note_told(project, pipeline, half, ["mail"], NOW)
    assert (list_reports(project, pipeline, 1)[0], whole.is_unsent) == (whole, False)
    assert whole.told_channels == ("chat", "mail")

    finish(batch(2))
    append(letter(2, _frazil_batch=2))
    small = make_report(project, NOW + DAY)
    assert small is not None
    assert (small.is_due, small.is_unsent) == (False, False)


def test_notice_contains_figures_and_next_command(project: Project, append: Append, finish: Finish) -> None:
    """How many, in which batches, of which kinds, what was before, the next command, and the page."""
    finish(batch(1))
    append(letter(0), letter(1, landed_batch=9), letter(2, code="TOO_DEEP", destination="shop.orders"))
    report = make_report(project)
    assert report is not None
    pipeline = project.pipeline("orders")

    notice = letters_notice(pipeline, report, "<page>", "https://airflow/x")

    assert notice.title == "orders: 3 dead letters new in batch 1"
    assert notice.cause.splitlines() == [
        "2 of 3 are open; 0 in the period before",
        "2 WRONG_TYPE in orders (0 before)",
        "1 TOO_DEEP in orders of table shop.orders (0 before)",
    ]
    assert (notice.kind, notice.severity, notice.owner) == ("dead_letters", "warning", "team <b>")
    assert (notice.next_step, notice.html, notice.link) == (
        "frazil dead-letters list orders",
        "<page>",
        "https://airflow/x",
    )
    many = replace(report, groups=tuple(replace(report.groups[0], topic=f"t{n}") for n in range(40)))
    assert letters_notice(pipeline, many, "", None).cause.splitlines()[-1] == "and 60 of 30 other kinds"


def test_page_shows_the_reports_before(project: Project, append: Append, finish: Finish) -> None:
    """Bars of the reports before, this one last, and commands that lead on; a first report has no bars."""
    finish(batch(1))
    append(letter(0))
    first = make_report(project)
    finish(batch(2))
    append(letter(1, _frazil_batch=2, code="TOO_DEEP"), letter(2, _frazil_batch=2))
    second = make_report(project, NOW + DAY)
    assert first is not None
    assert second is not None
    pipeline = project.pipeline("orders")

    pages = [open_report(project, pipeline, report.name) for report in (first, second)]

    assert ["<ol" in page for page in pages] == [False, True]
    assert pages[1].count("<li title=") == 2
    assert "New letters, report by report, this one last: 1; 2" in open_report(
        project, pipeline, second.name, "markdown"
    )
    assert "frazil dead-letters replay orders --code WRONG_TYPE --reason" in pages[1]
    assert "frazil dead-letters show orders orders/0/0" in pages[0]


@pytest.mark.parametrize(
    ("count", "short"),
    [(0, "0"), (999, "999"), (1_000, "1k"), (1_250, "1.2k"), (99_999, "99k"), (1_234_567, "1.2M"), (5 * 10**9, "5G")],
)
def test_figures_over_bars_are_short(count: int, short: str) -> None:
    """Four signs or less, cut and not rounded up."""
    assert Bar(NOW, count, 1).short == short


@given(st.integers(0, 10**12))
def test_figure_over_any_bar_has_four_characters_at_most(count: int) -> None:
    """Whatever the number, up to billions."""
    assert len(Bar(NOW, count, 1).short) <= 5


def test_names_of_reports_sort_by_time(project: Project, append: Append, finish: Finish) -> None:
    """Also where the clock has another zone, and within a second."""
    finish(batch(1))
    append(letter(0))
    assert make_report(project, MIDNIGHT.replace(microsecond=1_000))
    finish(batch(2))
    append(letter(1, _frazil_batch=2))
    report = make_report(project, MIDNIGHT.replace(microsecond=2_000).astimezone())

    assert report is not None
    assert [report.through for report in kept_reports(project)] == [2, 1]
    assert report.name == "20261121T000000002Z"
    assert report.until.astimezone(UTC).microsecond == 2_000
