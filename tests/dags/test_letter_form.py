"""The form that replays dead letters: whose it lands, what it takes, what it refuses, and what it says."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, ParamValidationError

from frazil.errors import Terminal
from frazil.project import Project
from frazil.records.model.dead_letter import DeadCode
from frazil.run.repair.dead_letter_replay import ReplayResult
from frazil_airflow.dags import dead_letters
from frazil_airflow.dags.dead_letters import choice_of

pytestmark = pytest.mark.dags

Write = Callable[..., Path]
Parse = Callable[[], DagBag]
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
EMPTY: dict[str, Any] = {"codes": [], "topics": [], "since": None, "until": None, "reason": "mended", "dry_run": False}


class Run:
    """What is read of Airflow's run."""

    dag_id, run_id, triggering_user_name = "replay_dead_letters__orders", "manual__1", "ana"
    run_type = SimpleNamespace(value="manual")


def asked_for(params: Any, filled_in: dict[str, Any]) -> None:
    """Take a form as Airflow does."""
    params.update(filled_in)
    params.validate()


def test_form_lands_dead_letters_of_the_pipeline_of_its_dag_only(
    parse: Parse, write_pipeline: Write, notes: list[str], monkeypatch: pytest.MonkeyPatch
):
    """Airflow grants rights per DAG: whoever may start that of one pipeline must reach no other, whatever he fills in, however
    the run began.
    """
    write_pipeline("orders")
    write_pipeline("returns")
    reasons: list[str] = []

    def replay(scope: Any, *_: Any, **__: Any) -> ReplayResult:
        reasons.append(scope.pipeline.name)
        return ReplayResult(1, 1, dead_codes={})

    monkeypatch.setattr("frazil.run.repair.dead_letter_replay.replay_dead_letters", replay)
    dags = parse().dags
    for name in ("orders", "returns"):
        dag = dags[f"replay_dead_letters__{name}"]
        task = dag.get_task("replay")
        filled_in = EMPTY | {"pipeline": "orders"}
        task.python_callable(*task.op_args, dag_run=Run, params=filled_in, outlet_events={})
        assert "pipeline" not in dag.params

    assert "dead_letters__replay" not in dags
    assert reasons == ["orders", "returns"]
    assert [note.partition(":")[0] for note in notes] == ["orders", "returns"]


def test_form_offers_topics_of_the_file_and_every_code(parse: Parse, write_pipeline: Write):
    """Without a pipeline there is no form."""
    assert parse().dags == {}
    write_pipeline("orders")
    params = parse().dags["replay_dead_letters__orders"].params

    assert params.get_param("topics").schema["examples"] == ["orders-topic"]
    assert params.get_param("codes").schema["examples"] == list(DeadCode)


def test_topics_of_pattern_can_be_typed(parse: Parse, write_pipeline: Write):
    """Nobody knows them while the file is parsed: any can be written then."""
    path = write_pipeline("orders")
    path.write_text(path.read_text().replace("{topics: [orders-topic]}", "{topics_pattern: 'orders-.*'}"))

    assert "examples" not in parse().dags["replay_dead_letters__orders"].params.get_param("topics").schema


