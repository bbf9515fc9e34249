"""What a DAG run asks for, from its type, its interval and the trigger form; and what the form itself refuses."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk.api.datamodels._generated import DagRun, DagRunState, DagRunType
from airflow.sdk.exceptions import AirflowFailException, ParamValidationError

from frazil.batch.plan import PlannedTopic, RunPlan
from frazil.batch.position import EARLIEST, LATEST, Position, RunRequest, Target
from frazil.errors import Terminal
from frazil.run.batches.plan import PlannedRun
from frazil_airflow.project.run_request import params, request_of
from frazil_airflow.tasks import ingest_tasks

pytestmark = pytest.mark.dags

DEFAULTS = {"mode": "ingest", "from": None, "to": None, "reason": None, "max_records": None}
BEGIN, END = datetime(2026, 5, 1, 10, tzinfo=UTC), datetime(2026, 5, 1, 11, tzinfo=UTC)


def run_of(kind: str, user: str | None = None, clear_number: int = 0) -> DagRun:
    """A run as Airflow hands it to a task."""
    return DagRun(
        dag_id="ingest__orders",
        run_id=f"{kind}__1",
        logical_date=BEGIN,
        data_interval_start=BEGIN,
        data_interval_end=END,
        run_after=END,
        start_date=None,
        end_date=None,
        clear_number=clear_number,
        run_type=DagRunType(kind),
        state=DagRunState.RUNNING,
        triggering_user_name=user,
        consumed_asset_events=[],
        partition_key=None,
    )


def filled_request(kind: str = "manual", clear_number: int = 0, **filled: Any) -> RunRequest:
    """The request of a run with these fields filled in."""
    return request_of(run_of(kind, clear_number=clear_number), DEFAULTS | filled)


@pytest.mark.parametrize(
    ("kind", "user", "starter"),
    [
        ("scheduled", None, "airflow:scheduled"),
        ("manual", "ana", "airflow:manual:ana"),
        ("manual", None, "airflow:manual"),
        ("backfill", "ana", "airflow:backfill:ana"),
        ("asset_triggered", None, "airflow:asset_triggered"),
    ],
)
def test_ledger_names_who_started_run(kind: str, user: str | None, starter: str):
    """The ledger says schedule, asset, or the person by name."""
    assert request_of(run_of(kind, user), DEFAULTS).started_by == starter


def test_scheduled_run_reads_past_its_interval():
    """A run of the schedule lands everything there is: Kafka does not wait for intervals."""
    assert filled_request("scheduled") == RunRequest("scheduled__1", "airflow:scheduled", "ingest", None, None, None)


def test_backfill_leaves_no_gap_behind_position():
    """It goes on at the position and ends with the interval."""
    request = filled_request("backfill")

    assert (request.mode, request.start, request.end) == ("ingest", None, Target("timestamp", END))


@pytest.mark.parametrize("mode", ["replay", "dry_run"])
def test_backfill_replays_its_own_interval(mode: str):
    """With a mode in its conf, every run replays, or looks at, its own interval."""
    request = filled_request("backfill", mode=mode, reason="wrong prices")

    assert (request.start, request.end) == (Target("timestamp", BEGIN), Target("timestamp", END))
    assert (request.mode, request.reason) == (mode, "wrong prices")


@pytest.mark.parametrize("field", ["from", "to"])
def test_backfill_with_fixed_range_is_refused(field: str):
    """Places in its conf would make each of its runs do the same."""
    with pytest.raises(Terminal, match="a backfill has its intervals"):
        filled_request("backfill", mode="replay", **{field: "earliest"})


def test_second_backfill_of_interval_has_its_own_run():
    """Airflow takes up the run that exists, under its id, by which the ledger knows a replay that is done."""
    first, cleared = (filled_request("backfill", number, mode="replay").run for number in (0, 2))

    assert first == "backfill__1"
    assert cleared == "backfill__1#2"
    assert filled_request("scheduled", 2).run == "scheduled__1"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (None, None),
        ("", None),
        ("earliest", EARLIEST),
        (" latest ", LATEST),
        ("2026-05-01T10:00:00+00:00", Target("timestamp", BEGIN)),
        ("2026-05-01T12:00:00+02:00", Target("timestamp", BEGIN)),
        ("2026-05-01 10:00", Target("timestamp", BEGIN)),
        ('\n{"orders": {"0": 12, "3": 7}}', Target("offsets", offsets={"orders": {0: 12, 3: 7}})),
        ('{"orders": [12, 7]}', Target("offsets", offsets={"orders": {0: 12, 1: 7}})),
    ],
)
def test_offsets_and_instants_are_read_as_written(text: str | None, place: Target | None):
    """Words, instants with and without an offset from UTC, and offsets as JSON."""
    assert filled_request(mode="dry_run", to=text).end == place


@pytest.mark.parametrize("text", ["yesterday", "1200", "2026-13-01", '{"orders": {"0": -1}}', '{"orders": 5}', "{x}"])
def test_invalid_offset_is_refused_at_planning(text: str):
    """What the form let through is refused when the run is planned."""
    with pytest.raises(Terminal, match=r"is not a position|holds no offsets"):
        filled_request(mode="dry_run", to=text)


def test_replay_without_beginning_is_refused():
    """It must be said where to begin, and nothing may cut its range in two."""
    with pytest.raises(Terminal, match="the field 'from' is empty"):
        filled_request(mode="replay", to="latest")
    with pytest.raises(Terminal, match="'max_records' does not apply"):
        filled_request(mode="replay", max_records=5, **{"from": "earliest"})


def test_impossible_replay_is_not_retried():
    """The plan task fails for good, before it opens any connection."""
    with pytest.raises(AirflowFailException, match="the field 'from' is empty"):
        ingest_tasks.plan("pizzas", dag_run=run_of("manual"), params=DEFAULTS | {"mode": "replay"}, outlet_events={})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("mode", "reset"),
        ("mode", None),
        ("from", "yesterday"),
        ("to", "2026-05"),
        ("to", 1200),
        ("max_records", 0),
        ("reason", "x" * 501),
    ],
)
def test_form_refuses_values_that_no_run_can_use(field: str, value: object):
    """Airflow refuses it before there is a run."""
    with pytest.raises(ParamValidationError):
        params()[field].resolve(value)


@pytest.mark.parametrize(
    "text", ["", "earliest", "2026-05-01", "2026-05-01T10:00:00Z", '{\n"orders": {"0": 1}\n}', None]
)
def test_form_takes_every_way_to_write_offset(text: str | None):
    """Every way to write a place passes the pattern."""
    form = params()["from"]

    assert form.resolve(text) == text


def reason_to_skip(end: Target | None = None, mode: str = "ingest") -> str:
    planned = PlannedRun(None, Position(0, 0, "c"), "2026-05-01T12:00:00.000+00:00")
    return ingest_tasks._why_nothing(RunRequest("r", mode=mode, end=end), planned)


def test_backfill_that_does_nothing_says_why():
    """Below the position: landed already, and how to land it again. Without an end: complete through when."""
    assert "landed already" in reason_to_skip(Target("timestamp", END))
    assert '--dag-run-conf \'{"mode": "replay"}\'' in reason_to_skip(Target("timestamp", END))
    assert reason_to_skip() == "nothing new; the table is complete through 2026-05-01T12:00:00.000+00:00"
    assert "below the position" in reason_to_skip(mode="replay")


@pytest.mark.parametrize("engine", ["inline", "spark"])
def test_braces_in_a_form_are_text(parse: Callable[[], DagBag], write_pipeline: Callable[..., Path], engine: str):
    """Airflow renders a task's fields as templates. What a person fills in gets there by the plan, and is rendered no further: it
    would read variables and connections that the person may not see.
    """
    write_pipeline("orders", engine=engine)
    task = parse().dags["ingest__orders"].get_task("ingest")
    topics = {"orders": PlannedTopic("id", (0,), (10,))}
    plan = RunPlan(
        "orders", "r", "t", "c", topics, complete=False, reason="{{ 7 * 7 }} {% raise %} {{ var.value.secret }}"
    )
    ti = SimpleNamespace(xcom_pull=lambda **_: plan.to_json())

    task.render_template_fields({"ti": ti})  # type: ignore[typeddict-item]

    assert RunPlan.from_json(task.plan_json).reason == plan.reason


def test_plan_keeps_mode_reason_and_user():
    """Mode, reason and who asked travel in the plan, also when its ends are drawn in."""
    from frazil_airflow.project.run_request import limit_records

    topics = {"orders": PlannedTopic("id", (0,), (10,))}
    plan = RunPlan(
        "orders", "r", "t", "c", topics, complete=False, mode="dry_run", started_by="airflow:manual", reason="y"
    )

    chosen = RunPlan.from_json(limit_records(plan, 4).to_json())

    assert (chosen.records, chosen.mode, chosen.started_by, chosen.reason) == (4, "dry_run", "airflow:manual", "y")
