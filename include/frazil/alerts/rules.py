"""Which troubles hold, by a pipeline's condition and its thresholds. Pure: what was seen, in; what is wrong, out.

A kind that is not in the answer is unknown now: what was said of it stands. `None`: it is not so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise

from frazil.alerts.failure import RUN_KINDS, ChoreKind, Failure
from frazil.alerts.notice import Notice
from frazil.monitor.condition import Condition, Retention
from frazil.monitor.state import spoken
from frazil.pipeline.alerts import Alerts, Severity
from frazil.pipeline.maintenance import parse_age

Judged = Mapping[str, Notice | None]

_NEXT = "\n  next: "
_SHARE = 4
"""Of a topic that keeps records only shortly, this part of what it keeps is the last warning."""


@dataclass(frozen=True, slots=True)
class Case:
    """What is judged.

    Attributes:
        condition: How the pipeline is doing.
        alerts: Its thresholds.
        promise: How old the instant may be that its tables are complete through.
        interval: Between the last run that was due and the next; two looks if that is longer.
        fewest: Unread records, the fewest of each finished interval, the newest one last.
        failure: What the last failed ingest run left, if any did.
        chores: What maintenance, the report on dead letters and their replay left, each if it failed.
    """

    condition: Condition
    alerts: Alerts
    promise: timedelta
    interval: timedelta
    fewest: Sequence[int] = ()
    failure: Failure | None = None
    chores: Mapping[ChoreKind, Failure | None] = field(default_factory=dict)


def judge(case: Case) -> Judged:
    """Say of each kind of trouble whether it holds."""
    found: dict[str, Notice | None] = {}
    for rule in _RULES:
        found.update(rule(case))
    return found


def _refused(case: Case) -> Iterator[tuple[str, Notice | None]]:
    of = case.condition
    if of.refusal is not None:
        cause, _, step = of.refusal.partition(_NEXT)
        title = f"{of.pipeline}: the next run will refuse to read"
        yield "refused", _notice(case, "refused", "critical", title, cause, step or f"frazil lag {of.pipeline}")
    elif of.unreadable is None:
        yield "refused", None


def _unreadable(case: Case) -> Iterator[tuple[str, Notice | None]]:
    of = case.condition
    if of.unreadable is None:
        yield "unreadable", None
        return
    cause, _, step = of.unreadable.partition(_NEXT)
    title = f"{of.pipeline}: Kafka or the catalog can't be read"
    yield "unreadable", _notice(case, "unreadable", "warning", title, cause, step or f"frazil lag {of.pipeline}")


def _is_half_read(of: Condition) -> bool:
    """Whether it is not known since when the records wait: Kafka answered in part."""
    return bool(of.lag) and of.lag_seconds is None and of.unreadable is not None


def _stale(case: Case) -> Iterator[tuple[str, Notice | None]]:
    of = case.condition
    if of.lag is None or _is_half_read(of):
        return
    through = _complete_through(of)
    if of.runs.is_paused or of.n is None or through is None or of.at - through <= case.promise:
        yield "stale", None
        return
    cause = (
        f"The tables are complete through {_instant(through)} only: {spoken((of.at - through).total_seconds())} before"
        f" {_instant(of.at)}, promised are {spoken(case.promise.total_seconds())}. {of.lag:,} records are not read yet."
    )
    title = f"{of.pipeline}: stale for {spoken((of.at - through - case.promise).total_seconds())}"
    yield "stale", _notice(case, "stale", "critical", title, cause, f"frazil history {of.pipeline}")


def _complete_through(of: Condition) -> datetime | None:
    """What a run would find now counts as well: where nothing is unread, everything is in."""
    if of.lag == 0 and not of.held_back:
        return of.at
    oldest = of.at - timedelta(seconds=of.lag_seconds) if of.lag and of.lag_seconds is not None else None
    return max((at for at in (of.complete_through, oldest) if at is not None), default=None)


def _lag(case: Case) -> Iterator[tuple[str, Notice | None]]:
    of, most = case.condition, case.alerts.lag
    if of.lag is None:
        return
    if most is None or of.lag <= most:
        yield "lag", None
        return
    cause = f"{of.lag:,} records are not read yet, {most:,} are tolerated.{_oldest(of)}"
    yield "lag", _notice(case, "lag", "warning", f"{of.pipeline}: {of.lag:,} records wait", cause, _lag_command(of))


def _growing(case: Case) -> Iterator[tuple[str, Notice | None]]:
    of = case.condition
    if of.lag is None or _is_half_read(of):
        return
    last = case.fewest[-case.alerts.growing_intervals - 1 :]
    grows = len(last) > case.alerts.growing_intervals and all(a < b for a, b in pairwise(last))
    # A few more of few are no growth: where runs keep up, nothing waits for two of them.
    waits = of.lag_seconds is None or of.lag_seconds > 2 * case.interval.total_seconds()
    if not grows or not waits or of.runs.is_paused:
        yield "lag_growing", None
        return
    cause = (
        f"Unread records, the fewest of each interval: {', '.join(f'{count:,}' for count in last)}. More arrives than is"
        f" read.{_oldest(of)}"
    )
    title = f"{of.pipeline}: lag is growing, {of.lag:,} records wait"
    yield "lag_growing", _notice(case, "lag_growing", "warning", title, cause, _lag_command(of))


def _retention(case: Case) -> Iterator[tuple[str, Notice | None]]:
    of = case.condition
    if of.lag is None or _is_half_read(of):
        return
    least = parse_age(case.alerts.retention_left).total_seconds()
    near = [each for each in of.retention if _is_near(each, least)]
    if not near:
        yield "retention", None
        return
    first = near[0]
    lines = [_left(each) for each in near[:20]]
    if near[20:]:
        lines.append(f"and {len(near) - 20} more")
    where = f"{first.topic}/{first.partition}"
    title = f"{of.pipeline}: Kafka's retention is about to take unread records of {where}"
    if first.headroom < 0:
        title = f"{of.pipeline}: Kafka's retention took unread records of {where}"
    step = (
        f"kafka-configs.sh --bootstrap-server BROKER --alter --entity-type topics --entity-name {first.topic} --add-config retention.ms=-1"
        f"\nfrazil lag {of.pipeline}"
    )
    yield "retention", _notice(case, "retention", "critical", title, "\n".join(lines), step)


def _is_near(of: Retention, least: float) -> bool:
    if of.headroom < 0:
        return True
    if of.seconds_left is None:
        return False
    kept = of.seconds_left + (of.cut_to_seconds or 0.0)
    return of.seconds_left < min(least, kept / _SHARE)


def _left(of: Retention) -> str:
    where = f"topic {of.topic}, partition {of.partition}"
    if of.headroom < 0:
        return f"{where}: {-of.headroom:,} offsets are gone that were not read"
    return f"{where}: {spoken(of.seconds_left or 0.0)} left until records go that were not read"


def _failed(case: Case) -> Iterator[tuple[str, Notice | None]]:
    holds = _failure(case)
    notice = None
    if holds is not None:
        of = case.condition
        runs = max(1, of.runs.failures or 1)
        said = f"{of.pipeline}: {_TITLES[holds.kind]}"
        title = said if runs == 1 else f"{said}, {runs} times in a row"
        cause = f"Run {holds.run}\n{holds.cause}"
        notice = _notice(
            case, holds.kind, holds.severity, title, cause, holds.next_step or f"frazil history {of.pipeline}"
        )
    # Without Airflow's word the tables tell that what a run left is over; where it left nothing, nobody can.
    is_over = _is_over(case) if case.failure is not None else case.condition.runs.failures is not None
    if holds is not None or case.condition.runs.last_state is not None or is_over:
        yield from ((kind, notice if notice is not None and notice.kind == kind else None) for kind in RUN_KINDS)


_TITLES = {
    "failed_run": "a run failed",
    "tolerance": "too many dead letters, nothing was published",
    "conflict": "rivals kept a run from landing anything",
}


def _failure(case: Case) -> Failure | None:
    """The failure that people are told of; None if none is, or too few."""
    runs, left = case.condition.runs, case.failure
    if left is not None and left.severity == "critical" and not _is_over(case):
        return left
    if runs.last_state == "failed" and runs.last_run is not None:
        if (runs.failures or 1) < case.alerts.failures:
            return None
        if left is not None and left.run == runs.last_run:
            return left
        at = runs.last_ended_at or case.condition.at
        said = "Airflow ended it: no task of it could say why. Its log may."
        return Failure("", runs.last_run, at, "failed_run", "warning", said)
    if left is None or _is_over(case):
        return None
    is_counted = runs.failures is not None  # else it may be the last of many
    return None if is_counted and case.alerts.failures > 1 else left


def _is_over(case: Case) -> bool:
    """Whether a later run did what the failed one did not. Without Airflow's word the tables tell."""
    of, left = case.condition, case.failure
    if left is None:
        return True
    if of.runs.last_state == "success":
        return of.runs.last_ended_at is None or of.runs.last_ended_at >= left.at
    if of.runs.last_state == "failed":
        return of.runs.last_run != left.run and of.runs.last_ended_at is not None and of.runs.last_ended_at > left.at
    moved = [at for at in (of.complete_through, of.last_commit) if at is not None]
    return any(at > left.at for at in moved)


