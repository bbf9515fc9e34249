"""The word for a pipeline's condition, and why: one rule for page, terminal, metrics and alerts.

Rules are asked in the order of `RULES`, and the first that holds gives the word; `Idle` holds always. So every condition has
exactly one word, the most urgent one.

| word | it holds if |
|---|---|
| Paused | Airflow says that the schedule is paused. A person chose that, so it stands before all else, and what is wrong besides is said behind it |
| Refused | a plan would refuse: the next run fails until a person acts |
| Failed | the last finished run failed |
| Degraded | Kafka or the catalog can't be read; a decided batch is unfinished for 5 minutes; retention took unread records, or may take them when three quarters of it are over; more than a tenth of the window's records (of 1,000 and more) are dead letters; a table's health is below 50 |
| Behind | records wait for longer than promised |
| Running | a run is at work, or a batch is decided and not finished yet |
| Idle | nothing of all that |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, get_args

from frazil.monitor.condition import Condition, Retention, State

STATES: Final[tuple[State, ...]] = get_args(State)
"""All words, the most urgent first."""

UNFINISHED_SECONDS: Final = 300.0
"""How long a decided batch may be under way: it takes a second or two, a merge of an engine a minute or two."""

RETENTION_SHARE: Final = 0.25
"""Of a topic's retention: with less of it left, records may be lost before anybody looks."""

DEAD_SHARE: Final = 0.1
DEAD_OF: Final = 1_000
"""Records below which a share says little."""

HEALTH: Final = 50


@dataclass(frozen=True, slots=True)
class Promise:
    """What is promised of a pipeline: how long a record may wait, in seconds; None: nothing."""

    seconds: float | None = None


NOTHING: Final = Promise()

_Rule = Callable[[Condition, Promise], str | None]
"""Why a word holds, or None."""


def state_of(condition: Condition, promise: Promise = NOTHING) -> tuple[State, str]:
    """The word for a condition, and why, in one line."""
    for state, rule in RULES:
        if (why := rule(condition, promise)) is not None:
            return state, why
    return "Idle", _idle(condition)


def _paused(of: Condition, promise: Promise) -> str | None:
    if not of.runs.is_paused:
        return None
    besides = next((why for state, rule in RULES[1:5] if (why := rule(of, promise)) is not None), None)
    return "its schedule is paused" + ("" if besides is None else f"; {besides}")


def _refused(of: Condition, _: Promise) -> str | None:
    return None if of.refusal is None else of.refusal.splitlines()[0]


def _failed(of: Condition, _: Promise) -> str | None:
    if of.runs.last_state != "failed":
        return None
    failures = of.runs.failures or 1
    how = f"the last {failures} runs failed" if failures > 1 else "the last run failed"
    return how + (f": {of.runs.last_run}" if of.runs.last_run else "")


def _degraded(of: Condition, _: Promise) -> str | None:
    checks = (_unreadable, _stuck, _threatened, _dying, _ill)
    return next((why for check in checks if (why := check(of)) is not None), None)


def _unreadable(of: Condition) -> str | None:
    return None if of.unreadable is None else f"can't be read now: {of.unreadable.splitlines()[0]}"


def _stuck(of: Condition) -> str | None:
    seconds = _unfinished_seconds(of)
    if of.unfinished is None or seconds is None or seconds < UNFINISHED_SECONDS:
        return None
    return f"batch {of.unfinished} is decided and not finished for {spoken(seconds)}"


def _threatened(of: Condition) -> str | None:
    for partition in of.retention:
        where = f"topic {partition.topic}, partition {partition.partition}"
        if partition.headroom < 0:
            return f"{where}: retention took {-partition.headroom:,} records before they were read"
        if partition.seconds_left is not None and _is_near(partition, partition.seconds_left):
            return f"{where}: retention may take unread records in {spoken(partition.seconds_left)}"
    return None


def _is_near(partition: Retention, left: float) -> bool:
    age = partition.cut_to_seconds
    return age is not None and left < RETENTION_SHARE * (left + age)


def _dying(of: Condition) -> str | None:
    read = of.rows + of.dead + of.filtered
    if read < DEAD_OF or of.dead <= DEAD_SHARE * read:
        return None
    return f"{of.dead:,} of {read:,} records are dead letters ({of.dead / read:.0%}), in {spoken(of.window_seconds)}"


def _ill(of: Condition) -> str | None:
    table = min(of.health, key=lambda name: (of.health[name], name), default=None)
    if table is None or of.health[table] >= HEALTH:
        return None
    return f"table {table} has health {of.health[table]}"


def _behind(of: Condition, promise: Promise) -> str | None:
    if promise.seconds is None or of.n is None or not of.lag or of.lag_seconds is None:
        return None
    if of.lag_seconds <= promise.seconds:
        return None
    return f"{of.lag:,} records wait, the oldest for {spoken(of.lag_seconds)}; promised are {spoken(promise.seconds)}"


def _running(of: Condition, _: Promise) -> str | None:
    if of.runs.running_since is not None:
        return f"at work for {spoken(max(0.0, (of.at - of.runs.running_since).total_seconds()))}"
    return None if of.unfinished is None else f"batch {of.unfinished} is decided, and about to be finished"


def _idle(of: Condition) -> str:
    if of.n is None:
        return "it never ran"
    if of.lag is None:
        return "nothing is known of its topics"
    if of.lag == 0:
        return (
            "everything is in" if not of.held_back else f"{of.held_back:,} records are held back by open transactions"
        )
    return f"{of.lag:,} records wait for the next run"


RULES: Final[tuple[tuple[State, _Rule], ...]] = (
    ("Paused", _paused),
    ("Refused", _refused),
    ("Failed", _failed),
    ("Degraded", _degraded),
    ("Behind", _behind),
    ("Running", _running),
)
"""The words in their order, each with its rule."""


def _unfinished_seconds(of: Condition) -> float | None:
    return None if of.unfinished_since is None else (of.at - of.unfinished_since).total_seconds()


_UNITS: Final = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def spoken(seconds: float) -> str:
    """A duration as people say it, in its largest unit and the next: `2 h 5 min`, `48 s`."""
    left = round(max(0.0, seconds))
    parts: list[str] = []
    for unit, size in _UNITS:
        count, left = divmod(left, size)
        if count or (unit == "s" and not parts):
            parts.append(f"{count} {unit}")
        elif parts:
            break
    return " ".join(parts[:2])
