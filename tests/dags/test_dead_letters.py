"""DAGs for dead letters: which there are, and what their reports say and send."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk.exceptions import AirflowSkipException

from frazil.errors import Retryable
from frazil.pipeline.syntax.interval import parse_interval
from frazil.report.dead_letters_summary import LetterGroup
from frazil.report.letter_reports import KeptReport
from frazil_airflow.dags.dag_defaults import timetable
from frazil_airflow.dags.dead_letters import LetterReportOperator

pytestmark = pytest.mark.dags

Write = Callable[..., Path]
Parse = Callable[[], DagBag]
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


class Run:
    """What is read of Airflow's run."""

    dag_id, run_id, triggering_user_name = "dead_letters__orders", "manual__1", "ana"
    run_type = SimpleNamespace(value="manual")


def with_letters(path: Path, text: str) -> None:
    """Add a section to a pipeline file."""
    path.write_text(f"{path.read_text()}dead_letters: {text}\n")


def test_reports_of_one_pipeline_never_run_at_once(parse: Parse, write_pipeline: Write):
    """Both would tell the same letters: one run and one task at a time, on a schedule of its own, without catching up."""
    write_pipeline("orders")
    with_letters(write_pipeline("returns"), "{report: {schedule: 6h}}")
    dags = parse().dags
    for name, every in (("orders", "1d"), ("returns", "6h")):
        dag = dags[f"dead_letters__{name}"]
        assert (dag.max_active_runs, dag.catchup, dag.get_task("report").max_active_tis_per_dag) == (1, False, 1)
        assert dag.timetable == timetable(parse_interval(every))
        assert dag.owner == "testers"


def test_pipeline_without_report_has_no_report_dag(parse: Parse, write_pipeline: Write):
    """`report: false` leaves it to the command; the form stays."""
    with_letters(write_pipeline("orders"), "{report: false}")

    assert sorted(parse().dags) == ["ingest__orders", "maintain__orders", "replay_dead_letters__orders"]


def test_cron_that_never_ticks_is_import_error(parse: Parse, write_pipeline: Write):
    """A bad schedule of the report is an import error that names its key."""
    with_letters(write_pipeline("orders"), "{report: {schedule: '0 0 31 2 *'}}")
    (error,) = parse().import_errors.values()

    assert "dead_letters.report.schedule: '0 0 31 2 *'" in error


KEPT_REPORT = KeptReport(
    pipeline="orders",
    name="20261121T120000000Z",
    run="r",
    since=NOW,
    until=NOW,
    after=3,
    through=7,
    batch="id",
    count=5,
    open=4,
    before=2,
    came_home=1,
    groups=(LetterGroup("TOO_DEEP", "t", 5, 4, 2),),
    is_due=True,
)


@pytest.fixture
def shelf(monkeypatch: pytest.MonkeyPatch, notes: list[str]) -> SimpleNamespace:
    """Kept reports without files, the newest first, and a channel to people: `made` is what a run finds new."""
    shelf = SimpleNamespace(kept=[], made=None, answers=[], sent=[], keys=[], notes=notes)

    def new(*_: Any) -> KeptReport | None:
        if shelf.made is not None:
            shelf.kept.insert(0, shelf.made)
        dead_letter_report, shelf.made = shelf.made, None
        return dead_letter_report  # type: ignore[no-any-return]

    def note_told(_: Any, __: Any, kept_report: KeptReport, done: list[str], sent_at: datetime | None) -> KeptReport:
        updated = replace(kept_report, told_channels=(*kept_report.told_channels, *done), sent_at=sent_at)
        shelf.kept[shelf.kept.index(kept_report)] = updated
        return updated

    def send(_: Any, notice: Any, only: set[str]) -> Mapping[str, str | None]:
        shelf.sent.append((notice.title, only))
        shelf.keys.append(notice.key)
        return {name: code for name, code in shelf.answers.pop(0).items() if name in only}

    monkeypatch.setattr("frazil.report.letter_reports.report_new_letters", new)
    monkeypatch.setattr("frazil.report.letter_reports.list_reports", lambda *_: list(shelf.kept))
    monkeypatch.setattr("frazil.report.letter_reports.open_report", lambda *_: "<page>")
    monkeypatch.setattr("frazil.report.letter_reports.note_told", note_told)
    monkeypatch.setattr("frazil_airflow.alerts.channels.send", send)
    monkeypatch.setattr("frazil_airflow.alerts.channels.channels_of", lambda *_: ["chat", "mail"])
    return shelf


