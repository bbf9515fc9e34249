"""DAGs for dead letters: which there are, what their forms take, and what they say and send."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, ParamValidationError

from frazil.errors import Retryable, Terminal
from frazil.pipeline.interval import parse_interval
from frazil.project import Project
from frazil.records.dead import DeadCode
from frazil.report.letter_reports import KeptGroup, KeptReport
from frazil.run.dead_letters import BroughtHome
from frazil_airflow import letters_home
from frazil_airflow.letter_form import ALL_CODES, choice_of
from frazil_airflow.letter_operators import LetterReportOperator
from frazil_airflow.timetable import timetable

pytestmark = pytest.mark.dags

Write = Callable[..., Path]
Parse = Callable[[], DagBag]
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
EMPTY: dict[str, Any] = {"codes": [], "topics": [], "since": None, "until": None, "reason": "mended", "dry_run": False}


def with_letters(path: Path, text: str) -> None:
    """Add a section to a pipeline file."""
    path.write_text(f"{path.read_text()}dead_letters: {text}\n")


def test_two_reports_of_a_pipeline_run_at_once(parse: Parse, write_pipeline: Write):
    """Both would tell the same letters: one run and one task at a time, on a schedule of its own, without catching up."""
    write_pipeline("orders")
    with_letters(write_pipeline("returns"), "{report: {schedule: 6h}}")
    dags = parse().dags
    for name, every in (("orders", "1d"), ("returns", "6h")):
        dag = dags[f"dead_letters__{name}"]
        assert (dag.max_active_runs, dag.catchup, dag.get_task("report").max_active_tis_per_dag) == (1, False, 1)
        assert dag.timetable == timetable(parse_interval(every))
        assert dag.owner == "testers"


def test_pipeline_without_a_report_has_one_all_the_same(parse: Parse, write_pipeline: Write):
    """`report: false` leaves it to the command; the form stays."""
    with_letters(write_pipeline("orders"), "{report: false}")

    assert sorted(parse().dags) == ["dead_letters__replay", "ingest__orders", "maintain__orders"]


def test_cron_that_never_ticks_is_found_when_it_is_scheduled(parse: Parse, write_pipeline: Write):
    """A bad schedule of the report is an import error that names its key."""
    with_letters(write_pipeline("orders"), "{report: {schedule: '0 0 31 2 *'}}")
    (error,) = parse().import_errors.values()

    assert "dead_letters.report.schedule: '0 0 31 2 *'" in error


def test_a_report_takes_the_name_of_the_form(parse: Parse, write_pipeline: Write):
    """A pipeline called replay would have the DAG of the form; without a report it has none."""
    path = write_pipeline("replay")
    (error,) = parse().import_errors.values()
    assert "the DAG of this name is dead_letters__replay" in error

    with_letters(path, "{report: false}")
    bag = parse()
    assert bag.import_errors == {}
    assert list(bag.dags["dead_letters__replay"].params) == [
        "pipeline",
        "codes",
        "topics",
        "since",
        "until",
        "reason",
        "dry_run",
    ]


def test_form_lacks_a_pipeline_or_a_code(parse: Parse, write_pipeline: Write):
    """It offers the pipelines and topics of the files, and every code; without a pipeline there is no form."""
    assert parse().dags == {}
    write_pipeline("orders")
    write_pipeline("returns")
    params = parse().dags["dead_letters__replay"].params

    assert params.get_param("pipeline").schema["enum"] == ["orders", "returns"]
    assert params.get_param("topics").schema["examples"] == ["orders-topic", "returns-topic"]
    assert tuple(code.value for code in DeadCode) == ALL_CODES
    assert params.get_param("codes").schema["examples"] == list(DeadCode)


def test_topics_of_a_pattern_can_not_be_chosen(parse: Parse, write_pipeline: Write):
    """Nobody knows them while the file is parsed: any can be written then."""
    path = write_pipeline("orders")
    path.write_text(path.read_text().replace("{topics: [orders-topic]}", "{topics_pattern: 'orders-.*'}"))

    assert "examples" not in parse().dags["dead_letters__replay"].params.get_param("topics").schema


@pytest.mark.parametrize(
    "wrong",
    [
        {"pipeline": "order"},
        {"pipeline": None},
        {"codes": ["INVALID_JSN"]},
        {"codes": "INVALID_JSON"},
        {"since": "soon"},
        {"until": "latest"},
        {"reason": ""},
        {"reason": "  "},
        {"reason": None},
        {"dry_run": "no"},
    ],
)
def test_airflow_takes_a_wrong_form(parse: Parse, write_pipeline: Write, wrong: dict[str, Any]):
    """What can be told by its form is refused before there is a run."""
    write_pipeline("orders")
    params = parse().dags["dead_letters__replay"].params
    params.update(EMPTY | {"pipeline": "orders"})
    params.validate()

    with pytest.raises(ParamValidationError):
        asked_for(params, wrong)


@pytest.mark.parametrize("left_out", ["pipeline", "reason"])
def test_a_field_is_filled_in_for_a_person(parse: Parse, write_pipeline: Write, left_out: str):
    """Pipeline and reason have no default: nobody lands the letters of the first one in the list by mistake."""
    write_pipeline("orders")
    params = parse().dags["dead_letters__replay"].params
    params.update({name: of for name, of in (EMPTY | {"pipeline": "orders"}).items() if name != left_out})

    with pytest.raises(ParamValidationError):
        params.validate()


@pytest.mark.parametrize(
    ("filled_in", "said"),
    [
        ({"since": "2026-13-01"}, "the field 'since'"),
        ({"until": "999999d"}, "the field 'until': 999999d is before the calendar begins"),
        ({"since": "1d", "until": "2d"}, "leave no time between them"),
        ({"since": "1d", "until": "1d"}, "leave no time between them"),
        ({"topics": ["order-topic"]}, "pipeline orders never read topic 'order-topic'"),
    ],
)
def test_a_wrong_value_chooses_other_letters(write_pipeline: Write, filled_in: dict[str, Any], said: str):
    """What only a look can tell is refused before anything is done, with field, value and remedy."""
    write_pipeline("orders")
    pipeline = Project.load().pipeline("orders")

    with pytest.raises(Terminal) as refused:
        choice_of(EMPTY | filled_in, pipeline, ["gone-topic"], NOW)

    assert said in str(refused.value)
    assert refused.value.next_step


def test_the_form_is_read_amiss(write_pipeline: Write):
    """Codes, topics, also such as the file names no more, and times, told alike."""
    write_pipeline("orders")
    pipeline = Project.load().pipeline("orders")
    filled_in = {
        "codes": ["TOO_DEEP"],
        "topics": ["gone-topic", "orders-topic"],
        "since": " 2d ",
        "until": "2026-11-21",
    }

    choice = choice_of(EMPTY | filled_in, pipeline, ["gone-topic"], NOW)

    assert (choice.codes, choice.topics) == ({"TOO_DEEP"}, {"gone-topic", "orders-topic"})
    assert (choice.since, choice.until) == (NOW - timedelta(days=2), NOW.replace(hour=0))
    assert choice_of(EMPTY | {"since": "  "}, pipeline, [], NOW).since is None


def asked_for(params: Any, filled_in: dict[str, Any]) -> None:
    """Take a form as Airflow does."""
    params.update(filled_in)
    params.validate()


class Run:
    """What is read of Airflow's run."""

    dag_id, run_id, triggering_user_name = "dead_letters__replay", "manual__1", "ana"
    run_type = SimpleNamespace(value="manual")


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The notes that are written to runs."""
    found: list[str] = []
    monkeypatch.setattr("frazil_airflow.notes.write_note", lambda *of: found.append(of[-1]))
    return found


def asked(
    monkeypatch: pytest.MonkeyPatch, found: BroughtHome, **filled_in: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run the task over what becomes of letters; what it was asked for and what it returns."""
    seen: dict[str, Any] = {}

    def bring_home(scope: Any, choice: Any, request: Any, *, dry_run: bool) -> BroughtHome:
        seen.update(pipeline=scope.pipeline.name, choice=choice, request=request, dry_run=dry_run)
        return found

    monkeypatch.setattr("frazil.run.dead_letters.bring_home", bring_home)
    returned = letters_home.replay(dag_run=Run, params=EMPTY | {"pipeline": "orders"} | filled_in)  # type: ignore[arg-type]
    return seen, returned


