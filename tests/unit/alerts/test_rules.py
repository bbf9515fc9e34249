"""Which troubles hold, by a pipeline's condition."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from frazil.alerts.failure import ChoreKind, Failure, failure
from frazil.alerts.rules import Case, judge
from frazil.monitor.condition import Condition, Retention, Runs
from frazil.pipeline.models.alerts import Alerts

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
WELL = Condition("pizzas", "ops", NOW, n=7, complete_through=NOW - timedelta(minutes=3), lag=0, lag_seconds=0.0)
DAY = 86_400.0


def case(condition: Condition = WELL, **fields: object) -> Case:
    """A pipeline that promises 15 minutes, at an interval of five."""
    fields_of_case = {
        "alerts": Alerts(),
        "objective": timedelta(minutes=15),
        "interval": timedelta(minutes=5),
        **fields,
    }
    return Case(condition, **fields_of_case)


def told_lines(example: Case) -> dict[str, str]:
    """Kinds that hold -> their severity."""
    return {kind: notice.severity for kind, notice in judge(example).items() if notice is not None}


def cause(example: Case, kind: str) -> str:
    notice = judge(example)[kind]
    assert notice is not None
    assert notice.next_step
    return notice.cause


def left(
    message: str = "no such topic\n  next: make it",
    *,
    final: bool = True,
    run: str = "r1",
    chore: ChoreKind | None = None,
) -> Failure:
    return failure("ingest__pizzas", run, NOW - timedelta(minutes=1), message, final=final, chore=chore)


def test_healthy_pipeline_raises_no_alert():
    """Every kind is judged, and none holds."""
    notices = judge(case(replace(WELL, runs=Runs(last_state="success"))))

    assert set(notices.values()) == {None}
    assert set(notices) == {
        "refused",
        "unreadable",
        "stale",
        "lag",
        "lag_growing",
        "retention",
        "failed_run",
        "tolerance",
        "conflict",
        "failed_maintenance",
        "failed_report",
        "failed_replay",
    }


def test_stale_table_raises_alert_with_its_figures():
    """Older than promised by what is unread: the notice says through when, how late, and how much waits."""
    late = replace(WELL, complete_through=NOW - timedelta(minutes=40), lag=1200, lag_seconds=2_000.0)

    assert told_lines(case(late)) == {"stale": "critical"}
    assert "complete only through 2026-05-01 11:26:40 UTC" in cause(case(late), "stale")
    assert "1,200 records" in cause(case(late), "stale")


@pytest.mark.parametrize(
    "condition",
    [
        replace(WELL, complete_through=NOW - timedelta(hours=9)),  # nothing is unread: everything is in
        replace(WELL, complete_through=NOW - timedelta(hours=9), lag=1, lag_seconds=4.0),  # it came just now
        replace(WELL, complete_through=NOW - timedelta(minutes=2), lag=1, lag_seconds=9e9),  # a producer's own time
        replace(WELL, complete_through=NOW - timedelta(hours=9), lag=5, runs=Runs(is_paused=True)),
        replace(WELL, n=None, complete_through=None, lag=5, lag_seconds=9e9),  # it never ran
    ],
)
def test_idle_table_is_not_stale(condition: Condition):
    """A quiet topic, a record that just came, a producer that dates back, a pause, a pipeline that never ran."""
    assert judge(case(condition))["stale"] is None


def test_unreadable_kafka_leaves_lag_freshness_and_retention_unjudged():
    """Without an answer of Kafka nothing is said of lag, freshness and retention: what was told of them stands."""
    notices = judge(case(replace(WELL, lag=None, unreadable="no broker answers")))

    assert {"stale", "lag", "lag_growing", "retention", "refused"}.isdisjoint(notices)
    assert notices["unreadable"] is not None


def test_partial_answer_of_kafka_neither_raises_nor_ends_an_alert():
    """How much waits is known, since when is not: a table is not stale for that, and no trouble is over."""
    half = replace(WELL, lag=9, lag_seconds=None, complete_through=NOW - timedelta(hours=9), unreadable="timed out")
    notices = judge(case(half, fewest=(1, 2, 3, 4, 5), alerts=Alerts(lag=8)))

    assert {"stale", "lag_growing", "retention"}.isdisjoint(notices)
    assert notices["lag"] is not None
    assert judge(case(replace(half, lag=0)))["stale"] is None  # nothing waits, whatever else can't be read


def test_records_of_tables_beyond_the_limit_raise_an_alert_until_they_landed():
    """The run did not fail, and landed all others: people are told what waits, and how it lands."""
    beyond = replace(WELL, rows=9_000, dead=3_000, dead_codes={"TABLE_NOT_MADE": 2_500}, open_letters=3_000)
    notice = judge(case(beyond))["tolerance"]

    assert notice is not None
    assert (notice.severity, notice.next_step) == (
        "warning",
        'frazil dead-letters replay pizzas --reason "the next tables"',
    )
    assert "2,500 of 12,000 records in 1 d name tables that were not created" in notice.cause
    assert judge(case(replace(beyond, open_letters=0)))["tolerance"] is None
    assert judge(case(replace(beyond, dead_codes={"TABLE_NOT_MADE": 1_000})))["tolerance"] is None
    assert judge(case(replace(beyond, rows=10, dead_codes={"TABLE_NOT_MADE": 900}, dead=900)))["tolerance"] is None


def test_batches_that_can_not_be_read_end_no_alert_of_tables_that_were_not_made():
    """The catalog is away: no count is no news, and the alert would come again with the next look."""
    assert (
        judge(case(replace(WELL, rows=0, dead=0, dead_codes={}, unreadable="no answer"))).get("tolerance", "stands")
        == "stands"
    )


def test_refusal_keeps_its_remedy():
    """The error's own next step is the notice's."""
    notice = judge(case(replace(WELL, refusal="log start passed the position\n  next: frazil reset pizzas")))["refused"]

    assert notice is not None
    assert (notice.severity, notice.cause) == ("critical", "log start passed the position")
    assert notice.next_step == "frazil reset pizzas"


def test_lag_is_judged_only_above_a_configured_limit():
    """Without a number no lag is too much; above one it is told."""
    behind = replace(WELL, lag=5_000, lag_seconds=60.0)

    assert told_lines(case(behind)) == {}
    assert told_lines(case(behind, alerts=Alerts(lag=4_999))) == {"lag": "warning"}


@pytest.mark.parametrize(
    ("fewest", "waits", "grows"),
    [
        ((10, 20, 30, 40, 50), 900.0, True),
        ((10, 20, 30, 40, 50), 400.0, False),  # runs keep up: nothing waits for two of them
        ((10, 20, 30, 30, 50), 900.0, False),
        ((10, 20, 30, 40), 900.0, False),  # too few intervals
        ((90, 1, 2, 3, 4, 5), 900.0, True),  # only the last ones count
    ],
)
def test_growing_lag_is_reported_after_four_worse_intervals(fewest: tuple[int, ...], waits: float, grows: bool):
    """Four intervals, each of whose best moments is worse than the one before, while records wait for two intervals."""
    example = case(replace(WELL, lag=50, lag_seconds=waits), fewest=fewest)

    assert (judge(example)["lag_growing"] is not None) is grows


@pytest.mark.parametrize(
    ("seconds_left", "age", "is_near"),
    [
        (20 * 3600.0, 6 * DAY, True),  # of a week, less than a day is left
        (30 * 3600.0, 6 * DAY, False),
        (3_000.0, 600.0, False),  # of an hour, 50 minutes are left
        (800.0, 2_800.0, True),  # of an hour, less than a quarter is left
        (None, 600.0, False),  # kept for ever
    ],
)
def test_retention_is_reported_a_day_or_a_quarter_before(seconds_left: float | None, age: float, is_near: bool):
    """A day before, of topics that keep less than four days a quarter of what they keep."""
    partition = Retention("orders", 3, headroom=10, seconds_left=seconds_left, cut_to_seconds=age)
    example = case(replace(WELL, lag=10, lag_seconds=age, retention=(partition,)), objective=timedelta(days=30))

    assert ("retention" in told_lines(example)) is is_near
    if is_near:
        assert "topic orders, partition 3: " in cause(example, "retention")


def test_records_lost_to_retention_are_reported_with_their_number():
    """Offsets below the log start: how many are gone."""
    partition = Retention("orders", 0, headroom=-12, seconds_left=0.0, cut_to_seconds=None)

    assert "12 unread offsets are deleted" in cause(case(replace(WELL, retention=(partition,))), "retention")


FAILED = replace(WELL, runs=Runs(last_state="failed", last_run="r1", last_ended_at=NOW, failures=1))


def test_failed_run_is_reported_with_cause_and_remedy():
    """The failing task's own words, its next step, and critical where no other try can help."""
    notice = judge(case(FAILED, failure=left()))["failed_run"]

    assert notice is not None
    assert (notice.severity, notice.cause, notice.next_step) == ("critical", "Run r1\nno such topic", "make it")
    assert told_lines(case(FAILED, failure=left(final=False))) == {"failed_run": "warning"}


