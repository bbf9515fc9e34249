"""What a person may choose when starting a run by hand."""

from __future__ import annotations

from dataclasses import replace

from airflow.sdk import Param

from frazil.batch.plan import PlannedTopic, RunPlan, cut

MAX_RECORDS = "max_records"


def params() -> dict[str, Param]:
    """Return the fields of the trigger form. Scheduled runs take the defaults."""
    limit = Param(
        None,
        type=["null", "integer"],
        minimum=1,
        title="Records at most",
        description="Read no more records than this in this run, for a careful first look. The next run goes on there."
        " Empty: everything up to the end of the topics.",
    )
    return {MAX_RECORDS: limit}


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