def test_a_replay_forgets_who_asked_and_what_became_of_it(
    write_pipeline: Write, notes: list[str], monkeypatch: pytest.MonkeyPatch
):
    """Batch, rows, what stays dead and what keeps no record are in the note; user and reason go to the ledger."""
    write_pipeline("orders")
    found = BroughtHome(12, 9, 1, {"TOO_DEEP": 2}, 3, (7,))

    seen, returned = asked(monkeypatch, found, codes=["TOO_DEEP"])

    assert (seen["request"].run, seen["request"].started_by, seen["request"].reason) == (
        "dead_letters__replay:manual__1",
        "airflow:manual:ana",
        "mended",
    )
    assert (seen["choice"].codes, seen["dry_run"], returned["landed"], returned["done"]) == (
        {"TOO_DEEP"},
        False,
        9,
        True,
    )
    (note,) = notes
    assert note.split("; ") == [
        "orders: of 12 dead letters 9 are rows now, 1 are left out on purpose, 2 stay dead (TOO_DEEP 2), batch 7",
        "3 keep nothing of their record: frazil replay orders reads it from Kafka",
        "reason: mended",
    ]


def test_a_look_is_taken_for_a_deed(write_pipeline: Write, notes: list[str], monkeypatch: pytest.MonkeyPatch):
    """A dry run says first that nothing was landed; nothing to do is no success either, but skipped."""
    write_pipeline("orders")

    _, returned = asked(monkeypatch, BroughtHome(2, 2, dead_codes={}), dry_run=True)
    with pytest.raises(AirflowSkipException, match="no open dead letter among the chosen ones"):
        asked(monkeypatch, BroughtHome(dead_codes={}))

    assert notes[0].startswith("dry run, nothing was landed; orders: of 2 dead letters 2 would become rows")
    assert returned["done"] is False


