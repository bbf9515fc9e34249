"""Checks of a pipeline: its topics and what may be done with them, its position, its tables."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from frazil.doctor.finding import Check, Finding, State, findings_of, record_finding
from frazil.kafka.admin.observe import matching_topics
from frazil.kafka.admin.topics import NEEDED, TopicAccess, topic_access
from frazil.monitor.condition import Condition
from frazil.monitor.freshness import promise_of
from frazil.monitor.reading import read, table_health
from frazil.monitor.state import HEALTH, state_of
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.project import Project

_FAILED: Final = ("Refused", "Failed")
_SHAKY: Final = ("Degraded", "Behind", "Paused")

_STEPS: Final = {
    "Failed": "frazil history {0}; the failed run's log is in Airflow",
    "Degraded": "docs/operations.md, Runbooks; frazil lag {0}",
    "Behind": "frazil lag {0}; frazil run {0}",
    "Paused": "frazil resume {0}",
}


def pipeline_checks(project: Project, pipeline: Pipeline, *, has_cluster: bool) -> list[Check]:
    """The checks of one pipeline. If its cluster does not answer, checks of topics are left out."""
    name, tables, position = pipeline.name, f"tables of {pipeline.name}", f"position of {pipeline.name}"
    checks: list[Check] = [
        lambda: findings_of(tables, lambda: [tables_finding(tables, name, table_health(project, pipeline))])
    ]
    if has_cluster:
        checks.append(lambda: findings_of(f"topics of {name}", lambda: topics(project, pipeline)))
        checks.append(lambda: findings_of(position, lambda: [position_finding(read(project, pipeline), pipeline)]))
    return checks


def topics(project: Project, pipeline: Pipeline) -> Iterator[Finding]:
    """Whether the topics exist and may be read, and whether the newest timestamps show a wrong clock."""
    cluster, source = project.cluster(pipeline.source.cluster), pipeline.source
    names = source.topics if source.topics_pattern is None else matching_topics(cluster, source.topics_pattern)
    if not names:
        step = "a topic that appears is read from its beginning; is the pattern right, and may the topics be seen?"
        no_match = f"none matches {source.topics_pattern}"
        yield Finding(f"topics of {pipeline.name}", "warning", no_match, "a topic at least", step)
        return
    access = topic_access(cluster, names)
    yield access_finding(f"topics of {pipeline.name}", access)
    newest = max((topic.newest for topic in access.values() if topic.newest is not None), default=None)
    if newest is not None:
        yield record_finding(cluster.name, newest, datetime.now(UTC).timestamp())


def access_finding(check: str, access: dict[str, TopicAccess]) -> Finding:
    """Whether the credentials may do with topics what a pipeline does."""
    lacking = {
        name: sorted(NEEDED - topic.operations)
        for name, topic in access.items()
        if topic.operations is not None and not topic.operations >= NEEDED
    }
    if not lacking:
        partitions = sum(topic.partitions for topic in access.values())
        return Finding(check, "ok", f"{', '.join(access)}: {partitions} partitions, which may be read")
    lacks = "; ".join(f"{name}: no {' and no '.join(operations)}" for name, operations in lacking.items())
    step = f"have {' and '.join(sorted(NEEDED))} on {', '.join(lacking)} granted to the credentials of the settings"
    return Finding(check, "failed", lacks, " and ".join(sorted(NEEDED)), step)


def position_finding(condition: Condition, pipeline: Pipeline) -> Finding:
    """The finding for a pipeline's position, by its state."""
    check, name = f"position of {pipeline.name}", pipeline.name
    word, why = state_of(condition, promise_of(pipeline, condition.read_at))
    state: State = "failed" if word in _FAILED else "warning" if word in _SHAKY else "ok"
    if state == "ok":
        return Finding(check, state, why if condition.n is None else f"batch {condition.n}: {why}")
    expected = "a position that Kafka still has" if word == "Refused" else "Idle or Running"
    complaint = condition.refusal if word == "Refused" else condition.unreadable if word == "Degraded" else None
    step = _next_step(complaint) or _STEPS.get(word, "").format(name) or None
    return Finding(check, state, f"{word}: {why}", expected, step)


def _next_step(complaint: str | None) -> str | None:
    """The next step of an error that is text by now, see `frazil.errors`."""
    return None if complaint is None else complaint.partition("\n  next: ")[2] or None


def tables_finding(check: str, pipeline: str, scores: dict[str, int]) -> Finding:
    """Judge health scores, table by table."""
    if not scores:
        return Finding(check, "ok", "there are none yet: the first run makes them")
    shown = ", ".join(f"{table} {score}" for table, score in sorted(scores.items()))
    if min(scores.values()) >= HEALTH:
        return Finding(check, "ok", f"health of 100: {shown}")
    step = f"frazil maintain {pipeline} --dry-run says what is due; frazil maintain {pipeline} does it"
    return Finding(check, "warning", f"health of 100: {shown}", f"{HEALTH} or more", step)
