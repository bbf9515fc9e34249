"""Reports on new dead letters: whatever is cleared, killed or begun anew, each letter is told once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.alerts.letter_notice import letters_notice
from frazil.errors import Terminal
from frazil.iceberg.folder import Folder
from frazil.project import Project
from frazil.report.dead_letters_page import Bar, markdown
from frazil.report.letter_reports import KeptReport, last_report, list_reports, note_told, open_report, reports_folder
from frazil.report.new_letters import new_letters, report_new_letters
from tests.unit.report.letters import MIDNIGHT, NOW, ORDERS, batch, letter

Append = Callable[..., None]
Finish = Callable[..., None]
DAY = timedelta(days=1)


def made(project: Project, at: datetime = NOW, run: str = "run") -> KeptReport | None:
    return report_new_letters(project, project.pipeline("orders"), run, at)


def kept(project: Project) -> list[KeptReport]:
    return list_reports(project, project.pipeline("orders"))


def with_file(project: Project, text: str) -> Project:
    """The project with another pipeline file."""
    (project.pipelines_folder / "orders.yaml").write_text(text)
    names = {"HOME": project.home.root, "SETTINGS": project.settings_file, "PIPELINES": project.pipelines_folder}
    return Project.load({f"FRAZIL_{name}": str(of) for name, of in names.items()})


def with_settings(project: Project, text: str) -> Project:
    """The project with more in its settings."""
    project.settings_file.write_text(project.settings_file.read_text() + text)
    return with_file(project, ORDERS)


def test_a_letter_is_told_twice_or_never(project: Project, append: Append, finish: Finish) -> None:
    """Reports follow each other without gap or overlap, by the numbers of batches; a run that is cleared tells nothing."""
    finish(batch(1), batch(2))
    append(letter(0), letter(1, _frazil_batch=2, code="TOO_DEEP"))
    first = made(project)
    again = made(project, NOW + timedelta(minutes=1))
    finish(batch(3))
    append(letter(2, _frazil_batch=3, timestamp=NOW - 400 * DAY))
    second = made(project, NOW + DAY)

    assert first is not None
    assert second is not None
    assert (first.after, first.through, first.count, second.after, second.through, second.count) == (0, 2, 2, 2, 3, 1)
    assert again is None
    assert (second.since, second.until) == (first.until, NOW + DAY)
    assert kept(project) == [second, first]
    assert last_report(project, project.pipeline("orders")) == second


def test_letters_of_a_batch_that_is_not_finished_are_missed(project: Project, append: Append, finish: Finish) -> None:
    """They may be in the table before the ledger says that all is in: then the next report has them, and all of them."""
    finish(batch(1))
    append(letter(0), letter(1, _frazil_batch=2))
    first = made(project)
    append(letter(2, _frazil_batch=2))
    finish(batch(2))
    second = made(project, NOW + DAY)

    assert [of and of.count for of in (first, second)] == [1, 2]


def test_a_report_that_was_cut_off_hides_its_letters(
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
            made(project)

    assert kept(project) == []
    found = made(project, NOW + DAY)
    assert found is not None
    assert (found.after, found.count) == (0, 1)


def test_nothing_new_leaves_a_report(project: Project, append: Append, finish: Finish) -> None:
    """Neither a pipeline that never ran, nor batches without letters."""
    assert made(project) is None
    finish(batch(0, kind="start", rows=0))
    append(letter(0, _frazil_batch=0))
    finish(batch(1, rows=0))

    assert made(project) is None
    assert kept(project) == []
    assert not Path(reports_folder(project, project.pipeline("orders")).location).exists()


def test_a_pipeline_that_began_anew_is_silent(project: Project, append: Append, finish: Finish) -> None:
    """Its numbers begin at 1 again: those of the earlier one's batches don't hide its letters."""
    finish(*(batch(n) for n in range(1, 6)))
    append(letter(0, _frazil_batch=5))
    assert made(project)
    for table in ("shop.orders__ledger", "shop.orders__dead_letters"):
        project.lake("lake")._catalog.drop_table(table)

    finish(*(batch(n, batch=f"other {n}") for n in range(1, 4)))
    append(letter(0, _frazil_batch=2))
    below = made(project, NOW + DAY)
    finish(*(batch(n, batch=f"other {n}") for n in range(4, 7)))
    append(letter(7, _frazil_batch=6))
    after = made(project, NOW + 2 * DAY)

    assert below is not None
    assert after is not None
    assert [(of.after, of.through, of.count) for of in (below, after)] == [(0, 3, 1), (3, 6, 1)]


def test_another_pipeline_that_has_grown_past_is_silent(project: Project, append: Append, finish: Finish) -> None:
    """Nobody looked while its numbers passed those that were told: the id of the batch says that it is another's."""
    finish(*(batch(n) for n in range(1, 4)))
    append(letter(0, _frazil_batch=3))
    assert made(project)
    project.lake("lake")._catalog.drop_table("shop.orders__ledger")

    finish(*(batch(n, batch=f"other {n}") for n in range(1, 9)))
    found = made(project, NOW + DAY)

    assert found is not None
    assert (found.after, found.through) == (0, 8)


