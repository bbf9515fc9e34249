"""Pure rules: from the condition and the thresholds of a pipeline, or a capture, to the troubles that it has.

A kind that is not in the answer is unknown now: what was said of it stands. `None`: it is not so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Literal

from frazil.alerts.failure import RUN_KINDS, ChoreKind, Failure
from frazil.batch.audit import TABLE_NOT_MADE
from frazil.monitor.condition import DEAD_OF, DEAD_SHARE, Condition, Retention, spoken, waiting
from frazil.pipeline.channels import Notice, Severity
from frazil.pipeline.models.alerts import Alerts
from frazil.pipeline.models.maintenance import parse_age

Judged = Mapping[str, Notice | None]

Trouble = tuple[str, str, str]
"""Title, cause and next step."""

Verdict = Trouble | Literal["unknown"] | None

_NEXT = "\n  next: "
_SHARE = 4
"""Of a topic that keeps records only shortly, this part of what it keeps is the last warning."""


@dataclass(frozen=True, slots=True)
class Case:
    """The facts about one pipeline that the rules judge.

    Attributes:
        condition: How the pipeline is doing.
        promise: Freshness objective: how old the instant may be that its tables are complete through.
        interval: Between the last run that was due and the next; two looks if that is longer.
        fewest: Unread records, the fewest of each finished interval, the newest one last.
        failure: The failure that the last failed ingest run stored, if any.
        chores: The failures of maintenance, dead-letter report and dead-letter replay, for each that failed.
    """

    condition: Condition
    alerts: Alerts
    promise: timedelta
    interval: timedelta
    fewest: Sequence[int] = ()
    failure: Failure | None = None
    chores: Mapping[ChoreKind, Failure | None] = field(default_factory=dict)


def judge(case: Case) -> Judged:
    """Decide for each kind of problem whether the pipeline has it."""
    notices: dict[str, Notice | None] = {}
    for kind, (severity, rule) in _RULES.items():
        verdict = rule(case)
        if verdict != "unknown":
            notices[kind] = None if verdict is None else _notice(case, kind, severity, *verdict)
    of_runs = dict(_failed(case))
    if (trouble := _tables_not_made(case)) is not None and of_runs.get("tolerance") is None:
        of_runs["tolerance"] = _notice(case, "tolerance", "warning", *trouble)
    elif case.failure is None and case.condition.unreadable is None:  # and nothing else could end that one
        of_runs.setdefault("tolerance", None)
    return notices | of_runs | dict(_chores(case))


def _tables_not_made(case: Case) -> Trouble | None:
    """Published batches whose records named more tables than may be made: a run that lands the rest does not fail."""
    condition = case.condition
    count, read = condition.dead_codes.get(TABLE_NOT_MADE, 0), condition.rows + condition.dead + condition.filtered
    if read < DEAD_OF or count <= DEAD_SHARE * read or condition.open_letters == 0:
        return None
    cause = (
        f"{count:,} of {read:,} records in {spoken(condition.window_seconds)} name tables that were not created: a run creates at"
        " most route.create.max_new_tables tables, all runs together max_tables; or the name is taken. The dead letters show which."
        " All other records landed, these wait as dead letters (TABLE_NOT_MADE)."
    )
    step = f'frazil dead-letters replay {condition.pipeline} --reason "the next tables"'
    return f"{condition.pipeline}: records name more tables than may be created", cause, step


def _refused(case: Case) -> Verdict:
    condition = case.condition
    if condition.refusal is not None:
        return _error(condition, "the next run will refuse to read", condition.refusal)
    return None if condition.unreadable is None else "unknown"


def _unreadable(case: Case) -> Verdict:
    error = case.condition.unreadable
    return None if error is None else _error(case.condition, "Kafka or the catalog can't be read", error)


def _error(condition: Condition, title: str, error: str) -> Trouble:
    cause, _, step = error.partition(_NEXT)
    return f"{condition.title}: {title}", cause, step or _look_at(condition, "lag")


def _look_at(condition: Condition, command: str) -> str:
    """The command that shows more of a pipeline, or of a capture."""
    if condition.is_capture:
        return f"frazil {condition.title} --dry-run"
    return f"frazil {command} {condition.pipeline}"


def _is_half_read(condition: Condition) -> bool:
    """Whether the waiting time of the records is unknown, because Kafka answered only in part or not at all."""
    is_partial = bool(condition.lag) and condition.lag_seconds is None and condition.unreadable is not None
    return (condition.lag_seconds if condition.unit == "rows" else condition.lag) is None or is_partial


def _stale(case: Case) -> Verdict:
    condition = case.condition
    if _is_half_read(condition):
        return "unknown"
    through = _complete_through(condition)
    if condition.runs.is_paused or condition.n is None or through is None:
        return None
    age = condition.read_at - through
    if age <= case.promise:
        return None
    what, unread = (
        ("The topic has everything", f"{waiting(condition)}.")
        if condition.is_capture
        else ("The tables are complete", f"{condition.lag:,} records are not read yet.")
    )
    cause = (
        f"{what} only through {_instant(through)}, {spoken(age.total_seconds())} before {_instant(condition.read_at)}; the"
        f" freshness objective is {spoken(case.promise.total_seconds())}. {unread}"
    )
    title = f"{condition.title}: stale for {spoken((age - case.promise).total_seconds())}"
    return title, cause, _look_at(condition, "history")


def _complete_through(condition: Condition) -> datetime | None:
    """The instant through which the tables are complete: now, if nothing is unread."""
    if condition.lag == 0 and not condition.held_back:
        return condition.read_at
    oldest = (
        condition.read_at - timedelta(seconds=condition.lag_seconds)
        if (condition.lag or condition.unit == "rows") and condition.lag_seconds is not None
        else None
    )
    return max((instant for instant in (condition.complete_through, oldest) if instant is not None), default=None)


def _lag(case: Case) -> Verdict:
    condition, most = case.condition, case.alerts.lag
    if condition.lag is None:
        return "unknown"
    if most is None or condition.lag <= most:
        return None
    unread = waiting(condition) if condition.is_capture else f"{condition.lag:,} records are not read yet"
    cause = f"{unread}; the limit is {most:,}.{_oldest(condition)}"
    return f"{condition.title}: {waiting(condition)}", cause, _look_at(condition, "lag")


def _growing(case: Case) -> Verdict:
    condition = case.condition
    if _is_half_read(condition):
        return "unknown"
    last = case.fewest[-case.alerts.growing_intervals - 1 :]
    grows = len(last) > case.alerts.growing_intervals and all(a < b for a, b in pairwise(last))
    # A few more of few are no growth: where runs keep up, nothing waits for two of them.
    waits = condition.lag_seconds is None or condition.lag_seconds > 2 * case.interval.total_seconds()
    if not grows or not waits or condition.runs.is_paused:
        return None
    cause = (
        f"Smallest number of unread {condition.unit} in each interval: {', '.join(f'{count:,}' for count in last)}. More arrive"
        f" than are read.{_oldest(condition)}"
    )
    return f"{condition.title}: lag is growing, {waiting(condition)}", cause, _look_at(condition, "lag")


def _retention(case: Case) -> Verdict:
    condition = case.condition
    if _is_half_read(condition):
        return "unknown"
    least = parse_age(case.alerts.retention_left).total_seconds()
    urgent = [retention for retention in condition.retention if _is_near(retention, least)]
    if not urgent:
        return None
    first = urgent[0]
    lines = [_retention_text(retention) for retention in urgent[:20]]
    if urgent[20:]:
        lines.append(f"and {len(urgent) - 20} more")
    taking = "will soon delete" if first.headroom >= 0 else "deleted"
    title = f"{condition.pipeline}: Kafka's retention {taking} unread records of {first.topic}/{first.partition}"
    step = (
        f"kafka-configs.sh --bootstrap-server BROKER --alter --entity-type topics --entity-name {first.topic} --add-config retention.ms=-1"
        f"\nfrazil lag {condition.pipeline}"
    )
    return title, "\n".join(lines), step


def _is_near(retention: Retention, least: float) -> bool:
    if retention.headroom < 0:
        return True
    if retention.seconds_left is None:
        return False
    retained_seconds = retention.seconds_left + (retention.cut_to_seconds or 0.0)
    return retention.seconds_left < min(least, retained_seconds / _SHARE)


def _retention_text(retention: Retention) -> str:
    where = f"topic {retention.topic}, partition {retention.partition}"
    if retention.headroom < 0:
        return f"{where}: {-retention.headroom:,} unread offsets are deleted"
    return f"{where}: {spoken(retention.seconds_left or 0.0)} left until unread records are deleted"


def _failed(case: Case) -> Iterator[tuple[str, Notice | None]]:
    holds = _failure(case)
    notice = None
    if holds is not None:
        condition = case.condition
        runs = max(1, condition.runs.failures or 1)
        title_of_one = f"{condition.title}: {_TITLES[holds.kind]}"
        title = title_of_one if runs == 1 else f"{title_of_one}, {runs} times in a row"
        cause = f"Run {holds.run}\n{holds.cause}"
        notice = _notice(
            case, holds.kind, holds.severity, title, cause, holds.next_step or _look_at(condition, "history")
        )
    # Without Airflow's word the tables tell that what a run left is over; where it left nothing, nobody can.
    is_over = _is_over(case) if case.failure is not None else case.condition.runs.failures is not None
    if holds is not None or case.condition.runs.last_state is not None or is_over:
        yield from ((kind, notice if notice is not None and notice.kind == kind else None) for kind in RUN_KINDS)


_TITLES = {
    "failed_run": "a run failed",
    "tolerance": "too many dead letters, nothing was published",
    "conflict": "other commits kept a run from landing anything",
}


def _failure(case: Case) -> Failure | None:
    """The failure to notify people of; None if no run failed, or fewer than the threshold."""
    runs, failure = case.condition.runs, case.failure
    if failure is not None and failure.severity == "critical" and not _is_over(case):
        return failure
    if runs.last_state == "failed" and runs.last_run is not None:
        if (runs.failures or 1) < case.alerts.failures:
            return None
        if failure is not None and failure.run == runs.last_run:
            return failure
        ended_at = runs.last_ended_at or case.condition.read_at
        cause = "Airflow ended the run before a task could report the reason. The run's log may have it."
        return Failure("", runs.last_run, ended_at, "failed_run", "warning", cause)
    if failure is None or _is_over(case):
        return None
    is_counted = runs.failures is not None  # else it may be the last of many
    return None if is_counted and case.alerts.failures > 1 else failure


def _is_over(case: Case) -> bool:
    """Whether a later run did the work of the failed one. Without Airflow's run states, the tables decide."""
    condition, failure = case.condition, case.failure
    if failure is None:
        return True
    if condition.runs.last_state == "success":
        return condition.runs.last_ended_at is None or condition.runs.last_ended_at >= failure.noted_at
    if condition.runs.last_state == "failed":
        return (
            condition.runs.last_run != failure.run
            and condition.runs.last_ended_at is not None
            and condition.runs.last_ended_at > failure.noted_at
        )
    moved = [instant for instant in (condition.complete_through, condition.last_commit) if instant is not None]
    return any(instant > failure.noted_at for instant in moved)


