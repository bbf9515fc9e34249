"""One message to people, before it takes the shape of a mail, a chat message or a page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from frazil.pipeline.models.alerts import Severity
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.report.dead_letters_page import batch_range, counted
from frazil.report.dead_letters_summary import LetterGroup
from frazil.report.letter_reports import KeptReport


@dataclass(frozen=True, slots=True)
class Notice:
    """A message to people about one pipeline.

    Attributes:
        kind: What it is about: a name of the field's, as `failed_run` or `dead_letters`; begins the deduplication key.
        severity: How urgent it is.
        title: One line.
        cause: The cause, with coordinates, expected and found.
        next_step: The next command, or None.
        link: Where to look, or None.
        recovered: Whether this notice says that an earlier trouble is over.
        html: The whole message as a page of its own, for mail; None: made from the rest.
        report: Name of the report in this notice, or None. Each report is a new notice, no repetition.
    """

    pipeline: str
    owner: str
    kind: str
    severity: Severity
    title: str
    cause: str
    next_step: str | None = None
    link: str | None = None
    recovered: bool = False
    html: str | None = None
    report: str | None = None

    @property
    def key(self) -> str:
        """A key that all notices of one trouble share, including the notice of its end."""
        subject = f"{self.kind}/{self.pipeline}"
        return subject if self.report is None else f"{subject}/{self.report}"

    @property
    def runbook(self) -> str:
        """Path, within the project, of the documentation that says what to do about this kind of trouble."""
        return f"docs/operations.md#{self.kind}"


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
