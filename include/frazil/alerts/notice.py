"""The notice of a report on dead letters."""

from __future__ import annotations

from collections.abc import Iterator

from frazil.pipeline.channels import Notice
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.report.dead_letters_summary import LetterGroup, batch_range, counted
from frazil.report.letter_reports import KeptReport

_LINES = 10
"""Groups that a notice names; the page has all."""


def letters_notice(pipeline: Pipeline, report: KeptReport, page: str, link: str | None) -> Notice:
    """The notice of a report."""
    return Notice(
        pipeline=pipeline.name,
        owner=pipeline.owner,
        kind="dead_letters",
        severity="warning",
        title=f"{pipeline.name}: {counted(report.count)} new in {batch_range(report.after, report.through)}",
        cause="\n".join(_lines(report)),
        next_step=f"frazil dead-letters list {pipeline.name}",
        link=link,
        html=page,
        report=report.name,
    )


def _lines(report: KeptReport) -> Iterator[str]:
    yield f"{report.open:,} of {report.count:,} are open; {report.before:,} in the period before"
    yield from map(_line, report.groups[:_LINES])
    if more := report.groups[_LINES:]:
        yield f"and {sum(group.count for group in more):,} of {len(more)} other kinds"


def _line(group: LetterGroup) -> str:
    table = f" of table {group.destination}" if group.destination else ""
    return f"{group.count:,} {group.code} in {group.topic}{table} ({group.before:,} before)"