def test_killed_run_is_reported_by_airflow_state_alone():
    """Airflow's word is enough."""
    assert told_lines(case(FAILED)) == {"failed_run": "warning"}
    assert "Run r1" in cause(case(FAILED), "failed_run")


def test_run_to_be_retried_is_reported_only_after_configured_failures():
    """Fewer failures than asked for are not told, unless a person must act."""
    patient = Alerts(failures=3)

    assert told_lines(case(FAILED, alerts=patient, failure=left(final=False))) == {}
    assert told_lines(case(FAILED, alerts=patient, failure=left())) == {"failed_run": "critical"}
    thrice = replace(FAILED, runs=replace(FAILED.runs, failures=3))
    assert told_lines(case(thrice, alerts=patient, failure=left(final=False))) == {"failed_run": "warning"}


def test_failure_is_reported_at_once_where_failures_cannot_be_counted():
    """Where Airflow can't be asked the first is told; where it counts, so many are waited for."""
    patient, some = Alerts(failures=3), left(final=False)

    assert told_lines(case(alerts=patient, failure=some)) == {"failed_run": "warning"}
    assert told_lines(case(replace(WELL, runs=Runs(failures=0)), alerts=patient, failure=some)) == {}


def test_failure_before_a_later_success_is_not_reported():
    """By Airflow's word, and without it by what the tables say."""
    later = replace(WELL, runs=Runs(last_state="success", last_ended_at=NOW))
    landed = replace(WELL, complete_through=NOW)

    assert told_lines(case(later, failure=left())) == {}
    assert told_lines(case(landed, failure=left())) == {}


