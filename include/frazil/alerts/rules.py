"""The rules of alerts: from the condition and the thresholds of a pipeline or capture to its problems, as pure functions.

For each kind of problem the result has a notice, or None if the problem does not exist. A kind is missing if that can't be
decided now: then notices about it stay as they are.
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

Problem = tuple[str, str, str]
"""Title, cause and next step."""

Verdict = Problem | Literal["unknown"] | None

_NEXT = "\n  next: "
_RETENTION_PART = 4
"""The alert comes no earlier than when one part in so many of the retention is left, even if `retention_left` is longer."""


@dataclass(frozen=True, slots=True)
class Case:
    """The facts about one pipeline or capture that the rules judge.

    Attributes:
        alerts: Thresholds of the file.
        objective: Freshness objective: greatest age of the instant through which the pipeline is complete.
        interval: Time between the last run that was due and the next; at least two checks of the monitor.
        fewest: The fewest unread records in each span that has ended, the newest last.
        failure: The stored failure of the last failed run of ingestion or capture, if any.
        chores: Kind -> stored failure of maintenance, dead-letter report and dead-letter replay; None if the last run succeeded.
    """

    condition: Condition
    alerts: Alerts
    objective: timedelta
    interval: timedelta
    fewest: Sequence[int] = ()
    failure: Failure | None = None
    chores: Mapping[ChoreKind, Failure | None] = field(default_factory=dict)


def judge(case: Case) -> dict[str, Notice | None]:
    """Decide for each kind of problem whether the pipeline has it; undecidable kinds are left out."""
    notices: dict[str, Notice | None] = {}
    for kind, (severity, rule) in _RULES.items():
        verdict = rule(case)
        if verdict != "unknown":
            notices[kind] = None if verdict is None else _notice(case, kind, severity, *verdict)
    run_notices = dict(_failed_run(case))
    if (problem := _tables_not_created(case)) is not None and run_notices.get("tolerance") is None:
        run_notices["tolerance"] = _notice(case, "tolerance", "warning", *problem)
    elif case.failure is None and case.condition.unreadable is None:  # ends a notice about tables that were not created
        run_notices.setdefault("tolerance", None)
    return notices | run_notices | dict(_chores(case))


def _tables_not_created(case: Case) -> Problem | None:
    """Whether records named more tables than may be created. The runs landed the other records, so no run failed."""
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


def _error(condition: Condition, title: str, error: str) -> Problem:
    cause, _, step = error.partition(_NEXT)
    return f"{condition.title}: {title}", cause, step or _show_command(condition, "lag")


def _show_command(condition: Condition, command: str) -> str:
    """The command that shows more about a pipeline or a capture."""
    if condition.is_capture:
        return f"frazil {condition.title} --dry-run"
    return f"frazil {command} {condition.pipeline}"


def _is_waiting_time_unknown(condition: Condition) -> bool:
    """Whether it is unknown how long records have waited, because Kafka answered only in part or not at all."""
    is_partial = bool(condition.lag) and condition.lag_seconds is None and condition.unreadable is not None
    return (condition.lag_seconds if condition.unit == "rows" else condition.lag) is None or is_partial


def _stale(case: Case) -> Verdict:
    condition = case.condition
    if _is_waiting_time_unknown(condition):
        return "unknown"
    through = _complete_through(condition)
    if condition.runs.is_paused or condition.n is None or through is None:
        return None
    age = condition.read_at - through
    if age <= case.objective:
        return None
    what, unread = (
        ("The topic has everything", f"{waiting(condition)}.")
        if condition.is_capture
        else ("The tables are complete", f"{condition.lag:,} records are not read yet.")
    )
    cause = (
        f"{what} only through {_instant(through)}, {spoken(age.total_seconds())} before {_instant(condition.read_at)}; the"
        f" freshness objective is {spoken(case.objective.total_seconds())}. {unread}"
    )
    title = f"{condition.title}: stale for {spoken((age - case.objective).total_seconds())}"
    return title, cause, _show_command(condition, "history")


def _complete_through(condition: Condition) -> datetime | None:
    """The instant through which the pipeline is complete: the time of the reading, if nothing is unread."""
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
    return f"{condition.title}: {waiting(condition)}", cause, _show_command(condition, "lag")


def _growing(case: Case) -> Verdict:
    condition = case.condition
    if _is_waiting_time_unknown(condition):
        return "unknown"
    last = case.fewest[-case.alerts.growing_intervals - 1 :]
    grows = len(last) > case.alerts.growing_intervals and all(a < b for a, b in pairwise(last))
    # While runs keep up, no record waits for two intervals: then a growing number means nothing.
    waits = condition.lag_seconds is None or condition.lag_seconds > 2 * case.interval.total_seconds()
    if not grows or not waits or condition.runs.is_paused:
        return None
    cause = (
        f"Smallest number of unread {condition.unit} in each interval: {', '.join(f'{count:,}' for count in last)}. More arrive"
        f" than are read.{_oldest(condition)}"
    )
    return f"{condition.title}: lag is growing, {waiting(condition)}", cause, _show_command(condition, "lag")


def _retention(case: Case) -> Verdict:
    condition = case.condition
    if _is_waiting_time_unknown(condition):
        return "unknown"
    least = parse_age(case.alerts.retention_left).total_seconds()
    urgent = [retention for retention in condition.retention if _is_near(retention, least)]
    if not urgent:
        return None
    first = urgent[0]
    lines = [_retention_text(retention) for retention in urgent[:20]]
    if urgent[20:]:
        lines.append(f"and {len(urgent) - 20} more")
    deletes = "will soon delete" if first.headroom >= 0 else "deleted"
    title = f"{condition.pipeline}: Kafka's retention {deletes} unread records of {first.topic}/{first.partition}"
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
    return retention.seconds_left < min(least, retained_seconds / _RETENTION_PART)


def _retention_text(retention: Retention) -> str:
    where = f"topic {retention.topic}, partition {retention.partition}"
    if retention.headroom < 0:
        return f"{where}: {-retention.headroom:,} unread offsets are deleted"
    return f"{where}: {spoken(retention.seconds_left or 0.0)} left until unread records are deleted"


def _failed_run(case: Case) -> Iterator[tuple[str, Notice | None]]:
    failure = _present_failure(case)
    notice = None
    if failure is not None:
        condition = case.condition
        runs = max(1, condition.runs.failures or 1)
        repeated = "" if runs == 1 else f", {runs} times in a row"
        title, cause = f"{condition.title}: {_TITLES[failure.kind]}{repeated}", f"Run {failure.run}\n{failure.cause}"
        step = failure.next_step or _show_command(condition, "history")
        notice = _notice(case, failure.kind, failure.severity, title, cause, step)
    # Without Airflow's runs, the tables show the end of a stored failure. Without a stored failure, nothing does.
    is_over = _is_over(case) if case.failure is not None else case.condition.runs.failures is not None
    if failure is not None or case.condition.runs.last_state is not None or is_over:
        yield from ((kind, notice if notice is not None and notice.kind == kind else None) for kind in RUN_KINDS)


_TITLES = {
    "failed_run": "a run failed",
    "tolerance": "too many dead letters, nothing was published",
    "conflict": "other commits kept a run from landing anything",
}


def _present_failure(case: Case) -> Failure | None:
    """The failure for a notice; None if no run failed, or fewer than `alerts.failures`."""
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
    is_counted = runs.failures is not None  # else this failure may be the last of several
    return None if is_counted and case.alerts.failures > 1 else failure


def _is_over(case: Case) -> bool:
    """Whether a later run did the work of the failed one: by Airflow's run states, or else by the tables."""
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
"""Kind -> title of its notice, and the command that shows more."""