_CHORES: Mapping[ChoreKind, tuple[str, str]] = {
    "failed_maintenance": ("maintenance failed", "frazil maintain {} --dry-run"),
    "failed_report": ("the report on dead letters failed", "frazil dead-letters report {}"),
    "failed_replay": ("dead letters could not be brought home", 'frazil dead-letters replay {} --reason "…" --dry-run'),
}
"""How they are told, and what shows more of them."""


def _chores(case: Case) -> Iterator[tuple[str, Notice | None]]:
    name = case.condition.pipeline
    for kind, (said, shown_by) in _CHORES.items():
        left = case.chores.get(kind)
        if left is None:
            yield kind, None
        else:
            step, cause = left.next_step or shown_by.format(name), f"Run {left.run}\n{left.cause}"
            yield kind, _notice(case, kind, left.severity, f"{name}: {said}", cause, step)


_RULES: Sequence[Callable[[Case], Iterator[tuple[str, Notice | None]]]] = (
    _refused,
    _unreadable,
    _stale,
    _lag,
    _growing,
    _retention,
    _failed,
    _chores,
)


def _notice(case: Case, kind: str, severity: Severity, title: str, cause: str, step: str) -> Notice:
    of = case.condition
    return Notice(of.pipeline, of.owner, kind, severity, title, cause, step)


def _oldest(of: Condition) -> str:
    return "" if of.lag_seconds is None else f" The oldest waits for {spoken(of.lag_seconds)}."


def _lag_command(of: Condition) -> str:
    return f"frazil lag {of.pipeline}"


def _instant(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"
