"""What a person may choose when starting a run by hand."""

from __future__ import annotations

from dataclasses import replace

from airflow.sdk import Param

from frazil.batch.cut import cut
from frazil.batch.plan import PlannedTopic, RunPlan

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
        FROM: _place(
            "From",
            f"Where a replay or a dry run begins: {_PLACES}. Empty: a dry run begins at the position, as an ingest run"
            " always does. In a backfill it stays empty: its intervals say it.",
        ),
        TO: _place("To", "Where the run ends at the latest, written alike. Empty: at the end of what there is."),
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


def _place(title: str, description: str) -> Param:
    return Param(None, type=["null", "string"], pattern=_PLACE, title=title, description=description)


def limited(plan: RunPlan, max_records: int | None) -> RunPlan:
    """Return the plan with its ends drawn in, so that it reads at most `max_records` offsets.

    Every partition advances in proportion to what it has. What is cut off stays for the next run.
    """
    if max_records is None or plan.records <= max_records:
        return plan
    ends = {(r.topic, r.partition): r.end for r in next(cut(plan.ranges, max_records))}
    topics = {name: _ending(name, topic, ends) for name, topic in plan.topics.items()}
    return replace(plan, topics=topics, complete=False)


def _ending(name: str, topic: PlannedTopic, ends: dict[tuple[str, int], int]) -> PlannedTopic:
    return replace(topic, end=tuple(ends.get((name, number), begin) for number, begin in enumerate(topic.begin)))