def _chores(case: Case) -> Iterator[tuple[str, Notice | None]]:
    name = case.condition.pipeline
    for kind, (title, command) in _CHORES.items():
        failure = case.chores.get(kind)
        if failure is None:
            yield kind, None
        else:
            step, cause = failure.next_step or command.format(name), f"Run {failure.run}\n{failure.cause}"
            yield kind, _notice(case, kind, failure.severity, f"{name}: {title}", cause, step)


_RULES: Mapping[str, tuple[Severity, Callable[[Case], Verdict]]] = {
    "refused": ("critical", _refused),
    "unreadable": ("warning", _unreadable),
    "stale": ("critical", _stale),
    "lag": ("warning", _lag),
    "lag_growing": ("warning", _growing),
    "retention": ("critical", _retention),
}
"""Kind -> severity and rule, except for the kinds of failed runs, whose stored failure has both."""


def _notice(case: Case, kind: str, severity: Severity, title: str, cause: str, step: str) -> Notice:
    condition = case.condition
    return Notice(condition.pipeline, condition.owner, kind, severity, title, cause, step)


def _oldest(condition: Condition) -> str:
    return "" if condition.lag_seconds is None else f" The oldest has waited for {spoken(condition.lag_seconds)}."


def _instant(instant: datetime) -> str:
    return f"{instant:%Y-%m-%d %H:%M:%S} UTC"
