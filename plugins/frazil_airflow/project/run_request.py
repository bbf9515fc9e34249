"""Turns a DAG run's type, data interval and params into the request of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Protocol

from airflow.sdk import Param

from frazil.batch.plan import RunPlan, cut
from frazil.batch.position import Mode, RunRequest, Target, parse_offsets, parse_target
from frazil.error_codes import BAD_ARGUMENT
from frazil.pipeline.models.pipeline_file import Pipeline

MODE, FROM, TO, REASON, MAX_RECORDS = "mode", "from", "to", "reason", "max_records"

_MODES = {
    "ingest": "Ingest: land what is new",
    "replay": "Replay: land a range again, in place of what it landed before",
    "dry_run": "Dry run: only count, land nothing",
}

_PLACE_PATTERN = r"^(\s*|earliest|latest|\s*\{[\s\S]*\}\s*|\d{4}-\d{2}-\d{2}([T ]\S+)?)$"
"""Roughly a place in topics. The task that plans the run checks the rest."""

_EXPECTED_PLACE = (
    "earliest, latest, an instant such as 2026-05-01T10:00:00+00:00 (UTC if it names no offset), or offsets per partition"
    ' such as {"orders": {"0": 1200, "1": 1180}}'
)


def params() -> dict[str, Param]:
    """Return the fields of the form that starts a run. Scheduled runs have the defaults."""
    return {
        MODE: Param(
            "ingest",
            type="string",
            enum=list(_MODES),
            values_display=_MODES,
            title="Mode",
            description="A backfill in mode ingest does nothing below the position: those records are landed.",
        ),
        FROM: _place_field(
            "From",
            f"Where a replay or a dry run begins: {_EXPECTED_PLACE}. Empty: a dry run begins at the position, as an ingest run"
            " always does. In a backfill it stays empty: its intervals are the range.",
        ),
        TO: _place_field("To", "Where the run ends at the latest, in the same form. Empty: at the end of the topics."),
        REASON: Param(
            None,
            type=["null", "string"],
            maxLength=500,
            title="Reason",
            description="Why this run, for people who read the ledger later: frazil history shows it.",
        ),
        MAX_RECORDS: Param(
            None,
            type=["null", "integer"],
            minimum=1,
            title="Records at most",
            description="For a first try with a few records: the next run goes on where this one ends. Empty: no limit. Not for"
            " a replay, whose range changes in one commit.",
        ),
    }


def _place_field(title: str, description: str) -> Param:
    return Param(None, type=["null", "string"], pattern=_PLACE_PATTERN, title=title, description=description)


def limit_records(plan: RunPlan, max_records: int | None) -> RunPlan:
    """Return the plan with earlier ends, so that it reads at most `max_records` offsets, in proportion from all partitions.

    The next run reads the rest.
    """
    if max_records is None or plan.records <= max_records:
        return plan
    ends = {
        (offset_range.topic, offset_range.partition): offset_range.end
        for offset_range in next(cut(plan.ranges, max_records))
    }
    topics = {
        name: replace(topic, end=tuple(ends.get((name, number), begin) for number, begin in enumerate(topic.begin)))
        for name, topic in plan.topics.items()
    }
    return replace(plan, topics=topics, complete=False)


BACKFILL = "backfill"
"""Run type of backfills. Their run id does not show it: a backfill of an existing run keeps the id `scheduled__…`."""

SCHEDULED = "scheduled"
"""Run type of runs that the schedule starts."""

CURRENT_STATES = ("queued", "running")
"""States of runs that read new records, now or soon."""

_REQUESTED_BY_PEOPLE = (BACKFILL, "manual")


class AirflowRun(Protocol):
    """The part of Airflow's DagRun, from a task's context, that Frazil reads."""

    run_id: str
    run_type: Any
    run_after: datetime
    triggering_user_name: str | None
    data_interval_start: datetime | None
    data_interval_end: datetime | None
    clear_number: int | None


def request_of(run: AirflowRun, params: Mapping[str, Any]) -> RunRequest:
    """Return the request of a run.

    Raises:
        Terminal: The params contradict each other, or name no place in a topic.
    """
    mode: Mode = params[MODE]
    start, end = (_place(params[name], name) for name in (FROM, TO))
    if run.run_type == BACKFILL:
        start, end = _interval(run, mode, named=bool(start or end))
    if mode == "replay":
        _check_replay(start, params[MAX_RECORDS])
    return RunRequest(
        run=_run_id(run, mode),
        started_by=started_by(run),
        mode=mode,
        start=start,
        end=end,
        reason=params[REASON] or None,
    )


def is_session(pipeline: Pipeline, run: AirflowRun) -> bool:
    """Whether a run is a session: scheduled runs are, manual runs and backfills are not."""
    return pipeline.session is not None and run.run_type == SCHEDULED


def started_by(run: AirflowRun) -> str:
    """Return what started a run, and for whom: such as `airflow:scheduled`, `airflow:manual:ana` or `airflow:backfill:ana`."""
    kind = f"airflow:{run.run_type.value}"
    user = run.triggering_user_name
    return f"{kind}:{user}" if user and run.run_type.value in _REQUESTED_BY_PEOPLE else kind


def _place(text: str | None, field: str) -> Target | None:
    if not text or not text.strip():
        return None
    text = text.strip()
    return parse_offsets(text, f"the field {field!r}") if text.startswith("{") else parse_target(text)


def _interval(run: AirflowRun, mode: Mode, *, named: bool) -> tuple[Target | None, Target]:
    """Start and end of a backfill: those of its data interval. A backfill in mode ingest starts at the position."""
    if named:
        raise BAD_ARGUMENT.terminal(
            f"a backfill has its intervals: {FROM!r} and {TO!r} can't be given as well",
            next_step="leave both empty, or start a single run with them",
        )
    start, end = (Target("timestamp", instant) for instant in (run.data_interval_start, run.data_interval_end))
    return (None if mode == "ingest" else start), end


def _check_replay(start: Target | None, max_records: int | None) -> None:
    if start is None:
        raise BAD_ARGUMENT.terminal(
            f"a replay needs to know where to begin: the field {FROM!r} is empty",
            next_step=f"fill in {FROM!r}: earliest, an instant such as 2026-05-01T10:00:00+00:00, or offsets as JSON",
        )
    if max_records is not None:
        raise BAD_ARGUMENT.terminal(
            f"a replay replaces its whole range in one commit: {MAX_RECORDS!r} does not apply to it",
            next_step=f"leave {MAX_RECORDS!r} empty and say with {TO!r} where to end",
        )


def _run_id(run: AirflowRun, mode: Mode) -> str:
    """The run id for the ledger. A replay that was cleared gets a new id, since the ledger would show the old one as done."""
    clear_number = run.clear_number if mode == "replay" else None
    return f"{run.run_id}#{clear_number}" if clear_number else run.run_id