@pytest.mark.parametrize(
    "wrong",
    [
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
def test_airflow_refuses_invalid_form(parse: Parse, write_pipeline: Write, wrong: dict[str, Any]):
    """What can be told by its form is refused before there is a run."""
    write_pipeline("orders")
    params = parse().dags["replay_dead_letters__orders"].params
    params.update(EMPTY)
    params.validate()

    with pytest.raises(ParamValidationError):
        asked_for(params, wrong)


def test_reason_must_be_filled_in(parse: Parse, write_pipeline: Write):
    """It has no default: whoever reads the ledger later is told why."""
    write_pipeline("orders")
    params = parse().dags["replay_dead_letters__orders"].params
    params.update({name: value for name, value in EMPTY.items() if name != "reason"})

    with pytest.raises(ParamValidationError):
        params.validate()


@pytest.mark.parametrize(
    ("filled_in", "message"),
    [
        ({"since": "2026-13-01"}, "the field 'since'"),
        ({"until": "999999d"}, "the field 'until': 999999d is before the calendar begins"),
        ({"since": "1d", "until": "2d"}, "is not before field"),
        ({"since": "1d", "until": "1d"}, "is not before field"),
        ({"topics": ["order-topic"]}, "pipeline orders never read topic 'order-topic'"),
    ],
)
def test_wrong_value_is_refused_before_anything_is_done(write_pipeline: Write, filled_in: dict[str, Any], message: str):
    """What only a look can tell is refused before anything is done, with field, value and remedy."""
    write_pipeline("orders")
    pipeline = Project.load().pipeline("orders")

    with pytest.raises(Terminal) as refused:
        choice_of(EMPTY | filled_in, pipeline, ["gone-topic"], NOW)

    assert message in str(refused.value)
    assert refused.value.next_step


def test_form_is_read_as_filled_in(write_pipeline: Write):
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


def run_replay_task(
    monkeypatch: pytest.MonkeyPatch, result: ReplayResult, **filled_in: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run the task over what becomes of letters; what it was asked for and what it returns."""
    calls: dict[str, Any] = {}

    def replay(scope: Any, choice: Any, request: Any, *, dry_run: bool) -> ReplayResult:
        calls.update(pipeline=scope.pipeline.name, choice=choice, request=request, dry_run=dry_run)
        return result

    monkeypatch.setattr("frazil.run.repair.dead_letter_replay.replay_dead_letters", replay)
    returned = dead_letters.replay("orders", dag_run=Run, params=EMPTY | filled_in, outlet_events={})  # type: ignore[arg-type]
    return calls, returned


def test_replay_records_user_reason_and_result(
    write_pipeline: Write, notes: list[str], monkeypatch: pytest.MonkeyPatch
):
    """Batch, rows, what stays dead and what keeps no record are in the note; user and reason go to the ledger."""
    write_pipeline("orders")
    result = ReplayResult(12, 9, 1, {"TOO_DEEP": 2}, 3, (7,))

    calls, returned = run_replay_task(monkeypatch, result, codes=["TOO_DEEP"])

    assert (calls["request"].run, calls["request"].started_by, calls["request"].reason) == (
        "replay_dead_letters__orders:manual__1",
        "airflow:manual:ana",
        "mended",
    )
    assert (calls["choice"].codes, calls["dry_run"], returned["landed"], returned["done"]) == (
        {"TOO_DEEP"},
        False,
        9,
        True,
    )
    (note,) = notes
    assert note.split("; ") == [
        "orders: of 12 dead letters 9 are rows now, 1 are filtered out, 2 stay dead (TOO_DEEP 2), batch 7",
        "3 keep nothing of their record: frazil replay orders reads it from Kafka",
        "reason: mended",
    ]


def test_dry_run_says_that_nothing_was_landed(write_pipeline: Write, notes: list[str], monkeypatch: pytest.MonkeyPatch):
    """A dry run says first that nothing was landed; nothing to do is no success either, but skipped."""
    write_pipeline("orders")

    _, returned = run_replay_task(monkeypatch, ReplayResult(2, 2, dead_codes={}), dry_run=True)
    with pytest.raises(AirflowSkipException, match="none of the chosen dead letters is open"):
        run_replay_task(monkeypatch, ReplayResult(dead_codes={}))

    assert notes[0].startswith("dry run, nothing was landed; orders: of 2 dead letters 2 would become rows")
    assert returned["done"] is False


def test_wrong_value_is_not_retried(write_pipeline: Write, monkeypatch: pytest.MonkeyPatch):
    """Another try can't mend it; and no letter was looked at."""
    write_pipeline("orders")
    monkeypatch.setattr("frazil.run.repair.dead_letter_replay.replay_dead_letters", None)

    with pytest.raises(AirflowFailException, match="never read topic"):
        dead_letters.replay("orders", dag_run=Run, params=EMPTY | {"topics": ["x"]}, outlet_events={})  # type: ignore[arg-type]
    with pytest.raises(AirflowFailException, match="orders2"):
        dead_letters.replay("orders2", dag_run=Run, params=EMPTY, outlet_events={})  # type: ignore[arg-type]
