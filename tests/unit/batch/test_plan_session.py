"""When a session plans its next batch, and when it ends: every instant, interval and length."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

from hypothesis import assume, given
from hypothesis import strategies as st

from frazil.batch.plan import RunPlan, SessionEnd, next_tick, session_end, session_order
from frazil.batch.position import RunRequest

INSTANTS = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))
EVERY = st.timedeltas(timedelta(seconds=1), timedelta(hours=1)).map(
    lambda interval: timedelta(seconds=interval // timedelta(seconds=1))
)
LENGTHS = st.timedeltas(timedelta(seconds=2), timedelta(days=1))


@given(INSTANTS, EVERY, LENGTHS)
def test_each_tick_comes_once_and_in_the_future(now: datetime, every: timedelta, length: timedelta) -> None:
    """The next tick lies behind now, within one interval, on the clock, or at the session's end, behind which there is none."""
    until = now + length

    due = next_tick(now, every, until)

    assert due is not None
    assert now < due <= min(now + every, until)
    assert due == until or (due - datetime(1970, 1, 1, tzinfo=UTC)) % every == timedelta()
    assert next_tick(until, every, until) is None


@given(INSTANTS, EVERY, st.integers(1, 50), st.timedeltas(timedelta(), timedelta(seconds=30)))
def test_session_ends_with_its_last_batch_at_its_end(
    began: datetime, every: timedelta, ticks: int, takes: timedelta
) -> None:
    """A session ends, with its last batch at its end, however long each takes; ticks that a batch ran past are skipped."""
    until, now, begins = began + ticks * every, began, list[datetime]()
    while (due := next_tick(now, every, until)) is not None:
        begins.append(due)
        now = due + takes

    assert begins[-1] == until or now >= until
    assert all(later - earlier >= min(takes, every) for earlier, later in pairwise(begins[:-1]))
    assert len(set(begins)) == len(begins)


@given(INSTANTS, LENGTHS, st.timedeltas(timedelta(days=-1), timedelta(days=3)))
def test_late_run_does_not_delay_later_runs(due: datetime, length: timedelta, late: timedelta) -> None:
    """A session ends when a later run is due, the next one that is still to come."""
    assume(due + late >= due)
    end = session_end(due, length, due + late)

    assert (end - due) % length == timedelta()
    assert due + late < end <= due + late + length


def test_plan_of_a_session_survives_json() -> None:
    """It travels as every plan does, and reads nothing by itself."""
    now = datetime(2026, 5, 1, 10, tzinfo=UTC)
    order = session_order("orders", RunRequest("r", "cli:me", reason="a test"), now, now + timedelta(minutes=10))

    again = RunPlan.from_json(order.to_json())

    assert again == order
    assert again.until == "2026-05-01T10:10:00.000+00:00"
    assert (again.records, again.started_by, again.reason) == (0, "cli:me", "a test")
    end = SessionEnd("2026-05-01T10:09:59.000+00:00")
    assert SessionEnd.from_json(end.to_json()) == end