_CHORES: Mapping[ChoreKind, tuple[str, str]] = {
    "failed_maintenance": ("maintenance failed", "frazil maintain {} --dry-run"),
    "failed_report": ("the report on dead letters failed", "frazil dead-letters report {}"),
    "failed_replay": ("the replay of dead letters failed", 'frazil dead-letters replay {} --reason "…" --dry-run'),
}
"""Title of each notice, and the command that shows more."""


def _chores(case: Case) -> Iterator[tuple[str, Notice | None]]:
    name = case.condition.pipeline
    for kind, (title, shown_by) in _CHORES.items():
        failure = case.chores.get(kind)
        if failure is None:
            yield kind, None
        else:
            step, cause = failure.next_step or shown_by.format(name), f"Run {failure.run}\n{failure.cause}"
            yield kind, _notice(case, kind, failure.severity, f"{name}: {title}", cause, step)


_RULES: Mapping[str, tuple[Severity, Callable[[Case], Verdict]]] = {
    "refused": ("critical", _refused),
    "unreadable": ("warning", _unreadable),
    "stale": ("critical", _stale),
    "lag": ("warning", _lag),
    "lag_growing": ("warning", _growing),
    "retention": ("critical", _retention),
}
"""Kind -> how urgent it is, and what says whether it holds. A failed run says both itself."""


def _notice(case: Case, kind: str, severity: Severity, title: str, cause: str, step: str) -> Notice:
    condition = case.condition
    return Notice(condition.pipeline, condition.owner, kind, severity, title, cause, step)


def _oldest(condition: Condition) -> str:
    return "" if condition.lag_seconds is None else f" The oldest has waited for {spoken(condition.lag_seconds)}."


def _instant(instant: datetime) -> str:
    return f"{instant:%Y-%m-%d %H:%M:%S} UTC"