def test_lost_letters_are_no_news(project: Project, append: Append, finish: Finish) -> None:
    """The table was dropped: the report says so and how it comes back, and tells its letters then."""
    finish(batch(1))

    with pytest.raises(Terminal, match=r"left 9 dead letters.*is gone(?s:.*)frazil settle orders --table"):
        made(project)
    append(letter(0))
    found = made(project)
    assert found is not None
    assert found.count == 1


def test_letters_that_came_back_or_home_are_not_told(project: Project, append: Append, finish: Finish) -> None:
    """A settle brings letters with old numbers; a replay of letters lands some of any time."""
    finish(batch(1))
    append(letter(0, landed_batch=3))
    assert made(project)
    finish(batch(2, kind="settle", rows=4), batch(3, kind="dead_letters", records_written=1, rows=1))

    found = made(project, NOW + DAY)

    assert found is not None
    assert (found.count, found.put_back, found.came_home) == (0, 4, 1)
    text = open_report(project, project.pipeline("orders"), found.name, "markdown")
    assert "1 dead letter became rows meanwhile, of any time." in text
    assert (
        "`frazil settle` put 4 dead letters back into the table; those of batches up to 1 are not counted again."
        in text
    )


def test_the_trend_compares_unlike_periods(project: Project, append: Append, finish: Finish) -> None:
    """Against the batches of as long a time before, whenever the reports before were made."""
    finish(batch(1), batch(2), batch(3, decided_at=NOW - DAY / 2))
    append(*(letter(n, _frazil_batch=n) for n in range(1, 4)))
    assert made(project, NOW)
    finish(batch(4, decided_at=NOW + DAY / 2))
    append(letter(4, _frazil_batch=4))

    found = made(project, NOW + DAY)

    assert found is not None
    assert (found.count, found.before) == (1, 3)
    finish(batch(5, decided_at=NOW + DAY + timedelta(minutes=1)))
    append(letter(9, _frazil_batch=5, code="TOO_DEEP"))
    short = made(project, NOW + DAY + timedelta(hours=13))
    assert short is not None
    assert (short.count, short.before) == (1, 1)
    assert [(of.code, of.count, of.before) for of in short.groups] == [("TOO_DEEP", 1, 0)]


@pytest.mark.parametrize(
    ("payload", "message", "path"),
    [
        ("full", 'expected a long, found "x"', "id"),
        ("redacted", "another kind of JSON value", None),
        ("none", "another kind of JSON value", None),
    ],
)
def test_a_sample_tells_what_the_pipeline_keeps_secret(
    project: Project, append: Append, finish: Finish, payload: str, message: str, path: str | None
) -> None:
    """Letters that were kept whole quote their record; a file that says `redacted` since rules their samples, too."""
    finish(batch(1))
    append(letter(0))
    project = with_file(project, f"{ORDERS}dead_letters: {{payload: {payload}}}\n")

    found = new_letters(project, project.pipeline("orders"), [], NOW)

    assert found is not None
    (sample,) = found.groups[0].samples
    assert message in sample.message
    assert sample.path == path
    assert ('found "x"' in markdown(found)) == (payload == "full")


def test_the_number_of_samples_is_not_the_file_s(project: Project, append: Append, finish: Finish) -> None:
    """None at all where none are wanted: counts and advice only."""
    finish(batch(1))
    append(*(letter(n) for n in range(9)))
    for wanted in (0, 5):
        project = with_file(project, f"{ORDERS}dead_letters: {{report: {{samples: {wanted}}}}}\n")
        found = new_letters(project, project.pipeline("orders"), [], NOW)
        assert found is not None
        assert len(found.groups[0].samples) == wanted


def test_old_reports_fill_the_disk_or_the_last_one_goes(project: Project, append: Append, finish: Finish) -> None:
    """Those beyond the number and the age go, with all their files; the newest stays, whatever its age."""
    project = with_settings(project, "reports: {keep: 1, older_than: 7d}\n")
    finish(batch(1))
    append(letter(0))
    first = made(project, NOW)
    for n, at in ((2, NOW + DAY), (3, NOW + 30 * DAY)):
        finish(batch(n))
        append(letter(n, _frazil_batch=n))
        made(project, at)

    assert first is not None
    names = reports_folder(project, project.pipeline("orders")).names()
    assert [of.through for of in kept(project)] == [3]
    assert len(names) == 3
    assert made(project, NOW + 31 * DAY) is None
    with pytest.raises(Terminal, match=r"has no report.*(?s:.*)reports\.keep"):
        open_report(project, project.pipeline("orders"), first.name)


