"""What people are told of new dead letters."""

from __future__ import annotations

from collections.abc import Iterator

from frazil.alerts.notice import Notice
from frazil.pipeline.model import Pipeline
from frazil.report.dead_letters_page import counted
from frazil.report.letter_reports import KeptGroup, KeptReport

_LINES = 10
"""Groups that a notice names; the page has all."""


def letters_notice(pipeline: Pipeline, kept: KeptReport, page: str, link: str | None) -> Notice:
    """The notice of a report.

    Args:
        pipeline: The pipeline.
        kept: The report.
        page: Its page.
        link: Where the page is, if it can be said.
    """
    which = f"batch {kept.through}" if kept.through == kept.after + 1 else f"batches {kept.after + 1} to {kept.through}"
    return Notice(
        pipeline=pipeline.name,
        owner=pipeline.owner,
        kind="dead_letters",
        severity="warning",
        title=f"{pipeline.name}: {counted(kept.count)} new in {which}",
        cause="\n".join(_lines(kept)),
        next_step=f"frazil dead-letters list {pipeline.name}",
        link=link,
        html=page,
        report=kept.name,
    )


def _lines(kept: KeptReport) -> Iterator[str]:
    yield f"{kept.open:,} of {kept.count:,} are open; {kept.before:,} in the period before"
    yield from map(_line, kept.groups[:_LINES])
    if more := kept.groups[_LINES:]:
        yield f"and {sum(of.count for of in more):,} of {len(more)} other kinds"


def _line(of: KeptGroup) -> str:
    table = f" of table {of.destination}" if of.destination else ""
    return f"{of.count:,} {of.code} in {of.topic}{table} ({of.before:,} before)"
