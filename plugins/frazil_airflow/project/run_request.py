"""Builds the request of a DAG run from its type, its interval and its params."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Protocol

from airflow.sdk import Param

from frazil.batch.plan import PlannedTopic, RunPlan, cut
from frazil.batch.position import Mode, RunRequest, Target, parse_offsets, parse_target
from frazil.error_codes import BAD_ARGUMENT
from frazil.pipeline.models.pipeline_file import Pipeline

MODE, FROM, TO, REASON, MAX_RECORDS = "mode", "from", "to", "reason", "max_records"

_MODES = {
    "ingest": "Ingest: land what is new",
    "replay": "Replay: land a range again, in place of what it landed before",
    "dry_run": "Dry run: only look, land nothing",
}

_PLACE = r"^(\s*|earliest|latest|\s*\{[\s\S]*\}\s*|\d{4}-\d{2}-\d{2}([T ]\S+)?)$"
"""A place in topics, as far as a pattern can tell: the rest is checked when the run is planned."""

_PLACES = (
    "earliest, latest, an instant such as 2026-05-01T10:00:00+00:00 (UTC if it names no offset), or offsets per partition"
    ' such as {"orders": {"0": 1200, "1": 1180}}'
)


def params() -> dict[str, Param]:
    """Return the fields of the trigger form. Scheduled runs take the defaults."""
    return {
        MODE: Param(
            "ingest",
            type="string",
            enum=list(_MODES),
            values_display=_MODES,
            title="Mode",
            description="A backfill that ingests does nothing below the position: what is landed is landed.",
        ),
        FROM: _place_field(
            "From",
            f"Where a replay or a dry run begins: {_PLACES}. Empty: a dry run begins at the position, as an ingest run"
            " always does. In a backfill it stays empty: its intervals say it.",
        ),
        TO: _place_field("To", "Where the run ends at the latest, written alike. Empty: at the end of what there is."),
        REASON: Param(
            None,
            type=["null", "string"],
            maxLength=500,
            title="Reason",
            description="Why, for whoever reads the ledger later: frazil history shows it.",
        ),
        MAX_RECORDS: Param(
            None,
            type=["null", "integer"],
            minimum=1,
            title="Records at most",
            description="For a careful first look: the next run goes on where this one ends. Empty: no limit. Not for"
            " a replay, whose range changes in one commit.",
        ),
    }


def _place_field(title: str, description: str) -> Param:
    return Param(None, type=["null", "string"], pattern=_PLACE, title=title, description=description)


def limit_records(plan: RunPlan, max_records: int | None) -> RunPlan:
    """Return the plan with its ends drawn in, so that it reads at most `max_records` offsets.

    Every partition advances in proportion to what it has. What is cut off stays for the next run.
    """
    if max_records is None or plan.records <= max_records:
        return plan
    ends = {
        (offset_range.topic, offset_range.partition): offset_range.end
        for offset_range in next(cut(plan.ranges, max_records))
    }
    topics = {name: _ending(name, topic, ends) for name, topic in plan.topics.items()}
    return replace(plan, topics=topics, complete=False)


def _ending(name: str, topic: PlannedTopic, ends: dict[tuple[str, int], int]) -> PlannedTopic:
    return replace(topic, end=tuple(ends.get((name, number), begin) for number, begin in enumerate(topic.begin)))


BACKFILL = "backfill"
"""Run type. Airflow may make a backfill of a run that exists: its id says `scheduled` then, its type does not."""

SCHEDULED = "scheduled"
"""Run type of what the schedule makes."""

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
        Terminal: What was filled in does not fit together, or names no place in a topic.
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
    """Return who or what started a run, such as `airflow:scheduled`, `airflow:manual:ana` or `airflow:backfill:ana`."""
    kind = f"airflow:{run.run_type.value}"
    user = run.triggering_user_name
    return f"{kind}:{user}" if user and run.run_type.value in _REQUESTED_BY_PEOPLE else kind


def _place(text: str | None, field: str) -> Target | None:
    if not text or not text.strip():
        return None
    text = text.strip()
    return parse_offsets(text, f"the field {field!r}") if text.startswith("{") else parse_target(text)


def _interval(run: AirflowRun, mode: Mode, *, named: bool) -> tuple[Target | None, Target]:
    """The request of a backfill: catch up through its interval, replay it, or preview it."""
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
    """The id of a replay's run, under which the ledger shows it as done. A cleared or repeated backfill gets a new id."""
    clear_number = run.clear_number if mode == "replay" else None
    return f"{run.run_id}#{clear_number}" if clear_number else run.run_id