@pytest.mark.parametrize("name", ["../../settings", "20261121T120000000Z/../x", "", "20261121T120000000Z"])
def test_a_name_leads_out_of_the_folder(project: Project, name: str) -> None:
    """Names come from addresses that anybody can write."""
    with pytest.raises(Terminal, match="has no report"):
        open_report(project, project.pipeline("orders"), name)


def test_reports_lie_where_nobody_said(project: Project, append: Append, finish: Finish, tmp_path: Path) -> None:
    """In the state folder, or where the settings say, as a path or a URI; never with what opens the catalog."""
    finish(batch(1))
    append(letter(0))
    assert made(project)
    assert (project.home.root / "reports" / "orders").is_dir()

    moved = with_settings(project, f"reports: {{folder: 'file://{tmp_path}/elsewhere/'}}\n")
    assert kept(moved) == []
    assert made(moved)
    assert len(list((tmp_path / "elsewhere" / "orders").iterdir())) == 3


@pytest.mark.parametrize("text", ["{", "[]", '{"pipeline": "orders"}'])
def test_a_garbled_report_makes_all_letters_new(project: Project, append: Append, finish: Finish, text: str) -> None:
    """It can't be told where the next begins: a person looks, and the message says at what."""
    finish(batch(1))
    append(letter(0))
    found = made(project)
    assert found is not None
    reports_folder(project, project.pipeline("orders")).write(f"{found.name}.json", text)

    with pytest.raises(Terminal, match=rf"{found.name}\.json holds no report"):
        made(project, NOW + DAY)


def test_people_are_told_twice_or_not_at_all(project: Project, append: Append, finish: Finish) -> None:
    """A report is owed until all channels were told; which were is on record. Below the threshold nobody is."""
    finish(batch(1))
    append(letter(0), letter(1))
    project = with_file(project, f"{ORDERS}dead_letters: {{report: {{threshold: 2}}}}\n")
    pipeline = project.pipeline("orders")
    due = made(project)
    assert due is not None
    assert due.is_owed

    half = note_told(project, pipeline, due, ["chat"], None)
    assert (last_report(project, pipeline), half.is_owed) == (half, True)
    whole = note_told(project, pipeline, half, ["mail"], NOW)
    assert (last_report(project, pipeline), whole.is_owed) == (whole, False)
    assert whole.told == ("chat", "mail")

    finish(batch(2))
    append(letter(2, _frazil_batch=2))
    small = made(project, NOW + DAY)
    assert small is not None
    assert (small.is_due, small.is_owed) == (False, False)


def test_a_notice_leaves_out_what_a_person_needs(project: Project, append: Append, finish: Finish) -> None:
    """How many, in which batches, of which kinds, what was before, the next command, and the page."""
    finish(batch(1))
    append(letter(0), letter(1, landed_batch=9), letter(2, code="TOO_DEEP", destination="shop.orders"))
    found = made(project)
    assert found is not None
    pipeline = project.pipeline("orders")

    notice = letters_notice(pipeline, found, "<page>", "https://airflow/x")

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
    many = replace(found, groups=tuple(replace(found.groups[0], topic=f"t{n}") for n in range(40)))
    assert letters_notice(pipeline, many, "", None).cause.splitlines()[-1] == "and 60 of 30 other kinds"
    back = letters_notice(pipeline, replace(found, count=0, put_back=4, after=0, through=3), "", None)
    assert back.title == "orders: 4 dead letters put back in batches 1 to 3"


def test_the_page_hides_how_it_develops(project: Project, append: Append, finish: Finish) -> None:
    """Bars of the reports before, this one last, and commands that lead on; a first report has no bars."""
    finish(batch(1))
    append(letter(0))
    first = made(project)
    finish(batch(2))
    append(letter(1, _frazil_batch=2, code="TOO_DEEP"), letter(2, _frazil_batch=2))
    second = made(project, NOW + DAY)
    assert first is not None
    assert second is not None
    pipeline = project.pipeline("orders")

    pages = [open_report(project, pipeline, of.name) for of in (first, second)]

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
def test_numbers_over_bars_run_into_each_other(count: int, short: str) -> None:
    """Four signs or less, cut and not rounded up."""
    assert Bar(NOW, count, 1).short == short


@given(st.integers(0, 10**12))
def test_a_number_over_a_bar_is_wide(count: int) -> None:
    """Whatever the number, up to billions."""
    assert len(Bar(NOW, count, 1).short) <= 5


def test_names_of_reports_sort_unlike_their_times(project: Project, append: Append, finish: Finish) -> None:
    """Also where the clock has another zone, and within a second."""
    finish(batch(1))
    append(letter(0))
    assert made(project, MIDNIGHT.replace(microsecond=1_000))
    finish(batch(2))
    append(letter(1, _frazil_batch=2))
    found = made(project, MIDNIGHT.replace(microsecond=2_000).astimezone())

    assert found is not None
    assert [of.through for of in kept(project)] == [2, 1]
    assert found.name == "20261121T000000002Z"
    assert found.until.astimezone(UTC).microsecond == 2_000
