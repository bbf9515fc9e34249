"""Reports on new dead letters: whatever is cleared, killed or begun anew, each letter is told once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from frazil.errors import Terminal
from frazil.iceberg.catalog.catalog import Folder
from frazil.project import Project
from frazil.report.dead_letters_summary import markdown
from frazil.report.letter_reports import list_reports, new_letters, open_report, reports_folder
from tests.unit.report.letters import NOW, ORDERS, batch, kept_reports, letter, make_report, with_file

Append = Callable[..., None]
Finish = Callable[..., None]
DAY = timedelta(days=1)


def test_each_dead_letter_is_reported_once(project: Project, append: Append, finish: Finish) -> None:
    """Reports follow each other without gap or overlap, by the numbers of batches; a run that is cleared tells nothing."""
    finish(batch(1), batch(2))
    append(letter(0), letter(1, _frazil_batch=2, code="TOO_DEEP"))
    first = make_report(project)
    again = make_report(project, NOW + timedelta(minutes=1))
    finish(batch(3))
    append(letter(2, _frazil_batch=3, timestamp=NOW - 400 * DAY))
    second = make_report(project, NOW + DAY)

    assert first is not None
    assert second is not None
    assert (first.after, first.through, first.count, second.after, second.through, second.count) == (0, 2, 2, 2, 3, 1)
    assert again is None
    assert (second.since, second.until) == (first.until, NOW + DAY)
    assert kept_reports(project) == [second, first]
    assert list_reports(project, project.pipeline("orders"), 1)[0] == second


def test_dead_letters_of_an_unfinished_batch_are_reported_next_time(
    project: Project, append: Append, finish: Finish
) -> None:
    """They may be in the table before the ledger says that all is in: then the next report has them, and all of them."""
    finish(batch(1))
    append(letter(0), letter(1, _frazil_batch=2))
    first = make_report(project)
    append(letter(2, _frazil_batch=2))
    finish(batch(2))
    second = make_report(project, NOW + DAY)

    assert [report and report.count for report in (first, second)] == [1, 2]


def test_interrupted_report_is_made_again(
    project: Project, append: Append, finish: Finish, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill between its files leaves no report: the next run tells the same letters."""
    finish(batch(1))
    append(letter(0))
    genuine = Folder.write

    def killed(folder: Folder, name: str, text: str) -> None:
        if name.endswith(".json"):
            raise KeyboardInterrupt
        genuine(folder, name, text)

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "write", killed)
        with pytest.raises(KeyboardInterrupt):
            make_report(project)

    assert kept_reports(project) == []
    report = make_report(project, NOW + DAY)
    assert report is not None
    assert (report.after, report.count) == (0, 1)


def test_no_dead_letters_leave_no_report(project: Project, append: Append, finish: Finish) -> None:
    """Neither a pipeline that never ran, nor batches without letters."""
    assert make_report(project) is None
    finish(batch(0, kind="start", rows=0))
    append(letter(0, _frazil_batch=0))
    finish(batch(1, rows=0))

    assert make_report(project) is None
    assert kept_reports(project) == []
    assert not Path(reports_folder(project, project.pipeline("orders")).location).exists()


def test_pipeline_that_began_again_is_reported(project: Project, append: Append, finish: Finish) -> None:
    """Its numbers begin at 1 again: those of the earlier one's batches don't hide its letters."""
    finish(*(batch(n) for n in range(1, 6)))
    append(letter(0, _frazil_batch=5))
    assert make_report(project)
    for table in ("shop.orders__ledger", "shop.orders__dead_letters"):
        project.lake("lake")._catalog.drop_table(table)

    finish(*(batch(n, batch=f"other {n}") for n in range(1, 4)))
    append(letter(0, _frazil_batch=2))
    below = make_report(project, NOW + DAY)
    finish(*(batch(n, batch=f"other {n}") for n in range(4, 7)))
    append(letter(7, _frazil_batch=6))
    after = make_report(project, NOW + 2 * DAY)

    assert below is not None
    assert after is not None
    assert [(report.after, report.through, report.count) for report in (below, after)] == [(0, 3, 1), (3, 6, 1)]


