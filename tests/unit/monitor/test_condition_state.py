"""The word for a condition: always one, always the most urgent."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.monitor.condition import RULES, STATES, Condition, Retention, Runs, spoken, state_of

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
PROMISE = 600.0
FINE = Condition("orders", "shop", NOW, n=7, lag=0, lag_seconds=0.0, held_back=0)

TROUBLES = {
    "Paused": {"runs": Runs(is_paused=True)},
    "Refused": {"refusal": "topic orders was recreated\n  next: frazil reset orders --to earliest"},
    "Failed": {"runs": Runs(last_state="failed", last_run="scheduled__1", failures=3)},
    "Degraded": {"unreadable": "Kafka cluster local does not answer"},
    "Behind": {"lag": 5, "lag_seconds": 601.0},
    "Running": {"runs": Runs(running_since=NOW - timedelta(seconds=70))},
}

moments = st.none() | st.datetimes(datetime(2026, 4, 1), datetime(2026, 6, 1), timezones=st.just(UTC))
texts = st.none() | st.sampled_from(["no broker answers", "refused\n  next: reset"])
counts = st.none() | st.integers(0, 10**9)
seconds = st.none() | st.floats(0, 1e9)
runs = st.builds(
    Runs,
    is_paused=st.none() | st.booleans(),
    running_since=moments,
    last_state=st.sampled_from([None, "success", "failed"]),
    last_run=st.none() | st.just("manual__1"),
    failures=st.none() | st.integers(0, 9),
)
retention = st.builds(Retention, st.just("orders"), st.integers(0, 9), st.integers(-9, 9), seconds, seconds)
conditions = st.builds(
    Condition,
    st.just("orders"),
    st.just("shop"),
    st.just(NOW),
    n=counts,
    unfinished=counts,
    unfinished_since=moments,
    refusal=texts,
    unreadable=texts,
    lag=counts,
    lag_seconds=seconds,
    held_back=counts,
    retention=st.lists(retention, max_size=3).map(tuple),
    rows=st.integers(0, 10**6),
    dead=st.integers(0, 10**6),
    filtered=st.integers(0, 10**6),
    health=st.dictionaries(st.sampled_from(["a", "b"]), st.integers(0, 100)),
    runs=runs,
)


@given(conditions, seconds)
def test_condition_has_exactly_one_state(condition: Condition, promise: float | None) -> None:
    """Whatever is known, there is one word with one line, and no more urgent rule holds."""
    state, why = state_of(condition, promise)

    holds = [word for word, rule in RULES if rule(condition, promise) is not None]
    assert state == (holds[0] if holds else "Idle")
    assert state in STATES
    assert why
    assert "\n" not in why


def test_states_are_checked_in_order() -> None:
    """The rules are asked in the order in which the words are declared."""
    assert (*(word for word, _ in RULES), "Idle") == STATES


@pytest.mark.parametrize("word", TROUBLES)
def test_most_urgent_state_wins(word: str) -> None:
    """Each word holds by itself, and wins over all that come after it."""
    assert state_of(replace(FINE, **TROUBLES[word]), PROMISE)[0] == word
    later = list(TROUBLES)[list(TROUBLES).index(word) :]
    troubles = {key: value for name in reversed(later) for key, value in TROUBLES[name].items()}
    if word != "Paused":
        assert state_of(replace(FINE, **troubles), PROMISE)[0] == word


def test_pause_still_shows_a_refusal() -> None:
    """A person paused it, and still reads what is wrong besides."""
    paused = replace(FINE, runs=Runs(is_paused=True), refusal="topic orders was recreated\n  next: reset")

    assert state_of(paused, PROMISE) == ("Paused", "its schedule is paused; topic orders was recreated")


@pytest.mark.parametrize(
    ("seconds_left", "age", "word"),
    [(10.0, 90.0, "Degraded"), (26.0, 74.0, "Idle"), (None, 90.0, "Idle"), (1.0, None, "Idle")],
)
def test_retention_is_reported_before_records_are_lost(
    seconds_left: float | None, age: float | None, word: str
) -> None:
    """With less than a quarter of the retention left somebody has to look; what nobody can tell alarms nobody."""
    threatened = replace(FINE, lag=1, lag_seconds=1.0, retention=(Retention("orders", 0, 5, seconds_left, age),))

    assert state_of(threatened, PROMISE)[0] == word


def test_lost_records_are_reported_with_their_number() -> None:
    """Records that retention took unread are told with their number, though the pipeline may go on without them."""
    lost = replace(FINE, lag=1, retention=(Retention("orders", 3, -40, 0.0, 5.0),))

    assert state_of(lost, PROMISE) == (
        "Degraded",
        "topic orders, partition 3: retention took 40 records before they were read",
    )


@pytest.mark.parametrize(("since", "word"), [(299, "Running"), (301, "Degraded"), (None, "Running")])
def test_batch_in_progress_raises_no_alarm(since: int | None, word: str) -> None:
    """Between the decision and its end there are seconds; only a batch that stays there is in trouble."""
    begin = None if since is None else NOW - timedelta(seconds=since)

    assert state_of(replace(FINE, unfinished=8, unfinished_since=begin), PROMISE)[0] == word


def test_share_of_dead_letters_counts_from_a_thousand_records() -> None:
    """A share is one of a thousand records at least."""
    assert state_of(replace(FINE, rows=2, dead=1), PROMISE)[0] == "Idle"
    assert state_of(replace(FINE, rows=800, dead=201), PROMISE)[0] == "Degraded"
    assert state_of(replace(FINE, rows=900, dead=100), PROMISE)[0] == "Idle"


def test_pipeline_before_its_first_run_is_not_behind() -> None:
    """Before the first run nobody knows where the pipeline will begin."""
    assert state_of(replace(FINE, n=None, lag=5, lag_seconds=1e6), PROMISE) == ("Idle", "it never ran")


@pytest.mark.parametrize(
    ("length", "text"),
    [(0.2, "0 s"), (48, "48 s"), (125, "2 min 5 s"), (3600, "1 h"), (90_061, "1 d 1 h"), (86_405, "1 d")],
)
def test_duration_has_two_units_at_most(length: float, text: str) -> None:
    """People read two units at most."""
    assert spoken(length) == text


def test_commit_after_a_refused_run_by_hand_ends_the_refusal() -> None:
    """Another host's run, or a session that is at work, landed records since: nobody has to act."""
    refused = Runs(refusal="the run by hand refused: engine", refused_at=NOW)
    later = replace(FINE, runs=refused, last_commit=NOW + timedelta(seconds=1))
    earlier = replace(FINE, runs=refused, last_commit=NOW - timedelta(seconds=1))

    assert state_of(earlier)[0] == "Refused"
    assert state_of(later)[0] != "Refused"