def report() -> dict[str, Any]:
    """One try of the task."""
    return LetterReportOperator(task_id="report", pipeline="orders").execute({"dag_run": Run})  # type: ignore[typeddict-item]


def test_retry_after_failed_channel_notifies_only_that_channel(write_pipeline: Write, shelf: SimpleNamespace):
    """The try fails, so there is another: it makes no new report, and tells only who was not told."""
    write_pipeline("orders")
    shelf.made, shelf.answers = KEPT_REPORT, [{"chat": None, "mail": "refused"}, {"mail": None}]

    with pytest.raises(Retryable, match="mail: refused"):
        report()
    first_report = report()

    assert [only for _, only in shelf.sent] == [["chat", "mail"], ["mail"]]
    assert (shelf.kept[0].is_unsent, first_report["told"]) == (False, ("chat", "mail"))
    with pytest.raises(AirflowSkipException, match=r"the last report, 20261121T120000000Z, covers batches up to 7"):
        report()
    assert len(shelf.sent) == 2
    assert shelf.notes[-1].startswith("no new dead letters: the last report, ")


def test_small_report_is_kept_and_sent_to_nobody(write_pipeline: Write, shelf: SimpleNamespace):
    """Below the threshold it is kept, said, and sent to nobody."""
    write_pipeline("orders")
    shelf.made = replace(KEPT_REPORT, is_due=False)

    report()

    assert shelf.sent == []
    (note,) = shelf.notes
    assert note.split("; ") == [
        "5 dead letters new (TOO_DEEP 5), 4 open, 2 in the period before, 1 became rows meanwhile",
        "batches 4 to 7, report 20261121T120000000Z",
        "below the threshold, not sent",
    ]


def test_report_of_dead_run_is_sent_by_next_run(write_pipeline: Write, shelf: SimpleNamespace):
    """The next run sends it before its own, the oldest first."""
    write_pipeline("orders")
    shelf.kept, shelf.answers = [KEPT_REPORT], [{"chat": None, "mail": None}] * 2
    shelf.made = replace(KEPT_REPORT, name="20261122T120000000Z", after=7, through=8)

    report()

    assert [title for title, _ in shelf.sent] == [
        "orders: 5 dead letters new in batches 4 to 7",
        "orders: 5 dead letters new in batch 8",
    ]
    assert not [kept_report for kept_report in shelf.kept if kept_report.is_unsent]
    assert shelf.keys == ["dead_letters/orders/20261121T120000000Z", "dead_letters/orders/20261122T120000000Z"]


def test_unavailable_channel_does_not_keep_reports_from_others(write_pipeline: Write, shelf: SimpleNamespace):
    """Of two that are owed both go to the channel that works; the try fails once, with all reasons."""
    write_pipeline("orders")
    shelf.kept = [replace(KEPT_REPORT, name="20261122T120000000Z", after=7, through=8), KEPT_REPORT]
    shelf.answers = [{"chat": None, "mail": "refused"}, {"chat": None, "mail": "still refused"}]

    with pytest.raises(Retryable, match=r"0000Z, mail: refused; .*0000Z, mail: still refused"):
        report()

    assert [kept_report.told_channels for kept_report in shelf.kept] == [("chat",), ("chat",)]
    assert all(kept_report.is_unsent for kept_report in shelf.kept)