def test_failure_after_an_earlier_success_is_reported():
    """The run whose task just failed has not ended yet: the last that did is older."""
    earlier = replace(WELL, runs=Runs(last_state="success", last_ended_at=NOW - timedelta(minutes=6)))

    assert told_lines(case(earlier, failure=left())) == {"failed_run": "critical"}


def test_killed_run_stays_open_while_airflow_is_unreachable():
    """No task could note it, so only Airflow can tell: without its word nothing is said, with it that it is over."""
    assert "failed_run" not in judge(case(replace(WELL, runs=Runs())))
    assert judge(case(replace(WELL, runs=Runs(failures=0))))["failed_run"] is None


def test_failure_stays_open_without_airflow_until_batch_lands():
    """Nothing has landed since: it holds."""
    assert told_lines(case(failure=left())) == {"failed_run": "critical"}


@pytest.mark.parametrize("kind", ["failed_maintenance", "failed_report", "failed_replay"])
def test_failure_outside_ingestion_has_a_kind_of_its_own(kind: ChoreKind):
    """It has a kind of its own, and can wait."""
    failure = left(chore=kind)

    assert told_lines(case(chores={kind: failure})) == {kind: "warning"}
    assert cause(case(chores={kind: failure}), kind) == "Run r1\nno such topic"
    assert Failure.from_json(failure.to_json()) == failure