def test_a_wrong_value_is_tried_again(write_pipeline: Write, monkeypatch: pytest.MonkeyPatch):
    """Another try can't mend it; and no letter was looked at."""
    write_pipeline("orders")
    monkeypatch.setattr("frazil.run.dead_letters.bring_home", None)

    with pytest.raises(AirflowFailException, match="never read topic"):
        letters_home.replay(dag_run=Run, params=EMPTY | {"pipeline": "orders", "topics": ["x"]})  # type: ignore[arg-type]
    with pytest.raises(AirflowFailException, match="orders2"):
        letters_home.replay(dag_run=Run, params=EMPTY | {"pipeline": "orders2"})  # type: ignore[arg-type]


KEPT = KeptReport(
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
    put_back=0,
    came_home=1,
    groups=(KeptGroup("TOO_DEEP", "t", 5, 4, 2),),
    is_due=True,
)


@pytest.fixture
def shelf(monkeypatch: pytest.MonkeyPatch, notes: list[str]) -> SimpleNamespace:
    """Kept reports without files, the newest first, and a door to people: `made` is what a look finds new."""
    shelf = SimpleNamespace(kept=[], made=None, answers=[], sent=[], notes=notes)

    def new(*_: Any) -> KeptReport | None:
        if shelf.made is not None:
            shelf.kept.insert(0, shelf.made)
        made, shelf.made = shelf.made, None
        return made  # type: ignore[no-any-return]

    def note_told(_: Any, __: Any, kept: KeptReport, done: list[str], sent_at: datetime | None) -> KeptReport:
        told = replace(kept, told=(*kept.told, *done), sent_at=sent_at)
        shelf.kept[shelf.kept.index(kept)] = told
        return told

    def send(_: Any, notice: Any, only: set[str]) -> Mapping[str, str | None]:
        shelf.sent.append((notice.title, only))
        return {name: of for name, of in shelf.answers.pop(0).items() if name in only}

    monkeypatch.setattr("frazil.report.new_letters.report_new_letters", new)
    monkeypatch.setattr("frazil.report.letter_reports.list_reports", lambda *_: list(shelf.kept))
    monkeypatch.setattr("frazil.report.letter_reports.open_report", lambda *_: "<page>")
    monkeypatch.setattr("frazil.report.letter_reports.note_told", note_told)
    monkeypatch.setattr("frazil_airflow.alerts.send", send)
    monkeypatch.setattr("frazil_airflow.alerts.told_channels", lambda *_: ["chat", "mail"])
    return shelf


def report() -> dict[str, Any]:
    """One try of the task."""
    return LetterReportOperator(task_id="report", pipeline="orders").execute({"dag_run": Run})  # type: ignore[typeddict-item]


def test_a_channel_that_fails_has_the_others_told_again(write_pipeline: Write, shelf: SimpleNamespace):
    """The try fails, so there is another: it makes no new report, and tells only who was not told."""
    write_pipeline("orders")
    shelf.made, shelf.answers = KEPT, [{"chat": None, "mail": "refused"}, {"mail": None}]

    with pytest.raises(Retryable, match="mail: refused"):
        report()
    found = report()

    assert [only for _, only in shelf.sent] == [{"chat", "mail"}, {"mail"}]
    assert (shelf.kept[0].is_owed, found["told"]) == (False, ("chat", "mail"))
    with pytest.raises(AirflowSkipException, match=r"the last report, 20261121T120000000Z, told those up to batch 7"):
        report()
    assert len(shelf.sent) == 2


def test_a_small_report_wakes_people(write_pipeline: Write, shelf: SimpleNamespace):
    """Below the threshold it is kept, said, and sent to nobody."""
    write_pipeline("orders")
    shelf.made = replace(KEPT, is_due=False)

    report()

    assert shelf.sent == []
    (note,) = shelf.notes
    assert note.split("; ") == [
        "5 dead letters new (TOO_DEEP 5), 4 open, 2 in the period before, 1 came home meanwhile",
        "batches 4 to 7, report 20261121T120000000Z",
        "below the threshold, nobody is told",
    ]


def test_a_report_that_a_dead_run_owed_is_forgotten(write_pipeline: Write, shelf: SimpleNamespace):
    """The next run sends it before its own, the oldest first."""
    write_pipeline("orders")
    shelf.kept, shelf.answers = [KEPT], [{"chat": None, "mail": None}] * 2
    shelf.made = replace(KEPT, name="20261122T120000000Z", after=7, through=8)

    report()

    assert [title for title, _ in shelf.sent] == [
        "orders: 5 dead letters new in batches 4 to 7",
        "orders: 5 dead letters new in batch 8",
    ]
    assert not [of for of in shelf.kept if of.is_owed]