def test_another_pipeline_with_larger_numbers_is_reported(project: Project, append: Append, finish: Finish) -> None:
    """Nobody looked while its numbers passed those that were told: the id of the batch says that it is another's."""
    finish(*(batch(n) for n in range(1, 4)))
    append(letter(0, _frazil_batch=3))
    assert make_report(project)
    project.lake("lake")._catalog.drop_table("shop.orders__ledger")

    finish(*(batch(n, batch=f"other {n}") for n in range(1, 9)))
    report = make_report(project, NOW + DAY)

    assert report is not None
    assert (report.after, report.through) == (0, 8)


def test_lost_dead_letter_table_is_reported(project: Project, append: Append, finish: Finish) -> None:
    """The table was dropped: the report says so and how it comes back, and tells its letters then."""
    finish(batch(1))

    with pytest.raises(Terminal, match=r"left 9 dead letters.*is gone(?s:.*)frazil repair orders"):
        make_report(project)
    append(letter(0))
    report = make_report(project)
    assert report is not None
    assert report.count == 1


def test_replayed_dead_letters_are_in_the_report(project: Project, append: Append, finish: Finish) -> None:
    """A replay of letters lands some of any time."""
    finish(batch(1))
    append(letter(0, landed_batch=3))
    assert make_report(project)
    append(letter(1, _frazil_batch=2))
    finish(batch(2), batch(3, kind="dead_letters", records_written=1, rows=1))

    report = make_report(project, NOW + DAY)

    assert report is not None
    assert (report.count, report.came_home) == (1, 1)
    text = open_report(project, project.pipeline("orders"), report.name, "markdown")
    assert "1 dead letter of any time became rows meanwhile." in text


def test_trend_compares_periods_of_equal_length(project: Project, append: Append, finish: Finish) -> None:
    """Against the batches of as long a time before, whenever the reports before were made."""
    finish(batch(1), batch(2), batch(3, decided_at=NOW - DAY / 2))
    append(*(letter(n, _frazil_batch=n) for n in range(1, 4)))
    assert make_report(project, NOW)
    finish(batch(4, decided_at=NOW + DAY / 2))
    append(letter(4, _frazil_batch=4))

    report = make_report(project, NOW + DAY)

    assert report is not None
    assert (report.count, report.before) == (1, 3)
    finish(batch(5, decided_at=NOW + DAY + timedelta(minutes=1)))
    append(letter(9, _frazil_batch=5, code="TOO_DEEP"))
    short = make_report(project, NOW + DAY + timedelta(hours=13))
    assert short is not None
    assert (short.count, short.before) == (1, 1)
    assert [(group.code, group.count, group.before) for group in short.groups] == [("TOO_DEEP", 1, 0)]


@pytest.mark.parametrize(
    ("payload", "message", "path"),
    [
        ("full", 'expected a long, found "x"', "id"),
        ("redacted", "value is of another kind", None),
        ("none", "value is of another kind", None),
    ],
)
def test_sample_respects_redaction(
    project: Project, append: Append, finish: Finish, payload: str, message: str, path: str | None
) -> None:
    """Letters that were kept whole quote their record; a file that says `redacted` since rules their samples, too."""
    finish(batch(1))
    append(letter(0))
    project = with_file(project, f"{ORDERS}dead_letters: {{payload: {payload}}}\n")

    letters = new_letters(project, project.pipeline("orders"), [], NOW)

    assert letters is not None
    (sample,) = letters.groups[0].samples
    assert message in sample.message
    assert sample.path == path
    assert ('found "x"' in markdown(letters)) == (payload == "full")


def test_number_of_samples_is_that_of_the_file(project: Project, append: Append, finish: Finish) -> None:
    """None at all where none are wanted: counts and advice only."""
    finish(batch(1))
    append(*(letter(n) for n in range(9)))
    for letters_wanted in (0, 5):
        project = with_file(project, f"{ORDERS}dead_letters: {{report: {{samples: {letters_wanted}}}}}\n")
        letters = new_letters(project, project.pipeline("orders"), [], NOW)
        assert letters is not None
        assert len(letters.groups[0].samples) == letters_wanted
