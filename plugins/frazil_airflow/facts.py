"""What a run did, as Airflow shows it: the extra of the asset event and the note of the run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from frazil.batch.plan import RunPlan
from frazil.run.result import RunResult

_NOTE_MARK = "Frazil: "
"""Begins our line of a note, so that another try replaces it and leaves the lines of people alone."""


def facts_of(result: RunResult, plan: RunPlan) -> dict[str, Any]:
    """Return the extra of the table's asset event.

    Snapshot ids are text: they have 64 bits, and JSON numbers are only safe up to 53.
    """
    return {
        "pipeline": result.pipeline,
        "run": result.run,
        "batches": result.batches,
        "read": result.read,
        "rows": result.written,
        "dead_letters": result.dead,
        "dead_codes": dict(result.dead_codes),
        "filtered": result.filtered,
        "position": {topic: list(offsets) for topic, offsets in result.position.items()},
        "snapshot_ids": [str(snapshot) for snapshot in result.snapshots],
        "complete_through": plan.planned_at if plan.complete else None,
        "seconds": result.seconds,
    }


def sentence(facts: Mapping[str, Any]) -> str:
    """Return the facts as one line for people."""
    batches = f"{facts['batches']} batch" + ("" if facts["batches"] == 1 else "es")
    dead = f"{facts['dead_letters']:,} dead letters"
    if facts["dead_codes"]:
        dead += " (" + ", ".join(f"{code} {count:,}" for code, count in sorted(facts["dead_codes"].items())) + ")"
    said = f"{facts['rows']:,} rows, {dead}, {facts['filtered']:,} filtered in {batches}, {facts['seconds']:.1f} s"
    through = facts["complete_through"]
    return f"{said}; complete through {through}" if through else said


def with_facts(note: str | None, said: str) -> str:
    """Return the note of a run, Markdown, with our paragraph at its end, in place of one we wrote before."""
    kept = "\n".join(line for line in (note or "").splitlines() if not line.startswith(_NOTE_MARK)).strip()
    return f"{kept}\n\n{_NOTE_MARK}{said}".strip()
